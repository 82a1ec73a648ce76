"""Measure a ranker, with or without a removal, alone or beside references; and BM25, which every ranker has to beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unrank.collection.bm25 import Bm25
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import make_partition, whole_partition
from unrank.collection.removal import Removal
from unrank.engine.runtime import Device, Progress
from unrank.evaluation.agreement import ForgetFigures, agreement, noise_between
from unrank.evaluation.query_details import read_forget_figures
from unrank.evaluation.scorecard import MOST_QUERIES, Evaluator, MeasuredLists, Scorecard
from unrank.forgetting.previous_requests import previous_removals
from unrank.forgetting.workspace import Workspace, check_given, partition_of
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker
from unrank.record import Agreement, Record, reserved_in


def evaluate(
    ranker: Ranker,
    collection: Collection,
    removal: Removal | None = None,
    *,
    record: Record | Mapping[str, object] | None = None,
    measure: int = MOST_QUERIES,
    device: Device = "auto",
    progress: Progress | None = None,
    known: Record | Mapping[str, object] | None = None,
) -> Scorecard:
    """Measure a ranker on all sets. Without a removal all pairs that it was trained on are disjoint.

    `record` is the ranker's record, if unrank made it: queries that training left out are not measured. With a removal,
    what it forgot before is not kept data, and is left out of the lists. `measure` is the maximal number of queries of
    each kept set, 0 for all. `known` is the old name of `record`.
    """
    return evaluate_with_lists(
        ranker, collection, removal, record=known or record, measure=measure, device=device, progress=progress
    )[0]


def evaluate_with_lists(
    ranker: Ranker,
    collection: Collection,
    removal: Removal | None = None,
    *,
    record: Record | Mapping[str, object] | None = None,
    measure: int = MOST_QUERIES,
    device: Device = "auto",
    progress: Progress | None = None,
) -> tuple[Scorecard, dict[str, MeasuredLists]]:
    """Measure a ranker as `evaluate` does, and return the lists in which each set was measured too."""
    workspace = evaluation_workspace(ranker, collection, removal, Record.of(record), measure, device, progress)
    return workspace.evaluator.scorecard_and_lists(workspace.scorer(ranker))


def evaluation_workspace(
    ranker: Ranker,
    collection: Collection,
    removal: Removal | None,
    record: Record | None,
    measure: int,
    device: Device,
    progress: Progress | None,
) -> Workspace:
    """Open a workspace that measures a ranker, with or without a removal."""
    check_given(collection, removal, ranker)
    if removal is not None:
        return Workspace.for_removal(
            ranker, collection, removal, record, device=device, progress=progress, measure=measure
        )
    partition = whole_partition(collection, bool(reserved_in(record, collection.fingerprint)))
    return Workspace.open(ranker, collection, partition, device, progress, measure)


def measured_pairs(
    collection: Collection, removal: Removal | None, record: Record | None, measure: int = MOST_QUERIES
) -> dict[str, Pairs]:
    """Return the pairs of each set that `evaluate` measures."""
    if removal is None:
        partition = whole_partition(collection, bool(reserved_in(record, collection.fingerprint)))
    else:
        partition = partition_of(collection, removal, record, previous_removals(collection, record))
    return {"forget": partition.forget, **Evaluator(collection, partition, measure).measured}


@dataclass(frozen=True)
class ReferenceComparison:
    """The agreement of a ranker with each reference on the forget set, and that of the references with each other."""

    references: Mapping[str, Agreement]
    noise: Agreement | None
    """The mean over pairs of references; `None` if there is only one."""

    def to_json(self) -> dict[str, object]:
        found = [{"reference": name, **asdict(each)} for name, each in self.references.items()]
        return {"references": found, "noise": asdict(self.noise) if self.noise else None}


def compare_with(card: Scorecard, references: Mapping[str, ForgetFigures]) -> ReferenceComparison:
    """Compare a measured ranker with references, by their figures on the same forget set."""
    figures = card.forget_figures
    assert figures is not None
    return ReferenceComparison(
        {name: agreement(figures, theirs) for name, theirs in references.items()},
        noise_between([*references.values()]),
    )


def reference_figures(
    name: str, collection: Collection, removal: Removal, device: Device, progress: Progress | None, fast: bool = True
) -> ForgetFigures:
    """Measure a reference on the forget set. It is a ranker, or a file of details, which need no ranker."""
    partition = make_partition(collection, removal)
    if Path(name).is_file():
        return read_forget_figures(Path(name), collection, partition.forget)
    ranker = load_ranker(name, fast)
    workspace = Workspace.open(ranker, collection, partition, device, progress)
    return workspace.evaluator.forget_figures(workspace.scorer(ranker))


def evaluate_bm25(
    collection: Collection, removal: Removal | None = None, measure: int = MOST_QUERIES
) -> tuple[Scorecard, dict[str, MeasuredLists]]:
    """Measure BM25 on the same lists, and return them too. It has no earlier requests."""
    collection.check_candidates()
    index = Bm25.over(collection.documents)

    def score(pairs: Pairs) -> NDArray[np.float32]:
        scores = np.empty(len(pairs), np.float32)
        order = np.argsort(pairs[:, 0], kind="stable")
        for here in np.split(order, np.flatnonzero(np.diff(pairs[order, 0])) + 1):
            scores[here] = index.scores(collection.queries.text(pairs[here[0], 0]), pairs[here, 1])
        return scores

    partition = make_partition(collection, removal) if removal is not None else None
    return Evaluator(collection, partition, measure).scorecard_and_lists(score)
