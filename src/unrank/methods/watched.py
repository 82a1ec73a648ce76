"""Methods of other packages: what they draw and what loss they give is checked, and their errors name the package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from unrank.engine.samples import Phase, Samples, Scored
from unrank.methods import CATALOGUE
from unrank.methods.base import Method
from unrank.methods.ranking import planned
from unrank.methods.task import Task


def watched_plan(method: Method, task: Task) -> Sequence[Phase]:
    """Return the phases of an epoch of a method, watched if it is of another package."""
    if CATALOGUE.package_of(method.name) is None:
        return planned(method, task)
    blamed = partial(CATALOGUE.blamed, method.name, (torch.OutOfMemoryError,))  # with less at once it may fit

    def watched(phase: Phase) -> Phase:
        def draw(generator: np.random.Generator, epoch: int) -> Samples:
            with blamed():
                drawn = phase.draw(generator, epoch)
                if not isinstance(drawn, Samples):
                    raise TypeError(f"the phase {phase.name!r} drew {drawn!r}, and no Samples")
                if not drawn.present.any(axis=1).all():
                    raise ValueError(f"the phase {phase.name!r} drew a sample without any pair")
                return drawn

        def loss(scored: Scored) -> Tensor:
            with blamed():
                found = phase.loss(scored)
                if not isinstance(found, Tensor) or found.numel() != 1:
                    given = f"a tensor of {found.numel()} numbers" if isinstance(found, Tensor) else repr(found)
                    raise TypeError(f"the loss of the phase {phase.name!r} is {given}, and not a tensor of one number")
                return found

        return replace(phase, draw=draw, loss=loss)

    with blamed():
        return [watched(phase) for phase in planned(method, task)]
