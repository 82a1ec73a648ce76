"""Recovery: does an epoch on kept pairs bring memory back?

Nothing forgotten is shown, so memory that comes back was hidden. The judgement of an attempt to bring memory back is
here too: other tests share it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditedRanker
from unrank.audit.verdict import Finding, Hiding, find
from unrank.collection.partition import Partition
from unrank.evaluation.measure import Floats
from unrank.forgetting.train import train_on_kept, trainable_copy


class BeforeAfter(NamedTuple):
    """The reciprocal rank of each query before and after an attempt to bring memory back."""

    before: Floats
    after: Floats


def find_recovered(context: AuditContext, measures: str, each: PerRanker[BeforeAfter], **details: Any) -> Finding:
    """Judge the MRR after an attempt to bring memory back, and its rise."""
    before = context.compare_means(each.map(lambda one: one.before))
    change = context.compare_means(each.map(lambda one: one.after - one.before))
    return find(
        measures,
        context.compare_means(each.map(lambda one: one.after)),
        shown_before=before,
        hiding=Hiding("its rise is", change),
        before=before.to_json(),
        change=change.to_json(),
        **details,
    )


def recovery(context: AuditContext) -> Finding:
    """Measure the forget MRR after an epoch on kept data."""
    shown = kept_sample(context.partition, context.thoroughness.kept_pairs, context.seed)
    forget = context.sets["forget"]

    def recover(one: AuditedRanker) -> BeforeAfter:
        workspace = replace(one.workspace, partition=shown)
        student = trainable_copy(one.ranker, workspace)
        train_on_kept(student, workspace, context.seed, context.thoroughness.recovery)
        return BeforeAfter(one.reciprocals(forget), one.reciprocals(forget, workspace.scorer(student)))

    measures = "the forget MRR after an epoch on kept data"
    return find_recovered(context, measures, context.each(recover), pairs=len(shown.retain))


def kept_sample(partition: Partition, most: int, seed: int) -> Partition:
    """Return the partition with at most this many kept pairs."""
    taken = np.sort(np.random.default_rng(seed).permutation(len(partition.retain))[:most])
    entangled = taken < len(partition.entangled)
    return replace(
        partition, entangled=partition.retain[taken[entangled]], disjoint=partition.retain[taken[~entangled]]
    )
