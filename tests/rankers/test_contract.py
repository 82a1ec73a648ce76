"""What every ranker promises, whatever kind it is."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.rankers.conftest import enliven
from unrank.collection.collection import Collection
from unrank.engine.runtime import Runtime
from unrank.engine.scoring import score_pairs, scores_of
from unrank.engine.tokens import TokenStore
from unrank.rankers import RANKERS, RankerEntry, create_ranker, load_ranker
from unrank.rankers.base import DualEncoder, Ranker, Role, Tokens

QUERIES = ["ba be", "cel dan fos gu", "hir", "ka le mi no pu", "ran sel tir"]
DOCUMENTS = ["ba ce di fo gu han kel", "lir mos", "na pe ri so tu ba be bi", "bo", "can del fir gos " * 6]
LONG = "ba cel dir fos gu " * 400
UNKNOWN = "xyzzy plugh qwerty"

# A bias of the keys shifts all of a token's attention alike, so no score depends on it. A bi-encoder pools the
# last layer itself and leaves the encoder's own pooler unused; so does colbert, which pools nothing.
WITHOUT_EFFECT = {
    "cross-encoder": ("attention.self.key.bias",),
    "bi-encoder": ("attention.self.key.bias", "pooler.dense.weight", "pooler.dense.bias"),
    "colbert": ("attention.self.key.bias", "pooler.dense.weight", "pooler.dense.bias"),
    "colbert-dot": ("attention.self.key.bias", "pooler.dense.weight", "pooler.dense.bias"),
    "parade": ("attention.self.key.bias",),
    "splade": ("attention.self.key.bias",),
}


def score(ranker: Ranker, queries: list[str], documents: list[str]) -> Tensor:
    scores: Tensor = ranker(ranker.tokenize(queries, "query"), ranker.tokenize(documents, "document"))
    return scores


def assert_close(given: Any, expected: Any) -> None:
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-5)


def has_no_effect(kind: str, name: str) -> bool:
    return name.endswith(WITHOUT_EFFECT.get(kind, ()))


def test_scores_are_float32_one_a_pair_and_tell_texts_apart(ranker: Ranker) -> None:
    with torch.inference_mode():
        scores = score(ranker, QUERIES, DOCUMENTS)
    assert scores.dtype == torch.float32
    assert scores.shape == (len(QUERIES),)
    assert float(scores.std()) > 0.05


def test_a_ranker_knows_its_name(kind: str, ranker: Ranker) -> None:
    assert ranker.kind == kind
    assert type(ranker) is RANKERS[kind].ranker


def test_a_score_depends_on_both_sides(ranker: Ranker) -> None:
    first = ranker.score_texts([QUERIES[0]] * 5, DOCUMENTS)
    second = ranker.score_texts(QUERIES, [DOCUMENTS[0]] * 5)
    assert len({round(value, 4) for value in first}) == 5
    assert len({round(value, 4) for value in second}) == 5


def test_a_score_does_not_depend_on_neighbours(ranker: Ranker) -> None:
    together = ranker.score_texts(QUERIES, DOCUMENTS)
    alone = [ranker.score_texts([query], [document])[0] for query, document in zip(QUERIES, DOCUMENTS, strict=True)]
    assert_close(together, alone)
    assert_close(ranker.score_texts(QUERIES[::-1], DOCUMENTS[::-1])[::-1], alone)


def test_a_score_does_not_depend_on_padding(ranker: Ranker) -> None:
    short = ranker.score_texts(QUERIES[:1], DOCUMENTS[:1])[0]
    among_long = ranker.score_texts([QUERIES[0], LONG, UNKNOWN], [DOCUMENTS[0], LONG, LONG])[0]
    assert_close(among_long, short)


def test_scores_are_the_same_each_time(ranker: Ranker) -> None:
    assert ranker.score_texts(QUERIES, DOCUMENTS) == ranker.score_texts(QUERIES, DOCUMENTS)


def test_the_same_seed_makes_the_same_ranker(kind: str, bases: dict[str, str]) -> None:
    state = torch.random.get_rng_state()
    first, second = (create_ranker(kind, bases[kind], seed=4) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), state)
    weights = second.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in first.state_dict().items())
    assert first.score_texts(QUERIES, DOCUMENTS) == second.score_texts(QUERIES, DOCUMENTS)


def test_a_gradient_reaches_every_weight(kind: str, ranker: Ranker) -> None:
    pupil = copy.deepcopy(ranker)
    weighted = torch.tensor([1.0, -2.0, 3.0, 0.5, -1.0])
    torch.autograd.backward((score(pupil, QUERIES, DOCUMENTS) * weighted).sum())
    named = [(name, weight) for name, weight in pupil.named_parameters() if weight.requires_grad]
    assert named
    missing = [
        name
        for name, weight in named
        if not has_no_effect(kind, name) and (weight.grad is None or float(weight.grad.abs().max()) == 0)
    ]
    assert missing == []
    assert all(weight.grad is None or bool(weight.grad.isfinite().all()) for _, weight in named)


def test_weights_without_a_gradient_have_no_effect(kind: str, ranker: Ranker) -> None:
    changed = copy.deepcopy(ranker)
    touched = [weight for name, weight in changed.named_parameters() if has_no_effect(kind, name)]
    with torch.no_grad():
        for weight in touched:
            weight.add_(1.0)
    assert len(touched) >= len(WITHOUT_EFFECT.get(kind, ()))
    np.testing.assert_allclose(
        changed.score_texts(QUERIES, DOCUMENTS), ranker.score_texts(QUERIES, DOCUMENTS), rtol=1e-4, atol=1e-4
    )


def test_saving_and_loading_keep_the_scores(kind: str, ranker: Ranker, folders: dict[str, Path]) -> None:
    loaded = load_ranker(folders[kind])
    assert loaded.kind == kind
    texts = ([*QUERIES, "", LONG], [*DOCUMENTS, LONG, ""])
    assert loaded.score_texts(*texts) == ranker.score_texts(*texts)


def test_saving_twice_keeps_the_weights(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    load_ranker(folders[kind]).save(tmp_path / "again")
    before, after = load_ranker(folders[kind]).state_dict(), load_ranker(tmp_path / "again").state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_no_pickle_is_written(kind: str, folders: dict[str, Path]) -> None:
    written = {path.suffix for path in folders[kind].rglob("*") if path.is_file()}
    assert ".safetensors" in written
    assert written <= {".safetensors", ".json", ".txt", ".model", ".jinja"}


@pytest.mark.parametrize(
    ("query", "document"),
    [("", "ba be"), ("ba be", ""), ("", ""), (LONG, "ba"), ("ba", LONG), (LONG, LONG), (UNKNOWN, "ba"), (" \n\t", "é")],
    ids=["no query", "no document", "nothing", "long query", "long document", "both long", "unknown", "odd"],
)
def test_any_text_has_a_score(ranker: Ranker, query: str, document: str) -> None:
    scores = ranker.score_texts([query, "ba ce"], [document, "ba ce"])
    assert np.isfinite(scores).all()
    assert_close(scores[0], ranker.score_texts([query], [document])[0])


def test_a_query_of_unknown_words_still_ranks(ranker: Ranker) -> None:
    scores = ranker.score_texts([UNKNOWN] * 5, DOCUMENTS)
    assert np.isfinite(scores).all()
    assert len({round(value, 4) for value in scores}) == 5


def test_every_pair_has_a_length(ranker: Ranker) -> None:
    queries, documents = ranker.tokenize(["ba", LONG], "query"), ranker.tokenize(["ba", LONG], "document")
    short, long = ranker.lengths(queries.lengths, documents.lengths).tolist()
    assert 2 <= short < long < 10_000


@pytest.mark.parametrize("tokens_at_once", [1, 100, 100_000])
def test_scores_of_a_collection_equal_those_of_its_texts(
    ranker: Ranker, dense: Collection, tokens_at_once: int
) -> None:
    """The engine's path: tokens kept, pairs sorted by length and cut into chunks, each text encoded once."""
    pairs = dense.list_pairs(np.arange(4))
    with torch.inference_mode():
        scores = score_pairs(ranker, TokenStore(ranker, dense), pairs, tokens_at_once)
    assert scores.dtype == torch.float32
    assert_close(scores, ranker.score_texts(dense.queries.texts(pairs[:, 0]), dense.documents.texts(pairs[:, 1])))


