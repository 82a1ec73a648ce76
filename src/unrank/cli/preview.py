"""The command `preview`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from unrank.cli.option import INDEX, AsJson, DeviceFlags, RemovalFile, with_flags
from unrank.cli.show import console, notice, say, say_json
from unrank.errors import UnrankError, one_line

if TYPE_CHECKING:
    from unrank.collection.removal import Removal
    from unrank.index.preview import Place, Preview
    from unrank.record import Record

SNIPPET = 48
GONE = "(not in the collection)"
"""What stands for the text of a document that is in the index alone."""
DEVICE = DeviceFlags()
PLACE = f"A collection folder, or an index of one. {INDEX}"


@with_flags
def preview(
    original: Annotated[str, typer.Argument(metavar="ORIGINAL", help="The ranker before.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The ranker after.")],
    place: Annotated[str, typer.Argument(metavar="COLLECTION|INDEX", help=PLACE)],
    query: Annotated[list[str], typer.Option("--query", metavar="TEXT", help="Any text to search for. Repeatable.")],
    removal: RemovalFile = None,
    document: Annotated[
        list[str] | None, typer.Option("--document", metavar="ID", help="A document to mark. Repeatable.")
    ] = None,
    most: Annotated[int, typer.Option(help="Number of documents to show.", min=1)] = 10,
    as_json: AsJson = False,
    on: DeviceFlags = DEVICE,
) -> None:
    """Show the first documents for any text before and after forgetting, with what is to be forgotten marked."""
    from unrank.collection.removal import Removal
    from unrank.forgetting.progress import show_progress
    from unrank.index.preview import preview as make_preview

    given = Removal(documents=document or []) | (Removal.load(removal) if removal else Removal())
    searched = _place(place)
    with show_progress(on.quiet or as_json) as progress:
        from unrank.engine.runtime import Runtime
        from unrank.rankers import load_ranker, record_of

        runtime = Runtime.on(on.device, progress)
        rankers = load_ranker(original, on.fast).to(runtime.device), load_ranker(new, on.fast).to(runtime.device)
        asked = given or _recognised(searched, record_of(new))
        shown = make_preview(rankers, searched, query, asked, runtime, most)
    if as_json:
        say_json([_preview_json(each) for each in shown])
        return
    for each in shown:
        _show_preview(each, searched, named=bool(asked))


def _recognised(place: Place, record: Record | None) -> Removal:
    """Return what a ranker was asked to forget, as far as its record can be read here."""
    from unrank.collection.removal import Removal
    from unrank.forgetting.previous_requests import not_recognised, recognised, recognised_among
    from unrank.record import requests_of

    if warning := not_recognised(record):
        notice(f"{warning}; nothing of it is marked unless you name it with --removal or --document")
    requests, indexed = requests_of(record), Removal(documents=place.ids if place.store else ())
    return recognised(place.collection, requests) | recognised_among(indexed, requests)


def _place(name: str) -> Place:
    """Return the collection, or the index and its collection, that a name means."""
    from unrank.collection.collection import open_collection
    from unrank.index.preview import Place
    from unrank.index.store import open_store

    if (Path(name) / "collection.json").is_file():
        return Place.of(open_collection(name), None)
    if ":" not in name and not (Path(name) / "index.json").is_file():
        raise UnrankError(f"{name} is neither a collection nor an index: name one that 'unrank import' made")
    store = open_store(name)
    if (header := store.header()) is None:
        raise UnrankError(f"{store.name} does not exist or was not finished: make it with 'unrank index build'")
    if not (Path(header.collection) / "collection.json").is_file():
        raise UnrankError(f"{store.name} was made of {header.collection}, which is gone: name a collection instead")
    return Place.of(open_collection(header.collection), store)


def _preview_json(shown: Preview) -> dict[str, object]:
    lists = {name: [vars(hit) for hit in getattr(shown, name)] for name in ("before", "after")}

    def ranks(found: Mapping[str, tuple[int, int]]) -> dict[str, object]:
        return {id: {"before": then or None, "after": now or None} for id, (then, now) in found.items()}

    marked = {"forgotten": ranks(shown.forgotten), "substitutes": ranks(shown.substitutes)}
    return {"query": shown.query, **lists, **marked, "among": [*shown.among]}


def _show_preview(shown: Preview, place: Place, named: bool) -> None:
    """Print two lists side by side, with a cross before what is to be forgotten, a plus before what takes its place."""
    say(f"query: {one_line(shown.query, 200)}")
    before, after = shown.among
    say(f"before: {before}; after: {after}" if before != after else f"ranked: {before}")
    table = Table("", "before", "after", box=None)
    texts = place.texts(sorted({hit.id for hit in (*shown.before, *shown.after)}))
    for row in range(max(len(shown.before), len(shown.after))):
        cells = []
        for hits in (shown.before, shown.after):
            id = hits[row].id if row < len(hits) else None
            mark = "✗ " if id in shown.forgotten else "+ " if id in shown.substitutes else "  "
            cells.append(
                "" if id is None else escape(f"{mark}{one_line(id, 24)}  {one_line(texts.get(id, GONE), SNIPPET)}")
            )
        table.add_row(str(row + 1), *cells)
    console().print(table)
    marks = (("✗", "to be forgotten", shown.forgotten), ("+", "a substitute", shown.substitutes))
    for mark, what, found in marks:
        for id, ranks in found.items():
            then, now = (f"rank {rank:,}" if rank else "not among those ranked" for rank in ranks)
            say(f"{mark} {one_line(id, 200)}, {what}: {then} before, {now} after")
    if not shown.forgotten and named:
        say("nothing is marked: nothing of what is to be forgotten is for this text")
    elif not shown.forgotten:
        say("nothing is marked: name what is to be forgotten with --removal or --document")
