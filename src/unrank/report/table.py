"""Tables, written as HTML, Markdown, CSV and LaTeX, with the best values marked and every text escaped."""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
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
APART = "Over other cells: not to be compared with the rows above"
PAGE_ROWS = 32
"""The most rows of a table in LaTeX that fit a page with a caption of two lines and a long note."""
ASCII = {"δ": "delta", "→": "->", "−": "-", "–": "-", "×": "x", "±": "+-", "≥": ">=", "‘": "'", "’": "'", "≈": "~"}
WIDE, WIDEST = 12, 16
"""The most columns of a table in letters of the usual size, and in small ones."""
LONG = 40
"""The most characters of a cell that is not broken into lines."""
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "−": "--", "→": r"$\rightarrow$", DAGGER: r"$^{\dagger}$", ABOUT: r"$^{\approx}$", "δ": r"$\delta$",
    "×": r"$\times$", "±": r"$\pm$", "≥": r"$\geq$", "≤": r"$\leq$", "|": r"\textbar{}", "[": "{[}", "*": "{*}",
}  # fmt: skip
LATEX_HAS = frozenset("–—‘’“”…§©°·µßæøœłÆØŒŁı")
"""Letters and signs that pdflatex prints without further packages, beside ASCII and accented letters."""
OGONEK = "\u0328"


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
    low: float | None = None
    high: float | None = None
    """The ends of its 95 % interval; `None` if it has none."""

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
    comparable: int | None = None
    """The number of first rows that can be compared, being over the same cells; `None` if all can."""
    kinds: Sequence[Mapping[str, str]] = ()
    """For each row what a page may filter it by, such as its collection; empty if there is nothing."""


def words(text: str) -> Value:
    return Value(text)


def figure(number: float | None, form: str = ".3f", differs: bool = False, in_noise: bool = False) -> Value:
    """Return a number as the value of a cell; `None` is an empty one.

    >>> figure(0.25).text, figure(None).text
    ('0.250', '')
    """
    return Value("" if number is None else format(number, form), number, differs=differs, in_noise=in_noise)


def spread(number: float | None, low: float, high: float, form: str = ".3f") -> Value:
    """Return a number with half the width of its 95 % interval; without it if an end is not known.

    >>> spread(0.25, 0.23, 0.29).text, spread(0.25, math.nan, 0.3).text, spread(None, 0.0, 0.0).text
    ('0.250 ± 0.030', '0.250', '')
    """
    if number is None or not (math.isfinite(low) and math.isfinite(high)):
        return figure(number, form)
    plain = form.removeprefix("+")
    return Value(f"{number:{form}} ± {(high - low) / 2:{plain}}", number, low=low, high=high)


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
    rows = [_html_row(table, number, row) for number, row in enumerate(table.rows)]
    if table.comparable is not None and table.comparable < len(rows):
        apart = element("td", {"colspan": len(table.head)}, APART)
        rows.insert(table.comparable, element("tr", {"class": "apart"}, apart))
    caption = element("caption", {}, table.caption)
    dense = "dense" if len(table.head) > WIDE else None
    dense = "dense densest" if len(table.head) > WIDEST else dense
    parts = element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows)
    made = element("table", {"class": dense}, caption, *parts)
    scrolled = element("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": table.caption}, made)
    return element("div", {}, scrolled, element("p", {"class": "note"}, table.note) if table.note else None)


def _html_row(table: Table, number: int, row: Sequence[Value]) -> Markup:
    kinds = table.kinds[number] if table.kinds else {}
    attributes = {f"data-{name}": value for name, value in kinds.items()}
    return element("tr", attributes, [_html_cell(value, place, table) for place, value in enumerate(row)])


def _html_cell(value: Value, place: int, table: Table) -> Markup:
    text: Markup | str = value.text
    if value.best:
        text = element("strong", {"title": "best"}, text, element("span", {"class": "unseen"}, " (best)"))
    signs = [
        (element("sup", {"aria-hidden": "true"}, sign), element("span", {"class": "unseen"}, f" ({meaning})"))
        for sign, meaning in value.signs
    ]
    interval = None if value.low is None else f"95 % interval: {value.low:.3f} to {value.high:.3f}"
    key = None if value.number is None else f"{value.number:.6g}"
    if place == 0:
        return element("th", {"scope": "row"}, text, *signs)
    side = "long" if len(value.text) > LONG else _side(table, place)
    return element("td", {"class": side, "data-key": key, "title": interval}, text, *signs)


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
    if table.comparable is not None and table.comparable < len(table.rows):
        lines.insert(2 + table.comparable, [f"*{APART}*", *[""] * (len(table.head) - 1)])
    note = f"\n{markdown_text(table.note)}\n" if table.note else ""
    return f"{markdown_text(table.caption)}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + note


