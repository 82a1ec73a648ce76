"""The list of attacks."""

from __future__ import annotations

from pathlib import Path

from tests.attacks import ATTACKS, attacks_with_tests


def test_every_attack_of_the_list_has_a_test_and_every_mark_names_one() -> None:
    assert list(ATTACKS) == list(range(1, 21))
    assert attacks_with_tests(Path(__file__).parent) - {0} == {*ATTACKS}
