"""Single pairs: margins that are made up, so that it is known which pairs are remembered."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.audit.conftest import Open
from tests.table import TableRanker
from unrank.audit import per_example as tested
from unrank.audit.evidence import Evidence, Margins
from unrank.audit.pair_model import Fit, bend, fit_pairs
from unrank.audit.per_example import FALSE_SHARE, PairTest, judge, no_judge, per_example
from unrank.audit.plan import foresee, plan_audit
from unrank.audit.verdict import Verdict
from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.evaluation.measure import Floats

GAIN, NOISE = 2.0, 0.7
UNSEEN, KEPT = 100, 100


def planted(
    generator: np.random.Generator,
    pairs: int,
    judges: int = 2,
    remembered: int = 0,
    hidden: float = 0.0,
    group: int = 1,
    folds: bool = False,
) -> Evidence:
    """Pairs that differ in how easy they are, rankers with noise and levels of their own, and what memory adds.

    `group` pairs have one query, whose noise they share. With `folds` the judges never saw the kept pairs either.
    """
    level, scale = generator.normal(size=(judges, 1)), np.exp(0.3 * generator.normal(size=(judges, 1)))

    def noise(rankers: int, query: Rows) -> Floats:
        own, shared = (generator.normal(size=(rankers, size)) for size in (len(query), int(query.max()) + 1))
        return np.asarray(NOISE * (np.sqrt(0.6) * own + np.sqrt(0.4) * shared[:, query]), np.float64)

    def part(number: int, saw: Floats, never_saw: bool, first: int, together: int = 1) -> Margins:
        query: Rows = np.arange(number, dtype=np.int64) // together
        easy = generator.normal(size=number)
        judged: Floats = level + scale * (easy + noise(judges, query) + GAIN * (not never_saw))
        rows: Pairs = np.stack([first + query, first + np.arange(number)], axis=1)
        original = easy + noise(1, query)[0] + GAIN
        marks = np.full((judges, number), never_saw)
        return Margins(rows, easy + noise(1, query)[0] + GAIN * saw - hidden * (saw == 0) * (first == 0), original,
                       judged, marks, np.zeros(number, np.int64))  # fmt: skip

    known = (np.arange(pairs) < remembered).astype(float)
    forget = part(pairs, known, True, 0, group)
    return Evidence(
        forget,
        part(KEPT, np.ones(KEPT), folds, 10_000),
        part(UNSEEN, np.zeros(UNSEEN), True, 20_000, 2),
        "reserved",
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "DRAWS", 1_000)


def pair_test(evidence: Evidence, seed: int = 0) -> PairTest:
    return PairTest(fit_pairs(evidence), seed)


@pytest.mark.parametrize("pairs", [1, 7, 20, 21, 100, 185, 200])
def test_the_share_that_must_be_ruled_out_is_tried(pairs: int) -> None:
    """One pair in twenty of 185 is ten pairs: a share of nine would be below what must be ruled out."""
    test = PairTest(SimpleNamespace(gaps=np.zeros(pairs)))  # type: ignore[arg-type]
    tried = test.shares[test.shares >= test.too_many]
    assert test.too_many <= tried[0] < test.too_many + 1 / pairs
    assert (np.round(test.shares * pairs, 6) % 1 == 0).all()


@pytest.mark.parametrize("judges", [1, 2, 4, 8])
def test_honest_rankers_are_accused_as_rarely_as_is_said(judges: int) -> None:
    generator = np.random.default_rng(judges)
    for pairs, group in ((1, 1), (3, 1), (10, 1), (10, 5)):
        tests = [pair_test(planted(generator, pairs, judges, group=group), seed) for seed in range(24)]
        for side in ("p_remembered", "p_suppressed"):
            chances = np.array([getattr(test, side) for test in tests])
            assert np.count_nonzero(chances < 0.05) <= 4, (pairs, side)  # of 24, more are a chance of 1 in 150
            assert np.count_nonzero(chances < FALSE_SHARE) <= 2, (pairs, side)


@pytest.mark.parametrize("pairs", [1, 3, 10])
def test_the_power_that_is_said_is_the_power_that_it_has(pairs: int) -> None:
    generator = np.random.default_rng(pairs)
    tests = [pair_test(planted(generator, pairs, remembered=pairs), seed) for seed in range(60)]
    found = np.mean([test.p_remembered < FALSE_SHARE for test in tests])
    assert abs(found - np.mean([test.power for test in tests])) < 0.17  # 60 requests: a spread of .065 at most


def test_pairs_that_are_hard_for_others_are_remembered_as_well_as_is_said() -> None:
    """The original's margin alone promises too much of the pairs with the largest effects, which decide."""
    models = [fit_pairs(planted(np.random.default_rng(seed), 400, remembered=400, folds=True)) for seed in range(6)]
    found = [np.corrcoef(model.effects, model.gaps - model.effects)[0, 1] for model in models]
    assert np.mean(found) > -0.2  # -.47 by the original's margins alone


