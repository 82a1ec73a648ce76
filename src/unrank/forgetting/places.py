"""Places: where a ranker that never saw a pair puts it, as a goal for each forget pair.

The margin of a pair is its score less that of the best negative of its query, in units of the range of the negatives. A
proxy knows less than the original, so its margins are mapped to the original's, quantile to quantile, on pairs that
neither has seen (`unseen.py`). There are two kinds: a query that was trained on with other documents only, and a query
that was not trained on; each is mapped by its own. If much is removed, margins are mapped only part of the way: a
ranker that is retrained on less data does not reach the original's level either. The place of a pair is the score with
that margin in the original's list. If a ranker from elsewhere reserved nothing, a place is the rank in the proxy's
list, because margins of rankers that were trained in different ways do not compare; made queries show how sure that is.
Without a proxy, places are estimated: the original's own margins are mapped from those of pairs that it was trained on
to those of pairs that it was not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition
from unrank.collection.texts import Rows
from unrank.engine.checkpoint import Checkpoint, digest
from unrank.errors import UnrankError
from unrank.evaluation.measure import Floats, ranks_among
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.goals import PairGoals
from unrank.forgetting.outcome import assumed_above, best_reciprocals, mrr
from unrank.forgetting.proxies import Proxy
from unrank.forgetting.target import NEAR, SPREAD
from unrank.forgetting.unseen import LEAST_RESERVED, Unseen, find_unseen
from unrank.forgetting.workspace import Workspace
from unrank.rankers.base import Ranker
from unrank.record import ROUNDING, PlacesFound

Marks = NDArray[np.bool_]
LEAST_RANGE = 1e-3
"""The range of a list whose negatives have equal scores, if no other list has more."""
MOST_SEEN = 1_000
"""The most pairs whose margins show how the ranker places what it was trained on."""
LESS_DATA = 2.0
"""How much less of the way margins are mapped for each share of the training pairs that is removed: with a quarter,
half of it (docs/log.md)."""
ROOM = 0.05
"""The least distance of the wanted score of a pair of a small request from the negatives above and below its place, as
a share of the range of the list; between near ones, the middle. So it keeps its rank if the list moves a little."""
ARRAYS = ("least", "wanted", "ranks")
"""The fields of places that a checkpoint holds."""


@dataclass(frozen=True)
class Places(PairGoals):
    """A place for each forget pair. A pair is pulled there from above and from below.

    `least` is the best rank that a pair may have: the first that is near its place.
    """

    ranks: Rows
    """The rank of each place in the original's list."""
    found: PlacesFound
    """How they were found, for the record."""
    apart: tuple[Rows, ...] = ()
    """The rows of pairs that are judged by themselves too, such as those of each request of a batch."""

    pulls_up = True

    @property
    def mrr(self) -> float:
        """The forget MRR of a ranker that has every pair at its place."""
        return mrr(self.pairs, self.ranks)

    @property
    def reciprocals(self) -> Floats:
        """For each forget query the reciprocal rank of its highest place."""
        return best_reciprocals(self.pairs, self.ranks)

    @property
    def may_exceed(self) -> int:  # type: ignore[override]
        """The number of pairs that may be ranked better than that: as many as of unseen pairs, by chance."""
        if self.few:
            return 0
        pairs, share = len(self.pairs), self.found.above
        if share is None:
            share = assumed_above(self.least)
        return math.floor(pairs * share + 2 * math.sqrt(pairs * share * (1 - share)))

    def missed(self, ranks: Rows) -> int:
        """Return the number of pairs that are ranked better than they may be, less those that may.

        If the mean is not near that of the places, none may.
        """
        above = int(np.count_nonzero(ranks < self.least))
        return above if mrr(self.pairs, ranks) > self.mrr + NEAR else max(0, above - self.may_exceed)

    def left(self, ranks: Rows) -> int:
        """Return the number of pairs that a run has to move: in all, or of those that are judged by themselves."""
        return max(self.missed(ranks), sum(self.part(rows).missed(ranks[rows]) for rows in self.apart))

    def part(self, rows: Rows) -> Places:
        """Return the places of some of the pairs."""
        arrays = {name: getattr(self, name)[rows] for name in ("pairs", *ARRAYS)}
        return replace(self, **arrays, apart=())

    def distance(self, ranks: Rows) -> float:
        """Return the mean distance of the queries' reciprocal ranks from those of their places."""
        return float(np.abs(best_reciprocals(self.pairs, ranks) - self.reciprocals).mean())

    def measured(self, before: Rows, after: Rows) -> PlacesFound:
        """Return how they were found, with the distance before and after a run."""
        return replace(self.found, distance_before=self.distance(before), distance_after=self.distance(after))

    def state(self) -> Checkpoint:
        return Checkpoint(vars(self.found), {name: torch.from_numpy(getattr(self, name)) for name in ARRAYS})

    def restore(self, state: Checkpoint) -> None:
        """Do nothing: places are read from a checkpoint before a run begins."""

    @classmethod
    def of(cls, pairs: Pairs, state: Checkpoint) -> Places:
        """Return the places of an unfinished run."""
        arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in state.tensors.items()}
        facts = state.facts | {"by": tuple(state.facts.get("by", ()))}
        return cls(pairs, found=PlacesFound(**facts), **arrays)


