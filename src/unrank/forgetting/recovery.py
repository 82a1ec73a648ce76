"""Recovery: what comes back after one epoch on the kept data alone was hidden, not forgotten."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from unrank.engine.loop import fit
from unrank.forgetting.workshop import Workshop
from unrank.methods.finetune import Finetune
from unrank.rankers.base import Ranker

RECIPE = Finetune(learning_rate=3e-5, epochs=1, negatives=1)


@dataclass(frozen=True)
class Recovery:
    """The forget MRR before and after the epoch; the same of a retrained ranker, where there is one."""

    before: float
    after: float
    reference_before: float | None = None
    reference_after: float | None = None


def recovery(ranker: Ranker, before: float, reference: Ranker | None, workshop: Workshop, seed: int) -> Recovery:
    """Measured on copies: neither ranker is changed. `before` is what the ranker measures now."""
    after = recover(ranker, workshop, seed)
    if reference is None:
        return Recovery(before, after)
    reference_before = workshop.judge.forget_mrr(workshop.scorer(reference.to(workshop.runtime.device)))
    return Recovery(before, after, reference_before, recover(reference, workshop, seed))


def recover(ranker: Ranker, workshop: Workshop, seed: int) -> float:
    """The forget MRR after the epoch."""
    pupil = pupil_of(ranker, workshop)
    learn_kept(pupil, workshop, seed)
    return workshop.judge.forget_mrr(workshop.scorer(pupil))


def pupil_of(ranker: Ranker, workshop: Workshop) -> Ranker:
    """A copy of a ranker, all of which may learn."""
    pupil = copy.deepcopy(ranker).to(workshop.runtime.device)
    for weight in pupil.parameters():
        weight.requires_grad_(True)
    return pupil


def learn_kept(pupil: Ranker, workshop: Workshop, seed: int, recipe: Finetune = RECIPE) -> None:
    """Train a ranker in place on what is kept."""
    schedule = recipe.schedule(seed)
    for _ in fit(pupil, recipe.plan(workshop.task(pupil)), schedule, workshop.store, workshop.runtime):
        pass
