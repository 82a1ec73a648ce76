"""Commands on collections: import, inspect, find, split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unrank.cli.option import AsJson, CollectionFolder, Out, RemovalFile, Seed, Side
from unrank.cli.show import say, say_json, show_counts, show_partition
from unrank.errors import LONGEST_LINE, one_line

KEEP = (
    "Keep only queries-with-several-documents, to forget documents among them, or queries-sharing-documents, to forget "
    "queries; twice: both."
)
TRAIN_QUERIES = "Keep only so many training queries; with --keep those first, and ordinary ones to fill up."


def import_(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="beir:PATH, trec:PATH, triples:PATH, irds:ID or pydocs.")
    ],
    out: Out,
    candidates: Annotated[int, typer.Option(help="Negatives in each query's list; 0 makes none.")] = 100,
    test_split: Annotated[str | None, typer.Option(help="The split to test on; by default 'test'.")] = None,
    test_share: Annotated[float | None, typer.Option(help="Or: the share of the queries to test on.")] = None,
    min_grade: Annotated[int, typer.Option(help="The least grade that is relevant in training.")] = 1,
    test_min_grade: Annotated[int, typer.Option(help="The least grade that is relevant in testing.")] = 1,
    relevant: Annotated[int, typer.Option(help="Relevant documents in a training list, at most.")] = 25,
    train_queries: Annotated[int | None, typer.Option(help=TRAIN_QUERIES)] = None,
    test_queries: Annotated[int | None, typer.Option(help="Keep only so many test queries.")] = None,
    keep: Annotated[list[str] | None, typer.Option(metavar="CONSTRUCTION", help=KEEP)] = None,
    seed: Seed = 0,
) -> None:
    """Read a collection from where it is and write it as a folder."""
    from unrank.collection.build import import_collection
    from unrank.collection.inspect import describe
    from unrank.collection.selection import ImportOptions

    options = ImportOptions(
        candidates,
        test_split,
        test_share,
        min_grade,
        test_min_grade,
        relevant,
        train_queries,
        test_queries,
        seed,
        tuple(keep or ()),
    )
    collection = import_collection(source, out, options)
    show_counts(describe(collection))
    say(f"written to {out}")


def inspect(
    collection: CollectionFolder,
    removal: RemovalFile = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check every file against the hash it was written with.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Counts, entanglement, an example; with a removal, what it would touch."""
    from unrank.collection.collection import open_collection
    from unrank.collection.inspect import dataset_table, describe, describe_removal
    from unrank.collection.partition import make_partition
    from unrank.collection.removal import Removal

    opened = open_collection(collection, verify or None)
    counts, table = describe(opened), dataset_table(opened)
    partition = make_partition(opened, Removal.load(removal), str(removal)) if removal else None
    if as_json:
        touched = describe_removal(opened, partition) if partition else {}
        say_json({**counts, "dataset_table": table, **touched})
        return
    show_counts(counts)
    for removal_kind, rows in table.items():
        say(f"\nfor {removal_kind.replace('_', ' ')}, as the paper's table counts")
        show_counts(rows)
    query, document = opened.pairs[0]
    say(f"\nfor example, query {_shown(opened.queries.id(query))}: {_shown(opened.queries.text(query), 200)}")
    say(f"finds document {_shown(opened.documents.id(document))}: {_shown(opened.documents.text(document), 300)}")
    if verify:
        say("every file is as it was written")
    if partition is not None:
        show_partition(partition)


def find(
    collection: CollectionFolder,
    words: Annotated[str, typer.Argument(help="What the text says.")],
    queries: Annotated[bool, typer.Option("--queries", help="Look in queries only.")] = False,
    documents: Annotated[bool, typer.Option("--documents", help="Look in documents only.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="The words as they stand, in any case of letters.")] = False,
    most: Annotated[int, typer.Option(help="How many to show of each.", min=1)] = 10,
    as_json: AsJson = False,
) -> None:
    """The ids behind a text: where an erasure request begins."""
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
        say(f"{name}: {len(hits) or 'none'}")
        for hit in hits:
            say(f"  {_shown(hit.id)}\t{_shown(hit.text, 160)}")


def _shown(text: str, most: int = LONGEST_LINE) -> str:
    """An id, or the beginning of a text, in one line."""
    return one_line(text[:most], LONGEST_LINE)


def split(
    collection: CollectionFolder,
    remove: Annotated[Side, typer.Option(help="What to remove.")],
    share: Annotated[float, typer.Option(help="The share of the relevant training pairs to remove.")],
    out: Annotated[Path, typer.Option("--out", help="The removal.json to write; it must not exist.")],
    seed: Seed = 0,
) -> None:
    """Draw queries or documents that hold a share of the training pairs, and write them as a removal."""
    from unrank.collection.collection import open_collection
    from unrank.collection.partition import make_partition
    from unrank.collection.removal import Removal

    opened = open_collection(collection)
    removal = Removal.sample(opened, remove.value, share, seed)
    removal.save(out)
    say(f"{len(removal.queries or removal.documents):,} {remove.value} written to {out}")
    show_partition(make_partition(opened, removal))