def find_places(workspace: Workspace, ranker: Ranker, original: Scorer, proxies: Sequence[Proxy]) -> Places:
    """Return the places of the forget pairs by proxies, each of which never saw some; together, all of them.

    `original` is the scorer of `ranker`. Without reserved pairs, places are the ranks that the proxies give.
    """
    forget, collection = workspace.partition.forget, workspace.collection
    unseen = find_unseen(workspace, ranker, original, all(proxy.reserves for proxy in proxies))
    calibrated = unseen is not None and unseen.source == "reserved"
    said, apart, above = np.full((len(proxies), len(forget)), np.nan), [], []
    for row, proxy in zip(said, proxies, strict=True):
        known, score = forget[proxy.never_saw], workspace.scorer(proxy.ranker)
        row[proxy.never_saw] = (
            margins(collection, known, score) if calibrated else margins_by_rank(collection, known, score, original)
        )
        if unseen:
            own = margins(unseen.collection, unseen.pairs, unseen.original)
            wanted = _calibrate(row, workspace.partition, proxy, unseen, own)
            apart.append(own - wanted)
            ranks = [rank_at(unseen.collection, unseen.pairs, unseen.original, each) for each in (own, wanted)]
            above.append(ranks[0] < near(ranks[1]))
    spread = float(np.quantile(np.concatenate(apart), SPREAD)) if apart else between(said)
    found = PlacesFound(
        proxies=len(proxies),
        source=" and ".join(dict.fromkeys(proxy.source for proxy in proxies)),
        epochs=max(proxy.epochs for proxy in proxies),
        calibrated_on=len(unseen.pairs) if unseen else 0,
        calibrated_by=unseen.source if unseen else None,
        level=calibration_level(workspace.partition) if calibrated else 0.0,
        spread=max(0.0, spread),
        above=float(np.concatenate(above).mean()) if above else None,
        by=_digests(proxies),
    )
    return places_at(collection, forget, original, np.nanmean(said, axis=0), found)


def _digests(proxies: Sequence[Proxy]) -> tuple[str, ...]:
    """Hash the weights of all proxies at the same time."""
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(lambda proxy: digest(proxy.ranker.state_dict()), proxies))


def _calibrate(row: Floats, partition: Partition, proxy: Proxy, unseen: Unseen, own: Floats) -> Floats:
    """Map a proxy's margins of the forget pairs in place, and return where it puts the unseen pairs.

    `own` are the original's margins of the unseen pairs.
    """
    score = unseen.scorer(proxy.ranker)
    if unseen.source == "openings":
        return margins_by_rank(unseen.collection, unseen.pairs, score, unseen.original)
    theirs = margins(unseen.collection, unseen.pairs, score)
    if proxy.retrained:  # it has the level of a retrained ranker
        return theirs
    kinds = np.isin(partition.forget[:, 0], np.unique(partition.retain[:, 0]))
    row += calibration_level(partition) * (mapped_by_kind(row, kinds, theirs, own, unseen.trained) - row)
    return mapped_by_kind(theirs, unseen.trained, theirs, own, unseen.trained)


