"""Steering: what tells a run to stop, and where it comes to lie.

At every pause of a run the forget MRR is measured. A run that has crossed the target is landed on it; one that never
does goes back to its best weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from unrank.engine.checkpoint import Checkpoint
from unrank.engine.walk import Stretch
from unrank.forgetting.clock import Clock
from unrank.forgetting.gauge import Gauge
from unrank.forgetting.landing import Landing, Weights, land, put_weights, weights_of
from unrank.forgetting.workshop import Workshop
from unrank.rankers.base import Ranker

DOUBT = 0.02
"""By how much an estimate may be too high."""


@dataclass
class Steering:
    """Watches the forget MRR of a run: when to stop, where to land from, which weights were best."""

    student: Ranker
    workshop: Workshop
    gauge: Gauge
    target: float
    near: float
    clock: Clock
    watched: int
    minutes: float | None
    above: tuple[float, Weights]
    forget: float
    history: list[dict[str, Any]] = field(default_factory=list)
    best: tuple[float, Weights] | None = None

    def __post_init__(self) -> None:
        self._begin = self.above

    @property
    def on_target(self) -> bool:
        return self.forget <= self.target + self.near

    def steer(self, run: Iterable[Stretch]) -> Landing | None:
        """Let a run go on until it has crossed the target, or has no epochs or no time left; then land it."""
        for stretch in run:
            self._check(stretch)
            if self.forget <= self.target or self._out_of_time():
                break
        return self._land()

    def _out_of_time(self) -> bool:
        return self.workshop.runtime.team.agree(bool(self.minutes and self.clock.total >= 60 * self.minutes))

    def state(self) -> Checkpoint:
        """The best weights are those of the last check, more often than not, and then stored once."""
        best, above = self.best or (None, {}), self.above
        facts = {"history": self.history, "forget": self.forget, "apart": self.gauge.apart, "best": best[0]}
        tensors = {f"best/{name}": weight for name, weight in best[1].items()}
        if self.best is not None and above is not self.best:
            facts["above"] = above[0]
            tensors |= {f"above/{name}": weight for name, weight in above[1].items()}
        return Checkpoint(facts, tensors)

    def restore(self, state: Checkpoint) -> None:
        self.history, self.forget = state.facts["history"], state.facts["forget"]
        self.gauge.apart = state.facts["apart"]
        if state.facts["best"] is not None:
            self.above = self.best = state.facts["best"], self._here(state.under("best"))
        if "above" in state.facts:
            self.above = state.facts["above"], self._here(state.under("above"))

    def _here(self, weights: Weights) -> Weights:
        return {name: weight.to(self.student.device) for name, weight in weights.items()}

    def _check(self, stretch: Stretch) -> None:
        """Below the target by an estimate is not below it: that is measured."""
        self.clock.add("steps", stretch.seconds)
        with self.clock.on("checks"):
            self.forget, measured = self.gauge.estimate(), self.gauge.exact
            if self.forget <= self.target and not measured:
                self.forget, measured = self.gauge.measure(), True
        if self.forget > self.target:
            self.above = self.forget, weights_of(self.student)
            if self.best is None or self.forget < self.best[0]:
                self.best = self.above
        line = {
            "epoch": round(stretch.epochs, 4),
            "seconds": stretch.seconds,
            "forget": self.forget,
            "measured": measured,
            "losses": stretch.losses,
        }
        seen = self.workshop.judge.watch(self.workshop.scorer(self.student), self.watched) if self.watched else {}
        self.history.append(line | seen)
        moved = ", ".join(f"{name} {value:.3f}" for name, value in seen.items())
        self.workshop.runtime.progress.say(
            f"epoch {stretch.epochs:.3g}: forget MRR {'' if measured else 'about '}{self.forget:.3f}, "
            f"target {self.target:.3f}{moved and f' ({moved})'}"
        )

    def _land(self) -> Landing | None:
        """Onto the target if it was crossed, else back to the best weights."""
        if self.forget > self.target:
            if self.best is not None:
                put_weights(self.student, self.best[1])
                with self.clock.on("checks"):
                    self.forget = self.best[0] if self.gauge.exact else self.gauge.measure()
            return None
        with self.clock.on("landing"):
            before, above = self._surely_above()
            landing = land(self.student, above, before, self.forget, self.target, self.near, self.gauge)
        self.forget = landing.forget
        return landing

    def _surely_above(self) -> tuple[float, Weights]:
        """The last weights above the target. Where an estimate put them there by a little, they are measured: if they
        are below it too, the target lies between those that the run began with and these."""
        if self.gauge.exact or self.above is self._begin or self.above[0] > self.target + DOUBT:
            return self.above
        below = weights_of(self.student)
        put_weights(self.student, self.above[1])
        measured = self.gauge.measure()
        if measured <= self.target:
            self.forget = measured
            return self._begin
        put_weights(self.student, below)
        return measured, self.above[1]
