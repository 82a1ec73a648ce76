"""Tables in four forms: nothing in them is taken for markup, a formula or a command."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from pathlib import Path

import pytest

from unrank.report.table import Table, figure, mark_best, spread, to_csv, to_html, to_latex, to_markdown, words

NASTY = "=cmd|'x' & <b>$50%_{a}\\ *~^#"


@pytest.fixture
def table() -> Table:
    rows = mark_best([[words(NASTY), figure(0.5)], [words("b"), figure(0.25, differs=True, in_noise=True)]], 1, "least")
    return Table("name", f"caption {NASTY}", ["method", "MRR"], rows, note=NASTY)


def test_html_holds_no_markup_of_the_data(table: Table) -> None:
    made = to_html(table)
    assert "<b>" not in made
    assert "&lt;b&gt;" in made
    assert made.count("<strong") == 1
    assert "†" in made
    assert "(within the noise of retraining)" in made


def test_markdown_keeps_its_columns(table: Table) -> None:
    lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
    assert [line.replace("\\|", "").count("|") for line in lines] == [3, 3, 3, 3]
    assert "<b>" not in to_markdown(table)
    assert lines[-1] == "| b | **0.250**†≈ |"


def test_csv_is_plain_numbers_and_no_formula(table: Table) -> None:
    rows = list(csv.reader(io.StringIO(to_csv(table))))
    assert rows[0][2:] == ["best", "differs from retrain", "within the noise of retraining"]
    assert rows[1] == [f"'{NASTY}", "0.5", "", "", ""]
    assert rows[2] == ["b", "0.25", "MRR", "MRR", "MRR"]


def test_a_negative_number_stays_a_number() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(Table("n", "c", ["a", "b"], [[words("-x"), figure(-0.5)]])))))
    assert rows[1][:2] == ["'-x", "-0.5"]


def test_latex_escapes_what_it_would_run(table: Table) -> None:
    made = to_latex(table)
    assert r"\&" in made
    assert r"50\%\_\{a\}\textbackslash{}" in made
    assert r"\textbf{0.250}$^{\dagger}$$^{\approx}$" in made
    assert made.count(r"\\") == 3
    assert "|" not in made
    optional = to_latex(Table("n", "c", ["a", "b"], [[words(text), figure(1)] for text in ("[5pt] x", "*")]))
    assert "\n{[}5pt] x & 1.000" in optional and "\n{*} &" in optional, "neither is an argument of the line before"


def test_a_row_that_cannot_be_best_is_not_marked_though_it_reads_the_same() -> None:
    rows = [[words(name), figure(number)] for name, number in (("a", 0.9), ("b", 0.5), ("c", 0.5))]
    assert [row[1].best for row in mark_best(rows, 1, "most", [False, True, False])] == [False, True, False]
    assert not any(row[1].best for row in mark_best(rows, 1, "most", [False] * 3))
    assert not any(row[1].best for row in mark_best(rows[:1], 1, "most", [True])), "one alone is not the best"


def test_what_reads_the_same_is_best_together() -> None:
    rows = mark_best(
        [[words("a"), figure(0.2501)], [words("b"), figure(0.2504)], [words("c"), figure(None)]], 1, "most"
    )
    assert [row[1].best for row in rows] == [True, True, False]


def test_heads_of_csv_are_ascii_and_intervals_have_columns_of_their_own() -> None:
    rows = [[words("a"), spread(0.25, 0.2, 0.3)], [words("b"), figure(0.5)]]
    made = list(csv.reader(io.StringIO(to_csv(Table("n", "c", ["Méthode →", "|F\u00a0−\u00a0δ|"], rows)))))
    assert made[0][:4] == ["Methode ->", "|F - delta|", "|F - delta| low", "|F - delta| high"]
    assert made[1][:4] == ["a", "0.25", "0.2", "0.3"] and made[2][:4] == ["b", "0.5", "", ""]


def test_a_long_table_in_latex_is_divided_and_each_part_has_a_label() -> None:
    table = Table("my table", "c", ["a", "b"], [[words("x"), spread(1.0, 0.5, 1.5)]] * 100, comparable=60)
    made = to_latex(table)
    assert made.count(r"\begin{table}") == made.count(r"\end{table}") == 4
    assert [f"\\label{{tab:my-table{end}}}" in made for end in ("", "-2", "-3", "-4")] == [True] * 4
    assert made.count(r"\resizebox") == 4 and r"1.000 $\pm$ 0.500" in made
    assert made.count("Over other cells") == 1 and "(2 of 4)" in made


def test_rows_that_cannot_be_compared_come_after_a_line_that_says_so() -> None:
    table = Table("n", "c", ["a", "b"], [[words("x"), figure(1)], [words("y"), figure(2)]], comparable=1)
    assert "Over other cells" in to_html(table) and 'data-key="2"' in to_html(table)
    assert to_markdown(table).splitlines()[5].startswith("| *Over other cells")
    assert "Over other cells" not in to_markdown(Table("n", "c", ["a", "b"], table.rows))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex with booktabs")
def test_latex_compiles_and_fits_a_page(table: Table, tmp_path: Path) -> None:
    """A narrow and long table, a wide one, and names in letters that LaTeX's fonts lack."""
    note = "Each row is a mean over the cells of its method, as many as its column says. " * 9
    narrow = Table(
        "narrow", "c " * 60, ["a", "b"], [[words("x"), spread(1.0, 0.5, 1.5)]] * 100, note=note, comparable=40
    )
    wide = Table("wide", "c", ["distance"] * 20, [[words("msmarco"), *[figure(1)] * 19]] * 3)
    names = Table("names", "Méthode 中文 Ω", ["a", "≤ … “x” – ″"], [[words("naïve Ελλάδα ½ 🙂 \u202f"), figure(1)]])
    inputs = []
    for made in (table, narrow, wide, names):
        (tmp_path / f"{made.name}.tex").write_text(to_latex(made), encoding="utf-8")
        inputs.append(f"\\input{{{made.name}}}")
    lines = [r"\documentclass{article}", r"\usepackage{booktabs,graphicx}", r"\begin{document}", *inputs]
    (tmp_path / "page.tex").write_text("\n".join([*lines, r"\end{document}"]), encoding="utf-8")
    ran = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "page.tex"], cwd=tmp_path, capture_output=True, check=False
    )
    log = (tmp_path / "page.log").read_text(encoding="latin-1")
    assert [
        line for line in log.splitlines() if line.startswith("!") or "Overfull" in line or "too large" in line
    ] == []
    assert ran.returncode == 0 and (tmp_path / "page.pdf").stat().st_size
