"""The commands `desk add`, `list` and `show`, and the group `desk` with those of other files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from unrank.cli import desk_after, desk_certificate, desk_run, desk_serve
from unrank.cli.option import (
    DESK_LEDGER,
    AsJson,
    CollectionFolder,
    LedgerFile,
    Quiet,
    RemovalOptions,
    RequestNumber,
    WithPairs,
    WriteFlags,
    with_flags,
)
from unrank.cli.show import console, say, say_json, show_copies
from unrank.desk.history_index import BrokenChain
from unrank.desk.ledger import Ledger
from unrank.desk.request import HONOURED, PENDING, Basis, Item, Request, State, dates_of, read_date
from unrank.desk.service import StateThere, service_rankers, states_of
from unrank.errors import UnrankError, listed

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.collection.removal import Removal

DESK = "Record requests to be forgotten, run them, and certify the result."
DUE = "The date by which it must be done, as 2026-03-31; by default a month after it was received."
RECEIVED = "The date of the request, as 2026-03-31; by default today."
FIND = "Words of the texts to find; then choose from what was found."


@dataclass(frozen=True)
class RequestFlags:
    """The texts to find, and the dates and the ground of a request."""

    find: Annotated[str | None, typer.Option("--find", metavar="WORDS", help=FIND)] = None
    choose: Annotated[str | None, typer.Option("--choose", help="The numbers of the texts found, such as 1,3.")] = None
    received: Annotated[str | None, typer.Option("--received", help=RECEIVED)] = None
    due: Annotated[str | None, typer.Option("--due", help=DUE)] = None
    basis: Annotated[Basis, typer.Option("--basis", help="The ground of the request.")] = Basis.consent

    @property
    def dates(self) -> tuple[date, date]:
        """The date of the request, and the date by which it must be done."""
        received = None if self.received is None else read_date(self.received, "--received")
        due = None if self.due is None else read_date(self.due, "--due")
        return dates_of(received, due, date.today())


@with_flags
def add(
    collection: CollectionFolder,
    named: RemovalOptions,
    asked: RequestFlags,
    files: WriteFlags,
    quiet: Quiet = False,
) -> None:
    """Add a request: by ids, by files of ids, or by words to find and choose from."""
    dates = asked.dates
    if named.is_empty and not asked.find:
        raise UnrankError(
            "a request must name something: give --find, --query, --document or --pair, "
            "or a file with --queries, --documents or --removal"
        )
    if asked.choose is not None and asked.find is None:
        raise UnrankError("--choose chooses from what --find found: give words to --find too")

    from unrank.collection.collection import open_collection
    from unrank.collection.removal import Removal
    from unrank.desk.intake import add_request, touched

    opened = open_collection(collection)
    chosen = Removal()
    if asked.find is not None:
        if (found_here := _chosen(opened, asked.find, asked.choose)) is None:
            return
        chosen = found_here
    removal = named.read(chosen)
    found = touched(opened, removal, not named.copies, named.source)
    show_copies(found.copies, named.copies)
    is_new = not files.ledger.exists()
    with files.open(make=True) as (desk, secret):
        request = add_request(desk, secret, opened, found, dates, asked.basis)
    say(f"request {request.id}, due {request.due}; written to {files.ledger}")
    if is_new:
        say(f"the ledger is new; keep a copy of its key, {files.key_file}, elsewhere: it cannot be replaced")
    if not quiet:
        if found.untrained:
            say(f"in no training pair, so no run changes them; 'unrank filter' drops them: {listed(found.untrained)}")
        _warn_of_files(named)


def list_(
    everything: Annotated[bool, typer.Option("--all", help="Include closed, withdrawn and refused requests.")] = False,
    most: Annotated[int, typer.Option("--most", help="The most requests to show.", min=1)] = 50,
    as_json: AsJson = False,
    ledger: LedgerFile = DESK_LEDGER,
    quiet: Quiet = False,
) -> None:
    """List the requests, overdue ones first."""
    states = list(State) if everything else list(PENDING)
    with Ledger.read(ledger) as desk, desk.snapshot():
        requests, counts = desk.requests(states, most), desk.counts()
        there = {request.id: states_of(desk, request.id) for request in requests}
        rankers = [ranker.name for ranker in service_rankers(desk)]
        _warn_if_broken(desk, requests)
    today = date.today()
    if as_json:
        say_json([_as_json(request, today, there[request.id]) for request in requests])
        return
    table = Table("request", "state", "received", "due", "basis", *(f"in {name}" for name in rankers), box=None)
    for request in requests:
        overdue = request.is_overdue(today)
        state = f"{request.words}, overdue" if overdue else request.words
        shown = (str(request.id), state, str(request.received), str(request.due), request.basis)
        in_each = [each.state.words for each in there[request.id]]
        table.add_row(*shown, *in_each, style="red" if overdue else None)
    console().print(table)
    if quiet:
        return
    more = sum(counts[state] for state in states) - len(requests)
    said = "; ".join(f"{number:,} {state.words}" for state, number in counts.items() if number) or "no requests"
    say(f"in all {said}" + (f"; {more:,} more than shown, --most shows more" if more else ""))


def show(
    request: RequestNumber,
    as_json: AsJson = False,
    ledger: LedgerFile = DESK_LEDGER,
    quiet: Quiet = False,
) -> None:
    """Show one request: its items while it is pending, and, without --quiet, its history."""
    with Ledger.read(ledger) as desk, desk.snapshot():
        found, items, entries = desk.request(request), desk.items(request), desk.history(request)
        there = states_of(desk, request)
        _warn_if_broken(desk, [found])
    today = date.today()
    if as_json:
        shown = {**_as_json(found, today, there), "names": [asdict(item) for item in items]}
        say_json({**shown, "history": [asdict(entry) for entry in entries]})
        return
    say(f"request {request}: {found.words}{', overdue' if found.is_overdue(today) else ''}")
    for each in there:
        by = f" (run {each.run})" if each.run is not None else ""
        say(f"in {each.ranker}: {each.state.words}{by}")
    for name, value in (("received", found.received), ("due", found.due), ("basis", found.basis), ("run", found.run)):
        if value is not None:
            say(f"{name:<10}{value}")
    for item in items:
        say(f"names     {_item_line(item)}")
    if not items:
        say(
            "names     nothing that can still be read: keyed hashes are left"
            if found.state in HONOURED
            else "names     nothing any more"
        )
    for entry in entries if not quiet else ():
        say(f"{entry.at}  {entry.event}  {entry.hash[:16]}" + (f"  by {entry.by}" if entry.by else ""))


def _warn_of_files(named: RemovalOptions) -> None:
    for file in (named.removal, named.queries, named.documents):
        if file is not None:
            say(f"{file} names what is to be forgotten: delete it when the request is closed")


def _warn_if_broken(desk: Ledger, requests: Sequence[Request]) -> None:
    """Warn on standard error if a request is not as its history says; it is shown all the same."""
    try:
        desk.check(request.id for request in requests)
    except BrokenChain as error:
        print(f"unrank: {error}; this is shown as it stands, and nothing more is done with it", file=sys.stderr)


def _chosen(collection: Collection, words: str, choose: str | None) -> Removal | None:
    """Return the chosen ones of the texts found; `None` if nothing was chosen yet."""
    from unrank.collection.removal import Removal
    from unrank.desk.intake import Finder

    hits = Finder(collection).find(words)
    if choose is None:
        for number, (kind, hit) in enumerate(hits, 1):
            say(f"{number:>3}  {kind:<9} {hit.id}\t{hit.text[:160]}")
        if not hits or not sys.stdin.isatty():
            say("no request was added: choose with --choose, such as --choose 1,3" if hits else "nothing was found")
            return None
        choose = typer.prompt("which, such as 1,3")
    try:
        numbers = [int(number) for number in str(choose).split(",")]
        if min(numbers) < 1:
            raise ValueError(f"{min(numbers)} is not a place in a list")
        chosen = [hits[number - 1] for number in numbers]
    except (ValueError, IndexError) as error:
        some = (
            f"give numbers from 1 to {len(hits)}, separated by commas" if hits else "nothing was found to choose from"
        )
        raise UnrankError(f"--choose {choose}: {some}") from error
    queries, documents = ([hit.id for kind, hit in chosen if kind == side] for side in ("query", "document"))
    return Removal(queries, documents)


def _as_json(request: Request, today: date, there: Sequence[StateThere]) -> dict[str, object]:
    dates = {"received": str(request.received), "due": str(request.due)}
    service = {each.ranker: {"state": each.state, "run": each.run} for each in there}
    shown = {**asdict(request), **dates, "overdue": request.is_overdue(today), "service": service}
    return {"state": request.state, **shown}


def _item_line(item: Item) -> str:
    sides = (("query", item.query, item.query_text), ("document", item.document, item.document_text))
    named = " with ".join(f"{side} {id}: {(text or '')[:160]}" for side, id, text in sides if id is not None)
    if item.substitute is None:
        return named
    return f"{named}; in its place {item.substitute}: {(item.substitute_text or '')[:160]}"


app = typer.Typer(help=DESK, rich_markup_mode=None, invoke_without_command=True)


@app.callback()
def desk(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


app.command("add", cls=WithPairs)(add)
app.command("list")(list_)
app.command("show")(show)
app.command("plan")(desk_run.plan)
app.command("run")(desk_run.run)
app.command("close")(desk_after.close)
app.command("tick")(desk_after.tick)
app.command("undo")(desk_after.undo)
app.add_typer(desk_after.service, name="service")
app.command("certificate")(desk_certificate.certificate)
app.command("revoke")(desk_certificate.revoke)
app.command("rotate")(desk_certificate.rotate)
app.command("witness")(desk_certificate.witness)
app.command("restored")(desk_certificate.restored)
app.command("verify")(desk_certificate.verify)
app.command("match")(desk_certificate.match)
app.command("serve")(desk_serve.serve)
app.command("token")(desk_serve.token)
