"""From estimates to a verdict: every outcome."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unrank.audit.comparison import Comparison, PerRanker
from unrank.audit.mrr_tests import noise_floor
from unrank.audit.verdict import DIFFERENT, Finding, Hiding, Verdict, corrected, find, undecided, worst
from unrank.errors import count
from unrank.evaluation.bootstrap import MIN_QUERIES, RESAMPLES, BootstrapEstimate

MARGIN = 0.02


def estimate(value: float, width: float = 0.0, queries: int = 100) -> BootstrapEstimate:
    """A figure whose interval reaches so far to both sides."""
    return BootstrapEstimate(value, value + np.linspace(-width, width, RESAMPLES) / 0.95, queries)


def compared(ranker: float, *references: float, original: float | None = 0.9, width: float = 0.01) -> Comparison:
    beside = estimate(original) if original is not None else None
    return Comparison(estimate(ranker, width), beside, tuple(estimate(one) for one in references), MARGIN)


@pytest.mark.parametrize(
    ("read", "verdict", "words"),
    [
        (compared(0.9, 0.6), Verdict.REMEMBERED, "0.300 (0.290 to 0.310) above a ranker that never saw it"),
        (
            compared(0.2, 0.6),
            Verdict.SUPPRESSED,
            "0.400 (0.390 to 0.410) below a ranker that never saw it, which shows that",
        ),
        (compared(0.605, 0.6), Verdict.EQUIVALENT, "the difference is -0.004 to +0.014, the margin 0.020"),
        (compared(0.635, 0.6), Verdict.REMEMBERED, "above"),
        (compared(0.625, 0.6), Verdict.UNDECIDED, "no difference was found, where 0.030 would have been"),
        (compared(0.9, 0.6, width=0.29), Verdict.UNDECIDED, "needs 8 more queries"),
        (compared(0.70, 0.6, 0.6), Verdict.REMEMBERED, "above"),
        (compared(0.70, 0.55, 0.65), Verdict.UNDECIDED, "needs 2,401 more queries"),
        (compared(0.66, 0.55, 0.65), Verdict.UNDECIDED, "needs 7 more references"),
        (compared(0.61, 0.55, 0.65), Verdict.EQUIVALENT, "the margin 0.100"),
        (compared(0.61, 0.6, width=0.1), Verdict.UNDECIDED, "needs a second reference, or 8,876 more queries"),
        (compared(0.2), Verdict.UNDECIDED, "there is no retrained ranker to compare with"),
        (compared(0.2, original=None), Verdict.UNDECIDED, "there is no retrained ranker to compare with"),
        (compared(0.9), Verdict.REMEMBERED, "not lower than the original by 0.020"),
        (compared(0.895), Verdict.REMEMBERED, "not lower than the original by 0.020"),
        (compared(0.88), Verdict.UNDECIDED, "there is no retrained ranker"),
    ],
)
def test_a_figure_beside_others(read: Comparison, verdict: Verdict, words: str) -> None:
    found = find("a figure", read)
    assert found.verdict is verdict
    assert words in found.words


def test_what_shows_only_afterwards_was_hidden() -> None:
    level, above = compared(0.6, 0.6), compared(0.8, 0.6)
    assert find("after", above, shown_before=above).verdict is Verdict.REMEMBERED
    found = find("after", above, shown_before=level)
    assert found.verdict is Verdict.SUPPRESSED
    assert found.words.startswith("it comes back, 0.200")
    alone, less = compared(0.9), compared(0.4)
    assert find("after", alone, shown_before=less).verdict is Verdict.SUPPRESSED
    assert find("after", alone, shown_before=alone).verdict is Verdict.REMEMBERED


def test_a_second_figure_tells_of_hiding() -> None:
    level = compared(0.6, 0.6)
    found = find("a figure", level, hiding=Hiding("its rise is", compared(0.3, 0.1)))
    assert found.verdict is Verdict.SUPPRESSED
    assert found.words == "its rise is 0.200 (0.190 to 0.210) above that of a ranker that never saw it"
    assert find("a figure", level, hiding=Hiding("", compared(0.1, 0.3))).verdict is Verdict.EQUIVALENT


@pytest.mark.parametrize("queries", [1, MIN_QUERIES - 1])
def test_a_few_queries_tell_nothing(queries: int) -> None:
    few = estimate(0.9, queries=queries)
    found = find("a figure", Comparison(few, few, (estimate(0.1),), MARGIN))
    assert found.verdict is Verdict.UNDECIDED
    assert found.words.startswith(f"needs {count(MIN_QUERIES - queries, 'more query')}: {queries} w")
    assert f"tested, and {MIN_QUERIES} are the fewest that tell" in found.words


def test_one_of_many_tests_may_find_a_difference_by_chance() -> None:
    """A difference at 5 % of one test of eight is not confirmed; one that is clear is, and those beside it."""
    slight = replace(find("a figure", compared(0.635, 0.6)), p_remembered=0.02, p_suppressed=1.0)
    level = replace(find("a figure", compared(0.6, 0.6)), p_remembered=0.5, p_suppressed=0.5)
    assert slight.verdict is Verdict.REMEMBERED and level.verdict not in DIFFERENT
    many = corrected({"slight": slight, **{f"level {number}": level for number in range(7)}})
    assert many["slight"].verdict is Verdict.UNDECIDED
    assert many["slight"].words.endswith("; of 8 tests one may say so by chance")
    assert many["level 3"] == level
    sure = replace(slight, p_remembered=0.001)
    found = corrected({"sure": sure, **{f"level {number}": level for number in range(7)}})
    assert found["sure"] == sure
    assert corrected({"slight": slight})["slight"] == slight
    counted = replace(slight, p_remembered=None)  # a test that counts by other means is left alone
    assert corrected({"counted": counted, "level": level})["counted"] == counted


def test_all_together_are_no_better_than_the_worst() -> None:
    ordered = [Verdict.REMEMBERED, Verdict.SUPPRESSED, Verdict.UNDECIDED, Verdict.EQUIVALENT]
    for place in range(4):
        assert worst(reversed(ordered[place:])) is ordered[place]


def test_the_noise_floor_is_the_largest_of_all_tests() -> None:
    findings = {
        "one": find("a figure", compared(0.6, 0.60, 0.61)),
        "two": find("a figure", compared(0.6, 0.50, 0.57, 0.55)),
        "three": undecided("a figure", "why not"),
    }
    found = noise_floor(findings, MARGIN)
    assert found.verdict is Verdict.MEASURED
    assert found.details == {"one": pytest.approx(0.01), "two": pytest.approx(0.07)}
    assert "up to 0.070 (two)" in found.words
    assert findings["one"].threshold == MARGIN
    assert findings["two"].threshold == pytest.approx(0.07)


def test_one_reference_has_no_noise_floor() -> None:
    found = noise_floor({"one": find("a figure", compared(0.6, 0.6))}, MARGIN)
    assert found.verdict is Verdict.UNDECIDED
    assert "two retrained rankers" in found.words


def test_a_finding_in_json() -> None:
    value = find("a figure", compared(0.8, 0.5, 0.6), more=3).to_json()
    assert value["figure"] == 0.8 and value["original"]["figure"] == 0.9
    assert [one["figure"] for one in value["references"]] == [0.5, 0.6]
    assert value["gap"]["figure"] == pytest.approx(0.25)
    assert value["noise_floor"] == value["threshold"] == pytest.approx(0.1)
    assert value["power"] == pytest.approx(0.11)
    assert value["verdict"] == "still remembered" and value["details"] == {"more": 3}
    bare = Finding("a figure", Verdict.UNDECIDED, "why").to_json()
    assert value["p_remembered"] < 0.01 and value["p_suppressed"] == 1.0
    assert value["equivalence"]["passed"] is False and value["equivalence"]["margin"] == pytest.approx(0.1)
    assert bare["p_remembered"] is bare["p_suppressed"] is bare["equivalence"] is None
    assert bare["figure"] is None and bare["threshold"] is None


def test_each_maps_what_is_there() -> None:
    assert PerRanker(1, None, (2, 3)).map(str) == PerRanker("1", None, ("2", "3"))
    assert PerRanker(1, 5, ()).map(str) == PerRanker("1", "5", ())
