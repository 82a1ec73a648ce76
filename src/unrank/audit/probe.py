"""Probe: can a linear probe of hidden states tell that a pair was trained on?

Scores can be level while the states that they are computed from still differ. Two probes, both by logistic regression,
are trained on the states of each ranker by itself. One learns to tell kept pairs, which the ranker saw, from pairs of
test queries, which no ranker saw: forget pairs that look like kept ones are still remembered. The other learns to tell
forget pairs from test pairs: if it does so better than on a retrained ranker, something was done to them that shows.

A probe is tested on pairs whose query and document it was not trained on. The queries of training and of test differ,
so a probe separates them a little even on a ranker that saw neither. Only the difference from retrained rankers counts,
and without one nothing is known. To find nothing shows little: a better probe may find more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from unrank.audit.comparison import Comparison, PerRanker
from unrank.audit.context import AuditContext
from unrank.audit.hidden_states import hidden_states
from unrank.audit.verdict import Finding, Hiding, Verdict, as_attack, find
from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.errors import count
from unrank.evaluation.bootstrap import MIN_QUERIES, BootstrapEstimate, ResampledSets
from unrank.evaluation.measure import Floats

PROBE = "probe"
MEASURES = "the AUC of forgotten pairs against test pairs, by a probe of hidden states that learned from kept pairs"
SETS = ("forget", "kept", "test")
PROBED = 300
"""The most pairs of each set that are probed."""
FOLDS = 5
PENALTY = 1.0
"""The weight of the squared length of a probe, beside the sum of the losses of single pairs."""
STEPS = 50
"""The most Newton steps of a probe; a few are enough."""
NO_REFERENCE = "not tested: there is no retrained ranker to compare with"
SHARED = (
    "not tested: too many pairs share a query or a document, so a probe cannot be tested on pairs that are new to it"
)

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ProbedPairs:
    """The pairs that are probed, with the set of each and the round in which it is tested."""

    pairs: Pairs
    set_of: NDArray[np.str_]
    tested_in: Rows
    """All pairs of a query in a set are tested in the same round."""

    @classmethod
    def of(cls, context: AuditContext) -> ProbedPairs:
        kept = np.concatenate([context.sets["entangled"], context.sets["disjoint"]])
        sets = {"forget": context.sets["forget"], "kept": kept, "test": context.sets["test"]}
        drawn = {name: _draw(pairs, context.seed) for name, pairs in sets.items()}
        rounds = np.concatenate([_rounds(pairs[:, 0], context.seed) for pairs in drawn.values()])
        names = np.repeat(list(drawn), [len(pairs) for pairs in drawn.values()])
        return cls(np.concatenate(list(drawn.values())), names, rounds)

    def are(self, *names: str) -> Mask:
        return np.isin(self.set_of, names)

    def queries(self, name: str) -> int:
        return len(np.unique(self.pairs[self.are(name), 0]))

    @cached_property
    def rounds(self) -> list[tuple[Mask, Mask]]:
        """The pairs to learn from and the pairs to test in each round: they share no query and no document."""
        tested = [self.tested_in == number for number in range(FOLDS)]
        return [(~(self._share(0, held) | self._share(1, held)), held) for held in tested]

    def _share(self, side: int, held: Mask) -> Mask:
        return np.isin(self.pairs[:, side], self.pairs[held, side])

    def can_learn(self, *names: str) -> bool:
        """Return whether each round has pairs of these sets to learn from."""
        return all((learned & self.are(name)).any() for learned, _ in self.rounds for name in names)


def probe(context: AuditContext) -> Finding:
    """Probe the hidden states of forget pairs."""
    if not context.rankers.references:
        return Finding(MEASURES, Verdict.MEASURED, NO_REFERENCE)
    probed = ProbedPairs.of(context)
    numbers = {name: probed.queries(name) for name in SETS}
    lacking = {name: MIN_QUERIES - number for name, number in numbers.items() if number < MIN_QUERIES}
    if lacking:
        few = ", ".join(count(number, f"more {name} query") for name, number in lacking.items())
        said = f"not tested: needs {few}; {MIN_QUERIES} of each set are the fewest that tell"
        return Finding(MEASURES, Verdict.MEASURED, said)
    if not probed.can_learn("kept", "test"):
        return Finding(MEASURES, Verdict.MEASURED, SHARED)
    states = context.each(partial(hidden_states, probed.pairs))
    by_kept = states.map(lambda these: held_out_scores(probed, these, "kept"))
    seen, control = (_compare(context, probed, by_kept, name) for name in ("forget", "kept"))
    shown = None
    if probed.can_learn("forget"):
        by_forgotten = states.map(lambda these: held_out_scores(probed, these, "forget"))
        shown = _compare(context, probed, by_forgotten, "forget")
    found = find(
        MEASURES,
        seen,
        hiding=Hiding("the AUC of a probe that learned from other forgotten pairs is", shown) if shown else None,
        learned_from_forgotten=shown and shown.to_json(),
        kept_pairs_against_test_pairs=control.to_json(),
        pairs={name: int(probed.are(name).sum()) for name in SETS},
    )
    return as_attack(found)


def _compare(context: AuditContext, probed: ProbedPairs, scores: PerRanker[Floats], name: str) -> Comparison:
    """Compare how well the scores of probes tell a set from test pairs."""
    return context.compare(scores.map(lambda these: _area(probed, these, name, context.seed)))


def held_out_scores(probed: ProbedPairs, states: Floats, name: str) -> Floats:
    """Score every pair by a probe that learned to tell this set from test pairs, without the pair's texts."""
    scores = np.zeros(len(probed.pairs))
    for learned, held in probed.rounds:
        learned = learned & probed.are(name, "test")
        scores[held] = logistic_regression(states[learned], probed.are(name)[learned], states[held])
    return scores


