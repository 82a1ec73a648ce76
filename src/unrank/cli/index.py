"""Commands on stored document vectors: `index build`, `update`, `check` and `search`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unrank.cli.option import (
    INDEX,
    NOT_REACHED,
    AsJson,
    CollectionFolder,
    DeviceFlags,
    RankerName,
    RemovalFile,
    with_flags,
)
from unrank.cli.show import notice, say, say_json
from unrank.disk import check_outside
from unrank.errors import count, listed, one_line

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.engine.runtime import Progress
    from unrank.index.check import Checked
    from unrank.index.document_side import DocumentSide
    from unrank.index.store import Store
    from unrank.index.update import Updated
    from unrank.record import Record

app = typer.Typer(
    help="Keep stored document vectors in step with a ranker that forgot: build, update, check and search an index.",
    rich_markup_mode=None,
)

IndexName = Annotated[str, typer.Argument(metavar="INDEX", help=INDEX)]
KeepRemoved = Annotated[
    bool,
    typer.Option("--keep-removed", help="Index what the ranker was asked to forget too, only to see where it stands."),
]
SAMPLE = "Number of texts to encode again and compare with the stored vectors, sampled; 0 for all."
DEVICE = DeviceFlags()

WRONG = {
    "removed": "removed, or not in the collection",
    "other_model": "encoded by another model",
    "stale": "stale: the text has changed since it was encoded",
    "wrong_vector": "stale: the text encoded again gives another vector",
    "missing": "not in the index",
}
"""What `check` may find, in words."""


@dataclass(frozen=True)
class IndexFlags:
    """The flags of `index build` and `index update`."""

    removal: RemovalFile = None
    keep_removed: KeepRemoved = False
    json: AsJson = False


FLAGS = IndexFlags()


@app.command("build")
@with_flags
def build(
    index: IndexName,
    ranker: RankerName,
    collection: CollectionFolder,
    flags: IndexFlags = FLAGS,
    on: DeviceFlags = DEVICE,
) -> None:
    """Encode a collection into a new index, without documents that the ranker was asked to forget."""
    _encode(index, None, ranker, collection, flags, on)


@app.command("update")
@with_flags
def update(
    index: IndexName,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The ranker that made the index.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The ranker that searches it from now on; may be OLD.")],
    collection: CollectionFolder,
    flags: IndexFlags = FLAGS,
    on: DeviceFlags = DEVICE,
) -> None:
    """Delete what was removed, then encode what is new, edited, or of another model. A stopped update continues."""
    _encode(index, old, new, collection, flags, on)


def _encode(index: str, old: str | None, new: str, collection: Path, flags: IndexFlags, on: DeviceFlags) -> None:
    """Build an index, or bring the one that the ranker `old` made up to date."""
    from unrank.index.update import build_index, update_index

    store, opened, listener = _open(index, collection, on, flags.json)
    unknown = _unknown(store, opened, flags.removal)
    if old is None and store.folder is not None:
        check_outside(store.folder, new, collection, option="INDEX")
    with listener as progress:
        side, record = _side(new, on, progress)
        removed = _removed(opened, None if flags.keep_removed else record, flags.removal)
        if old is None:
            done = build_index(store, side, opened, removed, progress)
        else:
            before = side.digest if old == new else _side(old, on, progress)[0].digest
            done = update_index(store, before, side, opened, removed, progress)
    _show_updated(store, done, unknown, flags.json)


@app.command("check")
@with_flags
def check(
    index: IndexName,
    ranker: RankerName,
    collection: CollectionFolder,
    removal: RemovalFile = None,
    sample: Annotated[int, typer.Option("--sample", help=SAMPLE, min=0)] = 200,
    as_json: AsJson = False,
    on: DeviceFlags = DEVICE,
) -> None:
    """Find vectors that are stale, of another model, or of removed documents; exit code 3 if there are any.

    It is 3, too, if what the ranker forgot cannot be recognised here and is not named with --removal.
    """
    from unrank.forgetting.previous_requests import not_recognised
    from unrank.index.check import check_index

    store, opened, listener = _open(index, collection, on, as_json)
    unknown = _unknown(store, opened, removal)
    with listener as progress:
        side, record = _side(ranker, on, progress)
        removed = _removed(opened, record, removal, store.points().ids)
        found = check_index(store, side, opened, removed, sample, progress)
    known = removal is not None or not_recognised(record) is None
    if as_json:
        say_json({"sound": found.sound and known, **vars(found), "unknown": unknown, "recognised": known})
    else:
        _show_checked(store, found, known)
    if not (found.sound and known):
        raise typer.Exit(NOT_REACHED)


@app.command("search")
@with_flags
def search(
    index: IndexName,
    ranker: RankerName,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Any text.")],
    most: Annotated[int, typer.Option(help="Maximal number of results.", min=1)] = 10,
    as_json: AsJson = False,
    on: DeviceFlags = DEVICE,
) -> None:
    """Find the documents of an index that a ranker puts first for a text."""
    from unrank.forgetting.progress import show_progress
    from unrank.index.preview import check_searched
    from unrank.index.store import open_store
    from unrank.index.whole import check_index_of

    check_searched([query], "QUERY")
    store = open_store(index)
    with show_progress(on.quiet or as_json) as progress:
        side, _ = _side(ranker, on, progress)
        check_index_of(store, side)
        (hits,) = store.search(side.encode([query], "query"), most)
    if as_json:
        say_json([vars(hit) for hit in hits])
        return
    for rank, hit in enumerate(hits, 1):
        say(f"{rank:>3}  {hit.score:.4f}  {one_line(hit.id, 200)}")


def _open(index: str, collection: Path, on: DeviceFlags, as_json: bool) -> tuple[Store, Collection, Any]:
    """Open a store and a collection, and make the listener of a job."""
    from unrank.collection.collection import open_collection
    from unrank.forgetting.progress import show_progress
    from unrank.index.store import open_store

    return open_store(index), open_collection(collection), show_progress(on.quiet or as_json)


def _side(ranker: str, on: DeviceFlags, progress: Progress) -> tuple[DocumentSide, Record | None]:
    """Load a ranker's document side, and its record."""
    from unrank.engine.runtime import Runtime
    from unrank.index.document_side import DocumentSide
    from unrank.rankers import load_ranker, record_of

    return DocumentSide.of(load_ranker(ranker, on.fast), Runtime.on(on.device, progress)), record_of(ranker)


