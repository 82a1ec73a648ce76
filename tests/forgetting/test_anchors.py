"""Request after request: later requests hold to the first original, and earlier ones stay at their places."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.forgetting.conftest import FAST
from tests.forgetting.test_resume import assert_same, stopped_and_resumed, strides_of
from tests.table import as_set
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.engine.runtime import Silence
from unrank.evaluation.measure import ranks_among
from unrank.forgetting.anchor_file import KIND, AnchorFile, IdHashes
from unrank.forgetting.anchors import find_anchors
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.outcome import pair_ranks
from unrank.forgetting.places import margins
from unrank.forgetting.previous_requests import PreviousRanks
from unrank.forgetting.run import earlier_places
from unrank.forgetting.train import Trained
from unrank.forgetting.validation import weights_hash
from unrank.forgetting.workspace import Workspace
from unrank.methods.cocol import Cocol
from unrank.owner import owner_key, recall, remember
from unrank.rankers.base import Ranker
from unrank.record import RETRAIN, Record

PLACED = Cocol(learning_rate=1e-3, batch=16, warm_up=1, min_steps=1, place_epochs=6)
LATER = Removal(documents=["doc30", "doc33", "doc34"], queries=["query10"])


class Heard(Silence):
    """Keeps the lines that a job says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("owner")
        patch.setenv("UNRANK_STATE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def first(state: Path, trained: Trained, dense: Collection, removal: Removal) -> Forgotten:
    """A first request, to estimated places, whose anchor file is written."""
    done = forget(trained.ranker, dense, removal, method=PLACED)
    done.write_anchors()
    return done


@pytest.fixture
def content(first: Forgotten) -> Iterator[str]:
    """The anchor file after the first request; it is as it was after each test."""
    text = recall(KIND, first.record.lineage or "")
    assert text is not None
    yield text
    remember(KIND, first.record.lineage or "", text)


def read(record: Record) -> AnchorFile:
    found = AnchorFile.read(record.lineage or "", owner_key())
    assert found is not None
    return found


def workspace_of(ranker: Ranker, collection: Collection, record: Record) -> Workspace:
    return Workspace.for_removal(ranker, collection, LATER, record, device="cpu", progress=Heard())


def lines(workspace: Workspace) -> list[str]:
    assert isinstance(workspace.runtime.progress, Heard)
    return workspace.runtime.progress.lines


def drifted(ranker: Ranker) -> Ranker:
    """A ranker that many requests have moved."""
    moved = deepcopy(ranker)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in moved.parameters():
            weight.add_(0.02 * torch.randn(weight.shape, generator=generator))
    return moved


def test_a_first_request_keeps_the_originals_scores_of_kept_pairs_by_hashes(
    first: Forgotten, trained: Trained, dense: Collection, removal: Removal, content: str
) -> None:
    assert first.record.lineage == weights_hash(trained.ranker)
    workspace = workspace_of(first.ranker, dense, first.record)
    anchors = find_anchors(workspace, first.record)
    assert anchors is not None and lines(workspace) == []
    asked = np.unique(workspace.partition.forget[:, 0])
    kept = workspace.partition.retain
    assert as_set(anchors.pairs) == as_set(kept[~np.isin(kept[:, 0], asked)]), "but for queries that are asked for now"
    assert np.bincount(anchors.negatives[:, 0]).max() == 8
    assert not np.isin(anchors.negatives[:, 1], workspace.partition.documents).any()
    scores = workspace.scorer(trained.ranker)(np.concatenate([anchors.pairs, anchors.negatives]))
    assert anchors.scores == pytest.approx(scores, abs=1e-5)
    assert as_set(anchors.placed) == as_set(workspace.partition.previous)
    assert not any(f'"{id}"' in content for id in (*removal.documents, "doc1", "query1"))


def test_the_teacher_answers_with_them_and_measures_what_is(
    first: Forgotten, trained: Trained, dense: Collection, content: str
) -> None:
    moved = drifted(first.ranker)
    workspace = workspace_of(moved, dense, first.record)
    anchors, task = find_anchors(workspace, first.record), workspace.task(moved)
    assert anchors is not None
    previous = PreviousRanks.measure(task.teacher.scores, workspace.previous, dense, workspace.evaluator)
    held = anchors.hold(task, previous, dense)
    listed = np.concatenate([anchors.pairs, anchors.negatives])
    apart = held.teacher.ask(listed).score - workspace.scorer(trained.ranker)(listed)
    levels = [apart[listed[:, 0] == query] for query in np.unique(listed[:, 0])]
    assert max(np.ptp(level) for level in levels) < 1e-4, "each list is the first original's, at the level of this one"
    assert np.abs(apart).max() > 0.1
    assert held.teacher.scores(anchors.pairs).tolist() == task.teacher.scores(anchors.pairs).tolist()
    others = workspace.partition.forget
    assert held.teacher.ask(others).score.tolist() == task.teacher.scores(others).tolist()
    assert not len(held.partition.risen), "places hold them, not the mean"
    assert as_set(held.partition.previous) == as_set(anchors.placed)
    places, pairs = held.earlier_places, held.partition.previous
    assert places is not None and np.isfinite(places.scores).all() and places.ranks.min() >= 1
    now = pair_ranks(dense, pairs, workspace.scorer(moved))
    assert places.away.tolist() == (abs(1 / now - 1 / places.ranks) > 0.02).tolist() and places.away.any()
    watched, same = earlier_places(held) or (pairs[:0], None)
    assert same is places and as_set(watched) == as_set(pairs)
    assert first.places is not None
    assert places.ranks.tolist() == first.places.ranks[dense.find_pairs(pairs, first.places.pairs)].tolist()
    negatives = dense.negatives.pairs(np.unique(pairs[:, 0]))
    found = ranks_among(pairs, places.scores, negatives, held.teacher.answers(negatives))
    assert found.tolist() == places.ranks.tolist(), "the wanted score has the rank of the place in the list of today"


def test_earlier_requests_are_pulled_to_their_places_from_below_too(
    first: Forgotten, dense: Collection, content: str
) -> None:
    """Every place is raised in a file without ranks: then the pairs rise, which without the file they do not."""
    file, workspace = read(first.record), workspace_of(first.ranker, dense, first.record)
    pairs = workspace.partition.previous
    before = margins(dense, pairs, workspace.scorer(first.ranker))
    rises = {}
    for by in (None, 0.5, -0.5):
        if by is None:
            remember(KIND, first.record.lineage or "", "")
        else:
            places = {name: {pair: at + by for pair, at in of.items()} for name, of in file.places.items()}
            replace(file, places=places, ranks={}).write(first.record.lineage or "")
        done = forget(first.ranker, dense, LATER, method=replace(PLACED, place_epochs=3), record=first.record)
        rises[by] = float((margins(dense, pairs, workspace.scorer(done.ranker)) - before).mean())
    assert rises[0.5] > rises[None] + 0.05
    assert rises[-0.5] < rises[None] - 0.05


def test_a_later_request_that_was_stopped_goes_on(
    first: Forgotten, dense: Collection, content: str, tmp_path: Path
) -> None:
    """The earlier pairs that are away from their places are part of the checkpoint: they are drawn more often."""
    moved = drifted(first.ranker)

    def job(**options: Any) -> Forgotten:
        return forget(moved, dense, LATER, method=replace(PLACED, place_epochs=3), record=first.record, **options)

    whole, strides = strides_of(job)
    assert whole.record.epochs >= 3
    assert_same(stopped_and_resumed(job, tmp_path / "out", strides), whole)


def test_what_a_later_request_removes_is_erased_when_it_is_saved(
    first: Forgotten, dense: Collection, content: str, tmp_path: Path
) -> None:
    second = forget(first.ranker, dense, LATER, method=replace(FAST, epochs=1), target=0.01, record=first.record)
    assert second.record.lineage == first.record.lineage
    key = owner_key()
    assert key is not None
    hashed = [*map(IdHashes(key).document, LATER.documents)]
    assert all(each in content for each in hashed)
    second.save(tmp_path / "second")
    after = recall(KIND, first.record.lineage or "") or ""
    assert not any(each in after for each in hashed)
    assert read(first.record).places.keys() == {first.record["removed"]["salt"]}, "the second was not sent to places"
    shipped = b"".join(path.read_bytes() for path in (tmp_path / "second").rglob("*") if path.is_file())
    assert next(iter(read(first.record).lists)).encode() not in shipped
    saved = Record.read(tmp_path / "second")
    assert saved is not None and saved.lineage == first.record.lineage


def test_a_missing_file_is_said_in_one_line(first: Forgotten, dense: Collection, content: str) -> None:
    for record, words in (
        (replace(first.record, lineage="another"), "cannot find or read the anchor file"),
        (replace(first.record, lineage=None), "has no anchor file"),
    ):
        workspace = workspace_of(first.ranker, dense, record)
        assert find_anchors(workspace, record) is None
        [said] = lines(workspace)
        assert words in said and "held where the run before left it" in said
    retrained = replace(first.record, method=RETRAIN, lineage=None)
    workspace = workspace_of(first.ranker, dense, retrained)
    assert find_anchors(workspace, retrained) is None
    assert lines(workspace) == [], "it is an original of its own"