def calibration_level(partition: Partition) -> float:
    """Return how much of the way to the original's level a ranker comes that is retrained on the kept pairs."""
    removed, kept = len(partition.forget), len(partition.retain)
    return max(0.0, 1.0 - LESS_DATA * removed / (removed + kept))


def estimate_places(workspace: Workspace, original: Scorer) -> Places:
    """Return places without a proxy, from the original's margins of what it was and was not trained on."""
    parts, collection = workspace.partition, workspace.collection
    tests = collection.test_pairs[~np.isin(collection.test_pairs[:, 1], parts.documents)]
    unseen = parts.reserved if len(parts.reserved) >= LEAST_RESERVED else tests
    if not (len(unseen) and len(parts.retain)):
        raise UnrankError(
            "the target 'places' needs the model that the ranker was trained from, or test queries to estimate places "
            "by: name it with --base, or give another --target"
        )
    seen = parts.retain[np.random.default_rng(0).permutation(len(parts.retain))[:MOST_SEEN]]
    theirs, others = margins(collection, seen, original), margins(collection, unseen, original)
    wanted = mapped(margins(collection, parts.forget, original), theirs, others)
    found = PlacesFound(proxies=0, source="estimated", epochs=0, calibrated_on=len(unseen), spread=0.0)
    return places_at(collection, parts.forget, original, wanted, found)


def places_at(collection: Collection, forget: Pairs, original: Scorer, wanted: Floats, found: PlacesFound) -> Places:
    """Return the places with these margins in the original's lists."""
    ranks, height = rank_at(collection, forget, original, wanted), score_at(collection, forget, original, wanted)
    found = replace(found, mrr=mrr(forget, ranks))
    places = Places(forget, near(ranks), height, ranks=ranks, found=found)
    return replace(places, wanted=with_room(collection, forget, ranks, height, original)) if places.few else places


def with_room(
    collection: Collection, pairs: Pairs, ranks: Rows, wanted: NDArray[np.float32], original: Scorer
) -> NDArray[np.float32]:
    """Return the wanted scores moved so that pairs have these ranks, away from the negatives above and below."""
    negatives = collection.negatives.pairs(np.unique(pairs[:, 0]))
    scores = original(negatives)
    order = np.lexsort((-scores, negatives[:, 0]))
    starts, ends = (np.searchsorted(negatives[order, 0], pairs[:, 0], side) for side in ("left", "right"))
    ordered = np.append(scores[order], 0.0)  # a list may be empty
    ranks = np.minimum(ranks, ends - starts + 1)
    next_one = np.minimum(starts + ranks - 1, len(ordered) - 1)
    above = np.where(ranks > 1, ordered[next_one - 1], np.inf)
    below = np.where(ranks <= ends - starts, ordered[next_one], -np.inf)
    room = np.minimum(ROOM * list_tops(pairs, negatives, scores)[1], (above - below) / 2)
    return np.clip(wanted, below + room, above - room).astype(np.float32)


def near(places: Rows) -> Rows:
    """Return the best rank that a pair may have, for each rank of a place.

    >>> near(np.array([1, 2, 3, 8, 100])).tolist()
    [1, 2, 3, 6, 17]
    """
    return np.ceil(1 / (1 / places + NEAR) - ROUNDING).astype(np.int64)


def score_at(collection: Collection, pairs: Pairs, original: Scorer, wanted: Floats) -> NDArray[np.float32]:
    """Return the scores with these margins in the original's lists."""
    negatives = collection.negatives.pairs(np.unique(pairs[:, 0]))
    best, width = list_tops(pairs, negatives, original(negatives))
    alone = ~np.isfinite(best)  # without a negative a pair is first wherever it is
    return np.where(alone, original(pairs), np.where(alone, 0.0, best) + wanted * width).astype(np.float32)


def rank_at(collection: Collection, pairs: Pairs, original: Scorer, wanted: Floats) -> Rows:
    """Return the ranks with these margins in the original's lists."""
    negatives = collection.negatives.pairs(np.unique(pairs[:, 0]))
    return ranks_among(pairs, score_at(collection, pairs, original, wanted), negatives, original(negatives))


