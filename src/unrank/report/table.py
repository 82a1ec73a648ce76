"""Tables, written as HTML, Markdown, CSV and LaTeX, with the best values marked and every text escaped."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from unrank.errors import printable
from unrank.report.page import Markup, element

DAGGER, ABOUT = "†", "≈"
SIGNS = {
    "differs": (DAGGER, "differs from retrain"),
    "in_noise": (ABOUT, "within the noise of retraining"),
}
"""Signs after a value, and their meaning."""
LONG = 40
"""The most characters of a cell that is not broken into lines."""
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "−": "--", "→": r"$\rightarrow$", DAGGER: r"$^{\dagger}$", ABOUT: r"$^{\approx}$", "δ": r"$\delta$",
    "×": r"$\times$", "|": r"\textbar{}", "[": "{[}", "*": "{*}",
}  # fmt: skip


Better = Literal["least", "most"]


FIGURE = re.compile(r"$|[+−<-]?[0-9]")
"""The beginning of a number; an empty text counts as one."""


@dataclass(frozen=True)
class Value:
    """The text of a cell, its number and its marks."""

    text: str
    number: float | None = None
    best: bool = False
    differs: bool = False
    """It differs from the retrained ranker's by more than chance."""
    in_noise: bool = False
    """It differs by less than two retrained rankers do."""

    @property
    def signs(self) -> list[tuple[str, str]]:
        return [sign for name, sign in SIGNS.items() if getattr(self, name)]


@dataclass(frozen=True)
class Table:
    """A table; `name` is the name of its file, the first `labels` columns are words, the others numbers."""

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Value]]
    labels: int = 1
    note: str = ""


def words(text: str) -> Value:
    return Value(text)


def figure(number: float | None, form: str = ".3f", differs: bool = False, in_noise: bool = False) -> Value:
    """Return a number as the value of a cell; `None` is an empty one.

    >>> figure(0.25).text, figure(None).text
    ('0.250', '')
    """
    return Value("" if number is None else format(number, form), number, differs=differs, in_noise=in_noise)


def facts(name: str, rows: Mapping[str, object]) -> Markup:
    """Return names and values as a table in HTML."""
    shown = [[words(str(key)), words(str(value))] for key, value in rows.items()]
    return to_html(Table(name, name, ["name", "value"], shown, 2))


def mark_best(
    rows: Sequence[Sequence[Value]], column: int, best: Better, eligible: Sequence[bool] | None = None
) -> list[list[Value]]:
    """Return the rows with the best values of a column marked: all that read the same, if two rows or more have one.

    Only eligible rows can be the best; without `eligible` all are.
    """
    values, may_win = [row[column] for row in rows], eligible or [True] * len(rows)
    numbers = [v.number for v, may in zip(values, may_win, strict=True) if may and v.number is not None]
    if not numbers or sum(value.number is not None for value in values) < 2:
        return [list(row) for row in rows]
    found = min(numbers) if best == "least" else max(numbers)
    shown = {value.text for value, may in zip(values, may_win, strict=True) if may and value.number == found}
    marked = [replace(v, best=may and v.text in shown) for v, may in zip(values, may_win, strict=True)]
    return [[*row[:column], value, *row[column + 1 :]] for row, value in zip(rows, marked, strict=True)]


def to_html(table: Table) -> Markup:
    head = [
        element("th", {"scope": "col", "class": _side(table, place)}, name) for place, name in enumerate(table.head)
    ]
    rows = [
        element("tr", {}, [_html_cell(value, place, table) for place, value in enumerate(row)]) for row in table.rows
    ]
    caption = element("caption", {}, table.caption)
    made = element("table", {}, caption, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows))
    scrolled = element("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": table.caption}, made)
    return element("div", {}, scrolled, element("p", {"class": "note"}, table.note) if table.note else None)


def _html_cell(value: Value, place: int, table: Table) -> Markup:
    text: Markup | str = value.text
    if value.best:
        text = element("strong", {"title": "best"}, text, element("span", {"class": "unseen"}, " (best)"))
    signs = [
        (element("sup", {"aria-hidden": "true"}, sign), element("span", {"class": "unseen"}, f" ({meaning})"))
        for sign, meaning in value.signs
    ]
    if place == 0:
        return element("th", {"scope": "row"}, text, *signs)
    return element("td", {"class": "long" if len(value.text) > LONG else _side(table, place)}, text, *signs)


def _side(table: Table, place: int) -> str | None:
    """Return the class that puts a column of numbers to the right."""
    is_figures = place >= table.labels and all(FIGURE.match(row[place].text) for row in table.rows)
    return "number" if is_figures else None


def to_markdown(table: Table) -> str:
    lines = [[*map(markdown_text, table.head)], ["---"] * len(table.head)]
    for row in table.rows:
        shown = [markdown_text(value.text) for value in row]
        marked = [f"**{text}**" if value.best else text for text, value in zip(shown, row, strict=True)]
        lines.append([text + "".join(sign for sign, _ in value.signs) for text, value in zip(marked, row, strict=True)])
    note = f"\n{markdown_text(table.note)}\n" if table.note else ""
    return f"{markdown_text(table.caption)}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + note


def to_csv(table: Table) -> str:
    """Return plain numbers; the last columns name those that are marked."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*map(csv_text, table.head), "best", *(meaning for _, meaning in SIGNS.values())])
    for row in table.rows:
        marks = [
            csv_text("; ".join(name for name, value in zip(table.head, row, strict=True) if getattr(value, mark)))
            for mark in ("best", *SIGNS)
        ]
        shown = [csv_text(value.text) if value.number is None else f"{value.number:.6g}" for value in row]
        writer.writerow([*shown, *marks])
    return file.getvalue()


def to_latex(table: Table) -> str:
    columns = "l" * table.labels + "r" * (len(table.head) - table.labels)
    lines = [[*map(latex_text, table.head)]]
    for row in table.rows:
        shown = [latex_text(value.text) for value in row]
        marked = [rf"\textbf{{{text}}}" if value.best else text for text, value in zip(shown, row, strict=True)]
        signs = ["".join(LATEX[sign] for sign, _ in value.signs) for value in row]
        lines.append([text + sign for text, sign in zip(marked, signs, strict=True)])
    head, *body = (" & ".join(line) + r" \\" for line in lines)
    note = f"\n\\par\\smallskip\\footnotesize {latex_text(table.note)}" if table.note else ""
    return (
        f"% needs \\usepackage{{booktabs}}\n\\begin{{table}}\n\\caption{{{latex_text(table.caption)}}}\n\\centering\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head}\n\\midrule\n"
        + "\n".join(body)
        + f"\n\\bottomrule\n\\end{{tabular}}{note}\n\\end{{table}}\n"
    )


def markdown_text(text: str) -> str:
    r"""Return a text that Markdown shows as it is.

    >>> print(markdown_text("a|b *c* <d>"))
    a\|b \*c\* &lt;d>
    """
    escaped = re.sub(r"([\\`*_\[\]|])", r"\\\1", printable(" ".join(text.split())))
    return escaped.replace("&", "&amp;").replace("<", "&lt;")


def csv_text(text: str) -> str:
    """Return a text that a spreadsheet does not take for a formula.

    >>> csv_text("=1+1"), csv_text("cocol")
    ("'=1+1", 'cocol')
    """
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def latex_text(text: str) -> str:
    r"""Return a text that LaTeX prints as it is.

    >>> print(latex_text("50% of \\x_1"))
    50\% of \textbackslash{}x\_1
    """
    return "".join(LATEX.get(character, character) for character in printable(" ".join(text.split())))
