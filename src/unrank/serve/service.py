"""The page of the service: its rankers, and the forms that register one, say since when it answers, and take it out."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from unrank.desk.request import State, read_date
from unrank.desk.service import Role, ServiceRanker, add_ranker, deploy, remove_ranker, service_rankers
from unrank.errors import UnrankError
from unrank.report.page import Child, Markup, element
from unrank.report.wording import numbered
from unrank.serve.layout import View, button, choice, field, form, link, notice, section, shown, table
from unrank.serve.messages import Answer, Call
from unrank.serve.office import Office
from unrank.serve.people import Right
from unrank.serve.sessions import Session

MOST_INDEXES = 50
LEAD = "The rankers that answer searches. A request is only as forgotten as in the one that remembers it best."
RANKER = "Its folder on this machine, or its id on a hub."
INDEXES = (
    "Files or folders on this machine, one a line. Indexes in a database are ticked off with each request instead."
)


def show_service(office: Office, call: Call) -> Answer:
    return shown(call, _view(office, call.session))


def _view(office: Office, session: Session, *more: Child) -> View:
    with office.reading() as ledger:
        members = service_rankers(ledger)
    may_change = Right.run in session.person.rights
    heads = ["name", "role", "in service since", "ranker", "collection", "indexes", *(["action"] if may_change else [])]
    rows = [_row(session, member, may_change) for member in members]
    empty = "None is registered yet." if may_change else "None is registered yet: an engineer does that here."
    return View(
        "Service",
        LEAD,
        [
            *more,
            section("rankers", "Rankers", table("Rankers of the service", heads, rows, empty)),
            section("add", "Register a ranker", _form(session)) if may_change else None,
        ],
        "/service",
    )


def _row(session: Session, member: ServiceRanker, may_change: bool) -> list[Child]:
    made = link(f"/runs/{member.run}", f"by run {member.run}") if member.run else None
    since = str(member.since) if member.since else "not said"
    places: list[Child] = [[_place(each), " "] for each in member.indexes]
    row: list[Child] = [
        member.name,
        str(member.role),
        since,
        [_place(member.ranker), " ", made],
        _place(member.collection),
        places,
    ]
    return [*row, _actions(session, member)] if may_change else row


def _actions(session: Session, member: ServiceRanker) -> Markup:
    day = element("input", {"type": "date", "name": "since", "value": date.today(), "max": date.today()})
    labelled = element("label", {}, element("span", {"class": "unseen"}, f"{member.name} is in service since"), day)
    address = f"/service/{member.name}"
    since = form(session, f"{address}/deploy", labelled, button("In service since then", "plain"), css="row")
    remove = form(session, f"{address}/remove", button(f"Take {member.name} out", "plain"), css="row")
    return element("div", {}, since, remove)


def _form(session: Session) -> Markup:
    def typed(name: str, required: bool = True) -> Markup:
        return element("input", {"type": "text", "name": name, "required": required, "autocomplete": "off"})

    indexes = element("textarea", {"name": "indexes", "rows": 2, "maxlength": 10_000})
    day = element("input", {"type": "date", "name": "since", "max": date.today()})
    return form(
        session,
        "/service",
        field("Name", typed("name"), "Up to 40 letters, digits, - and _."),
        field("Ranker", typed("ranker"), RANKER),
        field("Collection", typed("collection"), "The folder on this machine that 'unrank import' made."),
        field("Indexes", indexes, INDEXES),
        field("Role", choice("role", {each.value: each.value for each in Role}, Role.retriever.value)),
        field("In service since", day, "Empty: not said."),
        button("Register"),
    )


def add(office: Office, call: Call) -> Answer:
    form = call.form
    if (role := form.one("role")) not in {each.value for each in Role}:
        raise UnrankError("choose one of the roles of the list")
    indexes = [line.strip() for line in form.one("indexes").splitlines() if line.strip()]
    if len(indexes) > MOST_INDEXES:
        raise UnrankError(f"at most {MOST_INDEXES} indexes can be registered with a ranker")
    collection, ranker = form.one("collection").strip(), form.one("ranker").strip()
    for name, place in (("collection", collection), *(("index", index) for index in indexes)):
        if not Path(place).is_absolute():
            raise UnrankError(f"the {name} {place!r} is no whole path: write one that begins with /")
    if not ranker:
        raise UnrankError("write the folder of the ranker, or its id on a hub")
    new = ServiceRanker.named(
        form.one("name").strip(), Role(role), ranker, Path(collection), [Path(index) for index in indexes], _day(call)
    )
    with office.writing(call.session.person.name) as (ledger, _):
        ledger.verify()
        opened = add_ranker(ledger, new)
        closed = [request.id for request in ledger.requests([State.CLOSED])]
    said: list[Child] = [notice(f"{new.name} is in the service.", "good")]
    if opened:
        said.append(
            notice(f"{numbered(opened).capitalize()} open again: no run has shown that {new.name} has forgotten it.")
        )
    if closed:
        words = "closed before it came: if it saw them, it remembers them until its next run."
        said.append(notice(f"{numbered(closed).capitalize()} {words}"))
    return shown(call, _view(office, call.session, *said))


def remove(office: Office, call: Call) -> Answer:
    name = call.values["name"]
    with office.writing(call.session.person.name) as (ledger, _):
        ledger.verify()
        changed = remove_ranker(ledger, name)
        states = [f"Request {id} is now {ledger.request(id).state.words}: {name} no longer counts." for id in changed]
    said = [notice(f"{name} is no longer in the service.", "good"), *map(notice, states)]
    return shown(call, _view(office, call.session, *said))


def say_since(office: Office, call: Call) -> Answer:
    since = _day(call) or date.today()
    with office.writing(call.session.person.name) as (ledger, _):
        ledger.verify()
        now = deploy(ledger, call.values["name"], since)
    return shown(call, _view(office, call.session, notice(f"{now.name} is in service since {now.since}.", "good")))


def _day(call: Call) -> date | None:
    text = call.form.one("since")
    return read_date(text, "in service since") if text else None


def _place(path: str) -> Markup:
    return element("code", {}, path)
