"""The state of a training run: everything that it needs to go on as if it had never stopped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn

from unrank.engine.checkpoint import Checkpoint, Facts
from unrank.engine.runtime import Runtime
from unrank.errors import NotFinite
from unrank.rankers.base import Ranker

Step = tuple[int, int, int]
"""The epoch, the phase, and the number of steps done in that phase."""
BEFORE_ALL: Step = (-1, 0, 0)
STATE, TOTALS = "walk", "tally"
"""The keys of the state and of its totals in a checkpoint file. They stay, so that older files can be read."""


@dataclass(frozen=True)
class Interval:
    """The work between two pauses of a run, and how many epochs are done in all."""

    epochs: float
    seconds: float
    steps: int
    samples: int
    losses: dict[str, float]


class LossTotals:
    """The sum of losses, steps, samples and seconds since the last pause. Losses are added up on the device."""

    def __init__(self, runtime: Runtime, before: Facts | None = None) -> None:
        before = before or {"losses": {}, "counts": {}, "samples": 0, "seconds": 0.0}
        runtime.wait()
        self._runtime = runtime
        self._started: float = perf_counter() - before["seconds"]
        self._losses = {phase: torch.tensor(loss, device=runtime.device) for phase, loss in before["losses"].items()}
        self._counts: dict[str, int] = dict(before["counts"])
        self.samples: int = before["samples"]

    @property
    def steps(self) -> int:
        return sum(self._counts.values())

    def add(self, phase: str, loss: Tensor, samples: int) -> None:
        self._losses[phase] = self._losses.get(phase, torch.zeros_like(loss)) + loss
        self._counts[phase] = self._counts.get(phase, 0) + 1
        self.samples += samples

    def interval(self, epochs: float) -> Interval:
        """Return the totals as a finished interval, with the mean loss of each phase."""
        losses = {phase: loss / self._counts[phase] for phase, loss in self._sums(epochs).items()}
        self._runtime.wait()
        return Interval(epochs, self.seconds, self.steps, self.samples, losses)

    def facts(self, epochs: float) -> Facts:
        """Return the totals in the form that the constructor takes as `before`."""
        sums = self._sums(epochs)
        return {"losses": sums, "counts": self._counts, "samples": self.samples, "seconds": self.seconds}

    @property
    def seconds(self) -> float:
        return perf_counter() - self._started

    def _sums(self, epochs: float) -> dict[str, float]:
        sums = {phase: float(loss) for phase, loss in self._losses.items()}
        for phase, loss in sums.items():
            if not np.isfinite(loss):
                raise NotFinite(
                    f"the loss of {phase} is not finite in epoch {math.ceil(epochs)}; try a lower learning rate"
                )
        return sums


class TrainingState:
    """Weights and optimiser of a run, its last finished step, and the totals since the last pause."""

    def __init__(self, ranker: Ranker, optimizer: torch.optim.Optimizer, runtime: Runtime) -> None:
        self.ranker, self.optimizer, self.runtime = ranker, optimizer, runtime
        self.at = self.resumed = BEFORE_ALL
        self.totals = LossTotals(runtime)
        self._before: Facts = {}

    def begin_interval(self, at: Step) -> None:
        if at >= self.resumed:
            self.totals = LossTotals(self.runtime)

    def add(self, at: Step, phase: str, loss: Tensor, samples: int) -> None:
        self.at = at
        self.totals.add(phase, loss, samples)

    def arrive(self, at: Step) -> None:
        """Continue the totals at the step where the run resumes. The time in between does not count."""
        if at == self.resumed:
            self.totals = LossTotals(self.runtime, self._before)

    def state(self) -> Checkpoint:
        weights = {f"weights/{name}": weight for name, weight in self._weights()}
        moments = {
            f"optimizer/{row}/{name}": value
            for row, values in self.optimizer.state_dict()["state"].items()
            for name, value in values.items()
        }
        return Checkpoint({"at": self.at, TOTALS: self.totals.facts(self.at[0] + 1)}, weights | moments)

    def restore(self, state: Checkpoint) -> None:
        epoch, place, done = state.facts["at"]
        self.at = self.resumed = epoch, place, done
        self._before = state.facts[TOTALS]
        weights = state.under("weights")
        with torch.no_grad():
            for name, weight in self._weights():
                weight.copy_(weights[name])
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in state.under("optimizer").items():
            row, _, moment = name.partition("/")
            moments.setdefault(int(row), {})[moment] = value
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": moments})

    def _weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, weight) for name, weight in self.ranker.named_parameters() if weight.requires_grad)
