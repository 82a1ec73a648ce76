"""Steering: what tells a run to stop, and where it comes to lie.

At every pause of a run the forget MRR is measured. A run that has crossed the target is landed on it; one that never
does goes back to its best weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from unrank.engine.loop import Stretch
from unrank.forgetting.clock import Clock
from unrank.forgetting.landing import Landing, Weights, land, put_weights, weights_of
from unrank.forgetting.workshop import Workshop
from unrank.rankers.base import Ranker


@dataclass
class Steering:
    """Watches the forget MRR of a run: when to stop, where to land from, which weights were best."""

    student: Ranker
    workshop: Workshop
    target: float
    near: float
    clock: Clock
    watched: int
    minutes: float | None
    above: Weights
    forget: float
    history: list[dict[str, Any]] = field(default_factory=list)
    best: tuple[float, Weights] | None = None

    @property
    def on_target(self) -> bool:
        return self.forget <= self.target + self.near

    def steer(self, run: Iterable[Stretch]) -> Landing | None:
        """Let a run go on until it has crossed the target, or has no epochs or no time left; then land it."""
        for stretch in run:
            self._check(stretch)
            if self.forget <= self.target or (self.minutes and self.clock.total >= 60 * self.minutes):
                break
        return self._land()

    def _check(self, stretch: Stretch) -> None:
        self.clock.add("steps", stretch.seconds)
        with self.clock.on("checks"):
            self.forget = self.workshop.judge.forget_mrr(self.workshop.scorer(self.student))
        if self.forget > self.target:
            self.above = weights_of(self.student)
            if self.best is None or self.forget < self.best[0]:
                self.best = self.forget, self.above
        line = {
            "epoch": round(stretch.epochs, 4),
            "seconds": stretch.seconds,
            "forget": self.forget,
            "losses": stretch.losses,
        }
        seen = self.workshop.judge.watch(self.workshop.scorer(self.student), self.watched) if self.watched else {}
        self.history.append(line | seen)
        moved = ", ".join(f"{name} {value:.3f}" for name, value in seen.items())
        self.workshop.runtime.progress.say(
            f"epoch {stretch.epochs:.3g}: forget MRR {self.forget:.3f}, target {self.target:.3f}"
            f"{moved and f' ({moved})'}"
        )

    def _land(self) -> Landing | None:
        """Onto the target if it was crossed, else back to the best weights."""
        if self.forget > self.target:
            if self.best is not None:
                self.forget = self.best[0]
                put_weights(self.student, self.best[1])
            return None
        judge, student, score = self.workshop.judge, self.student, self.workshop.scorer(self.student)
        with self.clock.on("landing"):
            landing = land(student, self.above, self.forget, self.target, self.near, lambda: judge.forget_mrr(score))
        self.forget = landing.forget
        return landing
