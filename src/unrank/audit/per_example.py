"""Per example: is the margin of each forget pair that of a pair that was seen, or of one that was not?

For each pair the likelihood of its margin if the ranker remembers it is divided by that if it never saw it. The test
takes the share of remembered pairs that fits best, because a ranker may remember one pair in ten. Chances are found by
drawing requests of this very size and kind many times; so is the power, the chance that memory would be found if at
most 1 % of honest rankers were accused.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from unrank.audit.comparison import Json
from unrank.audit.context import AuditContext
from unrank.audit.evidence import LEAST, Evidence, gather_evidence
from unrank.audit.pair_model import PairModel, fit_pairs
from unrank.audit.verdict import Finding, Verdict, undecided
from unrank.errors import count
from unrank.evaluation.bootstrap import RESAMPLES, BootstrapEstimate
from unrank.evaluation.measure import Floats
from unrank.record import ROUNDING

PER_EXAMPLE = "per_example"
MEASURES = "the margins of forgotten pairs above those of rankers that never saw them, in standard deviations"
FALSE_SHARE = 0.01
"""The share of honest rankers that may be accused."""
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""The shares of remembered pairs that may be ruled out."""
TRIED = np.array([0.05, 0.3, 1.0])
"""The shares of which the test takes the best; more would find little more."""
NOT_ONE_IN = 0.05
"""A ranker that may remember this share of the pairs is not equivalent. It is half of the share that must not be
missed: a pair that is remembered less than kept pairs are counts for less (docs/log.md)."""
MISSED = 0.05
"""The chance at which a share of remembered pairs is ruled out."""
HIDDEN = -2.0
"""The gap of a pair that was hidden, in standard deviations."""
POWERFUL = 0.8
SIZES = (2, 3, 5, 10, 20, 30, 50, 100, 200, 500, 1_000)
DRAWS, FEWER_DRAWS, NUMBERS = 20_000, 2_000, 2_000_000
"""The number of requests that are drawn; fewer if it need not be exact, or if they would hold more pairs than this."""


@dataclass(frozen=True)
class Share:
    """The share of remembered pairs: the one that fits best, and those that are not ruled out."""

    best: float
    low: float
    high: float


