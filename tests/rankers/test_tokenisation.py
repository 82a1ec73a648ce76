"""Texts are read as the library that made a model reads them, past its slow front; and by several threads at once."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import sentence_transformers
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import normalizers, pre_tokenizers

from tests.rankers.conftest import enliven
from tests.tiny import make_tokenizer
from unrank.rankers import create_ranker, tokenisation
from unrank.rankers.bi_encoder import BiEncoderRanker
from unrank.rankers.tokenisation import PROBES, IdTokenizer, SideTokenizer, faster_tokenizer

TEXTS = ["ba ce di fo", "", "xyzzy", "ba [SEP] ce", "[CLS] han [PAD]", "han kel mi no pu " * 30, "DAN Fos"]
CUT: dict[str, Any] = {"truncation": True, "max_length": 512}
COMMON_PADDING: list[dict[str, Any]] = [{}, {"padding": True}, {"padding": "max_length", "max_length": 20}]


@pytest.mark.parametrize("longest", [None, 1, 7, 60])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("split", [False, True], ids=["special", "split"])
def test_a_plain_tokenizer_gives_what_the_library_gives(
    longest: int | None, side: Literal["left", "right"], split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenisation, "TEXTS_AT_ONCE", 3)
    tokenizer: Any = make_tokenizer()
    tokenizer.truncation_side, tokenizer.split_special_tokens = side, split
    cut = {} if longest is None else {"truncation": True, "max_length": longest}
    expected = tokenizer(TEXTS, add_special_tokens=False, **cut)["input_ids"]
    for plain in (reader := IdTokenizer(tokenizer), copy.deepcopy(reader)):
        assert [ids.tolist() for ids in plain(TEXTS, longest)] == expected
    reader._compiled = None  # as where the tokenizer is not a compiled one
    assert [ids.tolist() for ids in reader(TEXTS, longest)] == expected


def make_word_piece() -> Any:
    """A tokenizer with the parts of BERT's."""
    tokenizer: Any = make_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


LETTERS = [*"aBb \t\n\r\x00\x0b\x1f\x7f'.-_é漢\u0301\u200b\u00a0\x85", "ba", "ce ", "[SEP]", "[ SEP ]", "x" * 101]


@given(
    st.lists(st.lists(st.sampled_from(LETTERS), max_size=12).map("".join), max_size=8), st.sampled_from([None, 1, 4])
)
def test_each_word_is_read_once_and_texts_are_as_if_read_whole(texts: list[str], longest: int | None) -> None:
    reader = IdTokenizer(make_word_piece())
    assert reader._by_word
    whole = reader._by_compiled(texts, longest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenisation, "CHARACTERS_AT_ONCE", 20)
        patch.setattr(tokenisation, "TEXTS_AT_ONCE", 3)
        assert [ids.tolist() for ids in reader(texts, longest)] == whole


def test_what_reads_more_than_a_word_is_given_whole_texts() -> None:
    assert not IdTokenizer(make_word_piece(), special=True)._by_word
    assert not IdTokenizer(make_tokenizer())._by_word
    left, spaced = make_word_piece(), make_word_piece()
    left.truncation_side = "left"
    spaced.add_tokens(["ba ce"])
    assert not IdTokenizer(left)._by_word and not IdTokenizer(spaced)._by_word


@pytest.mark.parametrize("prompt", ["", "hir los "])
@pytest.mark.parametrize("longest", [9, 40])
def test_the_library_is_left_out_where_it_does_nothing_more(prompt: str, longest: int) -> None:
    tokenizer: Any = make_tokenizer()

    def library(texts: list[str]) -> list[list[int]]:
        asked.append(len(texts))
        prompted = [prompt + text for text in texts]
        given: list[list[int]] = tokenizer(prompted, truncation=True, max_length=longest)["input_ids"]
        return given

    asked: list[int] = []
    read = faster_tokenizer(tokenizer, prompt, longest, library)
    given = [ids.tolist() for ids in read(TEXTS)]
    assert asked == [len(PROBES) + 2]
    assert given == library(TEXTS)


