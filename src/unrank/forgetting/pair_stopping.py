"""Stopping by single pairs: a run with a goal for each forget pair ends when no pair misses its goal. A run to places
goes on until its rate has fallen: what is kept recovers last. If pairs are not at their places then, there is another
round. Of a small request the check counts that has its pairs, and those of earlier requests, nearest to their places.

It is not landed. If a limit on what is kept is given, the run ends before the limit is passed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from unrank.collection.collection import Pairs
from unrank.engine.checkpoint import Checkpoint
from unrank.engine.training_state import Interval
from unrank.forgetting.goals import PairGoals
from unrank.forgetting.landing import Weights, put_weights, weights_of
from unrank.forgetting.outcome import pair_ranks
from unrank.forgetting.stopping import CLEARLY, StoppingRule
from unrank.methods.task import EarlierPlaces
from unrank.record import Landing, shares_kept

LIMIT_QUERIES = 100
"""The least number of queries of each kept set that are measured at every check if there is a limit."""
ARRIVED = 0.01
"""The largest distance of a small request to its places at which no further round is needed. Earlier requests must be
as near theirs as they were before it: what others broke is mended meanwhile, and not waited for."""
ROUNDS_ALONE = 2
"""The most rounds of a request of many queries, or of one with no earlier request that has places."""


@dataclass(kw_only=True)
class PairStoppingRule(StoppingRule):
    """Watches the rank of every forget pair: when to stop, and which weights were best."""

    goals: PairGoals
    keep_at_least: float | None = None
    kept_before: Mapping[str, float] = field(default_factory=dict)
    """The original's MRR on the watched queries of each kept set."""
    missed: int = 0
    """The pairs that have not met their goal at the last check."""
    limited: str = ""
    """Why the run ended before its goals, if what is kept would have fallen below the limit."""
    distance: float = 0.0
    """The distance to the goals at the last check."""
    earlier: tuple[Pairs, EarlierPlaces] | None = None
    """Pairs that were forgotten before, and their places; `None` if there are none, or many pairs now."""
    unmet: float = math.inf
    """How far pairs are from their places at the best check, and earlier requests further than before."""
    round: int | None = None
    """The epochs after which the rate has fallen; `None` if it does not fall."""

    @property
    def on_target(self) -> bool:
        return not self.missed

    def follow(self, run: Iterable[Interval]) -> Landing | None:
        """Let a run go on until every pair has met its goal, too much is lost, or no epochs or no time are left."""
        for interval in run:
            self._check(interval)
            if self.limited:
                break
            if (self.on_target and not self.goals.pulls_up) or self.out_of_time() or self._ends_round(interval):
                break
        self._return()
        return None

    def _ends_round(self, interval: Interval) -> bool:
        """Return whether a round is over, and no other one is needed.

        If earlier requests have places too, a later round ends with the epoch in which nothing is unmet.
        """
        if self.round is None or interval.epochs < self.round:
            return False
        arrived = self.goals.few and self.unmet <= ARRIVED
        if interval.epochs % self.round:
            return arrived and self.earlier is not None and interval.epochs == int(interval.epochs)
        with self.clock.on("checks"):
            self.forget = self.estimator.measure()
            ranks = self.estimator.pair_ranks()
        if self.earlier is None and interval.epochs >= ROUNDS_ALONE * self.round:
            return True
        return arrived if self.goals.few else not self.goals.left(ranks)

    def state(self) -> Checkpoint:
        found = super().state()
        tensors = dict(found.tensors)
        if self.earlier is not None:
            tensors["away"] = torch.tensor(self.earlier[1].away)
        return Checkpoint({**found.facts, "missed": self.missed, "unmet": self.unmet}, tensors)

    def restore(self, state: Checkpoint) -> None:
        super().restore(state)
        self.missed, self.unmet = state.facts["missed"], state.facts["unmet"]
        if self.earlier is not None:
            self.earlier[1].away[:] = state.tensors["away"].numpy()

    def _check(self, interval: Interval) -> None:
        """Record a check. Far from the goals an estimate of the MRR is enough to know that some pair misses its own."""
        self.clock.add("steps", interval.seconds)
        with self.clock.on("checks"):
            measured = self._measure()
        seen = self._watch()
        self.limited = self._lost(seen)
        rank, unmet = self._rank(interval)
        if not self.limited and (self.best is None or rank <= self.best[0]):
            self.best, self.unmet = (rank, weights_of(self.student)), unmet
        self._add_to_history(interval, measured, seen)
        self._report(interval, measured)

    def _rank(self, interval: Interval) -> tuple[float, float]:
        """Return how far the weights are from the best, 0 if later ones are better because the rate falls; and what is
        unmet."""
        if not self.goals.pulls_up:
            return self.missed + self.forget, math.inf  # fewest pairs first, then the lowest MRR
        if not self.goals.few:
            return 0.0, math.inf
        own, earlier = self.missed + self.distance, self._earlier_distance(interval)
        before = 0.0 if self.earlier is None else self.earlier[1].before
        return round(own + earlier, 3), round(own + max(0.0, earlier - before), 3)

    def _earlier_distance(self, interval: Interval) -> float:
        """Return how far earlier requests are from their places; 0 if all are near them.

        At the end of an epoch, mark the pairs that are not: the next one draws them more often.
        """
        if self.earlier is None:
            return 0.0
        pairs, places = self.earlier
        with self.clock.on("checks"):
            ranks = pair_ranks(self.workspace.collection, pairs, self.workspace.scorer(self.student))
        if interval.epochs == int(interval.epochs):
            places.mark(ranks)
        return places.distance(ranks)

    def _measure(self) -> bool:
        """Measure or estimate the forget MRR and the distance to the goals. Return whether they were measured."""
        if self.goals.pulls_up and self.goals.few:  # each pair counts
            self.forget, measured = self.estimator.measure(), True
        else:
            self.forget, measured = self.estimator.estimate(), self.estimator.exact
            if not (measured or self.goals.pulls_up) and self.forget <= self.target + CLEARLY:
                self.forget, measured = self.estimator.measure(), True
        if measured:
            ranks = self.estimator.pair_ranks()
            self.missed, self.distance = self.goals.missed(ranks), self.goals.distance(ranks)
        else:
            self.missed = len(self.goals.pairs)
            self.distance = self.estimator.estimate_distance(self.goals.reciprocals)
        return measured

    def _distance(self) -> float | None:
        return self.distance if self.goals.pulls_up else None

    def _lost(self, seen: Mapping[str, float]) -> str:
        """Say which kept set has fallen below the limit; nothing if none has."""
        if self.keep_at_least is None:
            return ""
        below = {
            name: share for name, share in shares_kept(self.kept_before, seen).items() if share < self.keep_at_least
        }
        return ", ".join(f"{name} would have kept {share:.3f} of its MRR" for name, share in below.items())

    def _report(self, interval: Interval, measured: bool) -> None:
        progress, pairs = self.workspace.runtime.progress, len(self.goals.pairs)
        progress.done((pairs - self.missed) / pairs)
        about = f"{self.missed:,} of {pairs:,} forget pairs above their goal" if measured else "far from the goals"
        if self.goals.pulls_up:
            about = f"{self.distance:.3f} from the places"
        progress.say(
            f"epoch {interval.epochs:.3g}: forget MRR {'' if measured else 'about '}{self.forget:.3f}, {about}"
        )
        if self.limited:
            progress.say(f"stopped: {self.limited}, less than --keep-at-least {self.keep_at_least:g}")

    def _return(self) -> None:
        """Go back to the best weights: those of a check, or those that the run began with."""
        weights: Weights = self.best[1] if self.best is not None else self.begin[1]
        put_weights(self.student, weights)
