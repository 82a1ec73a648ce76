"""Pairs that no ranker was trained on: reserved ones, or queries that are made of documents."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.tiny import make_collection
from unrank.cli.closing import closing
from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.engine import teacher
from unrank.engine.scoring import scores_of
from unrank.forgetting.forget import forget
from unrank.forgetting.unseen import LEAST_OPENINGS, find_unseen, make_openings
from unrank.forgetting.workspace import Workspace
from unrank.methods.cocol import Cocol
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker

REMOVED = Removal(documents=["doc1", "n3"], queries=["query2"])


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """Most of its documents are relevant to nothing."""
    generator = random.Random(5)
    pairs = [(f"query{i}", f"doc{one}") for i in range(24) for one in generator.sample(range(12), 3)]
    return make_collection(tmp_path_factory.mktemp("wide") / "wide", pairs, [("test", "doc0")], documents=90)


@pytest.fixture(scope="module")
def stranger(encoder: Path) -> Ranker:
    return create_ranker("bi-encoder", str(encoder), 3)


def test_queries_are_made_of_documents_that_no_training_query_names(wide: Collection) -> None:
    partition = make_partition(wide, REMOVED)
    made = make_openings(wide, partition)
    text_of = {wide.documents.text(row): row for row in range(len(wide.documents))}
    assert len(made.pairs) == len(made.queries) >= LEAST_OPENINGS
    for query, document in made.pairs:
        whole = f"{made.queries.text(query)} {made.documents.text(document)}"
        assert len(made.queries.text(query).split()) == 4, "as long as the training queries"
        source = text_of[whole]
        assert source not in wide.pairs[:, 1] and source not in partition.documents
        others = {text_of[text] for text in made.documents.texts(made.negatives[query])}
        assert 1 < len(others) <= 10
        assert source not in others and not others & {*partition.documents.tolist()}
    again = make_openings(wide, partition)
    assert made.queries.texts(np.arange(50)) == again.queries.texts(np.arange(50))


def test_reserved_pairs_come_first_unless_a_proxy_saw_them(wide: Collection, stranger: Ranker) -> None:
    workspace = Workspace.for_removal(stranger, wide, REMOVED, device="cpu")
    score = workspace.scorer(stranger)
    reserved = replace(workspace, partition=replace(workspace.partition, reserved=workspace.partition.disjoint))
    assert len(reserved.partition.reserved) >= 20
    found = [find_unseen(reserved, stranger, score), find_unseen(reserved, stranger, score, reserved=False)]
    assert [each and each.source for each in found] == ["reserved", "openings"]
    assert found[1] is not None
    own, same = found[1].original(found[1].pairs), found[1].scorer(stranger)(found[1].pairs)
    assert np.array_equal(own, same) and len(own) == len(found[1].pairs)


def test_the_original_scores_them_once(wide: Collection, stranger: Ranker, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, scored = Workspace.for_removal(stranger, wide, REMOVED, device="cpu"), list[int]()

    def noted(*given: Any) -> NDArray[np.float32]:
        scored.append(len(given[2]))
        return scores_of(*given)

    monkeypatch.setattr(teacher, "scores_of", noted)
    found = find_unseen(workspace, stranger, workspace.scorer(stranger), reserved=False)
    assert found is not None
    first, again = found.original(found.pairs), found.original(found.pairs)
    assert scored == [len(found.pairs)] and np.array_equal(first, again)


def test_too_few_documents_make_no_queries(dense: Collection, stranger: Ranker) -> None:
    workspace = Workspace.for_removal(stranger, dense, Removal(documents=["doc1"]), device="cpu")
    assert len(make_openings(dense, workspace.partition).pairs) < LEAST_OPENINGS
    assert find_unseen(workspace, stranger, workspace.scorer(stranger)) is None


def test_places_of_a_ranker_from_elsewhere_are_tried_on_them(wide: Collection, stranger: Ranker, encoder: Path) -> None:
    method, stranger = Cocol(learning_rate=1e-3, batch=16, place_epochs=1, place_rounds=1), copy.deepcopy(stranger)
    with torch.no_grad():
        next(stranger.parameters()).mul_(1.01)  # it is not its base itself
    result = forget(stranger, wide, REMOVED, method=method, base=str(encoder), device="cpu", measure=1, proxy_epochs=1)
    places = result.record.places
    assert places is not None and places.calibrated_by == "openings"
    assert places.calibrated_on >= LEAST_OPENINGS
    assert places.level == 0 and places.above is not None
    assert "a proxy of 1 epoch that never saw it, not calibrated" in closing(result, Path("out"))
