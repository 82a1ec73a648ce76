"""The model of single pairs: the margin that a ranker gives a pair that it never saw, and one that it remembers.

Both are fitted by least squares. Pairs that no ranker saw show how the audited ranker's margin follows from those of
rankers that never saw a pair. Kept pairs show how it follows from those of the original, which saw a pair, and of
rankers that did not. The noise around both is pooled over pairs: it may be skewed, it is shared by pairs of one query
or one document, and the fit has an error of its own.

The original ranks a pair high because it remembers it, or because the pair is easier than the judges say. An honest
ranker finds an easy pair too. So the original's margins also correct what an honest ranker is expected to do: otherwise
pairs with a large effect would be those on which honest rankers look guilty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from unrank.audit.evidence import DOCUMENT, LEAST, QUERY, Evidence, Margins
from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.evaluation.measure import Floats

SHARED, SHARED_PAIRS = 0.25, 50
"""The correlation of two pairs of one query or document that is assumed, as if it were measured on 50 such twos."""
COMMON, OTHER_KIND = 0.03, 0.25
"""The share of the noise that all pairs have in common; much, if no pair of their kind was fitted (docs/log.md)."""
OTHER_PAIRS = 1.1
"""How much wider the noise of other pairs is than that of the fitted ones (docs/log.md)."""
MOST_SKEW, MOST_TAILS = 0.8, 2.0
LEAST_SCALE = 1e-6
OWN_LEVEL = 30
"""A ranker with fewer margins of unseen pairs has no level of its own."""
MOST_EXPLAINED = 0.7
"""The most of the noise of honest rankers that the original's margins explain."""
DOUBT, TAILS = 50, 1.0
"""Skewness and tails are trusted half if they are measured on this many pairs; else these tails are assumed."""


@dataclass(frozen=True)
class Noise:
    """How far the margins of some pairs may be from a fit."""

    scale: Floats
    """One standard deviation of each pair."""
    error: Floats
    """The error of the fit: independent errors of the coefficients, as seen in each pair. [pairs, coefficients]"""
    groups: tuple[Rows, Rows]
    """The query and the document of each pair."""
    shared: tuple[float, float]
    """The correlation of two pairs of one query, and of one document."""
    skew: float
    tails: float
    freedom: float
    """The degrees of freedom of the scale."""
    common: float = 0.0
    """The share of the noise that all pairs have in common."""

    def draw(self, times: int, generator: np.random.Generator) -> Floats:
        """Draw the noise of all pairs this many times. [times, pairs]"""
        pairs = len(self.error)
        parts = [(np.zeros(pairs, np.int64), self.common)]
        parts += [(group, part * (1 - self.common)) for group, part in zip(self.groups, self.shared, strict=True)]
        left = 1.0 - sum(part for _, part in parts)
        drawn = np.sqrt(left) * generator.standard_normal((times, pairs))
        for group, part in parts:
            _, member = np.unique(group, return_inverse=True)
            drawn += np.sqrt(part) * generator.standard_normal((times, int(member.max()) + 1))[:, member]
        shaped = bend(drawn, self.skew, self.tails)
        shaped += generator.standard_normal((times, self.error.shape[1])) @ self.error.T
        wide = np.sqrt(self.freedom / generator.chisquare(self.freedom, (times, 1)))
        found: Floats = self.scale * shaped * wide
        return found

    def over(self, units: Floats) -> Noise:
        """Return the noise in other units."""
        return replace(self, scale=self.scale / units)


def bend(normal: Floats, skew: float, tails: float) -> Floats:
    """Give normal numbers a skewness and heavier tails, by the expansion of Cornish and Fisher.

    >>> bend(np.array([-2.0, 0.0, 2.0]), 0.6, 0.0).round(2).tolist()
    [-1.64, -0.1, 2.24]
    """
    square, cube = normal**2, normal**3
    bent: Floats = normal + skew / 6 * (square - 1) + tails / 24 * (cube - 3 * normal)
    bent -= skew**2 / 36 * (2 * cube - 5 * normal)
    return bent