@pytest.mark.parametrize("folds", [False, True])
def test_a_pair_that_is_easier_than_judges_say_is_no_sign_of_memory(folds: bool) -> None:
    """The original finds it easy too, so its effect is large; an honest ranker must not be accused of that."""
    models = [fit_pairs(planted(np.random.default_rng(seed), 400, judges=1, folds=folds)) for seed in range(6)]
    assert abs(np.mean([np.corrcoef(model.effects, model.gaps)[0, 1] for model in models])) < 0.2  # .40 uncorrected


def test_effects_do_not_hold_ease_that_is_not_known() -> None:
    """Nothing shows how much of the original's margins of ten pairs is ease, so they do not count."""
    found = planted(np.random.default_rng(0), 10, judges=1)
    assert found.forget.original is not None
    higher = replace(found, forget=replace(found.forget, original=found.forget.original + np.arange(10)))
    nothing = replace(found, forget=replace(found.forget, original=None), kept=replace(found.kept, original=None))
    one, *others = (fit_pairs(evidence).effects for evidence in (found, higher, nothing))
    assert all(np.array_equal(one, other) for other in others)
    shown = fit_pairs(replace(higher, kept=planted(np.random.default_rng(0), 10, judges=1, folds=True).kept))
    assert not np.array_equal(one, shown.effects)


def test_more_pairs_have_more_power_and_it_says_how_many() -> None:
    one = pair_test(planted(np.random.default_rng(0), 1))
    assert one.power < 0.8
    more = one.needs()
    assert more is not None and one.power_of(1 + more) >= 0.8
    weak = replace(one, model=replace(one.model, effects=np.zeros(1)))
    assert weak.needs() is None and weak.power <= 0.02


def test_one_pair_in_ten_is_seen_where_a_mean_sees_nothing() -> None:
    found = pair_test(planted(np.random.default_rng(1), 100, judges=4, remembered=10))
    honest = pair_test(planted(np.random.default_rng(2), 100, judges=4))
    assert found.share.high >= 0.1 and not found.rules_out
    assert honest.share.low == 0.0 and honest.share.high < 0.1 and honest.rules_out
    assert judge(honest, honest.p_remembered, honest.p_suppressed) is Verdict.EQUIVALENT
    assert judge(found, found.p_remembered, found.p_suppressed) is not Verdict.EQUIVALENT
    whole = pair_test(planted(np.random.default_rng(3), 100, judges=4, remembered=100))
    assert whole.share.low > 0.5 and whole.share.high == 1.0
    assert judge(whole, whole.p_remembered, whole.p_suppressed) is Verdict.REMEMBERED


def test_what_is_pushed_down_is_suppressed() -> None:
    found = pair_test(planted(np.random.default_rng(4), 10, hidden=3.0))
    assert judge(found, found.p_remembered, found.p_suppressed) is Verdict.SUPPRESSED


def test_a_pair_that_memory_does_not_lift_tells_nothing() -> None:
    found = pair_test(planted(np.random.default_rng(5), 3, remembered=3))
    assert (found.log_ratios != 0).any()
    flat = replace(found, model=replace(found.model, effects=np.full(3, -1.0)))
    assert (flat.log_ratios == 0).all() and flat.p_remembered == 1.0


def test_pairs_of_another_kind_are_judged_with_more_doubt() -> None:
    known = planted(np.random.default_rng(6), 10, remembered=10)
    other = replace(known, forget=replace(known.forget, kinds=np.ones(10, np.int64)))
    assert pair_test(other).power < pair_test(known).power