def to_csv(table: Table) -> str:
    """Return plain numbers under heads of ASCII, with the ends of intervals; the last columns name what is marked."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    intervals = [any(row[place].low is not None for row in table.rows) for place in range(len(table.head))]
    heads = [ascii_text(name) for name in table.head]
    wide = [
        [name, f"{name} low", f"{name} high"] if has else [name] for name, has in zip(heads, intervals, strict=True)
    ]
    marks = ["best", *(meaning for _, meaning in SIGNS.values())]
    comparable = [] if table.comparable is None else ["comparable"]
    writer.writerow([*(csv_text(name) for names in wide for name in names), *marks, *comparable])
    for number, row in enumerate(table.rows):
        shown = [text for value, has in zip(row, intervals, strict=True) for text in _csv_values(value, has)]
        named = [
            "; ".join(name for name, value in zip(heads, row, strict=True) if getattr(value, mark))
            for mark in ("best", *SIGNS)
        ]
        compared = [] if table.comparable is None else ["yes" if number < table.comparable else "no"]
        writer.writerow([*shown, *map(csv_text, named), *compared])
    return file.getvalue()


def _csv_values(value: Value, interval: bool) -> list[str]:
    shown = csv_text(value.text) if value.number is None else f"{value.number:.6g}"
    return [shown, *("" if end is None else f"{end:.6g}" for end in (value.low, value.high))] if interval else [shown]


def to_latex(table: Table) -> str:
    """Return tables that fit a page: one that is too wide is made smaller, and one that is too long is divided."""
    parts = [table.rows[start : start + PAGE_ROWS] for start in range(0, max(1, len(table.rows)), PAGE_ROWS)]
    made = [_latex_part(table, rows, number, len(parts)) for number, rows in enumerate(parts, 1)]
    return "% needs \\usepackage{booktabs,graphicx}\n" + "\n".join(made)


def _latex_part(table: Table, rows: Sequence[Sequence[Value]], number: int, parts: int) -> str:
    columns = "l" * table.labels + "r" * (len(table.head) - table.labels)
    lines = [[*map(latex_text, table.head)]]
    for row in rows:
        shown = [latex_text(value.text) for value in row]
        marked = [rf"\textbf{{{text}}}" if value.best else text for text, value in zip(shown, row, strict=True)]
        signs = ["".join(LATEX[sign] for sign, _ in value.signs) for value in row]
        lines.append([text + sign for text, sign in zip(marked, signs, strict=True)])
    head, *body = (" & ".join(line) + r" \\" for line in lines)
    apart = None if table.comparable is None else table.comparable - (number - 1) * PAGE_ROWS
    if apart is not None and 0 <= apart < len(body):
        body.insert(apart, rf"\midrule \multicolumn{{{len(table.head)}}}{{l}}{{{latex_text(APART)}}} \\")
    caption = latex_text(table.caption) + (f" ({number} of {parts})" if parts > 1 else "")
    label = f"tab:{_label(table.name)}" + (f"-{number}" if number > 1 else "")
    note = f"\n\\par\\smallskip\\parbox{{\\textwidth}}{{\\footnotesize {latex_text(table.note)}}}" if table.note else ""
    return (
        f"\\begin{{table}}\n\\caption{{{caption}}}\n\\label{{{label}}}\n\\centering\n"
        "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{%\n"
        f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head}\n\\midrule\n"
        + "\n".join(body)
        + f"\n\\bottomrule\n\\end{{tabular}}}}{note if number == parts else ''}\n\\end{{table}}\n"
    )


def _label(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "-", ascii_text(name)).strip("-") or "table"


def ascii_text(text: str) -> str:
    """Return a text in ASCII: letters and signs that it lacks are spelled out or left out.

    >>> ascii_text("|F\u00a0−\u00a0δ|"), ascii_text("cocol → places"), ascii_text("naïve †")
    ('|F - delta|', 'cocol -> places', 'naive')
    """
    spelled = "".join(ASCII.get(character, character) for character in text)
    return unicodedata.normalize("NFKD", spelled).encode("ascii", "ignore").decode().strip()


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
    r"""Return a text that LaTeX prints as it is; a letter that its fonts lack is written as its code.

    >>> print(latex_text("50% of \\x_1"), latex_text("naïve 中"))
    50\% of \textbackslash{}x\_1 naïve U+4E2D
    """
    return "".join(map(_latex_character, printable(" ".join(text.split()))))


def _latex_character(character: str) -> str:
    parts = unicodedata.normalize("NFD", character)
    is_accented = character < "\u0180" and len(parts) == 2 and parts[0].isascii() and parts[1] != OGONEK
    if character.isascii() or is_accented or character in LATEX_HAS or character in LATEX:
        return LATEX.get(character, character)
    return f"U+{ord(character):04X}"