@dataclass(frozen=True)
class Fit:
    """A least-squares fit of margins."""

    design: Floats
    """[pairs, coefficients]"""
    values: Floats
    pairs: Pairs

    @cached_property
    def coefficients(self) -> Floats:
        return np.asarray(np.linalg.lstsq(self.design, self.values, rcond=None)[0], np.float64)

    @cached_property
    def residuals(self) -> Floats:
        found: Floats = self.values - self.design @ self.coefficients
        return found

    @property
    def freedom(self) -> float:
        return float(max(1, len(self.values) - self.design.shape[1]))

    @property
    def scale(self) -> float:
        return float(max(np.sqrt((self.residuals**2).sum() / self.freedom), LEAST_SCALE))

    @property
    def error(self) -> Floats:
        """A square root of the covariance of the coefficients, in units of the scale. Pairs of a query go together.

        The square of the last factor makes up for how closely few groups are fitted.
        """
        inner = np.linalg.pinv(self.design.T @ self.design)
        _, owner = np.unique(self.pairs[:, 0], return_inverse=True)
        groups, number = int(owner.max()) + 1, self.design.shape[1]
        summed = np.zeros((groups, number))
        np.add.at(summed, owner, self.design * (self.residuals / self.scale)[:, None])
        covariance = inner @ summed.T @ summed @ inner * (groups / max(1, groups - number)) ** 2
        sizes, axes = np.linalg.eigh(covariance)
        found: Floats = axes * np.sqrt(np.maximum(sizes, 0.0))
        return found

    def noise(self, design: Floats, pairs: Pairs, common: float = 0.0) -> Noise:
        """Return the noise of other pairs around this fit."""
        standard = self.residuals / self.scale
        trust = len(standard) / (len(standard) + DOUBT)
        skew = float(np.clip(trust * (standard**3).mean(), -MOST_SKEW, MOST_SKEW))
        tails = float(np.clip(trust * ((standard**4).mean() - 3) + (1 - trust) * TAILS, 0.0, MOST_TAILS))
        shared = tuple(correlation(standard, self.pairs[:, side]) for side in (0, 1))
        over = max(1.0, sum(shared) / 0.9)
        return Noise(
            np.full(len(pairs), OTHER_PAIRS * self.scale),
            design @ self.error,
            (pairs[:, 0], pairs[:, 1]),
            (shared[0] / over, shared[1] / over),
            skew,
            tails,
            self.freedom,
            common,
        )


def correlation(standard: Floats, owner: Rows) -> float:
    """Return the mean product of two values of one owner, drawn towards what is assumed.

    >>> round(correlation(np.array([1.0, 1.0, -1.0, -1.0]), np.array([1, 1, 2, 2])), 2)
    0.28
    """
    _, member = np.unique(owner, return_inverse=True)
    twos = float((np.bincount(member) * (np.bincount(member) - 1)).sum()) / 2
    products = float((np.bincount(member, standard) ** 2 - np.bincount(member, standard**2)).sum()) / 2
    return float(np.clip((products + SHARED * SHARED_PAIRS) / (twos + SHARED_PAIRS), 0.0, 0.9))


@dataclass(frozen=True)
class PairModel:
    """The margins of the tested pairs beside those of a ranker that never saw them, and of one that remembers them.

    All are in units of the noise of a pair that was never seen.
    """

    gaps: Floats
    """How far the audited ranker's margins are above those of a ranker that never saw the pairs."""
    effects: Floats
    """How far those of a ranker that remembers the pairs would be."""
    never_saw: Noise
    remembers: Noise


def fit_pairs(evidence: Evidence) -> PairModel:
    """Fit the model of the forget pairs, each of which a judge never saw, to 20 or more pairs that no ranker saw."""
    forget, unseen = evidence.forget, evidence.unseen
    centre, spread = _levels(unseen.unseen_by)
    informs = [np.unique(unseen.kinds & bit).size > 1 for bit in (QUERY, DOCUMENT)]
    design, wanted = (_design((part.unseen_by - centre) / spread, part.kinds, informs) for part in (unseen, forget))
    first = Fit(design, unseen.ranker, unseen.pairs)
    units, own = _units(first.residuals, unseen.kinds, forget.kinds)
    without = Fit(design / units[:, None], unseen.ranker / units, unseen.pairs)
    expected = wanted @ without.coefficients
    ease = _ease(evidence, first, (centre, spread))
    with_memory, remembered = _fit_memory(evidence.kept, forget, ease is not None)
    missing = np.isin(forget.kinds, unseen.kinds, invert=True).any()
    never_saw = without.noise(wanted / own[:, None], forget.pairs, OTHER_KIND if missing else COMMON)
    if ease is not None:
        expected, never_saw = expected + ease.higher, ease.less(never_saw, own)
    return PairModel(
        (forget.ranker - expected) / own,
        (remembered @ with_memory.coefficients - expected) / own,
        never_saw,
        with_memory.noise(remembered, forget.pairs).over(own),
    )


@dataclass(frozen=True)
class Ease:
    """What the original's margins tell of how easy the forget pairs are for a ranker that never saw them."""

    higher: Floats
    """How much higher such a ranker puts each pair than the judges say."""
    error: Floats
    explained: float
    """The share of the noise of honest rankers that this explains."""

    def less(self, noise: Noise, units: Floats) -> Noise:
        """Return the noise that is left."""
        error = np.concatenate([noise.error, (self.error / units)[:, None]], axis=1)
        return replace(noise, scale=noise.scale * np.sqrt(1 - self.explained), error=error)


