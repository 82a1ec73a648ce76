"""All attacks: `python -m tests.attacks [words for pytest]`.

Exit 1 if one succeeds, or if one of the list was not tried."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.attacks import ATTACKS

FOLDER = Path(__file__).parent


class Outcomes:
    """How the tests of each attack ended, as a plugin of pytest."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = {}
        self.refused: Counter[int] = Counter()
        self.succeeded: dict[int, list[str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            self.numbers[item.nodeid] = [number for mark in item.iter_markers("attack") for number in mark.args]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for number in self.numbers.get(report.nodeid, []):
            if report.failed:
                self.succeeded.setdefault(number, []).append(report.nodeid)
            elif report.passed and report.when == "call" and not hasattr(report, "wasxfail"):
                self.refused[number] += 1


def main(words: list[str]) -> int:
    outcomes = Outcomes()
    status = pytest.main(["-m", "attack and not gpu", str(FOLDER), *words], plugins=[outcomes])
    print("\nAttacks:")
    for number, tried in {**ATTACKS, 0: "other attacks"}.items():
        print(f"{number or '-':>3}  {_outcome(outcomes, number):<24} {tried}")
    untried = [number for number in ATTACKS if not outcomes.refused[number] and number not in outcomes.succeeded]
    print(f"{sum(outcomes.refused.values())} refused, {sum(map(len, outcomes.succeeded.values()))} succeeded", end="")
    print(f"; without a test that ran: {', '.join(map(str, untried))}" if untried else "")
    return int(status) or bool(untried)


def _outcome(outcomes: Outcomes, number: int) -> str:
    if failed := outcomes.succeeded.get(number):
        return f"SUCCEEDED ({len(failed)})"
    count = outcomes.refused[number]
    return f"refused ({count} test{'s' * (count != 1)})" if count else "NOT TRIED"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
