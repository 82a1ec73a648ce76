"""The plan: what a run would change and how long it would take, before anything is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows
from unrank.desk.batch import Batch
from unrank.desk.copies import Copy, find_copies
from unrank.engine.runtime import Device
from unrank.forgetting.estimate import Seconds, estimate
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.train import recipe_of
from unrank.forgetting.workspace import Workspace, usual_measure
from unrank.methods.retrain import Retrain
from unrank.rankers.base import Ranker
from unrank.record import Record, measured_epoch

SHOWN = 5


@dataclass(frozen=True)
class Plan:
    """The changes and the times of a run."""

    batch: Batch
    partition: Partition
    overlaps: list[tuple[int, int, int]]
    noticing: int
    """The number of kept queries, of training and of test, with a removed document in their lists."""
    examples: list[str]
    copies: list[Copy]
    seconds: dict[str, Seconds]
    """The time with each method."""


def make_plan(
    ranker: Ranker,
    collection: Collection,
    batch: Batch,
    record: Record | None,
    look: Sequence[Path],
    ledger: Path,
    base: str | None = None,
    device: Device = "auto",
) -> Plan:
    partition = batch.partition(collection)
    noticing = queries_that_notice(collection, partition, batch.removal)
    workspace = Workspace.open(ranker, collection, partition, device, measure=usual_measure(ranker, device))
    known_base, options = base or (record.base if record else None), ForgetOptions(device=device)
    seconds = {
        "cocol": estimate(workspace, ranker, options, base=known_base, record=record),
        "retrain": _retraining(ranker, workspace, record, device),
    }
    return Plan(
        batch,
        partition,
        batch.overlaps(collection),
        len(noticing),
        collection.queries.texts(noticing[:SHOWN]),
        find_copies(look, batch.all_items, collection, ledger),
        seconds,
    )


def queries_that_notice(collection: Collection, partition: Partition, removal: Removal) -> Rows:
    """Return the kept queries whose lists lose a document, or hold one that is forgotten for another query.

    Documents of earlier requests have left the lists already.
    """
    gone = np.union1d(collection.documents.rows(removal.documents), partition.forget[:, 1])
    noticing = []
    for lists in (collection.relevant, collection.negatives):
        rows = np.repeat(np.arange(len(lists.counts)), lists.counts)
        noticing.append(np.unique(rows[np.isin(lists.values, gone)]))
    return np.setdiff1d(np.union1d(*noticing), partition.queries)


def _retraining(ranker: Ranker, workspace: Workspace, record: Record | None, device: Device) -> Seconds:
    """Return the time of a retraining: from the measured time of an epoch, if there is one, else from a few steps."""
    recipe = recipe_of(ranker.kind)
    measured = measured_epoch(record, workspace.collection.fingerprint, workspace.runtime.name)
    if measured:
        seconds = training_epochs(record, recipe) * measured.seconds
        return Seconds(seconds, seconds)
    return estimate(workspace, ranker, ForgetOptions(method=recipe, device=device), record=record)


def training_epochs(record: Record | None, recipe: Retrain) -> float:
    """Return the epochs that a training takes: those of the ranker's own training, if that ended by itself.

    A training that was given fewer epochs than its recipe, and used all of them, might have gone on.
    """
    if record is None or record.method != recipe.name:
        return recipe.epochs
    learned = record.history[-1].learned if record.history else None
    ended = learned is not None and learned >= recipe.enough
    return record.epochs if ended or record.epochs >= recipe.epochs else recipe.epochs
