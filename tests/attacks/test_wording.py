"""Attacks by the worst case: sentences that are true of usual runs, and not of these."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.desk.made import ranks
from tests.tiny import made_record
from unrank.cli.closing import closing
from unrank.desk.page_words import achieved, what_was_done


@pytest.mark.attack(0)
@pytest.mark.parametrize(("entries", "said"), [(11, "every forget pair is last in"), (200, "no forget pair is among")])
def test_a_list_of_eleven_has_no_place_beyond_the_hundredth(entries: int, said: str) -> None:
    found = replace(ranks([1, 2], [entries, entries], entries), least_ranks=(min(entries, 101),) * 2)
    record = replace(made_record(), target_name="beyond:100", epochs=2)
    result: Any = SimpleNamespace(
        record=record, judgement=SimpleNamespace(ranks=found), limited="", reached=True, fulfilled=False
    )
    told = closing(result, None)
    assert told.startswith(said) and ("no forget pair is among" in told) is (entries == 200)


def settled(**done: Any) -> Any:
    """The part of a certificate about a ranker in which a request of one pair fell from the first to the last place."""
    own = json.loads(json.dumps({**vars(ranks([1], [11])), "pairs": 1}))
    plain = {"method": "cocol", "target": 0.1, "target_name": "test-mrr", "epochs": 0, "references": 0, "copies": {}}
    return {
        "name": None,
        "state": "forgotten, not verifiable",
        "measured": {"request": own},
        "done": {**plain, "vocabulary": "reset", **done},
        "requests": 1,
        "run": 1,
        "audited": None,
        "in_service_since": None,
    }


@pytest.mark.attack(0)
def test_what_cleared_rows_alone_made_the_ranker_forget_was_not_forgotten_by_an_earlier_run() -> None:
    assert "earlier run" not in achieved(settled())


@pytest.mark.attack(0)
def test_a_target_for_each_pair_is_not_called_a_mean() -> None:
    told = what_was_done(settled(target_name="beyond:10", epochs=3))
    assert "no pair is among the first 10" in told and "mean" not in told
