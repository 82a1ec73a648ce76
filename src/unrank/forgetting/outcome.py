"""The outcome of a request: the ranks of its pairs before and after a run, and the state that they and the audit show.

`judge` is the one place that decides whether a request is forgotten. `unrank forget`, the desk's gates and the
certificates take their words from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unrank.collection.collection import Collection, Pairs
from unrank.collection.texts import Rows
from unrank.errors import count
from unrank.evaluation.bootstrap import MIN_QUERIES
from unrank.evaluation.measure import Floats, ranks_among
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.target import NEAR, tolerance
from unrank.record import ROUNDING, ForgetState, PairRank, PairRanks

__all__ = [
    "Findings",
    "ForgetState",
    "Judgement",
    "PairRank",
    "PairRanks",
    "judge",
    "pair_ranks",
    "ranks_of",
    "too_few",
]


MOST_ABOVE = 1 / 3
"""The share of unseen pairs that stand above their own places beyond which places show little."""
APART = "the ranker that it is for still remembers it, and so does every service that runs without the adapter"


@dataclass(frozen=True)
class Findings:
    """The facts about a request besides the ranks of its pairs."""

    weights_changed: bool
    """Whether the run changed any weight."""
    for_others: bool = False
    """Whether the run had other requests too, for which it may have changed weights."""
    only_rows: bool = False
    """Whether the run took no step, and changed only rows of the vocabulary that no kept text touches."""
    retrained: bool = False
    """Whether the ranker was trained again without the request: then its pairs have no target to reach."""
    forgotten_before: bool = False
    """Whether an earlier run had forgotten all of it, so that nothing was done."""
    never_seen: bool = False
    """Whether the ranker's record shows that it was trained without the request."""
    has_reference: bool = False
    """Whether it was compared with a ranker that never saw the request: a known reference, or a proxy."""
    default_known: bool = True
    """Whether the default target can be measured. If not, a target of the user's own shows nothing."""
    remembered: str = ""
    """Why it is not forgotten, wherever its pairs are: by the audit, or by its target; empty if neither says so."""
    untold: str = ""
    """Why the audit cannot tell; empty if it can, or if there was none."""
    unseen_mrr: float | None = None
    """The MRR of what the ranker was never shown; `None` if that was not measured."""
    rows_left: int = 0
    """The rows of the vocabulary that only removed texts touch and that could not be reset."""
    apart: bool = False
    """Whether the change is an adapter apart from its ranker, which remembers all of it."""
    unseen_above: float | None = 0.0
    """The share of unseen pairs that stand above their own places; `None` if no place was tried on unseen pairs."""


@dataclass(frozen=True)
class Judgement:
    """The state of a request, the reason, and the ranks of its pairs."""

    state: ForgetState
    why: str
    ranks: PairRanks

    @property
    def words(self) -> str:
        """The reason, the worst pair, how many changed, and the mean."""
        return f"{self.why}; {shown(self.ranks)}"

    @property
    def passed(self) -> bool:
        """Whether nothing is left to do for this request."""
        return self.state is not ForgetState.NOT_FORGOTTEN

    def to_json(self) -> dict[str, object]:
        return {"state": str(self.state), "words": self.words, **self.ranks.to_json()}


