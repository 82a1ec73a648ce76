"""Other forms: is anything back when the ranker is rounded, averaged with its base, or trained further?

A ranker is seldom used as it was saved. Forgetting moves weights a little, and a coarse step can undo a little move. So
the forget MRR is measured after the weights are rounded to 8 and to 4 bits. A full audit also averages them with the
base's, and trains for an ordinary epoch on kept pairs. Each ranker's highest form counts, and the references have
the same forms. Rounded weights are stored as floats again: nothing but their values changes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from unrank.audit.context import AuditContext, AuditedRanker
from unrank.audit.recovery_test import BeforeAfter, find_recovered, kept_sample
from unrank.audit.verdict import Finding
from unrank.errors import UnrankError
from unrank.evaluation.measure import Floats
from unrank.forgetting.train import recipe_of, train_on_kept, trainable_copy
from unrank.methods.finetune import Finetune
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker

MEASURES = "the highest forget MRR of other forms of the ranker"
AVERAGED, TRAINED = "averaged", "trained"

Form = Callable[[AuditedRanker], Ranker]
"""Makes another form of a ranker, and leaves the ranker as it is."""


def other_forms(context: AuditContext) -> Finding:
    """Measure the forget MRR of each form."""
    forget, forms = context.sets["forget"], forms_of(context)

    def measure(one: AuditedRanker) -> dict[str, Floats]:
        return {name: one.reciprocals(forget, one.workspace.scorer(make(one))) for name, make in forms.items()}

    found = context.each(lambda one: (one.reciprocals(forget), measure(one)))
    by_form = {name: context.compare_means(found.map(lambda both: both[1][name])) for name in forms}  # noqa: B023
    best = highest(found.ranker[1])
    judged = find_recovered(
        context,
        MEASURES,
        found.map(lambda both: BeforeAfter(both[0], both[1][highest(both[1])])),
        highest=best,
        forms={name: compared.to_json() for name, compared in by_form.items()},
        left_out=[AVERAGED] if context.thoroughness.full and AVERAGED not in forms else [],
    )
    return replace(judged, words=f"{judged.words}; the highest form: {best}")


def highest(found: Mapping[str, Floats]) -> str:
    """Return the name of the form with the highest mean."""
    return max(found, key=lambda name: float(found[name].mean()))


def forms_of(context: AuditContext) -> dict[str, Form]:
    """Return the forms that an audit tests. Averaging is left out if the base is not known."""
    forms: dict[str, Form] = {f"int{bits}": _rounded(bits) for bits in context.thoroughness.rounded_bits}
    if not context.thoroughness.full:
        return forms
    if base := base_weights(context.rankers.ranker.ranker, context.base):
        forms[AVERAGED] = lambda one: averaged(one.ranker, base)
    return forms | {TRAINED: lambda one: trained(context, one)}


def _rounded(bits: int) -> Form:
    return lambda one: rounded(one.ranker, bits)


@torch.no_grad()
def rounded(ranker: Ranker, bits: int) -> Ranker:
    """Return a copy whose matrices have weights of this many bits. Biases and scales of norms stay as they are."""
    made = copy.deepcopy(ranker)
    for weight in made.parameters():
        if weight.dim() > 1:
            weight.copy_(round_rows(weight.flatten(1), bits).view_as(weight))
    return made


def round_rows(rows: Tensor, bits: int) -> Tensor:
    """Round each row to whole multiples of a step: its largest absolute value is the largest whole number.

    >>> round_rows(torch.tensor([[7.0, 3.4, -2.6], [0.0, 0.0, 0.0]]), 4).tolist()
    [[7.0, 3.0, -3.0], [0.0, 0.0, 0.0]]
    """
    step = rows.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    return torch.where(step > 0, (rows / step).round() * step, rows)


def base_weights(ranker: Ranker, base: str | None) -> dict[str, Tensor]:
    """Return the weights that a ranker of this kind takes from a base; empty if the base is not known or has none.

    New weights are drawn by a seed. So those of the base are the ones that two seeds agree on.
    """
    if base is None:
        return {}
    try:
        one, other = (dict(create_ranker(ranker.kind, base, seed).named_parameters()) for seed in (0, 1))
    except UnrankError:
        return {}
    own = dict(ranker.named_parameters())
    return {
        name: weight.detach()
        for name, weight in one.items()
        if name in own and own[name].shape == weight.shape and torch.equal(weight, other[name])
    }


@torch.no_grad()
def averaged(ranker: Ranker, base: Mapping[str, Tensor]) -> Ranker:
    """Return a copy whose weights are halfway to the base's."""
    made = copy.deepcopy(ranker)
    for name, weight in made.named_parameters():
        if name in base:
            weight.copy_((weight + base[name].to(weight.device)) / 2)
    return made


def trained(context: AuditContext, one: AuditedRanker) -> Ranker:
    """Return a copy after an epoch of ordinary training."""
    kept = kept_sample(context.partition, context.thoroughness.kept_pairs, context.seed)
    workspace = replace(one.workspace, partition=kept)
    student = trainable_copy(one.ranker, workspace)
    train_on_kept(student, workspace, context.seed, further_epoch(context))
    return student


def further_epoch(context: AuditContext) -> Finetune:
    """Return an epoch on kept pairs, at the rate and in the manner of the first training."""
    recipe = recipe_of(context.rankers.ranker.ranker.kind)
    rate = context.thoroughness.relearning_rate or recipe.learning_rate
    return Finetune(rate, epochs=1, batch=recipe.batch, negatives=recipe.negatives, together=recipe.together)
