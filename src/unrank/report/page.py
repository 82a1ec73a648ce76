"""The page: one file that opens offline, with its style and its script in it and no request to anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from unrank.report.figure.palette import stylesheet
from unrank.report.figure.shape import Drawing
from unrank.report.figure.svg import RULES, svg
from unrank.report.markup import Child, Markup, element, join

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""What the browser is told to allow: nothing from outside."""


Mood = Literal["", "good", "bad"]


@dataclass(frozen=True)
class Card:
    """One figure of the headline."""

    label: str
    figure: str
    below: str = ""
    mood: Mood = ""


@dataclass(frozen=True)
class Section:
    """A part of the page; `short` is its name in the bar at the top."""

    id: str
    short: str
    heading: str
    content: Sequence[Child]


@dataclass(frozen=True)
class Page:
    """What a page says: what it is about, the verdict, the figures beside it, and its sections."""

    kind: str
    verdict: str
    lead: str
    cards: Sequence[Card]
    sections: Sequence[Section]
    drawings: Sequence[Drawing]
    """The figures in it, for those who want them as files."""


def page_html(page: Page) -> str:
    style = Markup(
        f":root{{{stylesheet()}}}@media (prefers-color-scheme: dark){{:root{{{stylesheet(dark=True)}}}}}{RULES}"
        f"{_file('page.css')}"
    )
    head = element(
        "head",
        {},
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><link rel="icon" href="data:,">'),
        element("title", {}, f"{page.verdict} unrank"),
        element("style", {}, style),
    )
    body = element(
        "body",
        {},
        element("a", {"class": "skip", "href": "#content"}, "Skip to the content"),
        _header(page),
        _navigation(page.sections),
        element("main", {"id": "content"}, [_section(section) for section in page.sections]),
        element("footer", {}, element("p", {}, "Made by unrank. Nothing on this page is loaded from elsewhere.")),
        element("script", {}, _file("page.js")),
    )
    return f"<!doctype html>\n{element('html', {'lang': 'en'}, head, body)}\n"


def figure(drawing: Drawing, caption: str) -> Markup:
    return element("figure", {}, svg(drawing), element("figcaption", {}, caption))


def side_by_side(*children: Child) -> Markup:
    return element("div", {"class": "pair"}, *children)


def paragraph(*children: Child) -> Markup:
    return element("p", {}, *children)


def folded(summary: str, *children: Child) -> Markup:
    return element("details", {}, element("summary", {}, summary), *children)


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
        join(section.content),
    )


def _file(name: str) -> Markup:
    return Markup(files("unrank.report").joinpath(name).read_text(encoding="utf-8"))
