"""Recovery: what comes back after one epoch on the kept data alone was hidden, not forgotten."""

from __future__ import annotations

import copy

from unrank.engine.loop import fit
from unrank.forgetting.workspace import Workspace
from unrank.methods.finetune import Finetune
from unrank.rankers.base import Ranker
from unrank.record import Recovery

RECIPE = Finetune(learning_rate=3e-5, epochs=1, negatives=1)


def recovery(ranker: Ranker, before: float, reference: Ranker | None, workspace: Workspace, seed: int) -> Recovery:
    """Measured on copies: neither ranker is changed. `before` is what the ranker measures now."""
    after = recover(ranker, workspace, seed)
    if reference is None:
        return Recovery(before, after)
    reference_before = workspace.evaluator.forget_mrr(workspace.scorer(reference.to(workspace.runtime.device)))
    return Recovery(before, after, reference_before, recover(reference, workspace, seed))


def recover(ranker: Ranker, workspace: Workspace, seed: int) -> float:
    """The forget MRR after the epoch."""
    pupil = pupil_of(ranker, workspace)
    learn_kept(pupil, workspace, seed)
    return workspace.evaluator.forget_mrr(workspace.scorer(pupil))


def pupil_of(ranker: Ranker, workspace: Workspace) -> Ranker:
    """A copy of a ranker, all of which may learn."""
    pupil = copy.deepcopy(ranker).to(workspace.runtime.device)
    for weight in pupil.parameters():
        weight.requires_grad_(True)
    return pupil


def learn_kept(pupil: Ranker, workspace: Workspace, seed: int, recipe: Finetune = RECIPE) -> None:
    """Train a ranker in place on what is kept."""
    schedule = recipe.schedule(seed)
    for _ in fit(pupil, recipe.plan(workspace.task(pupil)), schedule, workspace.store, workspace.runtime):
        pass
