"""Forgetting with the documents frozen: the index stays valid, and no document is encoded twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import MultiVectorEncoder, SentenceTransformer

from tests.forgetting.conftest import FAST, QUICK_TRAINING
from tests.rankers.conftest import enliven
from tests.tiny import made_record
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.engine.runtime import Runtime
from unrank.errors import UnrankError
from unrank.forgetting.evaluate import evaluate
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.options import Pace
from unrank.forgetting.train import Trained, train
from unrank.methods.retrain import Retrain
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.base import DualEncoder
from unrank.rankers.colbert import ColbertRanker

CLASSES: dict[str, Any] = {"bi-encoder": SentenceTransformer, "colbert": MultiVectorEncoder}
BRIEF = replace(FAST, epochs=2)


@pytest.fixture(scope="module")
def colbert(encoder: Path, dense: Collection) -> Trained:
    return train(dense, "colbert", str(encoder), method=replace(QUICK_TRAINING, epochs=2))


@pytest.fixture(params=list(CLASSES))
def original(request: pytest.FixtureRequest, trained: Trained, colbert: Trained) -> DualEncoder:
    ranker = {"bi-encoder": trained, "colbert": colbert}[request.param].ranker
    assert isinstance(ranker, DualEncoder)
    return ranker


@pytest.fixture(scope="module", params=["bi-encoder", pytest.param("colbert", marks=pytest.mark.slow)])
def frozen(request: pytest.FixtureRequest, encoder: Path, dense: Collection, removals: dict[str, Removal]) -> Forgotten:
    """Of a ranker whose document vectors point in many directions: where they do not, no query can change an order."""
    original = enliven(create_ranker(request.param, str(encoder), 0))
    return forget(original, dense, removals["queries"], method=FAST, target="70%", freeze="documents")


def brief(ranker: Any, collection: Collection, removal: Removal, **more: Any) -> Forgotten:
    return forget(ranker, collection, removal, method=BRIEF, target=0.01, freeze="documents", **more)


def encoded(folder: Path, kind: str, collection: Collection) -> tuple[list[Any], list[Any]]:
    """The vectors of all queries and of all documents, as the library makes them."""
    model = CLASSES[kind](str(folder), device="cpu")
    texts = [side.texts(np.arange(len(side))) for side in (collection.queries, collection.documents)]
    return [*map(np.asarray, model.encode_query(texts[0]))], [*map(np.asarray, model.encode_document(texts[1]))]


def test_it_reaches_the_target(frozen: Forgotten) -> None:
    assert frozen.reached
    assert frozen.record.settings["freeze"] == "documents"
    assert frozen.record.index_valid is True


def test_what_it_reports_is_what_the_saved_ranker_measures(
    frozen: Forgotten, dense: Collection, removals: dict[str, Removal], tmp_path: Path
) -> None:
    frozen.save(tmp_path / "clean")
    assert evaluate(load_ranker(tmp_path / "clean"), dense, removals["queries"]).to_json() == frozen.record["after"]
    card = (tmp_path / "clean" / "README.md").read_text()
    assert "stored before are still valid" in card
    assert "`encode_query()` is for queries" in card and "`encode_document()` is for documents" in card


def test_the_index_of_the_original_stays_valid(
    original: DualEncoder, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    original.save(tmp_path / "original")
    result = brief(original, dense, removal)
    result.save(tmp_path / "clean")
    before, after = (encoded(tmp_path / name, original.kind, dense) for name in ("original", "clean"))
    assert all(np.array_equal(*pair) for pair in zip(before[1], after[1], strict=True))
    assert not any(np.array_equal(*pair) for pair in zip(before[0], after[0], strict=True))


def test_each_document_is_encoded_once_in_the_whole_job(
    original: DualEncoder, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: Counter[tuple[str, bytes]] = Counter()
    kind, encode = type(original), type(original).encode

    def note(ranker: Any, tokens: Any, role: str) -> torch.Tensor:
        for text in tokens:
            seen[role, text.tobytes()] += 1
        return encode(ranker, tokens, role)  # type: ignore[arg-type]

    monkeypatch.setattr(kind, "encode", note)
    known = made_record(dense.fingerprint, Runtime.on("auto").name)
    assert brief(original, dense, removal, record=known, pace=Pace(watch=5)).record.epochs == 2
    times = {role: [count for (side, _), count in seen.items() if side == role] for role in ("query", "document")}
    assert set(times["document"]) == {1}
    assert min(times["query"]) > 1


def test_a_job_without_freezing_keeps_nothing(
    trained: Trained, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unrank.engine.tokens.KeptEncodings.get", None)
    result = forget(trained.ranker, dense, removal, method=replace(BRIEF, epochs=1), target=0.01)
    assert result.record.index_valid is False
    assert "freeze" not in result.record.settings


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights(original: DualEncoder, dense: Collection, removal: Removal) -> None:
    first, second, other = (brief(original, dense, removal, seed=seed).ranker.state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_the_original_stays_as_it_was(original: DualEncoder, dense: Collection, removal: Removal) -> None:
    before = {name: weight.clone() for name, weight in original.state_dict().items()}
    brief(original, dense, removal)
    after = original.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(weight.requires_grad and weight.grad is None for weight in original.parameters())


@pytest.mark.parametrize(
    ("saved", "freeze"),
    [
        pytest.param(True, "documents", id="from its folder"),
        pytest.param(False, None, id="memory", marks=pytest.mark.slow),
    ],
)
def test_a_frozen_one_forgets_again(
    original: DualEncoder, dense: Collection, removals: dict[str, Removal], tmp_path: Path, freeze: Any, saved: bool
) -> None:
    first = brief(original, dense, removals["documents"])
    first.save(tmp_path / "first")
    start = load_ranker(tmp_path / "first") if saved else first.ranker
    second = forget(start, dense, removals["pairs"], method=BRIEF, target=0.01, freeze=freeze)
    second.save(tmp_path / "second")
    assert second.record.index_valid is (freeze is not None)
    before, after = (encoded(tmp_path / name, original.kind, dense) for name in ("first", "second"))
    assert not any(np.array_equal(*pair) for pair in zip(before[0], after[0], strict=True))
    kept = [np.array_equal(*pair) for pair in zip(before[1], after[1], strict=True)]
    assert all(kept) if freeze else not any(kept)


def test_layers_are_those_of_the_query_side(trained: Trained, dense: Collection, removal: Removal) -> None:
    result = brief(trained.ranker, dense, removal, train_layers=1)
    before = trained.ranker.state_dict()
    moved = set()
    for name, weight in result.ranker.state_dict().items():
        _, _, _, side, rest = name.split(".", 4)
        if not torch.equal(weight, before[f"model.{rest}"]):
            moved.add((side, "layer.0." in rest or "embeddings" in rest))
    assert moved == {("query", False)}
    assert result.record.settings["train_layers"] == 1


def test_a_target_that_is_met_already_leaves_the_index_valid(
    trained: Trained, dense: Collection, removal: Removal
) -> None:
    assert forget(trained.ranker, dense, removal, target=1.0).record.index_valid is True


@pytest.mark.parametrize("kind", ["cross-encoder", "parade", "duet", "match-pyramid"])
def test_a_ranker_without_an_index_has_nothing_to_freeze(
    kind: str, encoder: Path, dense: Collection, removal: Removal
) -> None:
    base = "random" if kind in ("duet", "match-pyramid") else str(encoder)
    ranker = create_ranker(kind, base, 0)
    with pytest.raises(UnrankError, match=f"a {kind} stores no vectors of documents, so there are none to --freeze"):
        brief(ranker, dense, removal)


def test_a_ranker_without_an_index_has_none_that_is_valid(encoder: Path, dense: Collection, removal: Removal) -> None:
    ranker = create_ranker("cross-encoder", str(encoder), 0)
    assert forget(ranker, dense, removal, target=1.0).record.index_valid is None


def test_retraining_moves_everything(trained: Trained, dense: Collection, removal: Removal, encoder: Path) -> None:
    with pytest.raises(UnrankError, match="retrain starts again, so it cannot keep the documents' vectors"):
        forget(trained.ranker, dense, removal, method=Retrain(), base=str(encoder), freeze="documents")


def test_only_documents_can_be_frozen(trained: Trained, dense: Collection, removal: Removal) -> None:
    wrong: Any = "queries"
    with pytest.raises(UnrankError, match="side to freeze"):
        forget(trained.ranker, dense, removal, freeze=wrong)


def test_prompts_and_expansion_of_a_checkpoint_stay(
    colbert: Trained, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    colbert.ranker.save(tmp_path / "given")
    model = MultiVectorEncoder(str(tmp_path / "given"), prompts={"query": "hir ", "document": "kos "}, device="cpu")
    model[0].query_expansion = {"strategy": "fixed", "attend": False, "length": 12}
    result = brief(ColbertRanker(model), dense, removal)
    result.save(tmp_path / "clean")
    clean = MultiVectorEncoder(str(tmp_path / "clean"), device="cpu")
    assert clean.prompts == model.prompts
    assert {len(vectors) for vectors in clean.encode_query(["ba", "ce di fo"])} == {12}
    queries, documents = ["ba", "ce di fo"], ["ce di", "ba fo gu"]
    wanted = clean.similarity_pairwise(clean.encode_query(queries), clean.encode_document(documents)).tolist()
    assert result.ranker.score_texts(queries, documents) == pytest.approx(wanted, abs=1e-4)
