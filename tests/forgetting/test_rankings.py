"""What the details say of every query, held against the scorecard and the collection."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.forgetting.conftest import FAST
from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.forgetting import rankings
from unrank.forgetting.forget import Forgotten, forget_in
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.places import Places
from unrank.forgetting.rankings import save_details, sets_of
from unrank.forgetting.train import Trained
from unrank.forgetting.workspace import Workspace
from unrank.record import PlacesFound

Lines = list[dict[str, Any]]


@pytest.fixture
def saved(trained: Trained, forgotten: Forgotten, dense: Collection, removal: Removal, tmp_path: Path) -> Path:
    save_details(Workspace.for_removal(trained.ranker, dense, removal), trained.ranker, forgotten, tmp_path / "details")
    return tmp_path / "details"


def lines(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_measured_query_is_there_with_its_sets(
    saved: Path, forgotten: Forgotten, dense: Collection, removal: Removal
) -> None:
    queries, header = lines(saved / "queries.jsonl"), json.loads((saved / "details.json").read_text())
    assert header["run"] == forgotten.record["removed"]["salt"]
    for name, rows in sets_of(dense, make_partition(dense, removal)).items():
        assert {query["id"] for query in queries if name in query["sets"]} == set(dense.queries.ids(rows))
        measured = getattr(forgotten.after, name)
        assert header["queries"][name] == header["measured"][name] == len(measured.queries)


def test_who_says_what_a_removed_text_says_is_marked(dense: Collection, removal: Removal) -> None:
    """Whether or not the removed one stands in any list."""
    partition = make_partition(dense, removal)
    gone = rankings.removed_texts(dense, partition)
    assert gone == set(dense.documents.texts(dense.documents.rows(removal.documents)))
    kept = np.setdiff1d(np.arange(len(dense.documents)), partition.documents)
    twin = dense.documents.text(int(kept[0]))
    marked = list(rankings.text_lines(dense.documents, kept, partition.documents, gone | {twin}))
    assert not any(line["removed"] for line in marked)
    assert {line["text"] for line in marked if line["says_removed"]} == {twin}


def test_places_and_lists_agree(saved: Path, removal: Removal) -> None:
    documents = {line["id"]: line for line in lines(saved / "documents.jsonl")}
    assert {id for id, line in documents.items() if line["removed"]} <= set(removal.documents)
    fell = 0
    for query in lines(saved / "queries.jsonl"):
        for side, number in (("before", 0), ("after", 1)):
            entries = query[side]
            scores = [entry["score"] for entry in entries]
            assert scores == sorted(scores, reverse=True)
            assert all(entry["document"] in documents for entry in entries)
            for kind, marked in (("forgotten", True), ("kept", False)):
                shown = [
                    place
                    for place, entry in enumerate(entries, 1)
                    if entry["relevant"] and entry["forgotten"] is marked
                ]
                assert shown == sorted(move[number] for move in query[kind] if move[number] <= rankings.SHOWN)
        fell += sum(after > before for before, after in query["forgotten"])
        removed = {entry["document"] for entry in query["before"] if not entry["forgotten"]} & set(removal.documents)
        assert not removed
    assert fell > 0


def test_a_place_is_where_the_wanted_score_stands_in_the_list_before(
    trained: Trained, forgotten: Forgotten, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    """Above everything it is the first place, below everything the last."""
    workspace = Workspace.for_removal(trained.ranker, dense, removal)
    forget = workspace.partition.forget
    found = PlacesFound(proxies=1, source="made", epochs=1, calibrated_on=0, spread=0.0)
    for number, score in enumerate((1e6, -1e6)):
        wanted = np.full(len(forget), score, np.float32)
        places = Places(
            forget, np.ones(len(forget), np.int64), wanted, ranks=np.ones(len(forget), np.int64), found=found
        )
        save_details(workspace, trained.ranker, replace(forgotten, places=places), tmp_path / f"{number}")
        for query in lines(tmp_path / f"{number}" / "queries.jsonl"):
            gone, entries = len(query["forgotten"]), len(dense.list_pairs(dense.queries.rows([query["id"]])))
            assert len(query["places"]) == gone
            if gone and score > 0:
                assert sorted(query["places"]) == [*range(1, gone + 1)]
            elif gone:
                assert gone < min(query["places"]) <= max(query["places"]) <= entries


def test_the_test_mrr_follows_from_places(saved: Path, forgotten: Forgotten) -> None:
    """A test query is measured on the very list that is shown."""
    tests = [query for query in lines(saved / "queries.jsonl") if "test" in query["sets"]]
    for scorecard, number in ((forgotten.before, 0), (forgotten.after, 1)):
        assert scorecard.test is not None
        reciprocal = [1 / min(move[number] for move in query["kept"]) for query in tests]
        assert np.mean(reciprocal) == pytest.approx(scorecard.test.mean)


def test_every_score_is_in_one_bin(saved: Path, dense: Collection, removal: Removal) -> None:
    scores = json.loads((saved / "details.json").read_text())["scores"]
    partition = make_partition(dense, removal)
    for when in ("before", "after"):
        assert sum(scores["forgotten"][when]) == len(partition.forget)
    assert sum(scores["kept"]["before"]) == sum(scores["kept"]["after"]) > len(partition.retain)


def test_of_too_many_queries_the_forgotten_come_first(
    trained: Trained,
    forgotten: Forgotten,
    dense: Collection,
    removal: Removal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = len(np.unique(make_partition(dense, removal).forget[:, 0])) + 2
    monkeypatch.setattr(rankings, "MOST_QUERIES", count)
    save_details(Workspace.for_removal(trained.ranker, dense, removal), trained.ranker, forgotten, tmp_path / "few")
    header = json.loads((tmp_path / "few" / "details.json").read_text())
    assert len(lines(tmp_path / "few" / "queries.jsonl")) == count
    assert header["queries"]["forget"] == header["measured"]["forget"]
    assert header["queries"]["disjoint"] < header["measured"]["disjoint"]


def test_what_a_run_has_scored_is_not_scored_again_for_its_details(
    trained: Trained, dense: Collection, removal: Removal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace.for_removal(trained.ranker, dense, removal)
    result = forget_in(workspace, trained.ranker, ForgetOptions(method=replace(FAST, epochs=1), target=0.01))
    save_details(workspace, trained.ranker, replace(result, teachers=()), tmp_path / "again")

    def refuse(*_: object) -> None:
        raise AssertionError("scored again")

    monkeypatch.setattr("unrank.engine.teacher.scores_of", refuse)
    monkeypatch.setattr("unrank.forgetting.workspace.scores_of", refuse)
    save_details(workspace, trained.ranker, result, tmp_path / "known")
    again, known = (lines(tmp_path / name / "queries.jsonl") for name in ("again", "known"))
    assert len(known) > 0 and again == known
