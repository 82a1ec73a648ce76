"""What an encoder reads is put together as its tokenizer does it, and read packed it scores as it does padded."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Normalize

from tests.rankers.conftest import enliven
from tests.rankers.fast.test_encoder import as_on_a_gpu, scores
from tests.rankers.test_bi_encoder import build
from tests.rankers.test_cross_encoder import PAIRS, save_roberta, with_token_types
from tests.tiny import make_encoder
from unrank.rankers import create_ranker, load_ranker, tokenisation, tokens
from unrank.rankers.base import Ranker
from unrank.rankers.bi_encoder import BiEncoderRanker
from unrank.rankers.cross_encoder import CrossEncoderRanker
from unrank.rankers.fast import packing
from unrank.rankers.fast.bucketing import Bucket
from unrank.rankers.tokenisation import TEXTS, EncoderInputs, PairTemplate
from unrank.rankers.tokens import Tokens

CPU = torch.device("cpu")
FAMILIES = ("bert", "distilbert", "roberta")


def cross_encoder(family: str, folder: Path) -> CrossEncoderRanker:
    """With token types, without any, and with positions that begin after padding."""
    if family == "roberta":
        save_roberta(folder)
        ranker = load_ranker(folder)
    else:
        make_encoder(folder, family)
        if family == "bert":
            with_token_types(folder)
        ranker = enliven(create_ranker("cross-encoder", str(folder), seed=0))
    assert isinstance(ranker, CrossEncoderRanker)
    return ranker


def read(ranker: Ranker) -> tuple[Tokens, Tokens]:
    queries, documents = zip(*PAIRS, strict=True)
    return ranker.tokenize(queries, "query"), ranker.tokenize(documents, "document")


@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_are_joined_as_the_tokenizer_joins_them(family: str, tmp_path: Path) -> None:
    ranker = cross_encoder(family, tmp_path)
    joined, longest = ranker._template.join(*read(ranker)), ranker._template.max_length
    expected: Any = ranker.model.tokenizer(
        *map(list, zip(*PAIRS, strict=True)), truncation="longest_first", max_length=longest
    )
    assert joined.lengths.tolist() == [len(ids) for ids in expected["input_ids"]]
    assert joined.lengths.max() == longest
    padded, names = joined.padded(CPU), ["input_ids", "token_type_ids"][: 2 if family == "bert" else 1]
    assert padded.keys() == {*names, "attention_mask"}
    assert padded["attention_mask"].sum(1).tolist() == joined.lengths.tolist()
    bucket = Bucket.around(joined.lengths)
    packed = joined.packed(bucket, CPU).tolist()
    for number, name in enumerate(names):
        rows = zip(padded[name].tolist(), joined.lengths, strict=True)
        assert [row[:length] for row, length in rows] == expected[name]
        concatenated = [token for text in expected[name] for token in text]
        filled = concatenated + [0] * (bucket.tokens - len(concatenated))
        assert packed[number * bucket.tokens : (number + 1) * bucket.tokens] == filled
    cu_seqlens = np.cumsum([0, *bucket.filled(joined.lengths)])
    assert packed[len(names) * bucket.tokens :] == cu_seqlens.tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_pairs_score_as_padded_ones(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = cross_encoder(family, tmp_path)
    pairs = read(ranker)
    expected = ranker(*pairs).detach()
    as_on_a_gpu(monkeypatch, torch.float32)
    np.testing.assert_allclose(ranker(*pairs).detach(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pooled", [True, False], ids=["prompt pooled", "prompt not pooled"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_packed_texts_with_prompts_score_as_padded_ones(
    pooling: str, pooled: bool, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = {"query": "hir ", "document": "kos lan "}
    model = build(folders["bi-encoder"], Normalize(), pooling=pooling, prompts=prompts)
    model.set_pooling_include_prompt(pooled)
    ranker = BiEncoderRanker(model)
    expected = scores(ranker).detach()
    as_on_a_gpu(monkeypatch, torch.float32)
    np.testing.assert_allclose(scores(ranker).detach(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["cross-encoder", "bi-encoder", "parade"])
def test_where_first_tokens_alone_are_read_nothing_is_padded_and_a_pass_takes_one_copy(
    kind: str, rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = copy.deepcopy(rankers[kind])
    passes: list[Bucket] = []
    copies: list[Any] = []
    as_on_a_gpu(monkeypatch, torch.float32)

    def noted(array: Any, device: torch.device) -> torch.Tensor:
        copies.append(array)
        return torch.from_numpy(array)

    for module in (tokenisation, packing, tokens):
        monkeypatch.setattr(module, "to_device", noted)
    monkeypatch.setattr(EncoderInputs, "padded", None)
    (encoder,) = ranker.fast_encoders
    usual = encoder.run

    def run(function: Any, given: Any, bucket: Bucket, family: Any) -> tuple[torch.Tensor, ...]:
        passes.append(bucket)
        return usual(function, given, bucket, family)

    monkeypatch.setattr(encoder, "run", run)
    scores(ranker)
    assert 0 < len(passes) == len(copies)
    assert all(array.dtype == np.int32 for array in copies)


def test_documents_that_are_all_empty_are_joined() -> None:
    template = PairTemplate((7, TEXTS[0], 8, TEXTS[1], 9), (), 16, 0)
    joined = template.join(Tokens.of([[1, 2], [3]]), Tokens.of([[], []]))
    assert joined.ids.tolist() == [7, 1, 2, 8, 9, 7, 3, 8, 9]