@pytest.mark.parametrize("name", [name for name, entry in RANKERS.items() if issubclass(entry.ranker, DualEncoder)])
def test_a_separable_ranker_meets_only_at_the_end(rankers: dict[str, Ranker], name: str) -> None:
    ranker = rankers[name]
    assert isinstance(ranker, DualEncoder)
    with torch.inference_mode():
        queries = ranker.encode(ranker.tokenize(QUERIES, "query"), "query")
        documents = ranker.encode(ranker.tokenize(DOCUMENTS, "document"), "document")
        crossed = ranker.interact(queries, documents.flip(0))
        forward = score(ranker, QUERIES, DOCUMENTS[::-1])
    assert queries.dtype == documents.dtype == crossed.dtype == torch.float32
    assert_close(crossed, forward)


def test_a_copy_is_independent(ranker: Ranker) -> None:
    before = ranker.score_texts(QUERIES, DOCUMENTS)
    copied = copy.deepcopy(ranker)
    assert copied.score_texts(QUERIES, DOCUMENTS) == before
    enliven(copied, seed=9)
    changed = copied.score_texts(QUERIES, DOCUMENTS)
    assert ranker.score_texts(QUERIES, DOCUMENTS) == before
    assert np.abs(np.subtract(changed, before)).max() > 0.05