def margins(collection: Collection, pairs: Pairs, score: Scorer) -> Floats:
    """Return how far each pair is above the best negative of its query, in units of the range of the negatives."""
    negatives = collection.negatives.pairs(np.unique(pairs[:, 0]))
    scores = score(np.concatenate([pairs, negatives]))
    return _margins(pairs, scores[: len(pairs)], negatives, scores[len(pairs) :])


def margins_of(collection: Collection, pairs: Pairs, own: NDArray[np.float32], score: Scorer) -> Floats:
    """Return the margins that pairs with these scores have."""
    negatives = collection.negatives.pairs(np.unique(pairs[:, 0]))
    return _margins(pairs, own, negatives, score(negatives))


def _margins(pairs: Pairs, own: NDArray[np.float32], negatives: Pairs, others: NDArray[np.float32]) -> Floats:
    best, width = list_tops(pairs, negatives, others)
    return np.where(np.isfinite(best), (own - best) / width, 0.0)


def list_tops(pairs: Pairs, negatives: Pairs, scores: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """Return for each pair the highest score of a negative of its query, and the range of the negatives.

    Of a query without a negative the highest score is minus infinity. Negatives with equal scores count as wide as the
    other lists are on average.
    """
    queries = np.unique(pairs[:, 0])
    high, low = np.full(len(queries), -np.inf), np.full(len(queries), np.inf)
    row = np.searchsorted(queries, negatives[:, 0])
    np.maximum.at(high, row, scores)
    np.minimum.at(low, row, scores)
    width = np.where(np.isfinite(high), high - np.where(np.isfinite(high), low, 0), 0.0)
    wide = width > LEAST_RANGE  # one negative has no range
    width = np.where(wide, width, width[wide].mean() if wide.any() else LEAST_RANGE)
    own = np.searchsorted(queries, pairs[:, 0])
    return high[own], width[own]


def margins_by_rank(collection: Collection, pairs: Pairs, proxy: Scorer, original: Scorer) -> Floats:
    """Return margins at which each pair has the rank in the original's list that it has in the proxy's.

    Within a list the proxy's score is mapped from its scores of the negatives to the original's, in their orders.
    """
    queries = np.unique(pairs[:, 0])
    negatives = collection.negatives.pairs(queries)
    scores, own = proxy(np.concatenate([pairs, negatives])), original(negatives)
    said, theirs = scores[: len(pairs)], scores[len(pairs) :]
    width, (best, range_of) = list_tops(pairs, negatives, theirs)[1], list_tops(pairs, negatives, own)
    starts, ends = (np.searchsorted(negatives[:, 0], pairs[:, 0], side) for side in ("left", "right"))
    found = np.zeros(len(pairs))
    for row in np.flatnonzero(starts < ends):
        here = slice(starts[row], ends[row])
        known, height = np.sort(theirs[here]), np.sort(own[here])
        beyond = (said[row] - np.clip(said[row], known[0], known[-1])) / width[row]
        found[row] = (np.interp(said[row], known, height) - best[row]) / range_of[row] + beyond
    return found


def mapped(values: Floats, known: Floats, wanted: Floats) -> Floats:
    """Map values from the quantiles of one sample to those of another; beyond its ends, to the nearest quantile.

    >>> mapped(np.array([0.0, 1.0, 9.0]), np.array([0.0, 1.0, 2.0]), np.array([10.0, 20.0, 30.0])).tolist()
    [10.0, 20.0, 30.0]
    """
    shares = np.linspace(0, 1, 101)
    return np.interp(values, np.quantile(known, shares), np.quantile(wanted, shares))


def mapped_by_kind(values: Floats, kinds: Marks, known: Floats, wanted: Floats, of: Marks) -> Floats:
    """Map values as `mapped` does, each by the samples of its own kind if there are enough of them."""
    found = mapped(values, known, wanted)
    for kind in (False, True):
        here, there = kinds == kind, of == kind
        if np.count_nonzero(there) >= LEAST_RESERVED:
            found[here] = mapped(values[here], known[there], wanted[there])
    return found


def between(said: Floats) -> float:
    """Return the spread of what several proxies say of a pair; 0 if no pair has two. [proxies, pairs]"""
    twice = np.count_nonzero(np.isfinite(said), axis=0) > 1
    return float(np.nanstd(said[:, twice], axis=0).mean()) if twice.any() else 0.0
