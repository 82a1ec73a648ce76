"""The frame of every page, and its parts: sections, tables, forms and their fields. All texts are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from unrank.errors import printable
from unrank.report.drawing import stylesheet
from unrank.report.page import Card, Child, Markup, element, paragraph
from unrank.serve.messages import Answer, Call
from unrank.serve.people import Right
from unrank.serve.sessions import Session

PLACES: Mapping[str, tuple[str, Right]] = {
    "/": ("Requests", Right.read),
    "/requests/new": ("New request", Right.add),
    "/plan": ("Plan and run", Right.read),
    "/runs": ("Runs", Right.read),
    "/service": ("Service", Right.read),
    "/certificates": ("Certificates", Right.read),
    "/verify": ("Verify", Right.verify),
    "/history": ("History", Right.read),
}
"""The pages in the bar at the top, and the right that each needs."""
SHORT = 200
"""The most characters of a text that are shown."""


@dataclass(frozen=True)
class View:
    """A page: its title, a line below it, and its content."""

    title: str
    lead: Child
    content: Sequence[Child]
    here: str = ""
    """The address of its place in the bar."""
    refresh: bool = False
    """Whether browsers without scripts load it again after some seconds."""
    kind: str = "The desk"


def frame(view: View, session: Session | None) -> str:
    """Return a whole page."""
    again = element("meta", {"http-equiv": "refresh", "content": 5})
    head = element(
        "head",
        {},
        element("meta", {"charset": "utf-8"}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("title", {}, f"{view.title} · unrank desk"),
        element("link", {"rel": "icon", "href": "data:,"}),
        element("link", {"rel": "stylesheet", "href": "/static/desk.css"}),
        element("script", {"src": "/static/desk.js", "defer": True}),
        element("noscript", {}, again) if view.refresh else None,
    )
    body = element(
        "body",
        {},
        element("a", {"class": "skip", "href": "#content"}, "Skip to the content"),
        _bar(view.here, session) if session else None,
        element(
            "main",
            {"id": "content"},
            element(
                "div",
                {"class": "top"},
                element("p", {"class": "kind"}, view.kind),
                element("h1", {}, view.title),
                element("p", {"class": "lead"}, view.lead) if view.lead else None,
            ),
            view.content,
        ),
        element("footer", {}, paragraph("unrank. Nothing on this page is loaded from elsewhere.")),
    )
    return printable(f"<!doctype html>\n{element('html', {'lang': 'en'}, head, body)}\n")


def shown(call: Call, view: View, status: int = 200) -> Answer:
    """Return a page as the answer to a call."""
    return Answer(frame(view, call.session).encode(), status)


def _bar(here: str, session: Session) -> Markup:
    links = [
        element("li", {}, element("a", {"href": address, "aria-current": "page" if address == here else None}, name))
        for address, (name, right) in PLACES.items()
        if right in session.person.rights
    ]
    roles = ", ".join(session.person.roles)
    who = element("span", {"class": "who"}, f"{session.person.name} ({roles})")
    leave = form(session, "/sign-out", button("Sign out", "plain"), css="leave")
    return element(
        "div", {"class": "bar"}, element("nav", {"aria-label": "Desk"}, element("ul", {}, links)), who, leave
    )


def section(id: str, heading: str, *content: Child) -> Markup:
    name = f"{id}-heading"
    return element("section", {"id": id, "aria-labelledby": name}, element("h2", {"id": name}, heading), content)


def cards(shown: Iterable[Card]) -> Markup:
    return element(
        "dl",
        {"class": "cards"},
        [
            element(
                "div",
                {"class": f"card {card.mood}".strip()},
                element("dt", {}, card.label),
                element("dd", {"class": "big"}, card.figure),
                element("dd", {"class": "note"}, card.below) if card.below else None,
            )
            for card in shown
        ],
    )


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Child]], empty: str = "") -> Markup:
    """Return a table, its first column as row headers; the sentence `empty` if it has no rows."""
    lines = [
        element(
            "tr",
            {},
            [
                element(
                    "th" if place == 0 else "td", {"scope": "row" if place == 0 else None, "data-label": name}, cell
                )
                for place, (name, cell) in enumerate(zip(head, row, strict=True))
            ],
        )
        for row in rows
    ]
    if not lines:
        return paragraph(empty)
    heads = element("thead", {}, element("tr", {}, [element("th", {"scope": "col"}, name) for name in head]))
    whole = element(
        "table", {"class": "wide"}, element("caption", {"class": "unseen"}, caption), heads, element("tbody", {}, lines)
    )
    return element("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": caption}, whole)


def form(session: Session, action: str, *content: Child, css: str = "form", files: bool = False) -> Markup:
    """Return a form with the session's token against forged posts."""
    token = element("input", {"type": "hidden", "name": "csrf", "value": session.csrf})
    kind = "multipart/form-data" if files else None
    return element("form", {"method": "post", "action": action, "class": css, "enctype": kind}, token, content)


def hidden(name: str, value: object) -> Markup:
    return element("input", {"type": "hidden", "name": name, "value": value})


def button(label: str, css: str = "main", **attributes: str) -> Markup:
    return element("button", {"type": "submit", "class": css, **attributes}, label)


def field(label: str, control: Markup, note: str = "") -> Markup:
    """Return a control with its label around it."""
    below = element("span", {"class": "note"}, note) if note else None
    return element("label", {"class": "field"}, element("span", {"class": "label"}, label), control, below)


def choice(name: str, options: Mapping[str, str], chosen: str = "") -> Markup:
    """Return a list to choose one from."""
    shown = [element("option", {"value": value, "selected": value == chosen}, text) for value, text in options.items()]
    return element("select", {"name": name}, shown)


def checkbox(name: str, value: str, label: Child, checked: bool = False) -> Markup:
    box = element("input", {"type": "checkbox", "name": name, "value": value, "checked": checked})
    return element("label", {"class": "check"}, box, element("span", {}, label))


def notice(text: Child, mood: str = "") -> Markup:
    """Return a line that a screen reader says at once."""
    return element("p", {"class": f"notice {mood}".strip(), "role": "alert" if mood == "bad" else "status"}, text)


def link(address: str, text: str) -> Markup:
    return element("a", {"href": address}, text)


def state_tag(words: str) -> Markup:
    """Return a state with its colour."""
    good = words in ("forgotten", "passed", "equivalent", "ranker usable") or words.endswith("(forgotten)")
    bad = words.startswith(("not ", "NOT ", "failed", "revoked", "changed")) or "overdue" in words
    mood = "good" if good else "bad" if bad else ""
    short = "short" if len(words) <= 32 else ""
    return element("span", {"class": " ".join(filter(None, ("state", mood, short)))}, words)


def short_id(id: str) -> Markup:
    return element("span", {"class": "id"}, cut(id, 60))


def bullets(lines: Iterable[Child]) -> Markup:
    return element("ul", {}, [element("li", {}, line) for line in lines])


def cut(text: str, most: int = SHORT) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def style() -> str:
    """Return the style sheet of all pages."""
    own = files("unrank.serve").joinpath("desk.css").read_text(encoding="utf-8")
    shared = files("unrank.report").joinpath("page.css").read_text(encoding="utf-8")
    dark = f"@media screen and (prefers-color-scheme: dark){{:root{{{stylesheet(dark=True)}}}}}"
    return f":root{{{stylesheet()}}}{dark}{shared}{own}"


def script() -> str:
    return files("unrank.serve").joinpath("desk.js").read_text(encoding="utf-8")
