"""Encoders for benchmarks: the default one, a folder, or an encoder or decoder of a common size with random weights."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer

from unrank.rankers.encoder import find_encoder
from unrank.rankers.trial import note_own

QWEN = {
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
    "num_key_value_heads": 2, "max_position_embeddings": 4096, "tie_word_embeddings": True,
}  # fmt: skip
SMALL = {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "max_position_embeddings": 2048, "tie_word_embeddings": True,
}  # fmt: skip
TINY = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 4096, "tie_word_embeddings": True,
}  # fmt: skip
DECODERS = {"qwen2-1.5b": QWEN, "llama-135m": SMALL, "qwen2-tiny": TINY}
"""The sizes of decoders that can be made with random weights: Qwen2.5's of 1.5 billion, SmolLM2's of 135 million (less
its words), and a tiny one."""
RANDOM = {"distilbert": "distilbert", "bert-base": "bert", **{name: name.split("-")[0] for name in DECODERS}}
"""Encoders (66 and 110 million) and decoders that can be made with random weights, and the model type of each."""


def encoder_folder(base: str | None, tokenizer: str | None, within: Path) -> Path:
    """Return the folder of an encoder; make it in `within` if its weights are random, with the tokenizer of another."""
    if base not in RANDOM:
        return find_encoder(base)
    folder = within / base
    words = AutoTokenizer.from_pretrained(str(find_encoder(tokenizer)), local_files_only=True)
    if base == "distilbert":
        words.model_input_names = ["input_ids", "attention_mask"]
    rows = -(-(len(words) + 1) // 64) * 64 if base in DECODERS else len(words)  # a library may add a token
    config = AutoConfig.for_model(RANDOM[base], vocab_size=rows, **DECODERS.get(base, {}))
    made_on = torch.device("cuda" if torch.cuda.is_available() and base in DECODERS else "cpu")
    with torch.random.fork_rng(), made_on:
        torch.manual_seed(0)
        if base in DECODERS:
            AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
        else:
            AutoModel.from_config(config).save_pretrained(folder)
    words.save_pretrained(folder)
    if base in DECODERS:
        note_own(folder, {})  # its trial on a CPU would take long
    return folder
