"""An encoder of random weights that knows the words of one collection: for demos that need nothing to download."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unrank.collection.collection import Collection
from unrank.rankers.model_folder import quiet

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
LONGEST = 64
"""The most tokens of a text that it reads."""
SEED = 7


def write_random_encoder(folder: Path, collection: Collection, sizes: Mapping[str, int] = SIZES) -> Path:
    """Write an encoder of these sizes with random weights, and a tokenizer whose vocabulary is that of a collection."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    cut = pre_tokenizers.Whitespace()
    texts = [texts.text(row) for texts in (collection.queries, collection.documents) for row in range(len(texts))]
    words = sorted({word for text in texts for word, _ in cut.pre_tokenize_str(text.lower())})
    rows = {word: row for row, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordPiece(rows, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = cut
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, rows[name]) for name in ("[CLS]", "[SEP]")],
    )
    names = {f"{name[1:-1].lower()}_token": name for name in SPECIAL}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=LONGEST, **names).save_pretrained(folder)
    with torch.random.fork_rng(), quiet():
        torch.manual_seed(SEED)
        config = AutoConfig.for_model("bert", vocab_size=len(rows), max_position_embeddings=LONGEST, **sizes)
        AutoModel.from_config(config).save_pretrained(folder)
    return folder
