"""The tables of forms, from lines written by hand, and the time that a run may take."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

RUNS = Path(__file__).parents[2] / "runs"


@pytest.fixture
def forms_table(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(RUNS)
    return runpy.run_path(str(RUNS / "forms_table.py"), run_name="forms_table")


def line(run: str, before: list[int], after: list[int], form: str = "int4") -> dict[str, Any]:
    figures = {f"mrr {when}": sum(1 / rank for rank in ranks) / len(ranks) for when, ranks in
               (("before", before), ("after", after))}  # fmt: skip
    cell = {"collection": "made", "ranker": "bi-encoder", "by": "queries"}
    return {**cell, "run": run, "form": form, **figures, "before": before, "after": after}


def test_what_comes_back_in_judges_too_does_not_count(forms_table: dict[str, Any]) -> None:
    lines = [
        line("judge 101", [2, 2], [1, 2]),
        line("judge 102", [2, 2], [2, 2]),
        line("cocol to places", [4, 4], [1, 1]),
        line("retrained", [2, 2], [1, 2], "averaged"),
    ]
    head, _, first, *_ = forms_table["cells_table"](lines)
    assert head == "| cell | ranker | forget MRR | int4 (rise) | averaged (rise) |"
    assert first == "| made, bi-encoder, queries | judge 101 | 0.500 | 0.750 (+0.250) | – |"
    *_, forgotten, retrained = forms_table["runs_table"](lines)
    assert forgotten.startswith("| cocol to places | +0.625 (+0.500 to +0.750); +0.625 | – |")
    assert retrained == "| retrained | – | – |"  # no judge was averaged


def test_what_would_not_be_done_in_time_is_left_out(forms_table: dict[str, Any]) -> None:
    done: list[str] = []
    budget = forms_table["Budget"](seconds=100.0)
    budget.do("quick", "first", lambda: done.append("first"))
    budget.took["slow"] = 200.0
    budget.do("slow", "second", lambda: done.append("second"))
    budget.do("quick", "third", lambda: done.append("third"))
    assert (done, budget.left_out) == (["first", "third"], ["second"])
