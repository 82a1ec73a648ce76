"""Encoders for benchmarks: the default one, a folder, or one of a common size with random weights."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

from unrank.rankers.encoder import find_encoder

RANDOM = {"distilbert": "distilbert", "bert-base": "bert"}
"""Encoders that can be made with random weights (66 and 110 million), and the model type of each."""


def encoder_folder(base: str | None, tokenizer: str | None, within: Path) -> Path:
    """Return the folder of an encoder; make it in `within` if its weights are random, with the tokenizer of another."""
    if base not in RANDOM:
        return find_encoder(base)
    folder = within / base
    words = AutoTokenizer.from_pretrained(str(find_encoder(tokenizer)), local_files_only=True)
    if base == "distilbert":
        words.model_input_names = ["input_ids", "attention_mask"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModel.from_config(AutoConfig.for_model(RANDOM[base], vocab_size=len(words))).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder
