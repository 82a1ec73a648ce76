"""Scores come back in order, whatever the chunks, and a text that is encoded once scores as in a pair."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.table import TableRanker, collection_of, random_lists, random_table
from tests.tiny import text_of
from unrank.collection.build import build_collection
from unrank.collection.collection import Collection, Pairs
from unrank.collection.options import ImportOptions
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.engine import scoring
from unrank.engine import tokens as token_store
from unrank.engine.runtime import Runtime
from unrank.engine.scoring import chunks_by_length, score_pairs, scores_of
from unrank.engine.tokens import Encodings, TokenStore
from unrank.errors import NotFinite
from unrank.rankers import create_ranker
from unrank.rankers.base import DualEncoder, Ranker, Role
from unrank.rankers.fast.bucketing import MAX_SEQUENCES, Bucket
from unrank.rankers.tokens import Ints, Tokens

APART = ["bi-encoder", "colbert", "splade"]
KINDS = ["cross-encoder", *APART]


@pytest.fixture(scope="module", params=KINDS)
def ranker(request: pytest.FixtureRequest, encoder: Path) -> Ranker:
    return create_ranker(request.param, str(encoder), 0)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """Texts of one to sixty words, so that chunks are of all sizes and no order is that of the rows."""
    generator = random.Random(0)
    queries = [Text(f"q{row}", text_of(generator, generator.randint(1, 9))) for row in range(8)]
    documents = [Text(f"d{row}", text_of(generator, generator.randint(1, 60))) for row in range(30)]
    judgements = [Judgement(query.id, "d0", 1) for query in queries]
    raw = Raw("uneven", lambda: queries, lambda: documents, {"train": lambda: judgements})
    return build_collection(raw, tmp_path_factory.mktemp("uneven") / "out", ImportOptions(candidates=5))


class UnevenTable(TableRanker):
    """Says that its pairs have all sorts of lengths."""

    def lengths(self, queries: Ints, documents: Ints) -> Ints:
        return np.arange(len(queries)) * 7 % 11 + 1


def some_pairs(collection: Collection, size: int = 60) -> Pairs:
    """Any query with any document, some of them twice."""
    generator = np.random.default_rng(0)
    queries = generator.integers(len(collection.queries), size=size)
    documents = generator.integers(len(collection.documents), size=size)
    pairs = np.stack([queries, documents], axis=1)
    return np.concatenate([pairs, pairs[: size // 3]])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 13)), min_size=1, max_size=30), st.integers(1, 20))
def test_scores_stand_in_the_order_of_the_pairs(pairs: list[tuple[int, int]], tokens_at_once: int) -> None:
    collection = collection_of(random_lists(0), 14)
    ranker = UnevenTable(np.arange(16 * 14).reshape(16, 14))
    scores = score_pairs(ranker, TokenStore(ranker, collection), np.array(pairs), tokens_at_once)
    assert scores.tolist() == [ranker.table[pair].item() for pair in pairs]


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 100))
def test_chunks_hold_everything_once_and_little_padding(lengths: list[int], tokens_at_once: int) -> None:
    chunks = list(chunks_by_length(np.array(lengths, np.int64), tokens_at_once))
    assert sorted(np.concatenate([np.empty(0, np.int64), *chunks]).tolist()) == list(range(len(lengths)))
    for chunk in chunks:
        longest = max(lengths[place] for place in chunk.tolist())
        assert len(chunk) == 1 or len(chunk) * longest <= tokens_at_once


def test_real_scores_are_those_of_the_texts(ranker: Ranker, uneven: Collection) -> None:
    pairs = some_pairs(uneven)
    scores = score_pairs(ranker, TokenStore(ranker, uneven), pairs, 4_096)
    direct = ranker.score_texts(uneven.queries.texts(pairs[:, 0]), uneven.documents.texts(pairs[:, 1]))
    assert scores.dtype == torch.float32
    assert scores.tolist() == pytest.approx(direct, abs=1e-5)


def test_the_score_of_a_pair_does_not_depend_on_its_chunk(ranker: Ranker, uneven: Collection) -> None:
    pairs = some_pairs(uneven)
    store = TokenStore(ranker, uneven)
    together = score_pairs(ranker, store, pairs, 100_000)
    for tokens_at_once in (1, 100, 700):
        apart = score_pairs(ranker, store, pairs, tokens_at_once)
        assert torch.allclose(apart, together, atol=1e-5, rtol=0)
    backwards = score_pairs(ranker, store, pairs[::-1].copy(), 100)
    assert torch.allclose(backwards.flip(0), together, atol=1e-5, rtol=0)


def test_a_pair_that_stands_there_twice_scores_the_same(ranker: Ranker, uneven: Collection) -> None:
    pairs = some_pairs(uneven)
    scores = score_pairs(ranker, TokenStore(ranker, uneven), pairs, 700)
    assert torch.allclose(scores[60:], scores[:20], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", APART)
def test_encoded_apart_a_pair_scores_as_it_does_together(kind: str, encoder: Path, uneven: Collection) -> None:
    ranker = create_ranker(kind, str(encoder), 0)
    assert isinstance(ranker, DualEncoder)
    pairs, store = some_pairs(uneven), TokenStore(ranker, uneven)
    together = ranker(store.get(pairs[:, 0], "query"), store.get(pairs[:, 1], "document"))
    for tokens_at_once in (50, 4_096):
        assert torch.allclose(score_pairs(ranker, store, pairs, tokens_at_once), together, atol=1e-5, rtol=1e-5)
    without = scores_of(ranker, store, pairs, Runtime.on("cpu"))
    assert without == pytest.approx(together.detach().numpy(), abs=1e-5, rel=1e-5)


@pytest.mark.parametrize("kind", APART)
def test_encoded_apart_each_text_is_encoded_once(
    kind: str, encoder: Path, uneven: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = create_ranker(kind, str(encoder), 0)
    assert isinstance(ranker, DualEncoder)
    encoded, encode = [], ranker.encode
    monkeypatch.setattr(ranker, "encode", lambda tokens, role: encoded.append(len(tokens)) or encode(tokens, role))  # type: ignore[func-returns-value]
    pairs = some_pairs(uneven)
    score_pairs(ranker, TokenStore(ranker, uneven), pairs, 100)
    assert sum(encoded) == len(np.unique(pairs[:, 0])) + len(np.unique(pairs[:, 1]))


@pytest.mark.parametrize("kind", APART)
def test_encoded_apart_memory_is_bounded(
    kind: str, encoder: Path, uneven: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same scores come where few encodings are held at once and few of them meet at once."""
    ranker = create_ranker(kind, str(encoder), 0)
    assert isinstance(ranker, DualEncoder)
    pairs, store = some_pairs(uneven), TokenStore(ranker, uneven)
    sizes = ranker.encoded_sizes(store.lengths(pairs[:, 1], "document"))
    together = score_pairs(ranker, store, pairs, 700)
    most, interact = [], ranker.interact
    monkeypatch.setattr(scoring, "NUMBERS_KEPT", int(sizes.max()) * 5)
    monkeypatch.setattr(scoring, "NUMBERS_AT_ONCE", int(sizes.max()) * 3)
    monkeypatch.setattr(scoring, "NUMBERS_A_TOKEN", 0)
    monkeypatch.setattr(ranker, "interact", lambda *sides: most.append(len(sides[0])) or interact(*sides))  # type: ignore[func-returns-value]
    groups = scoring._groups_that_fit(pairs, sizes)
    assert len(groups) > 1
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(pairs)))
    assert max(sizes[group].sum() for group in groups) <= int(sizes.max()) * 6
    assert torch.allclose(score_pairs(ranker, store, pairs, 700), together, atol=1e-4, rtol=1e-5)
    assert sum(most) == len(pairs)
    assert len(most) > len(groups)


def test_encodings_of_many_widths_are_padded_where_they_are_taken() -> None:
    values = [torch.ones(1, 3, 2), 2 * torch.ones(2, 1, 2)]
    encodings = Encodings.of(values, [np.array([1]), np.array([2, 0])])
    assert encodings.sizes.tolist() == [2, 6, 2]
    assert encodings.take(np.array([0, 1]))[..., 0].tolist() == [[2, 0, 0], [1, 1, 1]]
    assert encodings.take(np.array([2, 0, 2])).shape == (3, 1, 2)
    flat = Encodings.of([torch.tensor([[1.0, 2], [3, 4]])], [np.array([1, 0])])
    assert flat.take(np.array([0, 1, 0])).tolist() == [[3, 4], [1, 2], [3, 4]]


@pytest.mark.parametrize("kind", APART)
def test_a_kept_side_is_encoded_once_for_those_that_share_it(
    kind: str, encoder: Path, uneven: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, other = (create_ranker(kind, str(encoder), 0) for _ in range(2))
    student = create_ranker(kind, str(encoder), 0)
    assert isinstance(student, DualEncoder)
    student.freeze_documents()
    pairs, store, runtime = some_pairs(uneven), TokenStore(original, uneven), Runtime.on("cpu")
    expected = scores_of(original, store, pairs, runtime)
    store.keep("document", original, student)
    encoded = counted(monkeypatch, original, student, other)
    assert scores_of(original, store, pairs, runtime) == pytest.approx(expected, abs=1e-5, rel=1e-5)
    for _ in range(3):
        loss = score_pairs(student, store, pairs, 300).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        assert scores_of(student, store, pairs, runtime) == pytest.approx(expected, abs=1e-5, rel=1e-5)
    queries, documents = (len(np.unique(pairs[:, side])) for side in (0, 1))
    assert sum(encoded[original, "document"]) == documents
    assert (student, "document") not in encoded
    assert sum(encoded[student, "query"]) == 6 * queries
    for _ in range(2):
        score_pairs(other, store, pairs, 300)
    assert sum(encoded[other, "document"]) == 2 * documents


@pytest.mark.parametrize("kind", APART)
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_what_there_is_no_room_for_is_encoded_each_time(
    kind: str, share: float, encoder: Path, uneven: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = create_ranker(kind, str(encoder), 0)
    assert isinstance(ranker, DualEncoder)
    ranker.freeze_documents()
    pairs, store = some_pairs(uneven), TokenStore(ranker, uneven)
    expected = score_pairs(ranker, store, pairs, 300)
    documents = np.unique(pairs[:, 1])
    sizes = ranker.encoded_sizes(store.lengths(documents, "document"))
    monkeypatch.setattr(token_store, "NUMBERS_KEPT", int(share * sizes.sum()))
    store.keep("document", ranker)
    encoded = counted(monkeypatch, ranker)
    for part in (pairs[:7], pairs[30:], pairs, pairs[::-1].copy()):
        wanted = score_pairs(ranker, store, part, 300).tolist()
        places = [np.flatnonzero((pairs == pair).all(1))[0] for pair in part]
        assert wanted == pytest.approx(expected[places].tolist(), abs=1e-5, rel=1e-5)
    plainly = sum(len(np.unique(part[:, 1])) for part in (pairs[:7], pairs[30:], pairs, pairs))
    seen = sum(encoded[ranker, "document"])
    assert seen == plainly if share == 0 else len(documents) < seen < plainly


def counted(patch: pytest.MonkeyPatch, *rankers: Ranker) -> dict[tuple[Ranker, str], list[int]]:
    """How many texts each ranker encodes, call by call."""
    encoded: dict[tuple[Ranker, str], list[int]] = {}

    def count(ranker: Ranker, tokens: Tokens, role: Role) -> torch.Tensor:
        assert isinstance(ranker, DualEncoder)
        encoded.setdefault((ranker, role), []).append(len(tokens))
        return type(ranker).encode(ranker, tokens, role)

    for ranker in rankers:
        patch.setattr(ranker, "encode", partial(count, ranker))
    return encoded


def test_gradients_flow_from_every_pair(ranker: Ranker, uneven: Collection) -> None:
    weights = torch.linspace(-1, 1, 80)
    gradients = []
    for tokens_at_once in (150, 100_000):
        ranker.zero_grad(set_to_none=True)
        scores = score_pairs(ranker, TokenStore(ranker, uneven), some_pairs(uneven), tokens_at_once)
        (scores * weights).sum().backward()  # type: ignore[no-untyped-call]
        gradients.append([weight.grad.clone() for weight in ranker.parameters() if weight.grad is not None])
    assert len(gradients[0]) == len(gradients[1]) > 10
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(*gradients, strict=True))
    assert any(gradient.abs().max() > 0 for gradient in gradients[0])


def test_few_texts_are_read_at_once(encoder: Path, uneven: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = create_ranker("bi-encoder", str(encoder), 0)
    rows, read, usual = np.arange(7), list[int](), ranker.tokenize
    whole = TokenStore(ranker, uneven).get(rows, "document")

    def tokenize(texts: list[str], role: Role) -> Tokens:
        read.append(len(texts))
        return usual(texts, role)

    monkeypatch.setattr(ranker, "tokenize", tokenize)
    monkeypatch.setattr(token_store, "TEXTS_READ", 3)
    pieces = TokenStore(ranker, uneven).get(rows, "document")
    assert read == [3, 3, 1]
    assert [text.tolist() for text in pieces] == [text.tolist() for text in whole]


def test_no_pairs_no_scores() -> None:
    collection = collection_of(random_lists(0), 14)
    ranker = random_table(collection, 0)
    assert scores_of(ranker, TokenStore(ranker, collection), np.empty((0, 2), np.int64), Runtime.on("cpu")).shape == (
        0,
    )


def test_scores_that_are_no_numbers_are_counted() -> None:
    collection = collection_of(random_lists(0), 14)
    table = np.zeros((16, 14))
    table[3, 4], table[3, 5] = float("nan"), float("inf")
    ranker = TableRanker(table)
    pairs = np.array([[3, 4], [3, 5], [3, 6]])
    with pytest.raises(NotFinite, match="2 of 3 scores that are not finite"):
        scores_of(ranker, TokenStore(ranker, collection), pairs, Runtime.on("cpu"))


def test_a_chunk_has_no_more_texts_than_kernels_can_count() -> None:
    chunks = list(chunks_by_length(np.ones(100_000, np.int64), 10**6))
    assert [len(chunk) for chunk in chunks] == [MAX_SEQUENCES] * 3 + [100_000 - 3 * MAX_SEQUENCES]
    assert Bucket.around(np.ones(MAX_SEQUENCES, np.int64)).sequences < 65_536