@pytest.mark.parametrize(
    "other",
    [
        lambda tokenizer, text: tokenizer(f"{text} ba", **CUT),
        lambda tokenizer, text: tokenizer(text[:1_000], **CUT),  # also cut by its letters
        lambda tokenizer, text: tokenizer(text),  # never cut
        lambda tokenizer, text: tokenizer(text, add_special_tokens=False, **CUT),
    ],
    ids=["more", "letters", "whole", "bare"],
)
def test_a_library_with_ways_of_its_own_reads_itself(other: Callable[[Any, str], Any]) -> None:
    tokenizer: Any = make_tokenizer()

    def library(texts: list[str]) -> list[list[int]]:
        return [other(tokenizer, text)["input_ids"] for text in texts]

    assert faster_tokenizer(tokenizer, "", 512, library) == SideTokenizer(library)


def test_a_tokenizer_that_knows_nothing_of_the_probes_is_not_judged_by_them() -> None:
    from tokenizers import Tokenizer, models, processors
    from transformers import PreTrainedTokenizerFast

    bare = Tokenizer(models.BPE({"[CLS]": 0, "[SEP]": 1, "п": 2, "р": 3}, []))
    bare.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bare)

    def library(texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = tokenizer(texts, truncation=True, max_length=9)["input_ids"]
        return ids

    assert [ids.tolist() for ids in faster_tokenizer(tokenizer, "", 512, library)(["прр"])] == [[0, 2, 3, 3, 1]]


def test_a_ranker_that_has_read_can_be_copied_and_pickled_and_cut_shorter(encoder: Path) -> None:
    ranker: Any = create_ranker("bi-encoder", str(encoder), 0)
    before = ranker.tokenize(TEXTS, "query")
    pickle.dumps(ranker)
    copied = copy.deepcopy(ranker)
    assert copied._towers._tokenizers == {}
    assert [ids.tolist() for ids in copied.tokenize(TEXTS, "query")] == [ids.tolist() for ids in before]
    ranker.model.max_seq_length = 8
    assert max(ranker.tokenize(TEXTS, "query").lengths) == max(ranker.tokenize(TEXTS, "document").lengths) == 8


def bi_encoder(encoder: Path, pooling: Pooling, **options: Any) -> Any:
    model = sentence_transformers.SentenceTransformer(
        modules=[Transformer(str(encoder), **options), pooling], device="cpu"
    )
    model.prompts = {"query": "hir los "}
    return model


@pytest.mark.parametrize("common", COMMON_PADDING, ids=str)
def test_what_a_folder_pads_is_no_text(encoder: Path, common: dict[str, Any]) -> None:
    model = bi_encoder(encoder, Pooling(32, "mean"), processing_kwargs={"common": common})
    features = model.preprocess(TEXTS, prompt="hir los ", task="query")
    seen = features["attention_mask"].bool()
    expected = [ids[there].tolist() for ids, there in zip(features["input_ids"], seen, strict=True)]
    assert [ids.tolist() for ids in BiEncoderRanker(model).tokenize(TEXTS, "query")] == expected


@pytest.mark.parametrize("include_prompt", [True, False])
def test_the_first_token_after_a_prompt_that_is_not_pooled(encoder: Path, include_prompt: bool) -> None:
    model = bi_encoder(encoder, Pooling(32, "cls", include_prompt=include_prompt))
    expected = model.encode(TEXTS[:1] + TEXTS[2:], prompt_name="query")
    ranker = BiEncoderRanker(model)
    given = ranker.encode(ranker.tokenize(TEXTS[:1] + TEXTS[2:], "query"), "query").detach()
    np.testing.assert_allclose(given, expected, atol=1e-5)


def test_several_threads_score_with_one_ranker(encoder: Path) -> None:
    ranker: Any = enliven(create_ranker("cross-encoder", str(encoder), seed=0))
    whole = ranker.model.model.base_model(input_ids=torch.arange(5, 11)[None]).last_hidden_state
    expected = ranker.score_texts(TEXTS, TEXTS[::-1])

    def score(turn: int) -> bool:
        if turn % 2:
            return bool(
                ranker.model.model.base_model(input_ids=torch.arange(5, 11)[None]).last_hidden_state.equal(whole)
            )
        return bool(np.allclose(ranker.score_texts(TEXTS, TEXTS[::-1]), expected, atol=1e-6))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(score, range(80)))
