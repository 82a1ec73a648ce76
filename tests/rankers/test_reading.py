"""Texts are read as the library that made a model reads them, past its slow front; and by several threads at once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import sentence_transformers as st
import torch
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from tests.rankers.conftest import enliven
from tests.tiny import make_tokenizer
from unrank.rankers import create_ranker, reading
from unrank.rankers.bi_encoder import BiEncoderRanker
from unrank.rankers.reading import PROBES, PlainTokenizer, Reader, read_alike

TEXTS = ["ba ce di fo", "", "xyzzy", "ba [SEP] ce", "[CLS] han [PAD]", "han kel mi no pu " * 30, "DAN Fos"]
COMMON_PADDING: list[dict[str, Any]] = [{}, {"padding": True}, {"padding": "max_length", "max_length": 20}]


@pytest.mark.parametrize("longest", [None, 1, 7, 60])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("split", [False, True], ids=["special", "split"])
def test_a_plain_tokenizer_gives_what_the_library_gives(
    longest: int | None, side: Literal["left", "right"], split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "TEXTS_AT_ONCE", 3)
    tokenizer: Any = make_tokenizer()
    tokenizer.truncation_side, tokenizer.split_special_tokens = side, split
    cut = {} if longest is None else {"truncation": True, "max_length": longest}
    expected = tokenizer(TEXTS, add_special_tokens=False, **cut)["input_ids"]
    for plain in (reader := PlainTokenizer(tokenizer), copy.deepcopy(reader)):
        assert [ids.tolist() for ids in plain(TEXTS, longest)] == expected
    reader._compiled = None  # as where the tokenizer is not a compiled one
    assert [ids.tolist() for ids in reader(TEXTS, longest)] == expected


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
    read = read_alike(tokenizer, prompt, library)
    given = [ids.tolist() for ids in read(TEXTS)]
    assert asked == [len(PROBES)]
    assert given == library(TEXTS)


@pytest.mark.parametrize("other", [str.strip, str.upper, lambda text: text[:1_000]], ids=["strips", "case", "cuts"])
def test_a_library_with_ways_of_its_own_reads_itself(other: Callable[[str], str]) -> None:
    tokenizer: Any = make_tokenizer()

    def library(texts: list[str]) -> list[list[int]]:
        given: list[list[int]] = tokenizer([f"{other(text)} ba" for text in texts])["input_ids"]
        return given

    assert read_alike(tokenizer, "", library) == Reader(library)


def bi_encoder(encoder: Path, pooling: Pooling, **options: Any) -> Any:
    model = st.SentenceTransformer(modules=[Transformer(str(encoder), **options), pooling], device="cpu")
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
    whole = ranker.lean._encoder(input_ids=torch.arange(5, 11)[None]).last_hidden_state
    expected = ranker.score_texts(TEXTS, TEXTS[::-1])

    def score(turn: int) -> bool:
        if turn % 2:
            return bool(ranker.lean._encoder(input_ids=torch.arange(5, 11)[None]).last_hidden_state.equal(whole))
        return bool(np.allclose(ranker.score_texts(TEXTS, TEXTS[::-1]), expected, atol=1e-6))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(score, range(80)))