def _removed(collection: Collection, record: Record | None, removal: Path | None, more: Any = ()) -> set[str]:
    """Return the documents that do not belong into an index, of the collection and of `more`."""
    from unrank.collection.removal import Removal
    from unrank.forgetting.previous_requests import not_recognised
    from unrank.index.update import removed_documents

    if warning := not_recognised(record):
        notice(f"{warning}; name it with --removal, or it stays in the index")
    documents = collection.documents
    ids = [*documents.ids(range(len(documents))), *more]
    return removed_documents(ids, record, Removal.load(removal) if removal else None)


def _unknown(store: Store, collection: Collection, removal: Path | None) -> list[str]:
    """Return the documents of a removal that are neither in a collection nor in its index, and say which."""
    from unrank.collection.removal import Removal
    from unrank.index.update import unknown_documents

    named = Removal.load(removal).documents if removal else ()
    unknown = unknown_documents(named, collection, store.points().ids) if named else []
    if unknown:
        what = f"{count(len(unknown), 'document id')} neither in the collection nor in {store.name}: {listed(unknown)}"
        notice(f"{removal}: {what}; check them with 'unrank find'")
    return unknown


def _show_updated(store: Store, done: Updated, unknown: list[str], as_json: bool) -> None:
    if as_json:
        say_json({**vars(done), "unknown": unknown})
        return
    if done.switched:
        say("the document side has changed: all texts were encoded beside the index, and have taken its place")
    did = f"{count(done.deleted, 'document')} deleted, {done.encoded:,} encoded"
    say(f"{did}, {done.documents:,} in {store.name}")


def _show_checked(store: Store, found: Checked, known: bool) -> None:
    """Say what was found. `known` is whether what the ranker forgot can be told from the rest."""
    compared = f"{count(found.compared, 'text')} encoded again"
    if not found.points:
        say(f"{store.name} is empty: it has no points")
    elif found.sound and not known:
        say("documents that the ranker forgot may be there; apart from that nothing was found")
    elif found.sound:
        say(f"sound: all {count(found.points, 'point')} of {store.name} are of this ranker and of these texts")
    if not found.same_model:
        say(f"{store.name} is of another model")
    for name, ids in found.findings.items():
        if ids:
            say(f"{count(len(ids), 'document')} {WRONG[name]}: {listed(ids)}")
    say(f"{compared} and compared, of {found.points:,}")
    if found.unfinished:
        say(f"{count(found.unfinished, 'point')} put aside by a job that did not end: run it again")
    if not found.sound:
        notice(f"{store.name} is not sound: run 'unrank index update'; build it again if it mixes models")
