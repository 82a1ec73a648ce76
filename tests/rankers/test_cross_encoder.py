"""The cross-encoder scores as sentence-transformers' own `CrossEncoder` does, before its activation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import CrossEncoder
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from tests.rankers.conftest import enliven
from tests.tiny import SPECIAL, WORDS, make_tokenizer
from unrank.errors import UnrankError
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.cross_encoder import CrossEncoderRanker
from unrank.rankers.tokenisation import TEXTS, PairTemplate, cut_pairs
from unrank.rankers.tokens import Tokens

LONG, LONGER = "ba cel dir fos gu " * 14, "han kel mi no " * 60
pytestmark = pytest.mark.usefixtures("untried")
PAIRS = [
    ("ba be", "ce di fo gu"),
    ("", "ba be"),
    ("ba be", ""),
    ("", ""),
    ("xyzzy", "ba"),
    ("ba be", LONGER),
    (LONGER, "ba be"),
    (LONG, LONGER),
    ("ba cel " * 15, "dir fos " * 16),
    ("ba cel " * 16, "dir fos " * 15),
]


def predicted(folder: Path, pairs: list[tuple[str, str]] = PAIRS) -> Any:
    return CrossEncoder(str(folder), device="cpu").predict(pairs, activation_fn=nn.Identity())


def scored(ranker: Ranker, pairs: list[tuple[str, str]] = PAIRS) -> list[float]:
    return ranker.score_texts([query for query, _ in pairs], [document for _, document in pairs])


def assert_equal_to_predict(folder: Path, pairs: list[tuple[str, str]] = PAIRS) -> None:
    expected = predicted(folder, pairs)
    assert np.std(expected) > 0.02
    np.testing.assert_allclose(scored(load_ranker(folder), pairs), expected, atol=1e-5)


def with_token_types(folder: Path) -> None:
    """Let the tokenizer hand the encoder which side a token is on, as BERT's own does."""
    names = ["input_ids", "token_type_ids", "attention_mask"]
    make_tokenizer().save_pretrained(folder)
    AutoTokenizer.from_pretrained(folder, model_input_names=names).save_pretrained(folder)


def randomised(model: Any) -> Any:
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    return model.eval()