def test_the_noise_that_is_drawn_is_that_of_the_fit() -> None:
    generator = np.random.default_rng(7)
    pairs = np.stack([np.arange(400) // 2, np.arange(400)], axis=1)
    shared = generator.normal(size=200)[pairs[:, 0]]
    design = np.stack([np.ones(400), generator.normal(size=400)], axis=1)
    values = design @ [1.0, 2.0] + 0.5 * (np.sqrt(0.5) * shared + np.sqrt(0.5) * generator.normal(size=400))
    fit = Fit(design, values, pairs)
    assert np.allclose(fit.coefficients, [1.0, 2.0], atol=0.1) and np.isclose(fit.scale, 0.5, atol=0.05)
    noise = fit.noise(design[:2], pairs[:2])
    drawn = noise.draw(20_000, generator)
    assert np.allclose(drawn.std(axis=0), 0.5, atol=0.05)
    assert np.isclose((drawn[:, 0] * drawn[:, 1]).mean() / 0.25, 0.45, atol=0.12)
    assert np.isclose((bend(generator.normal(size=100_000), 0.5, 0.0) ** 3).mean(), 0.5, atol=0.1)


def test_without_a_judge_it_says_what_to_give(open_world: Open, original: TableRanker) -> None:
    alone = open_world(original, with_references=0)
    found = per_example(alone)
    assert found.verdict is Verdict.UNDECIDED
    assert found.words == "there is no ranker that never saw the pairs: give a --reference, or prepared proxies"
    steered = per_example(replace(alone, left_out=2))
    assert steered.words.startswith("2 rankers had a share in the run and may not judge it")
    assert str(foresee(alone)) == f"single pairs cannot be tested: {no_judge(0)}"


def test_an_unusual_ranker_that_remembers_too_little_is_said_to_be_unusual() -> None:
    """Undecided, although memory is ruled out: the words must not say that pairs may be remembered."""
    test = PairTest(fit_pairs(planted(np.random.default_rng(3), 100, judges=4)))
    assert test.rules_out and judge(test, 0.02, 0.5) is Verdict.UNDECIDED
    said = tested._words(Verdict.UNDECIDED, test, 0.02)
    assert said.endswith("but only 2.0% of honest rankers look as unusual as this one")
    assert "may be remembered" not in said


def test_a_share_is_rounded_up_and_an_average_is_only_said_if_it_is_below() -> None:
    gaps = SimpleNamespace(gaps=np.array([0.3, 0.2, -0.1]))
    test: Any = SimpleNamespace(share=SimpleNamespace(low=0.0, high=0.025), model=gaps, rules_out=True)
    assert tested._words(Verdict.EQUIVALENT, test, 1.0) == "no more than 3% of the pairs can be remembered"
    assert tested._words(Verdict.REMEMBERED, test, 1.0) == "up to 3% of the pairs are as if remembered"
    assert tested._words(Verdict.SUPPRESSED, test, 1.0).endswith("though not on average")
    gaps.gaps = -gaps.gaps
    assert tested._words(Verdict.SUPPRESSED, test, 1.0).startswith("on average they are 0.13 standard deviations below")


def test_the_power_comes_first_in_its_words(open_world: Open, original: TableRanker) -> None:
    found = per_example(open_world(original))
    assert found.verdict is Verdict.REMEMBERED and found.p_remembered is not None and found.p_remembered < 0.001
    pairs, power = found.details["pairs"], found.details["power_at_1_percent"]
    assert found.words.startswith(f"memory of {pairs} pairs is found with a chance of {power:.2f} ")
    assert found.details["judges"] == 2 and found.details["not_testable"] == 0
    assert len(found.details["log_ratios"]) == pairs


def test_the_plan_foresees_the_power(open_world: Open, original: TableRanker) -> None:
    context = open_world(original)
    made = plan_audit(context)
    assert made.single.testable == made.pairs == len(context.sets["forget"])
    assert made.single.power is not None and made.single.power > 0.9
    assert made.seconds.high > 0
    assert str(made.single).startswith(f"memory of {made.pairs} pairs would be found with a chance of about ")
