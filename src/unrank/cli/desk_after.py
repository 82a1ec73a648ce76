"""The commands of the desk before and after a run: `service`, `close`, `tick` and `undo`."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from unrank.cli.desk_run import Look
from unrank.cli.option import (
    DESK_LEDGER,
    NOT_REACHED,
    AsJson,
    CollectionFolder,
    LedgerFile,
    Quiet,
    RankerName,
    RequestNumber,
    WriteFlags,
    check_places,
    with_flags,
)
from unrank.cli.show import console, numbered, say, say_json
from unrank.desk.closing import Deletion, Ending, Leave
from unrank.desk.closing import tick as tick_off
from unrank.desk.ledger import Ledger
from unrank.desk.request import State, read_date
from unrank.desk.service import (
    Role,
    ServiceRanker,
    add_ranker,
    remove_ranker,
    service_rankers,
)
from unrank.desk.service import (
    deploy as deploy_ranker,
)
from unrank.errors import count

if TYPE_CHECKING:
    from unrank.desk.remains import Remains

SERVICE = "Register the rankers of a service: a request is forgotten when it is in all of them."
SINCE = "The day since when it answers searches, as 2026-03-31."
LEAVE = "Close though something still remembers it, for this reason, which is written into the history."
DELETE = "Delete proxies that were trained on part of it, if nothing else stands in the way."
LEDGER = WriteFlags()
RankerOfService = Annotated[str, typer.Argument(metavar="NAME", help="The name of a ranker of the service.")]


@with_flags
def add(
    name: RankerOfService,
    ranker: RankerName,
    collection: CollectionFolder,
    index: Annotated[list[Path] | None, typer.Option("--index", help="An index built with it. Repeatable.")] = None,
    role: Annotated[Role, typer.Option("--role", help="Its part in the service.")] = Role.retriever,
    since: Annotated[str | None, typer.Option("--since", help=SINCE)] = None,
    files: WriteFlags = LEDGER,
) -> None:
    """Register a ranker of the service, with its collection and its indexes."""
    new = ServiceRanker.named(name, role, ranker, collection, index or (), _day(since))
    with files.open(make=True) as (desk, _):
        desk.verify()
        opened = add_ranker(desk, new)
        closed = [request.id for request in desk.requests([State.CLOSED])]
    say(f"{name} is in the service: {new.ranker}")
    if opened:
        say(f"{numbered(opened)} open again: no run has shown that {name} has forgotten it")
    if closed:
        say(f"{numbered(closed)} closed before it came: if it saw them, it remembers them until its next run")


def list_(as_json: AsJson = False, ledger: LedgerFile = DESK_LEDGER) -> None:
    """List the rankers of the service."""
    with Ledger.read(ledger) as desk:
        found = service_rankers(desk)
    if as_json:
        say_json([ranker.to_json() for ranker in found])
        return
    table = Table("name", "role", "in service since", "ranker", "collection", "indexes", box=None)
    for each in found:
        since = str(each.since) if each.since else "not said"
        table.add_row(each.name, each.role, since, each.ranker, each.collection, ", ".join(each.indexes))
    if found:
        console().print(table)
    else:
        say("no ranker is registered: the ledger belongs to one ranker; 'unrank desk service add' registers some")


@with_flags
def remove(name: RankerOfService, files: WriteFlags) -> None:
    """Take a ranker out of the service; requests no longer wait for it."""
    with files.open() as (desk, _):
        desk.verify()
        changed = remove_ranker(desk, name)
        states = {id: desk.request(id).state for id in changed}
    say(f"{name} is no longer in the service")
    for id, state in states.items():
        say(f"request {id} is now {state.words}: {name} no longer counts")


@with_flags
def deploy(
    name: RankerOfService,
    since: Annotated[str | None, typer.Option("--since", help=f"{SINCE} By default today.")] = None,
    files: WriteFlags = LEDGER,
) -> None:
    """Record since when the present ranker of this name answers searches."""
    with files.open() as (desk, _):
        desk.verify()
        now = deploy_ranker(desk, name, _day(since) or date.today())
    say(f"{name} is in service since {now.since}: {now.ranker}")


@with_flags
def close(
    request: RequestNumber,
    instead: Annotated[Ending | None, typer.Option("--as", help="End a request that is not forgotten.")] = None,
    look: Look = None,
    leave: Annotated[Leave | None, typer.Option("--leave", help=LEAVE)] = None,
    delete: Annotated[bool, typer.Option("--delete-proxies", help=DELETE)] = False,
    as_json: AsJson = False,
    files: WriteFlags = LEDGER,
    quiet: Quiet = False,
) -> None:
    """Close a request: check what still remembers it, then erase its items from the ledger; keyed hashes stay."""
    from unrank.desk.ending import EndOptions, end_request

    check_places("--look", look or ())
    with files.open() as (desk, _):  # without the key the remaining hashes would be useless
        ended = end_request(desk, request, EndOptions(instead, look or (), leave, delete))
    state, remains, others = ended.before, ended.remains, ended.also_named_by
    if not ended.closed and remains:
        _show_remains(request, state, remains, as_json)
        raise typer.Exit(NOT_REACHED)
    if as_json:
        found = remains.to_json() if remains else {}
        outcome = {"closed": True, "state": ended.state, "outcome": state, "leave": leave}
        say_json({"request": request, **outcome, "also_named_by": others, **found})
        return
    for copy in remains.gone if remains and not quiet else ():
        say(f"  {copy.kind} {copy.path} {copy.why}")
    for copy in remains.there if remains else ():
        say(f"  left for {leave}: {copy.kind} {copy.path}: {copy.why}")
    _say_unchecked(remains)
    left = f", except for items that {numbered(others)} may name too" if others else ""
    was = "" if instead else f" ({state.words})"
    say(f"request {request} is {ended.state}{was}; its items are no longer in {files.ledger}{left}")


@with_flags
def tick(
    request: RequestNumber,
    what: Annotated[Deletion, typer.Argument(metavar="WHAT", help="What was deleted.")],
    files: WriteFlags = LEDGER,
    quiet: Quiet = False,
) -> None:
    """Record that something was deleted which this machine cannot see: rankers, indexes, caches, data or backups."""
    with files.open() as (desk, _):
        desk.verify()
        entry = tick_off(desk, request, what)
    if not quiet:
        say(f"request {request}: {what} ticked off as deleted, entry {entry.number} of the history")


@with_flags
def undo(
    run: Annotated[int, typer.Argument(metavar="RUN", help="The number of a run.")],
    files: WriteFlags,
    as_json: AsJson = False,
) -> None:
    """Undo a run while the ranker that it began from is kept: its requests are open again."""
    with files.open() as (desk, _):
        from unrank.desk.undo import undo_run

        desk.verify()
        undone = undo_run(desk, run)
    if as_json:
        states = {str(id): state for id, state in undone.requests.items()}
        say_json(
            {
                "run": run,
                "requests": states,
                "ranker": undone.original,
                "not_for_use": str(undone.out),
                "revoked": undone.revoked,
            }
        )
        return
    say(f"run {run} is undone: {numbered(list(undone.requests))} open again")
    if undone.revoked:
        say(f"{count(undone.revoked, 'certificate')} revoked: tell whoever has it")
    gone = f"; {undone.out} is not for use any more: delete it" if undone.out.exists() else ""
    say(f"use {undone.original} again{gone}")


def _day(since: str | None) -> date | None:
    """Return the day of `--since`."""
    return None if since is None else read_date(since, "--since")


def _show_remains(request: int, state: State, remains: Remains, as_json: bool) -> None:
    if as_json:
        say_json({"request": request, "closed": False, "state": state, **remains.to_json()})
        return
    places = count(len(remains.there), "place")
    say(f"request {request} is not closed: {places} may still remember it; delete them, or give --leave REASON")
    for copy in remains.there:
        say(f"  {copy.kind} {copy.path}: {copy.why}")
    _say_unchecked(remains)


def _say_unchecked(remains: Remains | None) -> None:
    for copy in remains.unchecked if remains else ():
        say(f"  not checked: {copy.kind} {copy.path} {copy.why}")


service = typer.Typer(help=SERVICE, rich_markup_mode=None, no_args_is_help=True)
service.command("add")(add)
service.command("list")(list_)
service.command("remove")(remove)
service.command("deploy")(deploy)
