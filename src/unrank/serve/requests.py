"""The pages of requests: the list, and one request with all that belongs to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date

from unrank.desk.certificate import ALSO_DELETE, CERTIFIED
from unrank.desk.closing import Deletion, Ending, ticked
from unrank.desk.history_index import BrokenChain, Entry, Json
from unrank.desk.ledger import Ledger
from unrank.desk.request import (
    HONOURED,
    PENDING,
    RUNNABLE,
    SETTLED,
    Item,
    Request,
    State,
    marks,
)
from unrank.desk.service import StateThere, service_rankers, states_of
from unrank.desk.substitutes import RequestSubstitutes
from unrank.parse import parse
from unrank.report.page import Card, Child, Markup, element, paragraph
from unrank.serve.certificates import certificates_of
from unrank.serve.layout import (
    View,
    button,
    cards,
    choice,
    cut,
    field,
    form,
    hidden,
    link,
    notice,
    section,
    short_id,
    shown,
    state_tag,
    table,
)
from unrank.serve.messages import Answer, Call, NotFound
from unrank.serve.office import Office
from unrank.serve.people import Right
from unrank.serve.sessions import Session

A_PAGE = 20
"""The most requests of a list."""
DONE = {
    "added": "The request was added.",
    "certified": "The certificate was written.",
    "ended": "The request was ended, and what it named was erased from the ledger.",
    "ticked": "The deletion was ticked off.",
}
"""What a page says after an action, by the word in its address."""
EVENT_WORDS = {
    "run": "run {}",
    "ranker": "in {}",
    "deleted": "{}",
    "reason": "{}",
    "service": "ranker {}",
    "since": "since {}",
}
"""The details of an entry of the history that are shown."""


def list_requests(office: Office, call: Call) -> Answer:
    everything = call.query.get("show") == "all"
    states = list(State) if everything else list(PENDING)
    first = _first(call.query.get("from", ""))
    with office.reading() as ledger:
        found, counts = ledger.requests(states, first + A_PAGE)[first:], ledger.counts()
        there = {request.id: states_of(ledger, request.id) for request in found}
        rankers = [ranker.name for ranker in service_rankers(ledger)]
        late = f"SELECT count(*) FROM request WHERE state IN ({marks(RUNNABLE)}) AND due < ?"
        [[overdue]] = ledger.ask(late, [*RUNNABLE, date.today().isoformat()])
    today = date.today()
    waiting = sum(counts[state] for state in RUNNABLE)
    settled = sum(counts[state] for state in SETTLED)
    head = [
        Card("To be run", f"{waiting:,}", "open, or not forgotten yet"),
        Card("Overdue", f"{overdue:,}", "the date is past", "bad" if overdue else ""),
        Card("Settled", f"{settled:,}", "to be certified and closed"),
        Card("Ended", f"{counts[State.CLOSED] + counts[State.WITHDRAWN] + counts[State.REFUSED]:,}", "erased"),
    ]
    rows = [_row(request, today, there[request.id]) for request in found]
    all_of_them = link("/", "Show pending requests only") if everything else link("/?show=all", "Show ended ones too")
    number = sum(counts[state] for state in states)
    return shown(
        call,
        View(
            "Requests",
            "What is to be forgotten, by the day on which it is due.",
            [
                _warning(office),
                _at_work(office),
                cards(head),
                section(
                    "requests",
                    "All requests" if everything else "Pending requests",
                    table(
                        "Requests",
                        ["request", "state", "received", "due", "basis", *(f"in {name}" for name in rankers)],
                        rows,
                        "There are none.",
                    ),
                    _pages(first, number, everything),
                    paragraph(all_of_them),
                ),
            ],
            "/",
        ),
    )


def _first(given: str) -> int:
    """Return the place of the first request of a list; 0 if none is named."""
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0


def _pages(first: int, number: int, everything: bool) -> Markup | None:
    """Return the links to the lists before and after this one; `None` if it is the only one."""
    if number <= A_PAGE and not first:
        return None
    words, last = "/?show=all&from=" if everything else "/?from=", min(first + A_PAGE, number)
    where = f"{first + 1:,} to {last:,} of {number:,}. " if first < last else f"There are {number:,}. "
    before = link(f"{words}{max(0, first - A_PAGE)}", "Those before") if first else None
    after = link(f"{words}{last}", "Those after") if first < last < number else None
    return paragraph(where, before, " " if before and after else None, after)


def _row(request: Request, today: date, there: Sequence[StateThere]) -> list[Child]:
    words = f"{request.words}, overdue" if request.is_overdue(today) else request.words
    dates = [str(request.received), str(request.due)]
    return [
        link(f"/requests/{request.id}", f"Request {request.id}"),
        state_tag(words),
        *dates,
        request.basis.replace("-", " "),
        *(each.state.words for each in there),
    ]


def _at_work(office: Office) -> Markup | None:
    running = next((job for job in office.jobs.all() if job.is_running), None)
    if running is None:
        return None
    return notice([f"A {running.kind} of {running.by} is at work: ", link(f"/jobs/{running.number}", "watch it")])


def _warning(office: Office, ledger: Ledger | None = None, request: int = 0) -> Markup | None:
    """Warn if the history is broken, or if a request is not as it says; it is shown all the same."""
    broken = office.health.broken
    try:
        if ledger is not None:
            ledger.check([request])
    except BrokenChain as error:
        broken = str(error)
    return notice(f"{broken}; this is shown as it stands, and nothing more is done with it", "bad") if broken else None


def show_request(office: Office, call: Call) -> Answer:
    return shown(call, _request_view(office, call))


def _request_view(office: Office, call: Call, *more: Child) -> View:
    id, session = call.number, call.session
    with office.reading() as ledger:
        if not ledger.ask("SELECT 1 FROM request WHERE id = ?", [id]):
            raise NotFound(f"there is no request {id}")
        found, items, entries = ledger.request(id), ledger.items(id), ledger.history(id)
        there, warning = states_of(ledger, id), _warning(office, ledger, id)
        said = _reasons(ledger, id, {each.run for each in there} | {found.run})
        done, certificates = ticked(ledger, id), certificates_of(office, ledger, id)
    overdue = found.is_overdue(date.today())
    rights = session.person.rights
    return View(
        f"Request {id}: {found.words}{', overdue' if overdue else ''}",
        f"Received {found.received}, due {found.due}, ground: {found.basis.replace('-', ' ')}.",
        [
            warning,
            notice(DONE[call.query["done"]], "good") if call.query.get("done") in DONE else None,
            *more,
            _states(found, there, said),
            _names(found, items),
            _certificate_part(session, found, certificates),
            _deletions(session, found, done),
            _ending(session, found) if Right.close in rights else None,
            section("history", "History", history_table(entries)),
        ],
        "/",
    )


def _reasons(ledger: Ledger, request: int, runs: set[int | None]) -> dict[int, str]:
    """Return why each of these runs gave a request its state, in words."""
    rows = [ledger.ask("SELECT id, result FROM run WHERE id = ?", [run]) for run in runs if run is not None]
    results = {id: json.loads(result or "{}") for found in rows for id, result in found}
    return {id: _reason(result, str(request)) for id, result in results.items()}


def _reason(result: Json, request: str) -> str:
    """Return why a run gave a request its state, and where its substitutes stand."""
    said = [str(result.get("requests", {}).get(request, {}).get("words", ""))]
    if found := result.get("substitutes", {}).get(request):
        said.append(str(parse(RequestSubstitutes, found, "substitutes")))
    return "; ".join(filter(None, said))


def _states(found: Request, there: Sequence[StateThere], said: dict[int, str]) -> Markup:
    rows: list[list[Child]] = [
        [
            each.ranker,
            state_tag(each.state.words),
            link(f"/runs/{each.run}", f"Run {each.run}") if each.run else "none yet",
            said.get(each.run or 0) or "",
        ]
        for each in there
    ]
    if not rows and found.run:
        rows = [
            [
                "the ranker",
                state_tag(found.words),
                link(f"/runs/{found.run}", f"Run {found.run}"),
                said.get(found.run) or "",
            ]
        ]
    empty = "No run has taken this request yet."
    return section("state", "State", table("State in each ranker", ["ranker", "state", "run", "why"], rows, empty))


def _names(found: Request, items: Sequence[Item]) -> Markup:
    rows: list[list[Child]] = []
    for item in items:
        sides = (("query", item.query, item.query_text), ("document", item.document, item.document_text))
        texts: list[Child] = [[short_id(id), cut(text or ""), " "] for _, id, text in sides if id is not None]
        if item.substitute is not None:
            texts.append(["in its place: ", short_id(item.substitute), cut(item.substitute_text or "")])
        rows.append([item.kind, texts])
    kept = found.state in HONOURED
    gone = "It was erased. Keyed hashes are left, by which it is recognised." if kept else "It was erased."
    return section("names", "What it names", table("Items", ["kind", "text"], rows, gone))


def _certificate_part(session: Session, found: Request, certificates: Markup | None) -> Markup | None:
    state = found.outcome or found.state
    if state not in CERTIFIED:
        return None
    write = form(session, f"/requests/{found.id}/certificate", button("Write a certificate"))
    return section(
        "certificates",
        "Certificates",
        certificates or paragraph("None was written here yet."),
        write if Right.close in session.person.rights else None,
    )


def _deletions(session: Session, found: Request, done: dict[Deletion, Entry]) -> Markup | None:
    """Show what people must delete themselves; a box for each that is not ticked off."""
    if found.state not in HONOURED:
        return None
    rows: list[list[Child]] = []
    for what, words in zip(Deletion, ALSO_DELETE, strict=True):
        if entry := done.get(what):
            by = f"deleted, says {entry.by or 'somebody'} on {entry.at[:10]}"
        else:
            by = "not ticked off"
        action = (
            form(
                session,
                f"/requests/{found.id}/tick",
                hidden("what", what),
                button(f"Tick off {what}", "plain"),
                css="row",
            )
            if not entry and Right.close in session.person.rights
            else ""
        )
        rows.append([words, by, action])
    note = "This machine cannot see these places. Whoever deletes there ticks it off; the history keeps the name."
    return section("deletions", "Deletions", paragraph(note), table("Deletions", ["what", "state", "action"], rows))


def _ending(session: Session, found: Request) -> Markup | None:
    if found.state in RUNNABLE:
        names = {each.value: each.value for each in Ending}
        how = field("End it as", choice("instead", names), "What it names is erased; nothing is forgotten.")
        return section(
            "end", "End without forgetting", form(session, f"/requests/{found.id}/end", how, button("End it"))
        )
    if found.state in SETTLED:
        text = (
            "Closing erases what the request names from the ledger. First the desk looks for what still remembers it."
        )
        look = element("a", {"class": "button", "href": f"/requests/{found.id}/remains"}, "Look and close")
        return section("end", "Close", paragraph(text), paragraph(look))
    return None


def history_table(entries: Sequence[Entry]) -> Markup:
    rows = [
        [f"{entry.number}", entry.at.replace("T", " ")[:19], _event(entry), entry.by or "not named"]
        for entry in entries
    ]
    return table("History", ["entry", "at (UTC)", "what", "by"], rows, "Nothing yet.")


def _event(entry: Entry) -> str:
    values = entry.values
    more = [
        words.format(values[name]) for name, words in EVENT_WORDS.items() if isinstance(values.get(name), int | str)
    ]
    about = "" if entry.request is None else f"request {entry.request}: "
    return f"{about}{entry.event}" + (f" ({', '.join(more)})" if more else "")
