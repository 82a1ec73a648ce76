"""The page: one file that opens offline, with its style and its script in it and no request to anywhere.

Every text from data is escaped, because there is no other way to put it in. Characters that hide or reverse text are
written out.

>>> print(element("p", {"class": "note"}, "a < b", element("br")))
<p class="note">a &lt; b<br></p>
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from unrank.errors import printable
from unrank.report.drawing import Drawing, inline_svg, stylesheet

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src '{script}'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""The browser may load nothing from outside. It runs the one script whose hash is named here."""
VOID = {"br", "input", "link", "meta"}

Mood = Literal["", "good", "bad"]


class Markup(str):
    """Text that is markup already. Only this module makes it."""

    __slots__ = ()


Child = str | None | Iterable["Child"]
"""A text, which is escaped; markup, which is not; several of them; or nothing."""


@dataclass(frozen=True)
class Card:
    """One figure of the headline."""

    label: str
    figure: str
    below: str = ""
    mood: Mood = ""


@dataclass(frozen=True)
class Figures:
    """Drawings with their captions, side by side; below a line that unfolds them if `fold` is given."""

    drawn: Sequence[tuple[Drawing, str]]
    fold: str = ""


Content = Child | Figures


@dataclass(frozen=True)
class Section:
    """A part of the page; `short` is its name in the bar at the top."""

    id: str
    short: str
    heading: str
    content: Sequence[Content]


@dataclass(frozen=True)
class Page:
    """A page: its subject, the verdict, the cards beside it, and its sections."""

    kind: str
    verdict: str
    lead: str
    cards: Sequence[Card]
    sections: Sequence[Section]
    appendix: Sequence[Section] = ()
    """Sections that begin on a new sheet of paper."""
    filters: Child = None
    """The bar that filters the rows of tables."""

    @property
    def all_sections(self) -> list[Section]:
        return [*self.sections, *self.appendix]

    @property
    def drawings(self) -> list[Drawing]:
        """The figures in it, for files."""
        shown = [part for section in self.all_sections for part in section.content if isinstance(part, Figures)]
        return [drawing for figures in shown for drawing, _ in figures.drawn]


def element(name: str, attributes: Mapping[str, object] | None = None, *children: Child) -> Markup:
    """Return an element. An attribute that is `None` or false is left out, one that is true has no value."""
    given = "".join(_attribute(key, value) for key, value in (attributes or {}).items())
    end = "" if name in VOID else f"</{name}>"
    return Markup(f"<{name}{given}>{join(children)}{end}")


def join(children: Iterable[Child]) -> Markup:
    return Markup("".join(_written(child) for child in children))


def script_data(name: str, value: object) -> Markup:
    """Return JSON for a page: nothing in it can end the script that it is in.

    >>> print(script_data("data", ["</script>"]))
    <script type="application/json" id="data">["\\u003c/script>"]</script>
    """
    text = json.dumps(_printable(value), ensure_ascii=False, separators=(",", ":"))
    safe = text.replace("<", "\\u003c")
    return Markup(f'<script type="application/json" id="{html.escape(name)}">{safe}</script>')


def paragraph(*children: Child) -> Markup:
    return element("p", {}, *children)


def page_html(page: Page) -> str:
    """Return the whole page."""
    body = [
        element("a", {"class": "skip", "href": "#content"}, "Skip to the content"),
        _header(page),
        _navigation(page.all_sections),
        page.filters,
        element("main", {"id": "content"}, [_section(section) for section in page.sections], _appendix(page)),
        element("footer", {}, element("p", {}, "Made by unrank. Nothing on this page is loaded from elsewhere.")),
    ]
    return document_html(f"{page.verdict} unrank", body, script_file("page.js"))


def document_html(title: str, body: Child, script: Markup, policy: str = POLICY, refresh: int | None = None) -> str:
    """Return a document in the style of the pages, with one script; `refresh` loads it again after some seconds."""
    style = Markup(
        f":root{{{stylesheet()}}}@media screen and (prefers-color-scheme: dark){{:root{{{stylesheet(dark=True)}}}}}"
        f"{_file('page.css')}"
    )
    policy = policy.format(script=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}")
    head = element(
        "head",
        {},
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}"><link rel="icon" href="data:,">'),
        element("meta", {"http-equiv": "refresh", "content": refresh}) if refresh else None,
        element("title", {}, title),
        element("style", {}, style),
    )
    whole = element("body", {}, body, element("script", {}, script) if script else None)
    return printable(f"<!doctype html>\n{element('html', {'lang': 'en'}, head, whole)}\n")


def _header(page: Page) -> Markup:
    cards = [
        element(
            "div",
            {"class": f"card {card.mood}".strip()},
            element("dt", {}, card.label),
            element("dd", {"class": "big"}, card.figure),
            element("dd", {"class": "note"}, card.below) if card.below else None,
        )
        for card in page.cards
    ]
    return element(
        "header",
        {},
        element("p", {"class": "kind"}, page.kind),
        element("h1", {}, page.verdict),
        element("p", {"class": "lead"}, page.lead),
        element("dl", {"class": "cards"}, cards),
    )


def _navigation(sections: Sequence[Section]) -> Markup:
    links = [element("li", {}, element("a", {"href": f"#{section.id}"}, section.short)) for section in sections]
    return element("nav", {"aria-label": "Sections"}, element("ul", {}, links))


def _section(section: Section) -> Markup:
    title = f"{section.id}-heading"
    return element(
        "section",
        {"id": section.id, "aria-labelledby": title},
        element("h2", {"id": title}, section.heading),
        [_figures(part) if isinstance(part, Figures) else part for part in section.content],
    )


def _appendix(page: Page) -> Markup | None:
    if not page.appendix:
        return None
    shown = [_section(section) for section in page.appendix]
    return element("div", {"class": "appendix"}, element("p", {"class": "kind"}, "Appendix"), shown)


def _figures(figures: Figures) -> Markup:
    shown = [
        element("figure", {}, Markup(inline_svg(drawing)), element("figcaption", {}, caption))
        for drawing, caption in figures.drawn
    ]
    pair = element("div", {"class": "pair"}, shown)
    return element("details", {}, element("summary", {}, figures.fold), pair) if figures.fold else pair


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    return f" {key}" if value is True else f' {key}="{html.escape(str(value))}"'


def _written(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return html.escape(child, quote=False)
    return join(child)


def _printable(value: Any) -> Any:
    """Return a JSON value whose texts are safe to show."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(name): _printable(item) for name, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, (list, tuple)) else value


def script_file(name: str) -> Markup:
    """Return a script of this package."""
    return _file(name)


def _file(name: str) -> Markup:
    return Markup(files("unrank.report").joinpath(name).read_text(encoding="utf-8"))