def save_roberta(folder: Path, positions: int = 66) -> None:
    """A tiny RoBERTa, which joins a pair as `<s> a </s></s> b </s>` and knows no token types."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary = {word: row for row, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), special, strict=True))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token="<s>", sep_token="</s>", model_max_length=positions - 2, **names
    )
    fast.save_pretrained(folder)
    config = RobertaConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=positions, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        num_labels=1,
    )  # fmt: skip
    randomised(RobertaForSequenceClassification(config)).save_pretrained(folder)


def test_scores_equal_predict(folders: dict[str, Path]) -> None:
    assert_equal_to_predict(folders["cross-encoder"])


def test_scores_equal_predict_where_the_tokenizer_tells_the_sides_apart(encoder: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(encoder, base)
    with_token_types(base)
    ranker = enliven(create_ranker("cross-encoder", str(base), seed=0))
    ranker.save(tmp_path / "ranker")
    assert_equal_to_predict(tmp_path / "ranker")
    bare = tmp_path / "bare"
    shutil.copytree(tmp_path / "ranker", bare)
    make_tokenizer().save_pretrained(bare)
    assert np.abs(np.subtract(scored(load_ranker(bare)), scored(ranker))).max() > 0.01


def test_a_pair_is_joined_as_roberta_joins_it(tmp_path: Path) -> None:
    save_roberta(tmp_path)
    assert_equal_to_predict(tmp_path)
    ranker = load_ranker(tmp_path)
    assert isinstance(ranker, CrossEncoderRanker)
    inputs = ranker._template.join(ranker.tokenize(["ba"], "query"), ranker.tokenize(["be bi"], "document"))
    features = inputs.padded(ranker.device)
    ids = features["input_ids"][0].tolist()
    assert ids == [0, 5, 2, 2, 6, 7, 2, 1]
    assert AutoTokenizer.from_pretrained(tmp_path)("ba", "be bi")["input_ids"] == ids[:7]
    assert "token_type_ids" not in features


def test_a_sigmoid_is_read_before_it_and_left_in_place(folders: dict[str, Path], tmp_path: Path) -> None:
    model = CrossEncoder(str(folders["cross-encoder"]), device="cpu", activation_fn=nn.Sigmoid())
    model.save_pretrained(str(tmp_path / "sigmoid"))
    squashed = CrossEncoder(str(tmp_path / "sigmoid"), device="cpu").predict(PAIRS)
    ranker = load_ranker(tmp_path / "sigmoid")
    raw = np.array(scored(ranker))
    assert (raw < 0).any()
    np.testing.assert_allclose(1 / (1 + np.exp(-raw)), squashed, atol=1e-5)
    np.testing.assert_allclose(raw, predicted(folders["cross-encoder"]), atol=1e-5)
    ranker.save(tmp_path / "again")
    np.testing.assert_allclose(CrossEncoder(str(tmp_path / "again"), device="cpu").predict(PAIRS), squashed, atol=1e-6)


def test_a_plain_sequence_classifier_is_a_cross_encoder(tmp_path: Path) -> None:
    """What transformers alone wrote, with no file of sentence-transformers."""
    config = BertConfig(
        vocab_size=len(WORDS) + len(SPECIAL), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64, num_labels=1,
    )  # fmt: skip
    randomised(BertForSequenceClassification(config)).save_pretrained(tmp_path)
    with_token_types(tmp_path)
    assert_equal_to_predict(tmp_path)


def test_three_labels_are_refused(encoder: Path, tmp_path: Path) -> None:
    CrossEncoder(str(encoder), num_labels=3, device="cpu").save_pretrained(str(tmp_path / "three"))
    with pytest.raises(UnrankError, match="3 outputs; a ranker has exactly one"):
        load_ranker(tmp_path / "three")


def test_a_query_prompt_is_kept(folders: dict[str, Path], tmp_path: Path) -> None:
    model = CrossEncoder(
        str(folders["cross-encoder"]), device="cpu", prompts={"rank": "han kel "}, default_prompt_name="rank"
    )
    model.save_pretrained(str(tmp_path / "prompted"))
    pairs = PAIRS[:5]
    assert_equal_to_predict(tmp_path / "prompted", pairs)
    assert np.abs(predicted(tmp_path / "prompted", pairs) - predicted(folders["cross-encoder"], pairs)).max() > 0.01


def test_a_shorter_limit_of_the_folder_is_kept(folders: dict[str, Path], tmp_path: Path) -> None:
    model = CrossEncoder(str(folders["cross-encoder"]), device="cpu")
    model.max_seq_length = 21
    model.save_pretrained(str(tmp_path / "short"))
    assert_equal_to_predict(tmp_path / "short")
    load_ranker(tmp_path / "short").save(tmp_path / "again")
    np.testing.assert_allclose(predicted(tmp_path / "again"), predicted(tmp_path / "short"), atol=1e-6)


def test_a_fresh_one_reads_256_tokens_where_its_encoder_reads_more(encoder: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(encoder, base)
    config = json.loads((base / "config.json").read_text())
    BertForSequenceClassification(BertConfig(**{**config, "max_position_embeddings": 512})).bert.save_pretrained(base)
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(base)
    ranker = enliven(create_ranker("cross-encoder", str(base), seed=0))
    long = [("ba be", ""), *[("ba be", "cel dir fos " * length) for length in (1, 10, 83, 84, 85, 300)]]
    ranker.save(tmp_path / "ranker")
    assert CrossEncoder(str(tmp_path / "ranker"), device="cpu").max_seq_length == 256
    assert_equal_to_predict(tmp_path / "ranker", long)
    assert scored(load_ranker(tmp_path / "ranker"), long) == scored(ranker, long)


def test_the_head_is_new_and_has_one_output(encoder: Path) -> None:
    first, second = (create_ranker("cross-encoder", str(encoder), seed).state_dict() for seed in (0, 1))
    differing = {name for name, weight in first.items() if not torch.equal(weight, second[name])}
    assert differing == {"model.0.model.classifier.weight"}
    assert first["model.0.model.classifier.weight"].shape == (1, 32)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer()


@settings(max_examples=200, deadline=None)
@given(
    first=st.integers(0, 90),
    second=st.integers(0, 90),
    longest=st.integers(4, 64),
)
def test_pairs_are_cut_as_the_tokenizer_cuts_them(tokenizer: Any, first: int, second: int, longest: int) -> None:
    joined = tokenizer(["ba " * first], ["be " * second], truncation="longest_first", max_length=longest)
    ids = joined["input_ids"][0]
    expected = ids.count(SPECIAL_AND_WORDS["ba"]), ids.count(SPECIAL_AND_WORDS["be"])
    cut = cut_pairs(np.array([first]), np.array([second]), longest - 3)
    assert (int(cut[0][0]), int(cut[1][0])) == expected


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=20),
    st.integers(0, 300),
)
def test_cut_pairs_fit_and_are_cut_no_more_than_they_must(lengths: list[tuple[int, int]], room: int) -> None:
    first, second = np.array(lengths).T
    cut_first, cut_second = cut_pairs(first, second, room)
    assert (cut_first <= first).all()
    assert (cut_second <= second).all()
    assert np.array_equal(cut_first + cut_second, np.minimum(first + second, room))


SPECIAL_AND_WORDS = {word: row for row, word in enumerate([*SPECIAL, *WORDS])}


def test_a_tokenizer_without_special_tokens_joins_the_two_texts_alone() -> None:
    template = PairTemplate(TEXTS, (), 8, 0)
    features = template.join(Tokens.of([[1, 2], [4]]), Tokens.of([[3], [5, 6]])).padded(torch.device("cpu"))
    assert features["input_ids"][:, :3].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert features["attention_mask"].sum(1).tolist() == [3, 3]
    assert "token_type_ids" not in features