def judge(ranks: PairRanks, found: Findings) -> Judgement:
    """Judge a request by its own pairs. `ranks.target` is the lower of the run's target and the default one."""

    def said(state: ForgetState, why: str) -> Judgement:
        return Judgement(state, why, ranks)

    if found.never_seen:
        return said(ForgetState.NOTHING, "the ranker was trained without it, as its record shows")
    if (found.for_others or found.only_rows) and found.default_known and not had_to_move(ranks):
        if rose(ranks):
            return said(ForgetState.NOT_FORGOTTEN, "it was not ranked above the target before the run, and is now")
        never = "it was not ranked above the target before the run, and is not now"
        if unsure := _estimated_only(ranks, found):
            return said(ForgetState.NOT_FORGOTTEN, f"{unsure}; by that estimate {never}")
        if found.rows_left:
            return said(ForgetState.NOT_CLEARED, f"{never}; {_left(found)}")
        return said(ForgetState.NOTHING, never)
    if found.remembered:
        return said(ForgetState.NOT_FORGOTTEN, found.remembered)
    if not (found.weights_changed or found.forgotten_before or found.retrained):
        if had_to_move(ranks):
            return said(ForgetState.NOT_FORGOTTEN, f"no weight was changed, and {_above(ranks)}")
        if unsure := _estimated_only(ranks, found):
            return said(ForgetState.NOT_FORGOTTEN, f"{unsure}; by that estimate {_none_above(ranks)}")
        if found.rows_left:
            return said(ForgetState.NOT_CLEARED, f"{_none_above(ranks)}; {_left(found)}")
        if found.default_known:
            return said(ForgetState.NOTHING, f"no weight was changed: {_none_above(ranks)}")
        return said(ForgetState.NOT_FORGOTTEN, "no weight was changed, and what is unseen cannot be measured here")
    if missing := _missing(ranks, found):
        return said(ForgetState.NOT_FORGOTTEN, missing)
    fell = "retrained without it" if found.retrained else _fell(ranks, found)
    left = [_left(found)] if found.rows_left else []
    if found.apart and (found.weights_changed or not found.forgotten_before):
        return said(ForgetState.WHILE_ADAPTED, "; ".join([f"{fell}, but {APART}", *_doubts(ranks, found), *left]))
    if doubts := _doubts(ranks, found):
        return said(ForgetState.NOT_VERIFIABLE, "; ".join([f"{fell}, but this cannot be verified", *doubts, *left]))
    if found.rows_left:
        return said(ForgetState.NOT_CLEARED, f"{fell}; {_left(found)}")
    return said(ForgetState.FORGOTTEN, fell)


def had_to_move(ranks: PairRanks) -> bool:
    """Return whether the request was ranked above the target: by its mean, or by any pair if it has few queries."""
    if ranks.least_ranks or ranks.queries < MIN_QUERIES:
        return sum(ranks.had_to_fall) > _may_exceed(ranks, ranks.mrr_before)
    return ranks.mrr_before > ranks.target


def rose(ranks: PairRanks) -> bool:
    """Return whether the request is ranked above the target now."""
    if ranks.least_ranks:
        return ranks.too_high > _may_exceed(ranks, ranks.mrr_after)
    if ranks.queries < MIN_QUERIES:
        return any(replace(ranks, ranks_before=ranks.ranks_after).had_to_fall)
    return ranks.mrr_after > ranks.target + tolerance(ranks.queries)


def _missing(ranks: PairRanks, found: Findings) -> str:
    """Say which pairs did not move as they had to; empty if all did, or if none has to after what was done."""
    if found.retrained:
        return ""
    low = ranks.mrr_after <= ranks.target + tolerance(ranks.queries)
    if found.forgotten_before:  # places differ a little from run to run
        return "" if low or ranks.places else "an earlier run had worked on it, but it is ranked above the target"
    pairs = count(ranks.pairs, "pair")
    if ranks.too_high > _may_exceed(ranks, ranks.mrr_after):
        if ranks.too_high <= ranks.may_exceed:
            return f"the mean of {ranks.mrr_after:.3f} is more than {NEAR} above that of the places, {ranks.target:.3f}"
        return f"{ranks.too_high} of {pairs} ranked higher than the target allows{_by_chance(ranks)}"
    if not had_to_move(ranks) or ranks.least_ranks:
        return ""
    if not ranks.changed:
        return f"none of {pairs} changed its rank"
    if ranks.unmoved and (ranks.queries < MIN_QUERIES or not low):
        return f"{ranks.unmoved} of {pairs} had to fall and did not"
    return "" if low else "all pairs that had to fall did, but not far enough"


