"""Commands on data: import, inspect, find, split and filter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from unrank.cli.option import (
    AsJson,
    CollectionFolder,
    Copies,
    LedgerFlags,
    Out,
    Quiet,
    RemovalFile,
    Seed,
    Side,
    with_copies,
    with_flags,
)
from unrank.cli.show import say, say_json, show_counts, show_partition
from unrank.collection.options import ImportOptions
from unrank.errors import LONGEST_LINE, count, one_line

DEFAULTS = ImportOptions()
LABELS = {"candidates_per_query": "listed per query"}
"""Labels of counts that say more than their keys."""


@with_flags
def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="beir:PATH, trec:PATH, triples:PATH, irds:ID or pydocs; see 'unrank list sources'.",
        ),
    ],
    out: Out,
    options: ImportOptions = DEFAULTS,
    quiet: Quiet = False,
) -> None:
    """Read a collection from a source and write it as a folder."""
    from unrank.collection.build import import_collection
    from unrank.collection.inspect import describe

    collection = import_collection(source, out, options)
    if not quiet:
        show_counts(_labelled(describe(collection)))
        for noun, texts in (("document", collection.documents), ("query", collection.queries)):
            if texts.empty:
                say(f"{count(texts.empty, noun)} without any text")
        say(f"written to {out}")


def inspect(
    collection: CollectionFolder,
    removal: RemovalFile = None,
    copies: Copies = True,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every file with the hash that was recorded at its import.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Print counts of a collection and an example; with a removal, the pairs that it affects."""
    from unrank.collection.collection import open_collection
    from unrank.collection.inspect import dataset_table, describe, describe_removal
    from unrank.collection.partition import make_partition
    from unrank.collection.removal import Removal

    opened = open_collection(collection, verify or None)
    counts, table = describe(opened), dataset_table(opened)
    partition = None
    if removal:
        removed = with_copies(Removal.load(removal), opened, copies, str(removal))
        partition = make_partition(opened, removed, str(removal))
    if as_json:
        touched = describe_removal(opened, partition) if partition else {}
        say_json({**counts, "dataset_table": table, **touched})
        return
    show_counts(_labelled(counts))
    for removal_kind, rows in table.items():
        say(f"\nfor {removal_kind.replace('_', ' ')}, counted as in the paper's table")
        show_counts(rows)
    if not quiet:
        query, document = opened.pairs[0]
        say(
            f"\nfor example, to the query {_shown(opened.queries.id(query))}: {_shown(opened.queries.text(query), 200)}"
        )
        say(f"the document {_shown(opened.documents.id(document))} is relevant:")
        say(_shown(opened.documents.text(document), 300))
    if verify:
        say("all files are unchanged")
    if partition is not None:
        show_partition(partition)


def _labelled(counts: Mapping[str, str | float]) -> dict[str, str | float]:
    return {LABELS.get(name, name): value for name, value in counts.items()}


def find(
    collection: CollectionFolder,
    words: Annotated[str, typer.Argument(metavar="WORDS", help="Words of the text.")],
    queries: Annotated[bool, typer.Option("--queries", help="Search the queries only.")] = False,
    documents: Annotated[bool, typer.Option("--documents", help="Search the documents only.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Find the words as one string, in any letter case.")] = False,
    most: Annotated[int, typer.Option(help="Maximal number of results of each kind.", min=1)] = 10,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find the ids of queries and documents by words of their texts."""
    from unrank.collection.bm25 import find_texts
    from unrank.collection.collection import open_collection

    opened = open_collection(collection)
    sides = {"queries": opened.queries, "documents": opened.documents}
    wanted = [name for name, asked in (("queries", queries), ("documents", documents)) if asked] or list(sides)
    found = {name: find_texts(sides[name], words, exact, most) for name in wanted}
    if as_json:
        say_json({name: [vars(hit) for hit in hits] for name, hits in found.items()})
        return
    for name, hits in found.items():
        if not quiet:
            say(f"{name}: {len(hits) or 'none'}")
        for hit in hits:
            say(f"  {_shown(hit.id)}\t{_shown(hit.text, 160)}")


def _shown(text: str, most: int = LONGEST_LINE) -> str:
    """Return an id, or the beginning of a text, in one line."""
    return one_line(text[:most], LONGEST_LINE)


def split(
    collection: CollectionFolder,
    remove: Annotated[Side, typer.Option(help="What to remove.")],
    share: Annotated[float, typer.Option(help="The share of the relevant training pairs to remove.")],
    out: Annotated[Path, typer.Option("--out", help="The removal.json to write; it must not exist.")],
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Sample queries or documents that hold a share of the training pairs, and write them as a removal."""
    from unrank.collection.collection import open_collection
    from unrank.collection.partition import make_partition
    from unrank.collection.removal import Removal

    opened = open_collection(collection)
    removal = Removal.sample(opened, remove.value, share, seed)
    removal.save(out)
    if not quiet:
        number, noun = len(removal.queries or removal.documents), {"queries": "query", "documents": "document"}
        say(f"{count(number, noun[remove.value])} written to {out}")
        show_partition(make_partition(opened, removal))


@with_flags
def filter_(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="New training data: beir:PATH, trec:PATH, triples:PATH, irds:ID.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The file or folder to write; it must not exist.")],
    files: LedgerFlags,
    quiet: Quiet = False,
) -> None:
    """Copy new training data without what was removed before."""
    with files.read() as (opened, secret):
        opened.verify()

        from unrank.desk.filter import filter_source
        from unrank.desk.matcher import Matcher

        rows = filter_source(data, out, Matcher.of(opened, secret))
    for name, read in rows.read.items():
        if not quiet or rows.dropped[name]:
            say(f"{name}: {count(read, 'row')}, {rows.dropped[name]:,} dropped")
    if not quiet:
        say(f"written to {out}")
