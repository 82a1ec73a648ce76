"""The base class of methods: what is done to a ranker so that it forgets.

A method is a frozen dataclass of its settings. It says which model to start from and, for each phase of an epoch, which
samples to draw and which loss their scores have. The engine does the rest. `docs/how-to/add-a-method.md` shows how to
add one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from torch import Tensor

from unrank.engine.loop import Schedule
from unrank.engine.samples import Phase
from unrank.engine.training_state import Interval
from unrank.errors import UnrankError
from unrank.methods.task import Task
from unrank.rankers.base import Ranker

__all__ = ["Method", "OneShot", "RunKind", "Task"]

RunKind = Literal["steered", "training", "edit"]
Settings = Mapping[str, Any]
Weights = Mapping[str, Tensor]
"""Tensors by the name of the weight that they belong to."""


@dataclass(frozen=True)
class Method(ABC):
    """A method with its settings: those that every method has, and its own."""

    name: ClassVar[str]
    start: ClassVar[Literal["original", "initial"]] = "original"
    """The model that it starts from: the trained ranker, or the one that training began with."""
    run_kind: ClassVar[RunKind] = "steered"
    """How it is run: "steered" takes steps until the target, "training" goes by its own measure, "edit" changes the
    weights once."""
    needs_substitutes: ClassVar[bool] = False
    """Whether it needs a removal that names substitutes of removed documents."""
    takes_goals: ClassVar[bool] = False
    """Whether it pulls each forget pair to a goal of its own. One that does not stops at the mean of the goals."""
    presets: ClassVar[Mapping[str, Settings]] = {}
    """Settings by name, for `--preset`."""
    limits: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """The least and the largest value of a setting. A number without limits must be more than 0."""
    search: ClassVar[Mapping[str, tuple[float, float] | tuple[str, ...]]] = {}
    """What `unrank tune` tries of a setting: the ends of a range, or choices. Empty: fractions, around the defaults."""

    learning_rate: float = 5e-5
    epochs: int = 30
    """The most epochs of a run."""
    warm_up: int = 1
    """Steps over which the rate rises: the first steps of an optimiser without a history are its largest."""
    gru: bool = False
    """Whether each update is projected so that it does not raise the loss of kept pairs (`engine/projection.py`)."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                self._check(field.name, value)
        if self.gru and self.run_kind != "steered":
            raise UnrankError(f"gru=true needs a method that takes steps to a target, and {self.name} does not")

    def _check(self, name: str, value: float) -> None:
        if name not in self.limits:
            if not 0 < value < math.inf:
                raise UnrankError(f"{name} must be more than 0 and finite, not {value}")
            return
        least, most = self.limits[name]
        if not (least <= value <= most and math.isfinite(value)):
            allowed = f"{least:g} or more and finite" if most == math.inf else f"from {least:g} to {most:g}"
            raise UnrankError(f"{name} must be {allowed}, not {value}")

    @property
    def needs_base(self) -> bool:
        """Whether it needs the model that training began with."""
        return self.start == "initial"

    def schedule(self, seed: int, check_every: int | None = None) -> Schedule:
        """Return the length and the learning rate of its run."""
        return Schedule(self.epochs, self.learning_rate, seed, check_every, self.warm_up)

    def place_schedule(self, schedule: Schedule, plan: Sequence[Phase]) -> Schedule:
        """Return the schedule of a run to places. Asked of a method that takes goals."""
        return schedule

    def prepare(self, task: Task) -> None:
        """Ask the teacher for the scores that the plan will need. This time counts as the method's."""
        return

    def masks(self, task: Task, gradients: Callable[[Phase], Weights]) -> Weights | None:
        """Return, by the name of each weight, the numbers in it that may move; `None` if all may.

        `gradients` gives the mean gradient of the loss of a phase at the weights that the run begins with. Asked of a
        "steered" method alone.
        """
        return None

    def walk(self, student: Ranker, steps: Iterator[Interval]) -> Iterator[Interval]:
        """Return the pauses at which a run is checked. A method may show other weights there than those it trains."""
        return steps

    def has_learned(self, mrr: float) -> bool:
        """Return whether training may stop at this MRR on training queries. Asked of a "training" method alone."""
        return False

    @abstractmethod
    def plan(self, task: Task) -> Sequence[Phase]:
        """Return the phases of an epoch."""


@dataclass(frozen=True)
class OneShot(Method):
    """A method that edits weights by their importance to the samples of its phases, in one round or several."""

    run_kind = "edit"

    rounds: int = 1
    """How often importance is measured and weights are edited."""

    @abstractmethod
    def edit(self, weight: Tensor, importance: Sequence[Tensor]) -> Tensor:
        """Return the new weight. Importance is the mean squared gradient, one tensor for each phase of the plan."""