def test_a_copy_scores_with_its_own_weights(ranker: Ranker) -> None:
    """Also when the ranker that it was copied from is changed after it, and when it is saved."""
    first = copy.deepcopy(ranker)
    second = copy.deepcopy(first)
    before = second.score_texts(QUERIES, DOCUMENTS)
    enliven(first, seed=9)
    assert second.score_texts(QUERIES, DOCUMENTS) == before
    ours = {weight.data_ptr() for weight in ranker.parameters()}
    assert not ours & {weight.data_ptr() for weight in second.parameters()}


def test_a_changed_copy_saves_its_own_weights(ranker: Ranker, tmp_path: Path) -> None:
    changed = enliven(copy.deepcopy(ranker), seed=9)
    changed.save(tmp_path / "changed")
    assert load_ranker(tmp_path / "changed").score_texts(QUERIES, DOCUMENTS) == changed.score_texts(QUERIES, DOCUMENTS)


class WordOverlap(DualEncoder):
    """The dual encoder of the contract's docstring."""

    kind = "word-overlap"

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.EmbeddingBag(10_000, 64, padding_idx=0)

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        return Tokens.of([[1 + crc32(word.encode()) % 9_999 for word in text.split()] for text in texts])

    def encode(self, tokens: Tokens, role: Role) -> Tensor:
        mean: Tensor = self.vectors(tokens.padded(0, 256, self.device))
        return mean

    def interact(self, queries: Tensor, documents: Tensor) -> Tensor:
        scores: Tensor = -(queries - documents).norm(dim=1)
        return scores


def test_a_dual_encoder_needs_three_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dense: Collection) -> None:
    monkeypatch.setitem(RANKERS, "word-overlap", RankerEntry.of(WordOverlap, "words in common"))
    ranker = create_ranker("word-overlap", None, seed=0)
    assert isinstance(ranker, WordOverlap)
    pairs = dense.pairs[:8]
    scores = scores_of(ranker, TokenStore(ranker, dense), pairs, Runtime.on("cpu"))
    texts = list(dense.queries.texts(pairs[:, 0])), list(dense.documents.texts(pairs[:, 1]))
    np.testing.assert_allclose(scores, ranker.score_texts(*texts), rtol=1e-5)
    assert ranker.encoded_sizes(np.array([3, 9])).tolist() == [64, 64]
    ranker.save(tmp_path / "saved")
    assert load_ranker(tmp_path / "saved").score_texts(*texts) == ranker.score_texts(*texts)
