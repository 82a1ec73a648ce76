"""The tests that try to bring memory back: an epoch on kept data, and a few forgotten pairs shown again.

Recovery trains one epoch on kept pairs and shows nothing forgotten: memory that comes back was hidden. Relearning shows
a twentieth of the forget pairs again and measures the others. A ranker that has forgotten learns little more than the
pairs it is shown; one that only hides them regains the others too. Its figure is the mean of the forget MRR after 1,
5, 10 and 50 steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditedRanker
from unrank.audit.verdict import Finding, Hiding, find, undecided
from unrank.collection.collection import Pairs
from unrank.collection.partition import Partition
from unrank.engine.loop import Schedule, fit
from unrank.evaluation.measure import Floats
from unrank.forgetting.train import recipe_of, train_on_kept, trainable_copy
from unrank.methods.ranking import learn

RELEARNING = "the forget MRR while a few forgotten pairs are learned again"


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


def relearning(context: AuditContext) -> Finding:
    """Show some forget pairs again, and measure the others."""
    shown, others = split_forget(context)
    if not len(shown) or not len(others):
        return undecided(RELEARNING, "there are too few forgotten pairs to show some again and measure the others")
    steps = context.thoroughness.relearning_steps
    curves = context.each(lambda one: _curve(context, one, shown, others))
    by_step = {str(step): context.compare_means(curves.map(itemgetter(place))) for place, step in enumerate(steps, 1)}
    return find_recovered(
        context,
        RELEARNING,
        curves.map(lambda curve: BeforeAfter(curve[0], np.mean(curve[1:], axis=0))),
        shown_pairs=len(shown),
        steps={step: compared.to_json() for step, compared in by_step.items()},
    )


def split_forget(context: AuditContext) -> tuple[Pairs, Pairs]:
    """Split the forget pairs into some to show, whose queries have a negative, and the others."""
    forget = context.sets["forget"]
    order = np.random.default_rng(context.seed).permutation(len(forget))
    able = order[context.with_negatives(forget)[order]]
    shown = able[: max(1, round(context.thoroughness.relearning_share * len(forget)))]
    return forget[np.sort(shown)], np.delete(forget, shown, axis=0)


def _curve(context: AuditContext, one: AuditedRanker, shown: Pairs, others: Pairs) -> Sequence[Floats]:
    """Return the reciprocal ranks of the other pairs before the first step and after each number of steps."""
    recipe, workspace = recipe_of(one.ranker.kind), one.workspace
    steps = context.thoroughness.relearning_steps
    rate = context.thoroughness.relearning_rate or recipe.learning_rate
    student = trainable_copy(one.ranker, workspace)
    phase = learn(workspace.task(student), shown, recipe.negatives, recipe.batch, recipe.together)
    schedule = Schedule(max(steps), rate, context.seed, check_every=1)
    curve = [one.reciprocals(others)]
    for done, _ in enumerate(fit(student, [phase], schedule, workspace.store, workspace.runtime), 1):
        if done in steps:
            curve.append(one.reciprocals(others, workspace.scorer(student)))
        if done == max(steps):
            break
    return curve
