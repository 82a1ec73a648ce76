"""Stopping: when a run ends, and with which weights.

At every check of a run the forget MRR is estimated, and near the target measured. A run that has crossed the target is
landed on it; one that never does returns to its best weights. Estimates may err either way: a run that was estimated
below the target too soon goes on; one that was estimated above it too long is landed on the line from where it began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from unrank.engine.checkpoint import Checkpoint
from unrank.engine.training_state import Interval
from unrank.forgetting.followed_lists import FollowedLists
from unrank.forgetting.landing import Ends, Weights, land, put_weights, weights_of
from unrank.forgetting.mrr_estimator import MrrEstimator
from unrank.forgetting.progress import followers
from unrank.forgetting.workspace import Clock, Workspace
from unrank.rankers.base import Ranker
from unrank.record import Check, Landing

CLEARLY = 0.03
"""A run whose estimate is this far below the target counts as having crossed it."""


@dataclass
class StoppingRule:
    """Watches the forget MRR of a run: when to stop, where to land from, which weights were best."""

    student: Ranker
    workspace: Workspace
    estimator: MrrEstimator
    target: float
    near: float
    clock: Clock
    watched: int
    minutes: float | None
    begin: tuple[float, Weights]
    forget: float
    history: list[Check] = field(default_factory=list)
    best: tuple[float, Weights] | None = None
    lists: FollowedLists | None = None
    """The lists of a few chosen queries, if somebody may watch."""

    def __post_init__(self) -> None:
        self.above = self.begin

    @property
    def on_target(self) -> bool:
        return self.forget <= self.target + self.near

    def follow(self, run: Iterable[Interval]) -> Landing | None:
        """Let a run go on until it has landed on the target, or has no epochs or no time left."""
        for interval in run:
            self._check(interval)
            if self.forget <= self.target:
                landing = self._land()
                if self.on_target:
                    return landing
                self.above = self.best = self.forget, weights_of(self.student)  # what was estimated before counts less
            if self.out_of_time():
                break
        return self._return_to_best()

    def out_of_time(self, since: float = 0.0) -> bool:
        """Return whether no time is left, this many seconds after the last check."""
        return self.workspace.runtime.processes.agree(
            bool(self.minutes and self.clock.total + since >= 60 * self.minutes)
        )

    def state(self) -> Checkpoint:
        """Return the state for a checkpoint. Best weights that are those of the last check are stored once."""
        best, above = self.best or (None, {}), self.above
        facts = {
            "history": [check.to_json() for check in self.history],
            "forget": self.forget,
            "apart": self.estimator.apart,
            "best": best[0],
        }
        tensors = {f"best/{name}": weight for name, weight in best[1].items()}
        if self.best is not None and above is not self.best:
            facts["above"] = above[0]
            tensors |= {f"above/{name}": weight for name, weight in above[1].items()}
        return Checkpoint(facts, tensors)

    def restore(self, state: Checkpoint) -> None:
        self.history, self.forget = Check.of_json(state.facts["history"]), state.facts["forget"]
        self.estimator.apart = state.facts["apart"]
        if state.facts["best"] is not None:
            self.above = self.best = state.facts["best"], self._here(state.under("best"))
        if "above" in state.facts:
            self.above = state.facts["above"], self._here(state.under("above"))

    def _here(self, weights: Weights) -> Weights:
        return {name: weight.to(self.student.device) for name, weight in weights.items()}

    def _check(self, interval: Interval) -> None:
        """Record a check. An estimate a little below the target may be wrong, so the MRR is then measured."""
        self.clock.add("steps", interval.seconds)
        with self.clock.on("checks"):
            self.forget, measured = self.estimator.estimate(), self.estimator.exact
            if self.target - CLEARLY < self.forget <= self.target and not measured:
                self.forget, measured = self.estimator.measure(), True
        if self.forget > self.target:
            self.above = self.forget, weights_of(self.student)
            if self.best is None or self.forget < self.best[0]:
                self.best = self.above
        seen = self._watch()
        self._add_to_history(interval, measured, seen)
        left = self.begin[0] - self.target
        if left > 0:
            self.workspace.runtime.progress.done((self.begin[0] - self.forget) / left)
        moved = ", ".join(f"{name} {value:.3f}" for name, value in seen.items())
        self.workspace.runtime.progress.say(
            f"epoch {interval.epochs:.3g}: forget MRR {'' if measured else 'about '}{self.forget:.3f}, "
            f"target {self.target:.3f}{moved and f' ({moved})'}"
        )

    def _watch(self) -> dict[str, float]:
        """Measure the watched queries of each kept set."""
        if not self.watched:
            return {}
        score = self.workspace.scorer(self.student)
        return self.workspace.evaluator.watch(self.lists.listening(score) if self.lists else score, self.watched)

    def _distance(self) -> float | None:
        """Return the distance to the places; `None` if the target is a mean."""
        return None

    def _add_to_history(self, interval: Interval, measured: bool, seen: Mapping[str, float]) -> None:
        self.history.append(
            Check(
                epoch=round(interval.epochs, 4),
                seconds=interval.seconds,
                forget=self.forget,
                measured=measured,
                losses=interval.losses,
                distance=self._distance(),
                steps=interval.steps,
                **seen,
            )
        )
        for follower in followers(self.workspace.runtime.progress):
            follower.check(self.history[-1])
        if self.lists is not None:
            self.lists.take(*self.estimator.last)
            self.lists.check()

    def _land(self) -> Landing:
        with self.clock.on("landing"):
            landing = self._land_from(*self.above, measured=bool(self.history[-1].measured))
            too_late = self.forget < self.target - self.near and not self.estimator.exact
            if too_late and self.above is not self.begin:  # it was below the target when estimates had it above
                again = self._land_from_afar()
                landing = replace(again, evaluations=landing.evaluations + again.evaluations)
        return landing

    def _return_to_best(self) -> Landing | None:
        """Go back to the best weights: by the estimates, the target was not crossed."""
        if self.best is None:
            return None
        put_weights(self.student, self.best[1])
        with self.clock.on("checks"):
            self.forget = self.best[0] if self.estimator.exact else self.estimator.measure()
        if self.forget > self.target - self.near:
            return None
        with self.clock.on("landing"):
            return self._land_from_afar()

    def _land_from_afar(self) -> Landing:
        """Land on the line from the weights that the run began with."""
        self.estimator.go_far()
        return self._land_from(*self.begin, measured=True)

    def _land_from(self, forget: float, above: Weights, measured: bool) -> Landing:
        ends = Ends(forget, self.forget, measured)
        landing = land(self.student, above, ends, self.target, self.near, self.estimator)
        self.forget = landing.forget
        return landing
