"""Relearning: do a few lessons bring back more than they show?

A twentieth of the forget pairs is shown again, and the others are measured. A ranker that has forgotten learns little
more than the pairs it is shown; one that only hides them regains the others too. The figure is the mean of the forget
MRR after 1, 5, 10 and 50 steps.

A full audit makes many attempts: several learning rates and seeds, on forget pairs, on the kept pairs nearest to them
in words, and on both. The best attempt of each ranker counts, at its best step: what an attacker who may choose gets.
The references are attacked in the same way, each with its own best attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import itemgetter

import numpy as np

from unrank.audit.comparison import Json, PerRanker
from unrank.audit.context import AuditContext, AuditedRanker
from unrank.audit.recovery_test import BeforeAfter, find_recovered
from unrank.audit.verdict import Finding, undecided
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import NO_PAIRS
from unrank.engine.loop import Schedule, fit
from unrank.evaluation.measure import Floats
from unrank.forgetting.train import recipe_of, trainable_copy
from unrank.methods.ranking import learn
from unrank.rankers.base import Ranker

RELEARNING = "the forget MRR while a few forgotten pairs are learned again"
BEST = "the forget MRR after the best of several attempts to learn it again"
TOO_FEW = "there are too few forgotten pairs to show some again and measure the others"
WORDS = {"forgotten": "forgotten pairs", "related": "related pairs", "both": "forgotten and related pairs"}
NO_DATA = "no forgotten pair can be shown while others are measured, and no kept pair is near to one"


@dataclass(frozen=True)
class Attempt:
    """One way to learn again: the pairs that are shown, the learning rate, and the seed."""

    data: str
    pairs: Pairs
    rate: float
    seed: int

    def to_json(self) -> Json:
        return {"data": self.data, "pairs": len(self.pairs), "rate": self.rate, "seed": self.seed}


@dataclass(frozen=True)
class Relearned:
    """The best attempt on a ranker."""

    attempt: Attempt
    curve: Sequence[Floats]
    """The reciprocal ranks before the first step, and after each number of steps."""
    tried: tuple[float, ...]
    """The forget MRR of each attempt at its best step, on a sample of the queries if there are several."""


def relearning(context: AuditContext) -> Finding:
    """Show some pairs again, and measure the forget pairs that are not shown."""
    full, (shown, others) = context.thoroughness.full, split_forget(context)
    attempts = attempts_of(context)
    if not attempts or not len(others):
        return undecided(BEST if full else RELEARNING, NO_DATA if full else TOO_FEW)
    found = context.each(lambda one: relearn(context, one, attempts, others))
    steps = context.thoroughness.relearning_steps
    curves = found.map(lambda one: one.curve)
    by_step = {str(step): context.compare_means(curves.map(itemgetter(place))) for place, step in enumerate(steps, 1)}
    judged = find_recovered(
        context,
        BEST if full else RELEARNING,
        found.map(_best_step if full else _mean_of_steps),
        shown_pairs=len(shown),
        steps={step: compared.to_json() for step, compared in by_step.items()},
        **(_tried(found, attempts) if full else {}),
    )
    if not full:
        return judged
    best = found.ranker.attempt
    return replace(judged, words=f"{judged.words}; the best attempt: {WORDS[best.data]}, rate {best.rate:.2g}")


def _mean_of_steps(found: Relearned) -> BeforeAfter:
    return BeforeAfter(found.curve[0], np.mean(found.curve[1:], axis=0))


def _best_step(found: Relearned) -> BeforeAfter:
    return BeforeAfter(found.curve[0], max(found.curve[1:], key=np.mean))


def _tried(found: PerRanker[Relearned], attempts: Sequence[Attempt]) -> Json:
    """Return the figure of every attempt on every ranker, and the best attempt on the audited one."""

    def figures(place: int) -> Json:
        original = found.original.tried[place] if found.original else None
        return {"ranker": found.ranker.tried[place], "original": original,
                "references": [one.tried[place] for one in found.references]}  # fmt: skip

    tried = [{**attempt.to_json(), **figures(place)} for place, attempt in enumerate(attempts)]
    return {"best": found.ranker.attempt.to_json(), "attempts": tried}


def split_forget(context: AuditContext) -> tuple[Pairs, Pairs]:
    """Split the forget pairs into some to show, whose queries have a negative, and the others to measure.

    A single pair cannot be split: it is measured, and nothing is shown.
    """
    forget = context.sets["forget"]
    if len(forget) == 1:
        return NO_PAIRS, forget
    order = np.random.default_rng(context.seed).permutation(len(forget))
    able = order[context.with_negatives(forget)[order]]
    shown = able[: max(1, round(context.thoroughness.relearning_share * len(forget)))]
    return forget[np.sort(shown)], np.delete(forget, shown, axis=0)


def attempts_of(context: AuditContext) -> list[Attempt]:
    """Return all attempts of an audit: one, or if it is full one for each kind of data, rate and seed."""
    effort, (shown, _) = context.thoroughness, split_forget(context)
    rate = effort.relearning_rate or recipe_of(context.rankers.ranker.ranker.kind).learning_rate
    if not effort.full:
        return [Attempt("forgotten", shown, rate, context.seed)] if len(shown) else []
    related = related_pairs(context)
    data = {"forgotten": shown, "related": related}
    if len(shown) and len(related):
        data["both"] = np.concatenate([shown, related])
    seeds = range(context.seed, context.seed + effort.relearning_seeds)
    return [
        Attempt(name, pairs, rate * factor, seed)
        for (name, pairs), factor, seed in product(data.items(), effort.relearning_rates, seeds)
        if len(pairs)
    ]


def related_pairs(context: AuditContext) -> Pairs:
    """Return the kept pairs that are nearest to the forget pairs in words: the nearest of each one first."""
    effort, kept, forget = context.thoroughness, context.partition.retain, context.sets["forget"]
    generator = np.random.default_rng(context.seed)
    kept = kept[np.sort(generator.permutation(len(kept))[: effort.kept_pairs])]
    forget = forget[generator.permutation(len(forget))[: effort.related_pairs]]
    from unrank.collection.bm25 import Bm25

    found = Bm25(_texts(context.collection, kept)).best(_texts(context.collection, forget), effort.related_each)
    nearest = [rows.tolist() for rows, _ in found]
    in_turn = [rows[place] for place in range(effort.related_each) for rows in nearest if place < len(rows)]
    chosen = kept[np.array([*dict.fromkeys(in_turn)][: effort.related_pairs], np.int64)]
    return chosen[context.with_negatives(chosen)]


def _texts(collection: Collection, pairs: Pairs) -> list[str]:
    """Return the text of each pair: its query and its document."""
    sides = collection.queries.texts(pairs[:, 0]), collection.documents.texts(pairs[:, 1])
    return [f"{query} {document}" for query, document in zip(*sides, strict=True)]


def relearn(context: AuditContext, one: AuditedRanker, attempts: Sequence[Attempt], others: Pairs) -> Relearned:
    """Make all attempts on a ranker, choose the best on a sample of the queries, and measure it on all of them."""
    student = trainable_copy(one.ranker, one.workspace)
    if len(attempts) == 1:
        curve = curve_of(context, one, student, attempts[0], others)
        return Relearned(attempts[0], curve, (_height(curve),))
    queries = np.random.default_rng(context.seed).permutation(np.unique(others[:, 0]))
    probe = others[np.isin(others[:, 0], queries[: context.thoroughness.probed_queries])]
    tried = [_height(curve_of(context, one, student, attempt, probe)) for attempt in attempts]
    best = attempts[int(np.argmax(tried))]
    return Relearned(best, curve_of(context, one, student, best, others), tuple(tried))


def _height(curve: Sequence[Floats]) -> float:
    """Return the mean at the best step."""
    return max(float(values.mean()) for values in curve[1:])


def curve_of(
    context: AuditContext, one: AuditedRanker, student: Ranker, attempt: Attempt, measured: Pairs
) -> list[Floats]:
    """Return the reciprocal ranks of some pairs before the first step and after each number of steps.

    `student` is a copy of the ranker. It starts with the ranker's weights, whatever it has learned before.
    """
    recipe, workspace = recipe_of(one.ranker.kind), one.workspace
    steps = context.thoroughness.relearning_steps
    student.load_state_dict(one.ranker.state_dict())
    phase = learn(workspace.task(student), attempt.pairs, recipe.negatives, recipe.batch, recipe.together)
    schedule = Schedule(max(steps), attempt.rate, attempt.seed, check_every=1)
    curve = [one.reciprocals(measured)]
    for done, _ in enumerate(fit(student, [phase], schedule, workspace.store, workspace.runtime), 1):
        if done in steps:
            curve.append(one.reciprocals(measured, workspace.scorer(student)))
        if done == max(steps):
            break
    return curve
