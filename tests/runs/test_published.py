"""The figures of docs/results.md follow from the records in results/, by the scripts that `make results` runs.

Intervals are not compared, because tests resample less often.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8").replace("*", "")
Script = Callable[[str], dict[str, Any]]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.syspath_prepend(ROOT / "runs")
    return lambda name: runpy.run_path(str(ROOT / "runs" / f"{name}.py"), run_name=name)


def lines_of(script: dict[str, Any], name: str) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = script["earlier_lines"]([str(ROOT / "results" / f"{name}.jsonl.gz")])
    return lines


def cells_of(table: list[str]) -> list[list[str]]:
    """The cells of each row, with figures as the page writes them."""
    rows = [row.replace("0.", ".").replace("-.", "−.") for row in table[2:]]
    return [row.removeprefix("| ").removesuffix(" |").split(" | ") for row in rows]


def test_distances_of_runs_to_places_and_of_rivals(script: Script) -> None:
    places = script("places")
    for name in ("places", "rivals", "rivals-second", "rivals-draw-41", "strangers", "places-nfcorpus-half"):
        lines = lines_of(places, name)
        pairs = [(found[0], found[2]) for found in places["by_cell"](lines).values()]
        ratio = places["in_noise"](pairs).split(" ")[0]
        assert f"{ratio} (" in PAGE, name


def test_how_far_runs_to_places_end_from_the_mean_over_all_cells(script: Script) -> None:
    off: dict[tuple[str, str, str], list[float]] = {}
    for name in ("places", "rivals", "rivals-second", "rivals-draw-41"):
        for line in lines_of(script("places"), name):
            if line["run"].startswith("places"):
                off.setdefault((line["collection"], line["ranker"], line["by"]), []).append(abs(line["off"]))
    cells = [each for these in off.values() for each in these]
    settings = [sum(these) / len(these) for these in off.values()]
    assert (len(cells), len(settings)) == (28, 16)
    shown = f"{sum(cells) / 28:.3f} off the judges' mean, and {sum(settings) / 16:.4f} if each of the sixteen settings"
    assert shown.replace("0.", ".") in PAGE


def test_times_of_runs_to_places(script: Script) -> None:
    places = script("places")
    lines = lines_of(places, "place-times")
    rows = cells_of(places["times_table"](lines))
    assert len(rows) == 6
    for one, two in zip(rows[::2], rows[1::2], strict=True):
        assert f"| {one[2]} s | {one[3]}; {two[3]} | {one[4]}; {two[4]} |" in PAGE
    judged = places["cells_table"](lines)
    assert sum("one judge" in row for row in judged) == 3, "there is no noise of a single judge"
    assert [row[2] for row in cells_of(places["runs_table"](lines))] == ["–"] * 3


def test_small_requests_also_of_a_kind_that_was_stopped(script: Script) -> None:
    single = script("single")
    rows = cells_of(single["table"](single["summaries_of"](lines_of(single, "single"))))
    assert [row[1] for row in rows] == ["document", "query", "ten-documents"] * 2
    for row in rows:
        within, fifth = (row[place].split(" ")[0] for place in (3, 4))
        less = row[5].split(" ")[0].replace("-", "−")
        assert f"| {within}; {fifth}; {row[6]} | {less} (" in PAGE, row


def test_requests_in_a_row(script: Script) -> None:
    requests = script("row_of_requests")
    for row in cells_of(requests["table"](lines_of(requests, "requests"))):
        seed, number, kept, off, far = row[1], row[2], row[3], row[5], row[6]
        assert f"| {seed} | {number} | {kept} | {off} | {far} |" in PAGE
    before = cells_of(requests["table"](lines_of(requests, "log/requests-before-the-rule")))
    test_shares = [row[3].split(", ")[2] for row in before]
    assert "T was {} after 24 and {} after 30 requests".format(*test_shares) in PAGE


def test_trained_rankers(script: Script) -> None:
    rankers = script("rankers_table")
    rows = cells_of(rankers["records_table"](lines_of(rankers, "rankers")))
    assert len(rows) == 11
    for _, ranker, training, test, epochs in rows:
        [row] = [line for line in PAGE.splitlines() if line.startswith(f"| {ranker} | {training} | {test} |")]
        assert row.endswith(f"| {epochs} |")


KINDS = {"original": "original", "bottom": "pushed to the bottom", "retrained": "retrained",
         "tenth": "one removed pair in ten was trained on"}  # fmt: skip


def test_rankers_of_hidden_kinds(script: Script) -> None:
    truth = script("ground_truth")
    for name, collection in (("car", "TREC CAR"), ("marco", "MS MARCO mini")):
        rows = cells_of(truth["table_of"](lines_of(truth, f"audit/truth-{name}"), 20))
        assert [row[0] for row in rows] == ["original", "bottom", "retrained", "retrained", "tenth"]
        for kind, *figures in rows:
            shown = KINDS[kind] + (", all" if kind == "retrained" and figures[0] != "20" else "")
            assert f"| {collection} | {shown} | {' | '.join(figures)} | " in PAGE


def test_what_methods_leave_behind(script: Script) -> None:
    truth = script("ground_truth")
    tables = [cells_of(truth["table_of"](lines_of(truth, f"audit/methods-{name}"), 20)) for name in ("car", "marco")]
    assert [len(rows) for rows in tables] == [13, 13]
    for (method, _, *car), (_, _, *marco) in zip(*tables, strict=True):
        [row] = [line for line in PAGE.splitlines() if re.match(rf"\| {method} \| \.\d\d \| \d, ", line)]
        assert [cell.strip() for cell in row.split("|")][3:6:2] == [", ".join(car), ", ".join(marco)]


def test_the_power_that_is_printed(script: Script) -> None:
    power = script("audit_power")
    for name, collection in (("car", "TREC CAR"), ("marco", "MS MARCO mini")):
        for row in cells_of(power["table"](lines_of(power, f"audit/power-{name}"))):
            assert row[1] == "200"
            assert f"| {collection} | {row[0]} | {' | '.join(row[2:])} |" in PAGE


def test_what_forms_and_lessons_bring_back(script: Script) -> None:
    forms = script("forms_table")
    rows = cells_of(forms["runs_table"](lines_of(forms, "audit/forms-heads")))
    assert len(rows) == 17
    lines = PAGE.splitlines()
    for row in rows:
        figures = [cell.split(" ")[0] for cell in row[1:]]
        assert any(all(f"| {figure} (" in line for figure in figures) for line in lines), row


def test_the_rankers_of_today(script: Script) -> None:
    modern = script("modern")
    trained, forgotten, other = map(cells_of, modern["tables"](lines_of(modern, "modern")))
    known = {row[1]: row for row in trained if row[3] == "trained"}
    assert f"test MRR is {known['decoder'][4]}, BM25's {known['decoder'][5]}" in PAGE
    assert f"Test MRR {known['splade'][4]}, BM25 {known['splade'][5]}" in PAGE
    runs = [row for row in forgotten if "," in row[2] and " at " not in row[2]]
    assert [row[0] for row in runs] == ["bi-encoder"] * 3 + ["decoder"] * 4 + ["splade"] * 2 + ["cross-encoder"]
    for row in (runs[0], *runs[3:]):
        assert f"{row[3]} → {row[4]} (" in PAGE and row[8] in PAGE
    for row in runs[-3:-1]:
        assert f"{row[3]} → {row[4]} ({row[5]}) | {row[8]} | {row[7]} | {row[9]} | {row[10]} |" in PAGE
    assert len(other) == 4
    for row in other:
        assert f"| {row[3]} | {row[4]} | {row[6]} | {row[5]} |" in PAGE
