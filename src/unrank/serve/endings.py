"""The pages that end a request: what still remembers it, its closing, and the deletions that people tick off."""

from __future__ import annotations

from unrank.desk.closing import Deletion, Ending, Leave, tick
from unrank.desk.ending import EndOptions, end_request
from unrank.desk.remains import Remains, find_remains
from unrank.desk.request import SETTLED
from unrank.errors import UnrankError, count
from unrank.report.page import Child, element, paragraph
from unrank.serve.layout import View, button, checkbox, choice, field, form, section, shown, table
from unrank.serve.messages import Answer, Call, see
from unrank.serve.office import Office
from unrank.serve.sessions import Session


def show_remains(office: Office, call: Call) -> Answer:
    id = call.number
    with office.reading() as ledger:
        if ledger.request(id).state not in SETTLED:
            raise UnrankError(f"request {id} is {ledger.request(id).state.words}: only a settled request is closed")
        found = find_remains(ledger, id)
    return shown(call, _remains_view(call.session, id, found))


def _remains_view(session: Session, id: int, found: Remains) -> View:
    rows: list[list[Child]] = [["still there", copy.kind, place(copy.path), copy.why] for copy in found.there]
    rows += [["no longer", copy.kind, place(copy.path), copy.why] for copy in found.gone]
    rows += [["not checked", copy.kind, place(copy.path), copy.why] for copy in found.unchecked]
    proxies = sum(copy.kind == "proxy" for copy in found.there)
    reasons = {"": "do not leave anything", **{each.value: each.value.replace("-", " ") for each in Leave}}
    controls: list[Child] = []
    if found.there:
        controls.append(field("Close though something is there, because", choice("leave", reasons)))
    if proxies:
        controls.append(checkbox("proxies", "delete", f"Delete {count(proxies, 'proxy')} that saw it"))
    close = form(session, f"/requests/{id}/close", controls, button("Close the request"))
    places = count(len(found.there), "place")
    words = (
        f"{places} may still remember request {id}."
        if found.there
        else f"Nothing was found that remembers request {id}."
    )
    return View(
        f"What remembers request {id}",
        words,
        [
            section(
                "places",
                "Places",
                table("Places", ["state", "kind", "place", "why"], rows, "The desk knows of no place."),
            ),
            section(
                "close",
                "Close",
                paragraph("Delete what is still there, then load this page again; or close for a reason."),
                close,
            ),
        ],
        "/",
    )


def close(office: Office, call: Call) -> Answer:
    leave = call.form.one("leave")
    if leave not in {"", *(each.value for each in Leave)}:
        raise UnrankError("choose one of the reasons of the list")
    options = EndOptions(leave=Leave(leave) if leave else None, delete_proxies=call.form.one("proxies") == "delete")
    with office.writing(call.session.person.name) as (ledger, _):
        ended = end_request(ledger, call.number, options)
    if not ended.closed and ended.remains:
        return shown(call, _remains_view(call.session, call.number, ended.remains), 409)
    office.clear_jobs()
    return see(f"/requests/{call.number}?done=ended")


def end(office: Office, call: Call) -> Answer:
    if (instead := call.form.one("instead")) not in {each.value for each in Ending}:
        raise UnrankError("choose withdrawn or refused")
    with office.writing(call.session.person.name) as (ledger, _):
        end_request(ledger, call.number, EndOptions(instead=Ending(instead)))
    office.clear_jobs()
    return see(f"/requests/{call.number}?done=ended")


def tick_off(office: Office, call: Call) -> Answer:
    if (what := call.form.one("what")) not in {each.value for each in Deletion}:
        raise UnrankError("choose one of the deletions of the list")
    with office.writing(call.session.person.name) as (ledger, _):
        ledger.verify()
        tick(ledger, call.number, Deletion(what))
    return see(f"/requests/{call.number}?done=ticked")


def place(path: str) -> Child:
    return element("code", {}, path)
