"""The plan: what a run would touch and about how long it takes, before anything is done."""

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
from unrank.desk.holders import Holder, holders
from unrank.engine.runtime import Device, Runtime
from unrank.forgetting.estimate import estimate
from unrank.forgetting.train import recipe_of
from unrank.forgetting.workspace import usual_measure
from unrank.methods import make_method
from unrank.rankers.base import Ranker
from unrank.record import Record, measured_epoch

SHOWN = 5


@dataclass(frozen=True)
class Plan:
    """What a run would do."""

    batch: Batch
    partition: Partition
    overlaps: list[tuple[int, int, int]]
    noticing: int
    """Kept queries, for training and for testing, in whose lists something that is removed stands."""
    examples: list[str]
    holders: list[Holder]
    seconds: dict[str, float]
    """By method."""


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
    cocol = make_method("cocol", ranker=ranker.kind)
    seconds = {
        "cocol": estimate(
            *(ranker, collection, partition, cocol, base or (record.base if record else None), device),
            measure=usual_measure(ranker, device),
        ),
        "retrain": _retraining(ranker, collection, partition, record, device),
    }
    return Plan(
        batch,
        partition,
        batch.overlaps(collection),
        len(noticing),
        collection.queries.texts(noticing[:SHOWN]),
        holders(look, batch.all_items, collection, ledger),
        seconds,
    )


def queries_that_notice(collection: Collection, partition: Partition, removal: Removal) -> Rows:
    """Queries that stay, and whose lists lose a document or hold one that is forgotten for another query. What was
    forgotten before this removal has left them already."""
    gone = np.union1d(collection.documents.rows(removal.documents), partition.forget[:, 1])
    noticing = []
    for lists in (collection.relevant, collection.negatives):
        rows = np.repeat(np.arange(len(lists.counts)), lists.counts)
        noticing.append(np.unique(rows[np.isin(lists.values, gone)]))
    return np.setdiff1d(np.union1d(*noticing), partition.queries)


def _retraining(
    ranker: Ranker, collection: Collection, partition: Partition, record: Record | None, device: Device
) -> float:
    """From the epoch that was measured when the ranker was trained here, else from a few steps."""
    recipe = recipe_of(ranker.kind)
    measured = measured_epoch(record, collection.fingerprint, Runtime.on(device).name)
    if measured:
        epochs = record.epochs if record and record.method == recipe.name else recipe.epochs
        return epochs * measured.seconds
    return estimate(ranker, collection, partition, recipe, None, device)
