"""Relearning: how fast the rest comes back when a twentieth of what is forgotten is shown again.

Whoever has forgotten learns the shown pairs and little more; whoever only hides them regains the others with them. The
forget MRR is that of the pairs that are not shown, after 1, 5, 10 and 50 steps, and their mean is the figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from unrank.audit.case import Case, Subject
from unrank.audit.comeback import Comeback, find_comeback
from unrank.audit.verdict import Finding, unknown
from unrank.collection.collection import Pairs
from unrank.engine.loop import Schedule, fit
from unrank.evaluation.measure import Floats
from unrank.forgetting.recovery import pupil_of
from unrank.forgetting.train import recipe_of
from unrank.methods.ranking import learn

MEASURES = "the forget MRR while a few forgotten pairs are learned again"


def relearning(case: Case) -> Finding:
    shown, others = _split(case)
    if not len(shown) or not len(others):
        return unknown(MEASURES, "there are too few forgotten pairs to show some again and measure the others")
    steps = case.thoroughness.relearning_steps
    curves = case.each(lambda subject: _curve(case, subject, shown, others))
    by_step = {str(step): case.readings(curves.map(itemgetter(place))) for place, step in enumerate(steps, 1)}
    return find_comeback(
        case,
        MEASURES,
        curves.map(lambda curve: Comeback(curve[0], np.mean(curve[1:], axis=0))),
        shown_pairs=len(shown),
        steps={step: read.to_json() for step, read in by_step.items()},
    )


def _split(case: Case) -> tuple[Pairs, Pairs]:
    """Some forget pairs to show, of queries that have a negative; and the others."""
    forget = case.sets["forget"]
    order = np.random.default_rng(case.seed).permutation(len(forget))
    able = order[case.with_negatives(forget)[order]]
    shown = able[: max(1, round(case.thoroughness.relearning_share * len(forget)))]
    return forget[np.sort(shown)], np.delete(forget, shown, axis=0)


def _curve(case: Case, subject: Subject, shown: Pairs, others: Pairs) -> Sequence[Floats]:
    """The reciprocal ranks of the others before the first step, and after each number of steps."""
    recipe, workspace = recipe_of(subject.ranker.kind), subject.workspace
    steps = case.thoroughness.relearning_steps
    rate = case.thoroughness.relearning_rate or recipe.learning_rate
    pupil = pupil_of(subject.ranker, workspace)
    phase = learn(workspace.task(pupil), shown, recipe.negatives, recipe.batch, recipe.together)
    schedule = Schedule(max(steps), rate, case.seed, check_every=1)
    curve = [subject.reciprocals(others)]
    for done, _ in enumerate(fit(pupil, [phase], schedule, workspace.store, workspace.runtime), 1):
        if done in steps:
            curve.append(subject.reciprocals(others, workspace.scorer(pupil)))
        if done == max(steps):
            break
    return curve
