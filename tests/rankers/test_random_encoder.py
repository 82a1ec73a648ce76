"""The encoder of random weights: it knows every word of its collection, and is the same each time."""

from __future__ import annotations

from pathlib import Path

from tests.tiny import make_learnable_beir
from unrank.collection.build import import_collection
from unrank.disk import sha256
from unrank.rankers.encoder import checked_encoder
from unrank.rankers.random_encoder import SIZES, write_random_encoder


def test_it_knows_every_word_and_is_the_same_each_time(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer

    make_learnable_beir(tmp_path / "data", articles=4)
    collection = import_collection(f"beir:{tmp_path / 'data'}", tmp_path / "collection")
    first, second = (write_random_encoder(tmp_path / name, collection) for name in ("first", "second"))
    assert sha256(first / "model.safetensors") == sha256(second / "model.safetensors")
    tokenizer = AutoTokenizer.from_pretrained(checked_encoder(str(first)))
    tokens = tokenizer([collection.documents.text(0), collection.queries.text(0)])["input_ids"]
    assert all(len(row) > 2 and tokenizer.unk_token_id not in row for row in tokens)
    wide = write_random_encoder(tmp_path / "wide", collection, {**SIZES, "hidden_size": 64})
    assert AutoConfig.from_pretrained(wide).hidden_size == 64
