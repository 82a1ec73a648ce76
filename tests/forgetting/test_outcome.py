"""Tests of the outcome of a request: its state, judged by its own pairs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from unrank.forgetting.outcome import Findings, ForgetState, PairRanks, judge
from unrank.parse import WrongValue

MOVED = Findings(weights_changed=True, has_reference=True)
FORGOTTEN, NOT, NOTHING = ForgetState.FORGOTTEN, ForgetState.NOT_FORGOTTEN, ForgetState.NOTHING


def ranks(before: list[int], after: list[int], target: float = 0.4, length: int = 30, **more: Any) -> PairRanks:
    """Return the ranks of pairs that have a query each."""
    then, now = (float(np.mean([1 / rank for rank in side])) for side in (before, after))
    return PairRanks(len(before), tuple(before), tuple(after), (length,) * len(before), then, now, target, **more)


def state(*given: Any, found: Findings = MOVED, **more: Any) -> ForgetState:
    return judge(ranks(*given, **more), found).state


def test_each_request_is_judged_by_its_own_pairs() -> None:
    assert state([1, 1], [1, 1]) is NOT, "neither has moved"
    assert state([1, 1], [1, 9]) is NOT, "one of two has not moved"
    assert state([1, 1], [2, 9]) is FORGOTTEN
    assert state([1, 1], [2, 2]) is NOT, "both have moved, but not far enough"
    assert state([3, 3], [3, 3]) is FORGOTTEN, "nothing had to move"
    assert state([1, 9], [2, 9]) is FORGOTTEN, "the second did not have to move"
    assert state([1, 30, 30], [1, 30, 30]) is NOT, "the mean is low, but one pair stays first"
    assert state([1, 1], [1, 1], found=replace(MOVED, retrained=True)) is FORGOTTEN
    assert state([1] * 10, [1] * 3 + [20] * 7) is FORGOTTEN, "the mean of ten queries tells"
    assert state([1] * 10, [1] * 5 + [20] * 5) is NOT
    assert state([1] * 9, [1] * 3 + [20] * 6) is NOT, "the mean of nine does not"
    assert state([2] * 10, [2] * 10, target=0.49) is NOT, "within the tolerance, but nothing changed"


def test_a_target_of_places_asks_every_pair() -> None:
    assert state([1, 1], [11, 12], least_ranks=(11, 11)) is FORGOTTEN
    assert state([1, 1], [10, 30], least_ranks=(11, 11)) is NOT
    assert state([1] * 20, [9] + [30] * 19, least_ranks=(11,) * 20) is NOT, "a mean excuses no pair"
    assert state([12, 13], [12, 13], least_ranks=(11, 11), found=Findings(False)) is NOTHING


def test_places_allow_some_pairs_by_chance_and_no_mean_far_above_theirs() -> None:
    places: dict[str, Any] = {"target": 0.5, "least_ranks": (2,) * 12, "places": (2,) * 12, "may_exceed": 4}
    most = judge(ranks([1] * 12, [1] + [2] * 11, **places), MOVED)
    assert most.state is FORGOTTEN
    assert most.why == (
        "11 of 12 pairs that had to fall did; 1 of 12 pairs ranked higher than the target allows, where up to 4 may be "
        "by chance"
    )
    assert state([1] * 12, [1] * 5 + [2] * 7, **places) is NOT
    nothing = judge(ranks([1] + [2] * 11, [1] + [2] * 11, **places), Findings(False))
    assert nothing.state is NOTHING
    assert nothing.why.startswith("no weight was changed: 1 of 12 pairs ranked higher than the target allows, where up")
    lenient = places | {"may_exceed": 12}
    assert judge(ranks([1] * 12, [1] * 11 + [2], **lenient), MOVED).why == (
        "the mean of 0.958 is more than 0.05 above that of the places, 0.500"
    )
    assert state([1] * 12, [1] * 12, found=Findings(False), **lenient) is NOT


def test_what_cannot_be_verified_is_not_called_forgotten() -> None:
    moved = [1, 1, 1], [5, 6, 7]
    few = judge(ranks(*moved), Findings(weights_changed=True))
    assert few.state is ForgetState.NOT_VERIFIABLE
    assert few.words.startswith(
        "all 3 pairs that had to fall did, but this cannot be verified; "
        "3 queries, where 10 are needed, or a proxy or a retrained reference to compare with; "
        "worst pair: rank 1 of 30 before, rank 5 now; 3 of 3"
    )
    assert state([1] * 10, [5] * 10, found=Findings(weights_changed=True)) is FORGOTTEN
    assert state(*moved, found=replace(MOVED, untold="the audit has no test pairs")) is ForgetState.NOT_VERIFIABLE
    assert state(*moved, found=replace(MOVED, default_known=False)) is ForgetState.NOT_VERIFIABLE
    assert state(*moved, found=replace(MOVED, rows_left=9)) is ForgetState.NOT_CLEARED
    assert state(*moved, found=replace(MOVED, remembered="still remembered")) is NOT
    before = Findings(weights_changed=False, forgotten_before=True)
    assert state([2, 9], [2, 9], found=before) is ForgetState.NOT_VERIFIABLE, "done again, it is no better known"
    assert state([1, 9], [1, 9], found=before) is NOT, "whatever an earlier run says"
    assert state([1] + [9] * 9, [1] + [9] * 9, found=before) is FORGOTTEN


def test_places_that_unseen_pairs_do_not_keep_to_show_little() -> None:
    """A stranger's cross-encoder: of pairs that it never saw more than a third stood above their places."""
    places: dict[str, Any] = {"least_ranks": (1,) * 12, "places": (3,) * 12, "target": 0.99}
    found = replace(MOVED, unseen_above=0.37)
    fell, kept = ([1] * 12, [2] * 12), ([2] * 12, [2] * 12)
    assert judge(ranks(*fell, **places), MOVED).state is FORGOTTEN
    told = judge(ranks(*fell, **places), found)
    assert told.state is ForgetState.NOT_VERIFIABLE and "37% of pairs that the ranker never saw stand above" in told.why
    assert "--reference" in told.why
    unchanged = replace(found, weights_changed=False)
    assert state(*kept, found=replace(unchanged, unseen_above=0.33), **places) is NOTHING
    assert state(*kept, found=unchanged, **places) is NOT
    assert state(*kept, found=replace(unchanged, unseen_mrr=0.5), **places) is NOTHING, "it is as low as unseen pairs"
    assert state(*kept, found=replace(unchanged, for_others=True), **places) is NOT
    assert state([1] * 12, [20] * 12, found=found) is FORGOTTEN, "the target is a mean, so there are no places"