def _may_exceed(ranks: PairRanks, mrr: float) -> int:
    """Return how many pairs may be ranked better than they may; none if the mean is not near that of their places."""
    return 0 if ranks.places and mrr > ranks.target + NEAR else ranks.may_exceed


def _estimated_only(ranks: PairRanks, found: Findings) -> str:
    """Say that places are estimates, so that they do not show that there is nothing to forget; empty if they do.

    A pair that is ranked no higher than unseen ones are on average has nothing to forget, wherever its place is.
    """
    if not ranks.places:
        return ""
    if found.unseen_mrr is not None and all(1 / rank <= found.unseen_mrr + ROUNDING for rank in ranks.ranks_before):
        return ""
    if unclear := _unclear(ranks, found):
        return unclear
    if found.has_reference or ranks.queries >= MIN_QUERIES:
        return ""
    return (
        f"its places could only be estimated, and for {count(ranks.queries, 'query')} an estimate does not show that "
        "there is nothing to forget: name the base of the ranker with --base"
    )


def _unclear(ranks: PairRanks, found: Findings) -> str:
    """Say that places show little, because unseen pairs do not keep to theirs or were not there; empty if not."""
    if not ranks.places or not show_little(ranks, found.unseen_above):
        return ""
    return (
        f"its places show little, because {why_little(found.unseen_above)}: name a ranker that was trained as this one "
        "was, but without the request, with --reference"
    )


def show_little(ranks: PairRanks, unseen_above: float | None) -> bool:
    """Return whether more unseen pairs stand above their own places than a place may show anything by.

    If that was not measured, half of the pairs count as above that are not first at their places.
    """
    return (assumed_above(ranks.least_ranks) if unseen_above is None else unseen_above) > MOST_ABOVE


def assumed_above(least: Sequence[int] | Rows) -> float:
    """Return the share of pairs that stand above their places by chance, if that was not measured.

    >>> assumed_above([1, 2, 3, 1])
    0.25
    """
    return 0.5 * float(np.mean(np.asarray(least) > 1)) if len(least) else 0.0


def why_little(unseen_above: float | None) -> str:
    """Say why places show little, by the share of unseen pairs above their places; `None` if it was not measured."""
    if unseen_above is None:
        return "too few pairs that no ranker saw were there to try them on"
    return f"{unseen_above:.0%} of pairs that the ranker never saw stand above theirs"


def _doubts(ranks: PairRanks, found: Findings) -> list[str]:
    few = ranks.queries < MIN_QUERIES and not (found.has_reference or found.retrained)
    return [
        *([too_few(ranks.queries)] if few else []),
        *([unclear] if (unclear := _unclear(ranks, found)) and not found.retrained else []),
        *([found.untold] if found.untold else []),
        *([] if found.default_known else ["what is unseen cannot be measured here"]),
    ]


def too_few(queries: int) -> str:
    """Say that there are too few queries to verify without another ranker."""
    number = count(queries, "query")
    return f"{number}, where {MIN_QUERIES} are needed, or a proxy or a retrained reference to compare with"


def _fell(ranks: PairRanks, found: Findings) -> str:
    if found.forgotten_before:
        return "an earlier run had forgotten all of it"
    falling = sum(ranks.had_to_fall)
    if not falling:
        return "nothing had to fall"
    fallen = falling - ranks.unmoved
    if fallen < falling and ranks.least_ranks:
        high = f"{ranks.too_high} of {count(ranks.pairs, 'pair')} ranked higher than the target allows"
        return f"{fallen} of {falling} pairs that had to fall did; {high}{_by_chance(ranks)}"
    if fallen < falling:
        return "the mean fell to the target"
    return "the one pair that had to fall did" if falling == 1 else f"all {falling:,} pairs that had to fall did"


