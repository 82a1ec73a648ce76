"""How far a run is: what must be known of it to go on as if it had never stopped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unrank.engine.checkpoint import Checkpoint
from unrank.engine.runtime import Runtime
from unrank.errors import NotFinite
from unrank.rankers.base import Ranker

Step = tuple[int, int, int]
"""A step of a run: the epoch, the phase, how many of its steps are done with it."""
BEFORE_ALL: Step = (-1, 0, 0)


@dataclass(frozen=True)
class Stretch:
    """What was done since the last pause, and how many epochs are done in all."""

    epochs: float
    seconds: float
    steps: int
    samples: int
    losses: dict[str, float]


class Tally:
    """Counts what is done, and adds up losses where they are: on the device."""

    def __init__(self, runtime: Runtime, before: Mapping[str, Any] | None = None) -> None:
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

    def stretch(self, epochs: float) -> Stretch:
        losses = {phase: loss / self._counts[phase] for phase, loss in self._sums(epochs).items()}
        self._runtime.wait()
        return Stretch(epochs, self.seconds, self.steps, self.samples, losses)

    def facts(self, epochs: float) -> dict[str, Any]:
        """What a tally that goes on from here begins with."""
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


class Walk:
    """A run's weights and optimiser, the last step that is done, and what was counted since the last pause."""

    def __init__(self, ranker: Ranker, optimizer: torch.optim.Optimizer, runtime: Runtime) -> None:
        self.ranker, self.optimizer, self.runtime = ranker, optimizer, runtime
        self.at = self.resumed = BEFORE_ALL
        self.tally = Tally(runtime)
        self._before: dict[str, Any] = {}

    def begin_stretch(self, at: Step) -> None:
        if at >= self.resumed:
            self.tally = Tally(self.runtime)

    def add(self, at: Step, phase: str, loss: Tensor, samples: int) -> None:
        self.at = at
        self.tally.add(phase, loss, samples)

    def arrive(self, at: Step) -> None:
        """Take up the count where the run goes on; time that was lost does not count."""
        if at == self.resumed:
            self.tally = Tally(self.runtime, self._before)

    def state(self) -> Checkpoint:
        weights = {f"weights/{name}": weight for name, weight in self._weights()}
        moments = {
            f"optimizer/{row}/{name}": value
            for row, values in self.optimizer.state_dict()["state"].items()
            for name, value in values.items()
        }
        return Checkpoint({"at": self.at, "tally": self.tally.facts(self.at[0] + 1)}, weights | moments)

    def restore(self, state: Checkpoint) -> None:
        epoch, place, done = state.facts["at"]
        self.at = self.resumed = epoch, place, done
        self._before = state.facts["tally"]
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