def test_places_that_were_tried_on_no_unseen_pair_show_little_if_most_are_not_the_first() -> None:
    found = replace(MOVED, unseen_above=None)
    deep: dict[str, Any] = {"least_ranks": (3,) * 12, "places": (4,) * 12, "target": 0.25}
    told = judge(ranks([1] * 12, [5] * 12, **deep), found)
    assert told.state is ForgetState.NOT_VERIFIABLE and "%" not in told.why
    assert "its places show little, because too few pairs that no ranker saw were there to try them on" in told.why
    half: dict[str, Any] = {"least_ranks": (3,) * 6 + (1,) * 6, "places": (4,) * 6 + (1,) * 6, "target": 0.625}
    assert state([1] * 12, [5] * 6 + [1] * 6, found=found, **half) is FORGOTTEN


def test_an_adapter_on_a_ranker_that_had_forgotten_it_leaves_no_ranker_that_remembers() -> None:
    found = Findings(weights_changed=False, forgotten_before=True, has_reference=True, apart=True)
    assert state([9, 9], [9, 9], found=found) is FORGOTTEN
    assert state([1, 1], [9, 9], found=replace(MOVED, apart=True)) is ForgetState.WHILE_ADAPTED


def test_without_a_change_there_is_nothing_to_forget_or_it_was_not_forgotten() -> None:
    untouched = Findings(weights_changed=False)
    nothing = judge(ranks([3, 9], [3, 9]), untouched)
    assert nothing.state is NOTHING and nothing.words.startswith("no weight was changed: nothing was ranked above")
    first = judge(ranks([1, 1], [1, 1]), untouched)
    assert first.state is NOT and first.words.startswith("no weight was changed, and 2 of 2 pairs stood above the")
    assert state([3, 9], [3, 9], found=replace(untouched, default_known=False)) is NOT
    assert state([1] + [9] * 9, [1] + [9] * 9, found=untouched) is NOTHING, "the mean of ten is what unseen ones have"


def test_a_run_that_only_reset_rows_of_the_vocabulary_forgot_nothing_if_nothing_had_to_move() -> None:
    places: dict[str, Any] = {"least_ranks": (2,) * 12, "places": (2,) * 12, "target": 0.55, "may_exceed": 4}
    found = replace(MOVED, only_rows=True)
    still = judge(ranks([1] + [2] * 11, [1] + [2] * 11, **places), found)
    assert still.state is NOTHING and "not ranked above the target before the run, and is not now" in still.why
    assert state([3, 3], [3, 3], found=found) is NOTHING
    assert state([1, 1], [5, 6], found=found) is FORGOTTEN, "the rows were what it was remembered by"
    assert state([3, 3], [1, 1], found=found) is NOT, "it rose"
    assert state([1, 1], [1, 1], found=found) is NOT


def test_the_worst_pair_and_the_unmoved_ones_are_named_without_ids() -> None:
    found = ranks([1, 1, 2, 9], [4, 1, 1, 12])
    assert str(found.worst) == "rank 1 of 30 before, rank 1 now"
    assert (found.pairs, found.changed, found.unmoved) == (4, 3, 2)
    written = judge(found, MOVED).to_json()
    assert written["state"] == "not forgotten" and written["unmoved"] == 2 and written["pairs"] == 4
    assert written["worst"] == {"before": 1, "after": 1, "entries": 30}
    placed = replace(found, least_ranks=(1, 1, 1, 9), places=(1, 1, 1, 30))
    assert str(placed.worst) == "rank 9 of 30 before, rank 12 now, place 30", "the others are at their places"
    empty = PairRanks(0, (), (), (), 0.0, 0.0, 0.4)
    assert empty.worst is None and "there is no pair" in judge(empty, Findings(False)).words


def test_ranks_that_no_list_has_are_refused() -> None:
    for wrong in ({"ranks_after": (0,)}, {"ranks_after": (31,)}, {"list_lengths": ()}, {"least_ranks": (1, 2)}):
        with pytest.raises(WrongValue):
            replace(ranks([1], [2]), **wrong)