def _above(ranks: PairRanks) -> str:
    falling = sum(ranks.had_to_fall)
    return f"{falling} of {count(ranks.pairs, 'pair')} stood above the target"


def _none_above(ranks: PairRanks) -> str:
    """Say that nothing was ranked above the target, or no more pairs than by chance."""
    falling = sum(ranks.had_to_fall)
    if not (falling and ranks.least_ranks):
        return "nothing was ranked above the target"
    return f"{falling} of {count(ranks.pairs, 'pair')} ranked higher than the target allows{_by_chance(ranks)}"


def _by_chance(ranks: PairRanks) -> str:
    return f", where up to {ranks.may_exceed} may be by chance" if ranks.may_exceed else ""


def _left(found: Findings) -> str:
    why = "an adapter does not change them" if found.apart else "what they were before training is not known"
    rows = count(found.rows_left, "row")
    return f"{rows} of the vocabulary that only removed texts touch could not be reset, because {why}"


def shown(ranks: PairRanks) -> str:
    """Return the worst pair, how many pairs changed, and the mean, in words."""
    worst = "there is no pair" if ranks.worst is None else f"worst pair: {ranks.worst}"
    changed = f"{ranks.changed} of {count(ranks.pairs, 'pair')} changed"
    goal = "" if ranks.least_ranks else f", target {ranks.target:.3f}"
    return f"{worst}; {changed}; MRR {ranks.mrr_before:.3f} before, {ranks.mrr_after:.3f} after{goal}"


def ranks_of(
    collection: Collection,
    pairs: Pairs,
    ranks: Rows,
    target: float,
    least: Rows | None = None,
    places: Rows | None = None,
    may_exceed: int = 0,
) -> PairRanks:
    """Return the ranks of a request's pairs, sorted. `ranks` are those before and after. [2, pairs]

    `least` is the best rank that each pair may have; `None` if the target is a mean. `places` are the ranks of their
    places, if they have such. `may_exceed` is the number of pairs that may be ranked better than `least`.
    """
    lengths = list_lengths(collection, pairs)
    columns = [*ranks, lengths, *(each for each in (least, places) if each is not None)]
    order = np.lexsort(columns[::-1])
    then, now, entries, *goal = (tuple(column[order].tolist()) for column in columns)
    return PairRanks(
        queries=len(np.unique(pairs[:, 0])),
        ranks_before=then,
        ranks_after=now,
        list_lengths=entries,
        mrr_before=mrr(pairs, ranks[0]),
        mrr_after=mrr(pairs, ranks[1]),
        target=target,
        least_ranks=goal[0] if goal else (),
        places=goal[1] if len(goal) > 1 else (),
        may_exceed=may_exceed,
    )


def pair_ranks(collection: Collection, pairs: Pairs, score: Scorer) -> Rows:
    """Rank each pair among its query's negatives; a tie is decided for the pair."""
    negatives = collection.negatives.pairs(np.unique(pairs[:, 0]))
    scores = score(np.concatenate([pairs, negatives]))
    return ranks_among(pairs, scores[: len(pairs)], negatives, scores[len(pairs) :])


def list_lengths(collection: Collection, pairs: Pairs) -> Rows:
    """Return the number of entries of each pair's list: its query's negatives and the pair itself."""
    return collection.negatives.counts[pairs[:, 0]].astype(np.int64) + 1


def mrr(pairs: Pairs, ranks: Rows) -> float:
    """Return the mean over queries of the reciprocal rank of each query's best pair; 0 if there is no pair."""
    return float(best_reciprocals(pairs, ranks).mean()) if len(pairs) else 0.0


def best_reciprocals(pairs: Pairs, ranks: Rows) -> Floats:
    """Return the reciprocal rank of each query's best pair, in the order of the queries."""
    queries, owner = np.unique(pairs[:, 0], return_inverse=True)
    best = np.zeros(len(queries))
    np.maximum.at(best, owner, 1 / ranks)
    return best
