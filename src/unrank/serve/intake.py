"""The pages of a new request: the mail, the texts that were found, and what the chosen ones touch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from unrank.collection.bm25 import Found
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.desk.intake import Side, Touched, add_request, touched
from unrank.desk.request import Basis, dates_of, read_date
from unrank.errors import UnrankError
from unrank.report.page import Card, Child, Markup, element, paragraph
from unrank.serve.layout import (
    View,
    bullets,
    button,
    cards,
    checkbox,
    choice,
    cut,
    field,
    form,
    hidden,
    section,
    short_id,
    shown,
)
from unrank.serve.messages import Answer, Call, see
from unrank.serve.office import Office
from unrank.serve.sessions import Session

MAIL = "Paste the mail, or write some words of the text that is to be forgotten. What you paste is not stored."


@dataclass(frozen=True)
class Named:
    """The ids that a form chose, and its collection."""

    collection: str
    queries: tuple[str, ...]
    documents: tuple[str, ...]
    leave_copies: bool

    @classmethod
    def of(cls, call: Call) -> Named:
        """Read what a form chose; refuse an id that is not as the page wrote it."""
        chosen = [_read_item(item) for item in call.form.all("item")]
        queries, documents = (
            tuple(dict.fromkeys(id for kind, id in chosen if kind == side)) for side in ("query", "document")
        )
        if not queries and not documents:
            raise UnrankError("nothing was chosen: tick the texts that are to be forgotten")
        return cls(call.form.one("collection"), queries, documents, call.form.one("copies") == "leave")

    def touched(self, collection: Collection) -> Touched:
        return touched(collection, Removal(list(self.queries), list(self.documents)), self.leave_copies)

    @property
    def fields(self) -> list[Markup]:
        """Hidden fields of a form that hold this choice."""
        sides = {"query": self.queries, "document": self.documents}
        items = [hidden("item", _item(side, id)) for side, ids in sides.items() for id in ids]
        return [hidden("collection", self.collection), hidden("copies", "leave" if self.leave_copies else ""), *items]


def _item(side: str, id: str) -> str:
    r"""Return a side and an id as a form holds them: a page shows no control character, and a browser sends none.

    >>> print(_item("query", "q1"), _item("document", "a\n\x1b"))
    query:q1 document:a\n\u001b
    """
    return f"{side}:{json.dumps(id)[1:-1]}"


def _read_item(item: str) -> tuple[str, str]:
    """Return the side and the id that a form holds."""
    side, _, written = item.partition(":")
    try:
        id = json.loads(f'"{written}"')
        id.encode()
    except ValueError as error:
        raise UnrankError("an id is not as the page wrote it: find the texts again, and choose them") from error
    return side, id


def new_request(office: Office, call: Call) -> Answer:
    return shown(call, _search_view(office, call.session, ""))


def _search_view(office: Office, session: Session, words: str, *more: Child) -> View:
    collections = office.collections()
    area = element("textarea", {"name": "words", "rows": 8, "required": True, "maxlength": 100_000}, words)
    chosen = (
        field("Collection", choice("collection", collections))
        if len(collections) > 1
        else hidden("collection", next(iter(collections)))
    )
    search = form(session, "/requests/find", field("The mail", area, MAIL), chosen, button("Find texts"))
    return View(
        "New request",
        "First find what is to be forgotten, then choose it, then see what that touches.",
        [section("mail", "1. The mail", search), *more],
        "/requests/new",
    )


def find(office: Office, call: Call) -> Answer:
    words, collection = call.form.one("words"), call.form.one("collection")
    hits = office.finder(collection).find(words)
    return shown(call, _search_view(office, call.session, words, _found(call.session, collection, hits)))


def _found(session: Session, collection: str, hits: Sequence[tuple[Side, Found]]) -> Markup:
    if not hits:
        return section("found", "2. Choose", paragraph("No text has any of these words. Try other ones."))
    boxes = [
        checkbox("item", _item(side, hit.id), [element("strong", {}, f"{side} "), short_id(hit.id), cut(hit.text)])
        for side, hit in hits
    ]
    legend = element("legend", {}, "Texts that fit best")
    copies = checkbox(
        "copies", "leave", "Leave copies of these texts: the same or nearly the same text under another id"
    )
    choose = form(
        session,
        "/requests/touched",
        hidden("collection", collection),
        element("fieldset", {}, legend, boxes),
        copies,
        button("See what it touches"),
    )
    return section("found", "2. Choose", choose)


def show_touched(office: Office, call: Call) -> Answer:
    named = Named.of(call)
    return shown(call, _touched_view(call.session, named, named.touched(office.finder(named.collection).collection)))


def _touched_view(session: Session, named: Named, found: Touched) -> View:
    partition = found.partition
    head = [
        Card("Training pairs to forget", f"{len(partition.forget):,}"),
        Card("Kept pairs beside them", f"{len(partition.entangled):,}", "share a query or a document"),
        Card("Kept pairs apart", f"{len(partition.disjoint):,}", "share nothing with them"),
        Card("Copies found", f"{len(found.copies.copies):,}", "left" if found.leave_copies else "forgotten too"),
    ]
    copies = [f"{copy.kind} {copy.id} is a copy of {copy.of}" for copy in found.copies.copies]
    tests = [f"test query {copy.id} has a removed text: no ranker was trained on it" for copy in found.copies.tests]
    untrained = [f"{id} is in no training pair: no run changes it, and the filter drops it" for id in found.untrained]
    chosen = [f"query {id}" for id in named.queries] + [f"document {id}" for id in named.documents]
    today = date.today()
    dates = [
        field("Received", element("input", {"type": "date", "name": "received", "value": today, "max": today})),
        field("Due", element("input", {"type": "date", "name": "due"}), "Empty: a month after it was received."),
    ]
    basis = choice("basis", {each.value: each.value.replace("-", " ") for each in Basis}, Basis.consent.value)
    add = form(
        session,
        "/requests",
        named.fields,
        element("div", {"class": "fields"}, dates, field("Ground", basis)),
        button("Add the request"),
    )
    return View(
        "What it touches",
        "Nothing was added yet.",
        [
            cards(head),
            section("chosen", "Chosen", bullets(chosen)),
            section("notes", "To know", bullets([*copies, *tests, *untrained]))
            if copies or tests or untrained
            else None,
            section("add", "3. Add it", add),
        ],
        "/requests/new",
    )


def add(office: Office, call: Call) -> Answer:
    named = Named.of(call)
    given = {name: call.form.one(name) for name in ("received", "due")}
    received, due = (read_date(text, name) if text else None for name, text in given.items())
    dates = dates_of(received, due, date.today())
    if (basis := call.form.one("basis")) not in {each.value for each in Basis}:
        raise UnrankError("choose one of the grounds of the list")
    collection = office.finder(named.collection).collection
    found = named.touched(collection)
    request = office.adding(
        call.session.person.name, lambda ledger, key: add_request(ledger, key, collection, found, dates, Basis(basis))
    )
    return see(f"/requests/{request.id}?done=added")
