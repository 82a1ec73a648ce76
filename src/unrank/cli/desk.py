"""The commands `desk add`, `list`, `show` and `close`; `desk` itself gathers those of other files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from unrank.cli import certificate, fulfil
from unrank.cli.option import (
    AsJson,
    CollectionFolder,
    KeyFile,
    LedgerFile,
    RemovalFile,
    RequestNumber,
    WithPairs,
    read_pairs,
)
from unrank.cli.show import console, numbered, say, say_json
from unrank.desk.chain import BrokenChain
from unrank.desk.closing import also_named_by, scrub
from unrank.desk.closing import close as close_request
from unrank.desk.item import Item
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.desk.request import PENDING, Basis, Request, State, check_dates, month_after, read_date
from unrank.errors import UnrankError, listed

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.collection.partition import Partition
    from unrank.collection.removal import Removal

DESK = "Take requests to be forgotten, fulfil them, and show so."
FOUND = 10
DUE = "When it must be done, as 2026-03-31; by default a month after."
FIND = "Words to find what it names by; then choose from what was found."


class Ending(StrEnum):
    withdrawn = "withdrawn"
    refused = "refused"


def add(
    collection: CollectionFolder,
    query: Annotated[list[str] | None, typer.Option(help="The id of a query.")] = None,
    document: Annotated[list[str] | None, typer.Option(help="The id of a document.")] = None,
    pair: Annotated[
        list[str] | None, typer.Option(metavar="QUERY DOCUMENT", help="The ids of a query and of a document.")
    ] = None,
    removal: RemovalFile = None,
    find: Annotated[str | None, typer.Option(metavar="WORDS", help=FIND)] = None,
    choose: Annotated[str | None, typer.Option(help="Which of those found, such as 1,3.")] = None,
    received: Annotated[str | None, typer.Option(help="When it came, as 2026-03-31; by default today.")] = None,
    due: Annotated[str | None, typer.Option(help=DUE)] = None,
    basis: Annotated[Basis, typer.Option(help="On what ground.")] = Basis.consent,
    ledger: LedgerFile = Path("desk.ledger"),
    key: KeyFile = None,
) -> None:
    """Take a request in: by ids, by a removal.json, or by words to find and choose from."""
    today = date.today()
    came = today if received is None else read_date(received, "--received")
    until = month_after(came) if due is None else read_date(due, "--due")
    check_dates(came, until, today)
    if not (query or document or pair or removal or find):
        raise UnrankError("a request must name something: give --query, --document, --pair, --removal or --find")
    if choose is not None and find is None:
        raise UnrankError("--choose chooses from what --find found: give words to --find too")

    from unrank.collection.collection import open_collection
    from unrank.collection.partition import make_partition
    from unrank.collection.removal import Removal
    from unrank.desk.item import items_of

    opened = open_collection(collection)
    named = Removal(query or [], document or [], read_pairs(pair))
    if removal is not None:
        named |= Removal.load(removal)
    if find is not None:
        if (chosen := _chosen(opened, find, choose)) is None:
            return
        named |= chosen
    partition = make_partition(opened, named, "the request")
    is_new = not ledger.exists()
    with Ledger.open(ledger, make_with=key or key_file(ledger)) as desk:
        secret = desk.key(key or key_file(ledger))
        desk.verify()
        scrub(desk)
        request = desk.add(items_of(named, opened), came, until, basis.value, secret)
    say(f"request {request.id}, due {request.due}; written to {ledger}")
    if is_new:
        say(f"the ledger is new; keep a copy of its key, {key or key_file(ledger)}, elsewhere: nothing replaces it")
    _tell_of_untrained(opened, partition)
    if removal is not None:
        say(f"{removal} names what is to be forgotten: delete it when the request is closed")


def list_(
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that are closed, withdrawn or refused.")
    ] = False,
    most: Annotated[int, typer.Option(help="How many to show.", min=1)] = 50,
    as_json: AsJson = False,
    ledger: LedgerFile = Path("desk.ledger"),
) -> None:
    """Name the requests, those that are overdue first."""
    states = list(State) if everything else list(PENDING)
    with Ledger.open(ledger) as desk, desk.reading():
        requests, counts = desk.requests(states, most), desk.counts()
        _tell_if_broken(desk, requests)
    today = date.today()
    if as_json:
        say_json([_told(request, today) for request in requests])
        return
    table = Table("request", "state", "received", "due", "basis", box=None)
    for request in requests:
        overdue = request.is_overdue(today)
        shown = (str(request.id), "overdue" if overdue else request.state, str(request.received), str(request.due))
        table.add_row(*shown, request.basis, style="red" if overdue else None)
    console().print(table)
    more = sum(counts[state] for state in states) - len(requests)
    said = ", ".join(f"{number:,} {state}" for state, number in counts.items() if number) or "no requests"
    say(f"in all {said}" + (f"; {more:,} more than shown, --most shows more" if more else ""))


def show(request: RequestNumber, as_json: AsJson = False, ledger: LedgerFile = Path("desk.ledger")) -> None:
    """Show one request: what it names while it is pending, and its history."""
    with Ledger.open(ledger) as desk, desk.reading():
        found, items, entries = desk.request(request), desk.items(request), desk.history(request)
        _tell_if_broken(desk, [found])
    today = date.today()
    if as_json:
        told = {**_told(found, today), "names": [asdict(item) for item in items]}
        say_json({**told, "history": [asdict(entry) for entry in entries]})
        return
    for name, value in _told(found, today).items():
        if value not in (None, False):
            say(f"{name:<10}{'yes' if value is True else value}")
    for item in items:
        say(f"names     {_in_words(item)}")
    if not items:
        say(
            "names     nothing that can still be read: keyed hashes are left"
            if found.run
            else "names     nothing any more"
        )
    for entry in entries:
        say(f"{entry.at}  {entry.event}  {entry.hash[:16]}")


def close(
    request: RequestNumber,
    instead: Annotated[Ending | None, typer.Option("--as", help="End a request that was not fulfilled.")] = None,
    ledger: LedgerFile = Path("desk.ledger"),
    key: KeyFile = None,
) -> None:
    """Close a request: what it named is erased from the ledger, keyed hashes stay."""
    with Ledger.open(ledger) as desk:
        desk.key(key or key_file(ledger))  # without it the hashes that stay would be of no use
        desk.verify()
        others = also_named_by(desk, desk.request(request).id)
        ended = close_request(desk, request, State(instead.value) if instead else None)
    left = f", but for what {numbered(others)} may name too" if others else ""
    say(f"request {request} is {ended}; what it named is no longer in {ledger}{left}")


def _tell_of_untrained(collection: Collection, partition: Partition) -> None:
    """What a request names beside training pairs no ranker was trained on; it is kept out of new data all the same."""
    import numpy as np

    sides = ((collection.queries, partition.queries, 0), (collection.documents, partition.documents, 1))
    outside = [id for texts, rows, side in sides for id in texts.ids(rows[~np.isin(rows, partition.forget[:, side])])]
    if outside:
        say(f"in no training pair, so that no run changes it, though 'unrank filter' drops it: {listed(outside)}")


def _tell_if_broken(desk: Ledger, requests: Sequence[Request]) -> None:
    """Who only looks is told where what is shown is not as its history says, and sees what is there all the same."""
    try:
        desk.check(request.id for request in requests)
    except BrokenChain as error:
        print(f"unrank: {error}; this is shown as it stands, and nothing more is done with it", file=sys.stderr)


def _chosen(collection: Collection, words: str, choose: str | None) -> Removal | None:
    """What was chosen of what the words find; None where nobody has chosen yet."""
    from unrank.collection.bm25 import find_texts
    from unrank.collection.removal import Removal

    sides = {"query": collection.queries, "document": collection.documents}
    hits = [(kind, hit) for kind, texts in sides.items() for hit in find_texts(texts, words, most=FOUND)]
    if choose is None:
        for number, (kind, hit) in enumerate(hits, 1):
            say(f"{number:>3}  {kind:<9} {hit.id}\t{hit.text[:160]}")
        if not hits or not sys.stdin.isatty():
            say("nothing was taken in: say which with --choose, such as --choose 1,3" if hits else "nothing was found")
            return None
        choose = typer.prompt("which, such as 1,3")
    try:
        numbers = [int(number) for number in str(choose).split(",")]
        if min(numbers) < 1:
            raise ValueError(f"{min(numbers)} is no place in a list")
        chosen = [hits[number - 1] for number in numbers]
    except (ValueError, IndexError) as error:
        some = f"give numbers from 1 to {len(hits)}, parted by commas" if hits else "nothing was found to choose from"
        raise UnrankError(f"--choose {choose}: {some}") from error
    queries, documents = ([hit.id for kind, hit in chosen if kind == side] for side in sides)
    return Removal(queries, documents)


def _told(request: Request, today: date) -> dict[str, object]:
    told = asdict(request) | {"received": str(request.received), "due": str(request.due)}
    return {**told, "overdue": request.is_overdue(today)}


def _in_words(item: Item) -> str:
    sides = (("query", item.query, item.query_text), ("document", item.document, item.document_text))
    return " with ".join(f"{side} {id}: {(text or '')[:160]}" for side, id, text in sides if id is not None)


app = typer.Typer(help=DESK, rich_markup_mode=None, invoke_without_command=True)


@app.callback()
def desk(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


app.command("add", cls=WithPairs)(add)
app.command("list")(list_)
app.command("show")(show)
app.command("plan")(fulfil.plan)
app.command("run")(fulfil.run)
app.command("close")(close)
app.command("certificate")(certificate.certificate)
app.command("verify")(certificate.verify)