def _ease(evidence: Evidence, first: Fit, levels: tuple[Floats, Floats]) -> Ease | None:
    """Estimate the ease of the forget pairs; `None` without an original, or if too few pairs show what it knows.

    On pairs that nobody saw, ease is what the audited ranker and the original share beyond the judges' margins.
    Less of it is left in the original's margin of a pair that it saw: those margins follow the judges' less closely.
    """
    forget, kept, unseen = evidence.forget, evidence.kept.some(evidence.kept.judged), evidence.unseen
    if forget.original is None or kept.original is None or unseen.original is None or len(kept) + len(forget) < LEAST:
        return None
    said = [np.nanmean((part.unseen_by - levels[0]) / levels[1], axis=0) for part in (kept, forget)]
    judged, own = np.concatenate(said), np.concatenate([kept.original, forget.original])
    saw = Fit(np.stack([np.ones(len(own)), judged], axis=1), own, np.concatenate([kept.pairs, forget.pairs]))
    neither = Fit(first.design, unseen.original, unseen.pairs)
    follows, alone = saw.coefficients[1], neither.coefficients[1]
    left = float(np.clip(follows / alone, 0.0, 1.0)) if alone > 0 else 0.0
    common = float(first.residuals @ neither.residuals) / first.freedom
    share = max(0.0, left * common / saw.scale**2)
    doubt = left / saw.scale**2 * np.sqrt(((first.scale * neither.scale) ** 2 + common**2) / len(unseen))
    more = saw.residuals[len(kept) :]
    explained = min(MOST_EXPLAINED, (share * saw.scale / first.scale) ** 2)
    return Ease(share * more, doubt * more, explained)


def _levels(margins: Floats) -> tuple[Floats, Floats]:
    """Return the mean and the spread of each ranker's margins, NaN left out. [rankers, 1]

    Rankers with few margins are proxies of one making, and have those of all of them together.
    """
    there = np.isfinite(margins)
    few = there.sum(axis=1) < OWN_LEVEL
    together = margins[few][there[few]]
    levels = np.array(
        [together if alone else row[here] for row, here, alone in zip(margins, there, few, strict=True)], object
    )
    centre, spread = (
        np.array([measure(level) if len(level) else 0.0 for level in levels]) for measure in (np.mean, np.std)
    )
    return centre[:, None], np.maximum(spread, LEAST_SCALE)[:, None]


def _units(residuals: Floats, kinds: Rows, of: Rows) -> tuple[Floats, Floats]:
    """Return the spread of the residuals of each fitted pair's kind, and of the kinds of other pairs."""
    spread = {int(kind): float(residuals[kinds == kind].std()) for kind in np.unique(kinds)}
    largest = max(*spread.values(), LEAST_SCALE)
    found = [np.array([spread.get(kind) or largest for kind in each.tolist()]) for each in (kinds, of)]
    return found[0], found[1]


def _design(margins: Floats, kinds: Rows, informs: Sequence[bool]) -> Floats:
    """Return a design of a constant, the mean over rankers without NaN, and what the kinds tell. [rankers, pairs]"""
    known = [tells * ((kinds & bit) > 0) for tells, bit in zip(informs, (QUERY, DOCUMENT), strict=True)]
    return np.stack([np.ones(margins.shape[1]), np.nanmean(margins, axis=0), *known], axis=1)


def _fit_memory(kept: Margins, forget: Margins, by_original: bool) -> tuple[Fit, Floats]:
    """Fit the audited ranker's margins of kept pairs; also return the design of the forget pairs.

    They follow from the original's margins, if it is known how much of these is ease. A pair that is hard for rankers
    that never saw it is remembered less well than that says. So their margins are fitted too, if they never saw some
    kept pairs.
    """
    hard = kept.never_saw.any(axis=1)
    tells = kept.judged.sum() >= LEAST and forget.never_saw[hard].any(axis=0).all()
    kept = kept.some(kept.judged) if tells else kept
    columns = [[np.ones(len(kept)), np.ones(len(forget))]]
    if tells:
        columns.append([np.nanmean(part.unseen_by[hard], axis=0) for part in (kept, forget)])
    if by_original and kept.original is not None and forget.original is not None:
        columns.append([kept.original, forget.original])
    designs = [np.stack([column[side] for column in columns], axis=1) for side in (0, 1)]
    return Fit(designs[0], kept.ranker, kept.pairs), designs[1]