@dataclass(frozen=True)
class PairTest:
    """The test of the tested pairs together."""

    model: PairModel
    seed: int = 0

    @property
    def pairs(self) -> int:
        return len(self.model.gaps)

    @cached_property
    def effects(self) -> Floats:
        """What memory adds to each pair. A pair that never-saw rankers put as high as others cannot tell."""
        return np.maximum(self.model.effects, 0.0)

    @cached_property
    def log_ratios(self) -> Floats:
        """For each pair the log of its likelihood if it is remembered over that if it was never seen."""
        return log_ratios(self.model.gaps, self.effects)

    @cached_property
    def shares(self) -> Floats:
        """The shares of remembered pairs that are tried: those of whole pairs, and none below what it stands for."""
        return np.unique(np.ceil(np.round(np.array(SHARES) * self.pairs, 6))) / self.pairs

    @cached_property
    def honest(self) -> Floats:
        """The gaps of honest rankers, drawn many times. [draws, pairs]"""
        return self.model.never_saw.draw(self._draws, np.random.default_rng(self.seed))

    @cached_property
    def remembering(self) -> Floats:
        """The gaps of rankers that remember every pair. [draws, pairs]"""
        generator = np.random.default_rng([self.seed, 1])
        return self.model.effects + self.model.remembers.draw(self._draws, generator)

    @property
    def _draws(self) -> int:
        return max(1_000, min(DRAWS, NUMBERS // self.pairs))

    @property
    def p_remembered(self) -> float:
        """The chance that an honest ranker looks as much like one that remembers."""
        return chance(self._statistic(self.honest), self._statistic(self.model.gaps[None])[0])

    @property
    def p_suppressed(self) -> float:
        """The chance that an honest ranker looks as much like one that hides the pairs."""
        hidden = np.full(self.pairs, HIDDEN)
        drawn, found = (best_fit(log_ratios(gaps, hidden)) for gaps in (self.honest, self.model.gaps[None]))
        return chance(drawn, found[0])

    @cached_property
    def power(self) -> float:
        """The chance that memory of all pairs is found if at most 1 % of honest rankers are accused."""
        return found_above(self._statistic(self.remembering), self._statistic(self.honest))

    @cached_property
    def share(self) -> Share:
        """The share of remembered pairs. One is ruled out if it would rarely fit so badly, or so well."""
        found = fits(self.log_ratios[None], self.shares)[:, 0]
        best = 0.0 if found.max() <= 0 else float(self.shares[np.argmax(found)])
        low, high = 0.0, 0.0
        order = np.random.default_rng([self.seed, 2]).random(self.honest.shape).argsort(axis=1)
        for share, here in zip(self.shares, found, strict=True):
            mixed = np.where(order < round(share * self.pairs), self.remembering, self.honest)
            drawn = fits(log_ratios(mixed, self.effects), np.array([share]))
            high = float(share) if (drawn[0] <= here).mean() >= MISSED else high
            low = float(share) if (drawn[0] >= here).mean() < MISSED else low
        return Share(best, low, max(high, low))

    @property
    def rules_out(self) -> bool:
        """Whether one remembered pair in twenty, or a single one of fewer pairs, would have been seen."""
        return self.share.high < self.too_many

    @property
    def too_many(self) -> float:
        """The share of remembered pairs that must be ruled out."""
        return max(NOT_ONE_IN, 1 / self.pairs)

    def needs(self) -> int | None:
        """Return how many such pairs more would be needed for a power of 80 %; `None` if a thousand are not enough."""
        sizes = (size for size in SIZES if size > self.pairs)
        return next((size - self.pairs for size in sizes if self.power_of(size) >= POWERFUL), None)

    def power_of(self, size: int) -> float:
        """Return about the power of a request of this many such pairs that share nothing."""
        generator = np.random.default_rng([self.seed, 3])
        picked = generator.integers(self.pairs, size=size)
        rows = generator.integers(len(self.honest), size=(FEWER_DRAWS, size))
        drawn = (log_ratios(gaps[rows, picked], self.effects[picked]) for gaps in (self.remembering, self.honest))
        return found_above(*(best_fit(ratios) for ratios in drawn))

    def _statistic(self, gaps: Floats) -> Floats:
        return best_fit(log_ratios(gaps, self.effects))

    def estimate(self, queries: int) -> BootstrapEstimate:
        """Return the mean gap. Its interval is that of the noise of honest rankers."""
        mean = float(self.model.gaps.mean())
        return BootstrapEstimate(mean, mean - self.honest[:RESAMPLES].mean(axis=1), queries)

    def to_json(self) -> Json:
        return {
            "pairs": self.pairs,
            "power_at_1_percent": self.power,
            "share_remembered": asdict(self.share),
            "too_many": self.too_many,
            "chance_of_honest": MISSED,
            "log_ratio": float(self.log_ratios.sum()),
            "log_ratios": np.sort(self.log_ratios)[::-1].round(3).tolist(),
            "effect": float(self.model.effects.mean()),
        }


def log_ratios(gaps: Floats, effects: Floats) -> Floats:
    """Return the log of each gap's density around its effect over that around 0, both normal."""
    found: Floats = np.clip(effects * (gaps - effects / 2), -30.0, 30.0)
    return found


def fits(ratios: Floats, shares: Floats) -> Floats:
    """Return how much better each share of remembered pairs fits than none does, in log-likelihood. [shares, draws]"""
    more = np.expm1(ratios)
    return np.stack([np.log1p(share * more).sum(axis=-1) for share in shares])


def best_fit(ratios: Floats) -> Floats:
    """Return how well the best share fits, of those that whole pairs can have."""
    found: Floats = fits(ratios, np.unique(np.maximum(TRIED, 1 / ratios.shape[-1]))).max(axis=0)
    return found


def chance(drawn: Floats, found: float) -> float:
    """Return the share of draws that are as large, which is never 0."""
    return (int(np.count_nonzero(drawn >= found)) + 1) / (len(drawn) + 1)


def found_above(drawn: Floats, honest: Floats) -> float:
    """Return the share of draws above what 1 % of honest ones exceed."""
    return float((drawn > np.quantile(honest, 1 - FALSE_SHARE)).mean())


def per_example(context: AuditContext) -> Finding:
    """Test single pairs by their margins under rankers that saw them and rankers that never did."""
    if not context.judges:
        return undecided(MEASURES, no_judge(context.left_out))
    evidence = gather_evidence(context)
    test, lacks = test_pairs(evidence, context.seed)
    if test is None:
        return undecided(MEASURES, lacks)
    forget, judges = evidence.forget, len(context.judges)
    queries = len(np.unique(forget.pairs[forget.judged, 0]))
    details = {
        **test.to_json(),
        "not_testable": len(forget) - test.pairs,
        "judges": judges,
        "judges_left_out": context.left_out,
        "unseen_pairs": len(evidence.unseen),
        "unseen": evidence.source,
    }
    chances = (test.p_remembered, test.p_suppressed)
    verdict = judge(test, *chances)
    words = f"{power_words(test)}; {_words(verdict, test, min(chances))}"
    return Finding(MEASURES, verdict, words, test.estimate(queries), None, None, details, *chances)


def test_pairs(evidence: Evidence, seed: int) -> tuple[PairTest | None, str]:
    """Return the test of the forget pairs that a judge never saw; or `None`, and what is missing."""
    forget = evidence.forget.some(evidence.forget.judged)
    sets = {"that no ranker saw": evidence.unseen, "that are kept": evidence.kept}
    if not len(forget):
        return None, no_judge(0, len(forget.judges))
    for which, margins in sets.items():
        if len(margins) < LEAST:
            return None, f"needs {LEAST} pairs {which} to compare with, and there are {len(margins)}"
    tested = Evidence(forget, evidence.kept, evidence.unseen, evidence.source)
    return PairTest(fit_pairs(tested), seed), ""


def judge(test: PairTest, p_remembered: float, p_suppressed: float) -> Verdict:
    """Return the verdict by the chances that an honest ranker looks like one that remembers, or one that hides."""
    if p_remembered < FALSE_SHARE:
        return Verdict.REMEMBERED
    if p_suppressed < FALSE_SHARE:
        return Verdict.SUPPRESSED
    honest = min(p_remembered, p_suppressed) >= MISSED
    return Verdict.EQUIVALENT if honest and test.rules_out else Verdict.UNDECIDED


def no_judge(left_out: int, others: int = 0) -> str:
    """Say that nobody can judge single pairs, and what to do. `others` are judges that saw all pairs."""
    if left_out:
        return (
            f"{count(left_out, 'ranker')} had a share in the run and may not judge it: give another --reference, or "
            "proxies that were prepared with another --seed"
        )
    if others:
        return "every judge saw all of the pairs: give a --reference, or prepared proxies that never saw them"
    return "there is no ranker that never saw the pairs: give a --reference, or prepared proxies"


def power_words(test: PairTest) -> str:
    """Say first what the test could have found."""
    return (
        f"memory of {count(test.pairs, 'pair')} is found with a chance of {test.power:.2f} "
        f"if {FALSE_SHARE:.0%} of honest rankers may be accused"
    )


def _words(verdict: Verdict, test: PairTest, chance_of_honest: float) -> str:
    """Give the reason for a verdict."""
    share = test.share
    high = f"{math.ceil(100 * share.high - ROUNDING)}%"
    range_of = f"{share.low:.0%} to {high} of the pairs"
    if verdict is Verdict.REMEMBERED:
        return f"{range_of} are as if remembered" if share.low else f"up to {high} of the pairs are as if remembered"
    if verdict is Verdict.SUPPRESSED:
        below = -test.model.gaps.mean()
        if below <= 0:
            return "some of them are far below a ranker that never saw it, though not on average"
        return f"on average they are {below:.2f} standard deviations below a ranker that never saw it"
    most = f"no more than {high} of the pairs can be remembered" if share.high else "none is as if remembered"
    if verdict is Verdict.EQUIVALENT:
        return most
    if test.rules_out:
        return f"{most}, but only {chance_of_honest:.1%} of honest rankers look as unusual as this one"
    if test.power >= POWERFUL:
        return f"{range_of} may be remembered"
    more = test.needs()
    return f"needs {count(more, 'more pair')} like these" if more else "more pairs like these would not help"
