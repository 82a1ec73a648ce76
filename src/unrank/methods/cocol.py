"""CoCoL: pull the forget pairs to their places, or down to the lowest score of their list, and hold the scores around
them.

Reference: Hou, Finke, Cosma, Neural Machine Unranking: contrastive and consistent loss.
Differs: gaps are measured in units of the range of the teacher's list, because the printed quotient turns real rankers
into noise (`scale="paper"` keeps it); a step also holds negatives and random kept pairs in place (`anchors="paper"`
does not); a pair may have a place of its own to come to. See docs/reference/differences.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.engine.loop import Schedule
from unrank.engine.losses import mean_where, paper_gap, range_gap
from unrank.engine.samples import Drawn, Phase, Samples, Scored, all_present
from unrank.errors import UnrankError
from unrank.methods.base import Method
from unrank.methods.task import KEPT_SETS, HardNegatives, KeptSet, Negatives, Task

MIN_DISJOINT = 1024
"""The least number of disjoint pairs that the teacher scores, however small the request. If the ranker has forgotten
before, an epoch holds at least as many: small losses of many requests add up."""
HIGHEST, HIGHEST_OF_SMALL = 8, 24
"""The number of highest negatives of a query that hard negatives are drawn from; that in a small step."""
SMALL_STEP = 8
"""With places, the most forget pairs of a small step. It holds as many kept pairs as a full one, and their margins on
both sides: a request of a few pairs should leave all other lists as they are."""
AWAY = 0.5
"""The share of the samples with a pair that was forgotten before that is for those away from their places, if any."""
LIST = 128
"""The most negatives of a query, spread evenly over its list, that they are looked for among."""
LISTS_PER_PAIR, MIN_LISTS, MAX_LISTS = 4, 64, 20_000
"""How many queries are looked at so, for each forget pair; the least and the most. For the others, among the few that
the teacher scores anyway."""
FULL_STEP, SMALLER = 32, 0.48
"""With places, the forget pairs of a step that has the full rate, and the power by which the rate is smaller if it has
fewer. A step of one pair has a fifth of it: at the full rate its noise moves lists that have nothing to do with it."""
ALL = 1_000_000
PRINTED = {
    "learning_rate": 5e-5,
    "warm_up": 1,
    "scale": "paper",
    "anchors": "paper",
    "phases": "two",
    "min_steps": 1,
    "hold_factor": 1,
    "negatives_seen": ALL,
    "disjoint_per_pair": ALL,
    "disjoint_per_epoch": ALL,
}
"""The printed algorithm, at our rate and batch."""
RELEASED = {**PRINTED, "learning_rate": 7e-6, "batch": 32, "partners": "all", "hold_negatives": 5}
"""The printed algorithm at the settings of the code that its authors released. That code does not push a pair to the
lowest score of its list, but below its own score by the teacher, so that the student begins without a gradient."""
Move = Literal["stays", "may rise", "may fall", "free"]
"""What a score may do at no cost; a margin too."""


@dataclass(frozen=True)
class Cocol(Method):
    """Pushes the forget pairs down and holds the scores around them in place."""

    name = "cocol"
    takes_goals = True
    presets = MappingProxyType({"paper": PRINTED, "released": RELEASED})
    limits = MappingProxyType(
        dict.fromkeys(
            ["anchors_per_pair", "disjoint_per_pair", "disjoint_per_epoch", "hard_negatives", "warm_up"], (0, math.inf)
        )
    )

    learning_rate: float = 8.5e-5
    warm_up: int = 24
    batch: int = 64
    """The most pairs in a step: forget pairs in the first phase, disjoint pairs in the second."""
    min_steps: int = 16
    """The least steps of the first phase. A small request has smaller steps, because a step moves weights as far
    whatever its size. Each step still holds about as many pairs of every kind, so that its gradient is not noise."""
    hold_factor: int = 2
    """The size of a step of the second phase, in steps of the first."""
    scale: Literal["range", "paper"] = "range"
    """The divisor of a gap between two scores."""
    anchors: Literal["wide", "paper"] = "wide"
    """The pairs that the first phase holds in place: partners only, or negatives and other kept pairs too."""
    anchors_per_pair: int = 1
    """With wide anchors, the kept pairs that are held for each forget pair. More hold firmer, and cost more."""
    partners: Literal["one", "all"] = "one"
    """The entangled partners that an epoch holds for each forget pair: a random one, or each in a sample of its own."""
    disjoint_per_pair: int = 4
    """The most disjoint pairs that are held for each forget pair."""
    disjoint_per_epoch: int = 1
    """How many of them an epoch holds, drawn anew each time; at least 1,024 if the ranker has forgotten before."""
    hold_negatives: int = 1
    """Negatives that the second phase holds for each disjoint pair, each in a sample of its own."""
    negatives_seen: int = 8
    """Negatives of a query that the teacher scores and that may be held in place."""
    place_weight: float = 2.0
    """With places, the weight of a forget pair's distance to its place."""
    place_below: float = 0.5
    """With places, the weight of a pair that is below its place, as a share of that of one above."""
    place_epochs: int = 6
    """With places, the epochs of a round, over which the rate falls to a tenth."""
    place_rounds: int = 4
    """With places, the most rounds of a run. Another one comes only if pairs are not at their places, and a third one
    only if the request has fewer than 10 queries and earlier requests have places."""
    hard_negatives: int = 2
    """With places, how many of the highest negatives of a forget pair's query a step holds and compares the pair with:
    else the list comes down with the pair."""
    phases: Literal["two", "joint"] = "two"
    """Whether there is a second phase, which holds the disjoint pairs."""
    without_entangled: bool = False
    """For the ablation: hold no entangled pair."""
    without_disjoint: bool = False
    """For the ablation: hold no disjoint pair."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.phases == "joint" and self.anchors == "paper":
            raise UnrankError(
                "phases=joint needs anchors=wide: with the paper's anchors nothing holds the disjoint pairs"
            )
        if self.partners == "all" and (self.anchors == "wide" or self.min_steps > 1):
            raise UnrankError("partners=all needs anchors=paper and min_steps=1: a partner has a sample of its own")

    def place_schedule(self, schedule: Schedule, plan: Sequence[Phase]) -> Schedule:
        pairs = plan[0].batch // plan[0].together if plan else self.batch
        rate = schedule.learning_rate * min(1.0, pairs / min(FULL_STEP, self.batch)) ** SMALLER
        epochs = min(self.place_epochs, self.epochs)
        rounds = max(1, min(self.place_rounds, self.epochs // epochs))
        return replace(schedule, epochs=epochs, learning_rate=rate, falls=True, rounds=rounds)

    def prepare(self, task: Task) -> None:
        task = self._limited(task)
        earlier = [task.partition.previous, task.partition.risen] if self.anchors == "wide" else []
        task.teacher.learn(np.concatenate([task.partition.forget, task.kept(self._kept_sets), *earlier])[:, 0])

    def plan(self, task: Task) -> Sequence[Phase]:
        whole, task = task, self._limited(task)
        hard = self._hard_negatives(task, whole.negatives) if self._to_places(task) else None
        draw_forget, draw_hold = partial(self._draw_forget, task, hard), partial(self._draw_hold, task, hard)
        rows, kept_moves = self._rows_per_pair(task), self._kept_moves(task)
        batch, size = rows * self._batch(task), rows * self._forget_size(task)
        if self.partners == "all":
            batch, size = self.batch, len(self._forget_with_partners(task)[0])
        margins: Move = "stays" if self._is_small(task) and not self._may_part(task) else "may rise"
        forget_loss = partial(self._forget_loss, kept_moves, task.wanted is None)
        if hard:
            forget_loss = partial(self._place_loss, kept_moves, margins)
        plan = [Phase("forget", size, draw_forget, forget_loss, batch, together=rows)]
        if self.phases == "two" and not self.without_disjoint and self._hold_size(task):
            hold_loss = partial(self._hold_loss, kept_moves, margins if hard else "free")
            size = self.hold_negatives * self._hold_size(task)
            plan.append(Phase("hold", size, draw_hold, hold_loss, self.hold_factor * batch))
        return plan

    def _limited(self, task: Task) -> Task:
        most = max(MIN_DISJOINT, self.disjoint_per_pair * len(task.partition.forget))
        return task.limit_disjoint(most).limit_negatives(self.negatives_seen)

    @property
    def _kept_sets(self) -> list[KeptSet]:
        left_out = {"entangled": self.without_entangled, "disjoint": self.without_disjoint}
        return [name for name in KEPT_SETS if not left_out[name]]

    def _to_places(self, task: Task) -> bool:
        """Return whether forget pairs are pulled to places, and compared with the highest negatives of their lists."""
        return task.pulls_up and self.hard_negatives > 0 and self.anchors == "wide"

    def _hard_negatives(self, task: Task, whole: Negatives) -> HardNegatives:
        """Return the highest negatives of all queries of the task. Of some, all negatives are scored; of others, few.

        The first are those of the forget pairs, then those of entangled ones. So the cost does not grow with the
        collection. Anchors have those that they are stored with.
        """
        parts, given = task.partition, task.anchor_negatives
        queries = np.concatenate([parts.forget, parts.entangled, parts.disjoint])[:, 0]
        unique, first = np.unique(queries, return_index=True)
        ordered = unique[np.argsort(first)]
        earlier = np.setdiff1d(np.concatenate([parts.previous, parts.risen])[:, 0], unique)
        given = given[np.isin(given[:, 0], np.union1d(unique, earlier))]
        ordered, earlier = (rows[~np.isin(rows, given[:, 0])] for rows in (ordered, earlier))
        lists = min(max(MIN_LISTS, LISTS_PER_PAIR * len(parts.forget)), MAX_LISTS)
        looked_at = np.concatenate([ordered[:lists], earlier])
        found = [whole.thinned(LIST).pairs(looked_at), task.negatives.pairs(ordered[lists:])]
        highest = HIGHEST_OF_SMALL if self._is_small(task) else HIGHEST
        return HardNegatives(np.concatenate(found), task.teacher, highest, given)

    def _draw_forget(
        self, task: Task, hard: HardNegatives | None, generator: np.random.Generator, epoch: int
    ) -> Samples:
        """Draw for each forget pair a partner and, with wide anchors, a negative of its query, other kept pairs, and a
        negative for each kept pair. If a forget pair has several rows, it is pushed in the first and its anchors are
        held in all of them."""
        if self.partners == "all":
            return self._draw_with_partners(task)
        rows = self._rows_per_pair(task)
        size = self._forget_size(task)
        forget = np.resize(task.partition.forget, (size, 2)).repeat(rows, axis=0)
        partner, has_partner = task.partition.draw_partners(forget, generator)
        pushed = np.arange(len(forget)) % rows == 0
        roles = {"forget": (forget, pushed), "partner": (partner, has_partner & (not self.without_entangled))}
        if self.anchors == "wide":
            draws = [task.draw_kept(len(forget), generator, self._kept_sets) for _ in range(self._kept_per_row(task))]
            roles["negative"] = task.negatives.draw(forget[:, 0], generator)
            for number, (kept, has_kept) in enumerate(draws, 1):
                negative, has_negative = (hard or task.negatives).draw(kept[:, 0], generator)
                roles[f"kept_{number}"] = kept, has_kept
                roles[f"kept_{number}_negative"] = negative, has_kept & has_negative
        if hard is not None:
            negative, has_negative = hard.draw(np.where(has_partner, partner[:, 0], forget[:, 0]), generator)
            roles["partner_negative"] = negative, roles["partner"][1] & has_negative
            for number in range(1, self.hard_negatives + 1):
                roles[f"hard_{number}"] = hard.draw(forget[:, 0], generator)
        samples = self._with_earlier(task, hard, roles, generator, falls=True)
        return samples if task.wanted is None else samples.wanting("forget", np.resize(task.wanted, size).repeat(rows))

    def _draw_with_partners(self, task: Task) -> Samples:
        """Return a sample for each partner of each forget pair, and one for each forget pair without a partner."""
        places, partner, has = self._forget_with_partners(task)
        forget = all_present(task.partition.forget[places])
        samples = Samples.of({"forget": forget, "partner": (partner, has & (not self.without_entangled))}, task.teacher)
        return samples if task.wanted is None else samples.wanting("forget", task.wanted[places])

    def _forget_with_partners(self, task: Task) -> tuple[Rows, Pairs, NDArray[np.bool_]]:
        """Return the places of the forget pairs, each once for every partner, the partners, and which there are."""
        places, partners = task.partition.all_partners(task.partition.forget)
        alone = np.setdiff1d(np.arange(len(task.partition.forget)), places)
        has = np.concatenate([np.ones(len(places), bool), np.zeros(len(alone), bool)])
        nothing = np.zeros((len(alone), 2), np.int64)
        return np.concatenate([places, alone]), np.concatenate([partners, nothing]), has

    def _draw_hold(self, task: Task, hard: HardNegatives | None, generator: np.random.Generator, epoch: int) -> Samples:
        """Draw disjoint pairs, each with a negative of its query."""
        disjoint = task.partition.disjoint
        pairs = disjoint[generator.permutation(len(disjoint))[: self._hold_size(task)]]
        pairs = pairs.repeat(self.hold_negatives, axis=0)
        roles = {"kept": all_present(pairs), "kept_negative": (hard or task.negatives).draw(pairs[:, 0], generator)}
        return self._with_earlier(task, hard, roles, generator, falls=False)

    def _with_earlier(
        self,
        task: Task,
        hard: HardNegatives | None,
        roles: dict[str, Drawn],
        generator: np.random.Generator,
        falls: bool,
    ) -> Samples:
        """Add to each sample, with wide anchors, a pair that was forgotten before, and a negative.

        A pair that has a place is pulled to it, those that are away from it more often; another one stays where it is.
        One that has risen falls again if `falls`: as often as a pair that is forgotten now, but in at most half of the
        samples if there are others.
        """
        size, stays = len(next(iter(roles.values()))[0]), task.partition.previous
        risen = task.partition.risen if falls else stays[:0]
        if self.anchors == "paper" or not len(stays) + len(risen):
            return Samples.of(roles, task.teacher)
        share = min(0.5, len(risen) / self._forget_size(task)) if len(stays) else 1.0
        falling = generator.random(size) < share
        earlier = task.earlier_places
        places = np.full(len(stays), np.nan, np.float32) if earlier is None else earlier.scores
        pairs, place = np.empty((size, 2), np.int64), np.full(size, np.nan, np.float32)
        for rows, some in ((falling, risen), (~falling, stays)):
            drawn = np.resize(generator.permutation(len(some)), np.count_nonzero(rows))
            if some is stays and earlier is not None and earlier.away.any():
                again = generator.random(len(drawn)) < AWAY
                drawn[again] = np.resize(generator.permutation(np.flatnonzero(earlier.away)), np.count_nonzero(again))
            pairs[rows], place[rows] = some[drawn], (np.nan if some is risen else places[drawn])
        placed, (negative, has) = np.isfinite(place), task.negatives.draw(pairs[:, 0], generator)
        roles = {**roles, "earlier": (pairs, ~placed), "earlier_negative": (negative, has & ~placed)}
        if earlier is None:
            return Samples.of(roles, task.teacher).lowered("earlier", falling)
        negative, has = (hard or task.negatives).draw(pairs[:, 0], generator)
        roles |= {"placed": (pairs, placed), "placed_negative": (negative, has & placed)}
        samples = Samples.of(roles, task.teacher).lowered("earlier", falling)
        return samples.wanting("placed", np.where(placed, place, np.float32(1)))

    def _forget_size(self, task: Task) -> int:
        """Return the forget pairs of an epoch: each once, or those of a very small request several times."""
        return max(self.min_steps, len(task.partition.forget))

    def _batch(self, task: Task) -> int:
        """Return the forget pairs of a step: with places, twice as many steps as else, if the request is not small."""
        pairs = len(task.partition.forget) // self.min_steps
        if self._to_places(task):
            pairs = max(pairs // 2, min(pairs, SMALL_STEP))
        return max(1, min(self.batch, pairs))

    def _rows_per_pair(self, task: Task) -> int:
        """Return how many rows, each with its own anchors, a forget pair has."""
        return max(1, self.min_steps // self._batch(task))

    def _is_small(self, task: Task) -> bool:
        """Return whether a step has few forget pairs, which are pulled to places."""
        return self._to_places(task) and self._batch(task) <= SMALL_STEP

    def _kept_per_row(self, task: Task) -> int:
        """Return how many kept pairs, with wide anchors, are held in a row."""
        rows = self._rows_per_pair(task) * self._batch(task)
        return self.anchors_per_pair * (max(1, self.batch // rows) if self._is_small(task) else 1)

    def _hold_size(self, task: Task) -> int:
        """Return the disjoint pairs of an epoch."""
        size = self.disjoint_per_epoch * self._rows_per_pair(task) * self._forget_size(task)
        return min(len(task.partition.disjoint), max(size, MIN_DISJOINT) if self._forgot_before(task) else size)

    def _forgot_before(self, task: Task) -> bool:
        """Return whether earlier requests left pairs that are held."""
        return self.anchors == "wide" and len(task.partition.previous) + len(task.partition.risen) > 0

    def _may_part(self, task: Task) -> bool:
        """Return whether kept pairs may part from their negatives, because the ranker has forgotten before.

        Held to what the run before left alone, a request would take back what that one gained, and keep what it lost.
        In a row of small requests, half of whose disjoint pairs are held to the first original, kept pairs that part
        are learned by heart, and test queries lose (docs/log.md).
        """
        return self._forgot_before(task) and not (self._is_small(task) and len(task.anchors))

    def _kept_moves(self, task: Task) -> tuple[Move, Move]:
        """Return what a kept pair may do, and its negative.

        The paper's quotient lets nothing part: it cannot tell up from down if scores are negative.
        """
        return ("may rise", "may fall") if self._may_part(task) and self.scale == "range" else ("stays", "stays")

    def _forget_loss(self, kept_moves: tuple[Move, Move], to_lowest: bool, scored: Scored) -> Tensor:
        """Compare other roles with the teacher, and forget pairs with the lowest score of their list.

        If the task wants certain scores of the forget pairs, compare them with these.
        """
        kept, negative = kept_moves
        moves: dict[str, Move] = {"forget": "may fall", "partner": kept}
        for number in range(1, self.anchors_per_pair + 1):
            moves |= {f"kept_{number}": kept, f"kept_{number}_negative": negative}
        wanted = scored.teacher_with_lowest("forget") if to_lowest else scored.teacher
        return self._mean_gaps(wanted, moves, scored)

    def _place_loss(self, kept_moves: tuple[Move, Move], margins: Move, scored: Scored) -> Tensor:
        """Compare the margin of each forget pair over its hard negatives with that of its place, and hold the rest.

        The farthest pairs are pulled most.
        """
        gaps, roles = self._gap(scored.teacher, scored), list(scored.roles)
        hard = [column for column, role in enumerate(roles) if role.startswith("hard")]
        present = scored.present[:, hard]
        list_moved = torch.where(present, gaps[:, hard], 0.0).sum(1) / present.sum(1).clamp(min=1)
        above = gaps[:, roles.index("forget")] - list_moved
        apart = torch.where(above > 0, 1.0, self.place_below) * (above.abs() + 4 * above.square())
        pulled = mean_where(apart, scored.present[:, roles.index("forget")])
        moves: dict[str, Move] = {"forget": "free"}
        for role in roles:
            if role.startswith(("kept", "partner")):
                moves[role] = kept_moves[role.endswith("negative")]
        return self.place_weight * pulled + self._hold_around(moves, margins, scored)

    def _hold_loss(self, kept_moves: tuple[Move, Move], margins: Move, scored: Scored) -> Tensor:
        kept, negative = kept_moves
        moves: dict[str, Move] = {"kept": kept, "kept_negative": negative}
        if margins == "free":
            return self._mean_gaps(scored.teacher, moves, scored)
        return self._hold_around(moves, margins, scored)

    def _hold_around(self, moves: Mapping[str, Move], margins: Move, scored: Scored) -> Tensor:
        """Hold what is kept with its margins, and pull what was forgotten before to its places, from either side.

        The farthest are not pulled more than others: what was not reached in their own run costs much.
        """
        if "placed" not in scored.roles:
            return self._mean_gaps(scored.teacher, moves, scored, margins)
        held = self._mean_gaps(scored.teacher, {**moves, "placed": "free"}, scored, margins)
        pair, negative = scored["placed"], scored["placed_negative"]
        list_moved = torch.where(negative.present, self._gap(negative.teacher, negative), 0.0)
        return held + mean_where((self._gap(pair.teacher, pair) - list_moved).abs(), pair.present)

    def _mean_gaps(self, wanted: Tensor, moves: Mapping[str, Move], scored: Scored, margins: Move = "free") -> Tensor:
        """Return the mean gap to the wanted score, where it costs, summed over roles. A role without a move stays.

        `margins` is what the margin of a kept pair over its negative may do.
        """
        gaps = dict(zip(scored.roles, self._gap(wanted, scored).unbind(1), strict=True))
        costs = [_cost(gap, moves.get(role, "stays")) for role, gap in gaps.items()]
        loss = mean_where(torch.stack(costs, dim=1), scored.present).sum()
        for role in gaps if margins != "free" else ():
            if role.startswith(("kept", "partner")) and not role.endswith("negative"):
                negative = f"{role}_negative"
                grown = torch.where(scored[negative].present, gaps[role] - gaps[negative], 0.0)
                loss = loss + mean_where(_cost(grown, margins), scored[role].present)
        return loss

    def _gap(self, wanted: Tensor, scored: Scored) -> Tensor:
        """Return how far each score is above the wanted one. [batch, roles]"""
        if self.scale == "range":
            return range_gap(scored.score, wanted, scored.list_range)
        # A role that a sample lacks must not divide by zero: its gradient would be NaN even where it is masked.
        return paper_gap(*(torch.where(scored.present, scores, 1.0) for scores in (scored.score, wanted)))


def _cost(gap: Tensor, move: Move) -> Tensor:
    if move == "stays":
        return gap.abs()
    if move == "free":
        return torch.zeros_like(gap)
    return (gap if move == "may fall" else -gap).relu()
