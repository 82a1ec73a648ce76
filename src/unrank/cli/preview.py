"""The command `preview`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from unrank.cli.option import INDEX, AsJson, DeviceFlags, RemovalFile, with_flags
from unrank.cli.show import console, say, say_json
from unrank.errors import UnrankError, one_line

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.collection.removal import Removal
    from unrank.engine.runtime import Progress
    from unrank.index.preview import Place, Preview
    from unrank.record import Record

SNIPPET = 48
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
        from unrank.rankers import load_ranker
        from unrank.record import Record

        runtime = Runtime.on(on.device, progress)
        rankers = load_ranker(original, on.fast).to(runtime.device), load_ranker(new, on.fast).to(runtime.device)
        asked = given or _recognised(searched.collection, Record.read(Path(new)), progress)
        shown = make_preview(rankers, searched, query, asked, runtime, most)
    if as_json:
        say_json([_preview_json(each) for each in shown])
        return
    for each in shown:
        _show_preview(each, searched.collection)


def _recognised(collection: Collection, record: Record | None, progress: Progress) -> Removal:
    """Return what a ranker was asked to forget, as far as its record can be read here."""
    from unrank.forgetting.previous_requests import not_recognised, recognised
    from unrank.record import requests_of

    if warning := not_recognised(record):
        progress.say(f"{warning}; nothing of it is marked unless you name it with --removal or --document")
    return recognised(collection, requests_of(record))


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


def _show_preview(shown: Preview, collection: Collection) -> None:
    """Print two lists side by side, with a cross before what is to be forgotten, a plus before what takes its place."""
    say(f"query: {one_line(shown.query, 200)}")
    before, after = shown.among
    say(f"before: {before}; after: {after}" if before != after else f"ranked: {before}")
    table = Table("", "before", "after", box=None)
    known = {hit.id for hit in (*shown.before, *shown.after)}
    rows = collection.documents.rows(sorted(known))
    texts = dict(zip(sorted(known), collection.documents.texts(rows), strict=True))
    for place in range(max(len(shown.before), len(shown.after))):
        cells = []
        for hits in (shown.before, shown.after):
            id = hits[place].id if place < len(hits) else None
            mark = "✗ " if id in shown.forgotten else "+ " if id in shown.substitutes else "  "
            cells.append("" if id is None else escape(f"{mark}{one_line(id, 24)}  {one_line(texts[id], SNIPPET)}"))
        table.add_row(str(place + 1), *cells)
    console().print(table)
    marks = (("✗", "to be forgotten", shown.forgotten), ("+", "a substitute", shown.substitutes))
    for mark, what, found in marks:
        for id, ranks in found.items():
            then, now = (f"rank {rank:,}" if rank else "not found" for rank in ranks)
            say(f"{mark} {one_line(id, 200)}, {what}: {then} before, {now} after")
    if not shown.forgotten:
        say("nothing is marked: name what is to be forgotten with --removal or --document")