def logistic_regression(states: Floats, member: Mask, others: Floats) -> Floats:
    """Learn to tell members from the rest, both of the same weight, and return the logits of other states.

    States have more numbers than there are pairs, so Newton's steps go over pairs.

    >>> line = np.arange(6.0)[:, None]
    >>> logistic_regression(line, line[:, 0] > 2, np.array([[0.0], [5.0]])).round(1).tolist()
    [-1.7, 1.7]
    """
    middle, spread = states.mean(axis=0), states.std(axis=0)
    unit = np.where(spread > 0, spread, np.inf) * np.sqrt(states.shape[1])
    known, asked = (states - middle) / unit, (others - middle) / unit
    alike, number = known @ known.T, len(known)
    balance = number / 2 / np.where(member, member.sum(), number - member.sum())
    system = np.ones((number + 1, number + 1))
    system[-1, -1] = 0
    logits, solved = np.zeros(number), np.zeros(number + 1)
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-logits))
        weight = balance * np.maximum(chance * (1 - chance), 1e-9)
        system[:-1, :-1] = alike + np.diag(PENALTY / weight)
        solved = np.linalg.solve(system, np.append(logits + balance * (member - chance) / weight, 0.0))
        moved, logits = logits, alike @ solved[:-1] + solved[-1]
        if np.abs(logits - moved).max() < 1e-6:
            break
    found: Floats = asked @ (known.T @ solved[:-1]) + solved[-1]
    return found


def _area(probed: ProbedPairs, scores: Floats, name: str, seed: int) -> BootstrapEstimate:
    """Estimate the AUC of a set against test pairs. Queries are resampled; the probes stay as they are."""
    (members, of), (strangers, others_of) = (
        (scores[one], probed.pairs[one, 0]) for one in map(probed.are, (name, "test"))
    )
    queries = min(probed.queries(name), probed.queries("test"))
    return ResampledSets.of(of, others_of, seed).area(members, strangers, queries)


def _draw(pairs: Pairs, seed: int) -> Pairs:
    return pairs[np.sort(np.random.default_rng(seed).permutation(len(pairs))[:PROBED])]


def _rounds(queries: Rows, seed: int) -> Rows:
    """Return a round for each query, so that all rounds test about the same number.

    >>> _rounds(np.array([5, 5, 7]), 0).tolist()
    [0, 0, 1]
    """
    unique, place = np.unique(queries, return_inverse=True)
    return (np.random.default_rng(seed).permutation(len(unique)) % FOLDS)[place]
