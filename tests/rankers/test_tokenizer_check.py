"""Tokenizers of known families pass; those that make too much of a text, or that are unknown, are refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.tiny import make_tokenizer
from unrank.errors import BadFile
from unrank.rankers.tokenizer_check import check_tokenizer

SPACE = "▁"


def bert() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tokenizer


def roberta() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE({"a": 0}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return tokenizer


def xlm_roberta() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0))
    replace = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), replace])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return tokenizer


def llama() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE({"a": 0}, [], byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    return tokenizer


def qwen() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE({"a": 0}, []))
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(), make_template()])
    return tokenizer


def make_template() -> Any:
    return processors.TemplateProcessing(single="$A <s>", pair="$A <s> $B <s>", special_tokens=[("<s>", 1)])


def checked(value: dict[str, Any]) -> None:
    check_tokenizer(Path("tokenizer.json"), value)


@pytest.mark.parametrize("family", [bert, roberta, xlm_roberta, llama, qwen])
def test_known_families(family: Any) -> None:
    for known in (family(), make_tokenizer().backend_tokenizer):
        value = json.loads(known.to_str())
        checked(value)
        with pytest.raises(BadFile):
            checked({**value, "model": {**value["model"], "type": "Unknown"}})


def sequence(kind: str, *steps: dict[str, Any]) -> dict[str, Any]:
    name = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}[kind]
    return {kind: {"type": "Sequence", name: list(steps)}}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (sequence("normalizer", *[{"type": "ByteLevel"}] * 7), "128 times as long; at most 64"),
        ({"normalizer": {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "a" * 64}}, "65 times as long"),
        ({"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "a" * 99}}, "100 times as long"),
        (sequence("pre_tokenizer", sequence("pre_tokenizer", *[{"type": "Metaspace"}] * 9)["pre_tokenizer"]), "512"),
        (sequence("normalizer", *[{"type": "NFC"}] * 33), "33 steps; at most 32"),
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 65}}, "a long text before every text"),
        ({"normalizer": {"type": "Python"}}, "a normalizer of type 'Python'"),
        ({"pre_tokenizer": {"type": "Python"}}, "a pre_tokenizer of type 'Python'"),
        ({"post_processor": {"type": "Python"}}, "a post_processor of type 'Python'"),
        ({"model": {"type": "Python"}}, "a tokenizer of type 'Python'"),
        ({"model": {"type": "WordPiece", "continuing_subword_prefix": "#" * 99}}, "a long text to every part"),
        ({"model": {"type": "WordPiece", "max_input_chars_per_word": 10**9}}, "words of more than 10,000"),
        ({"padding": {"strategy": {"Fixed": 2**40}}}, "pads a text to more than 131,072"),
        ({"padding": {"strategy": "BatchLongest", "pad_to_multiple_of": 2**40}}, "pads a text"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "!"}}, "is damaged"),
        ({"normalizer": "NFC"}, "not a tokenizer"),
        ({"model": None}, "not a tokenizer"),
    ],
)
def test_what_is_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadFile, match=problem) as refused:
        checked(json.loads(bert().to_str()) | values)
    assert str(refused.value).startswith("tokenizer.json: cannot be loaded: ")


def test_a_template_adds_a_few_tokens() -> None:
    value = json.loads(qwen().to_str())
    template = value["post_processor"]["processors"][1]
    template["special_tokens"]["<s>"] |= {"ids": [1] * 40, "tokens": ["<s>"] * 40}
    with pytest.raises(BadFile, match="adds more than 32 tokens"):
        checked(value)
    template["special_tokens"] = {}
    template["single"] *= 2
    with pytest.raises(BadFile, match="repeats a text"):
        checked(value)


def test_a_map_of_characters() -> None:
    def mapped(text: bytes) -> dict[str, Any]:
        packed = base64.b64encode((4).to_bytes(4, "little") + b"\0\0\0\0" + b"a\0" + text + b"\0").decode()
        value: dict[str, Any] = json.loads(bert().to_str())
        return value | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": packed}}

    with pytest.raises(BadFile, match="writes a long text for one character"):
        checked(mapped(b"b" * 1_000))
    checked(mapped(b"bc"))
