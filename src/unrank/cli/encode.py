"""The command `encode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unrank.cli.index import KeepRemoved
from unrank.cli.option import (
    AsJson,
    CollectionFolder,
    DeviceFlags,
    RankerName,
    RemovalFile,
    Shard,
    read_shard,
    with_flags,
)
from unrank.cli.show import say, say_json
from unrank.disk import check_outside

VECTORS = "The folder of the vectors; pieces that are there are not encoded again."
DEVICE = DeviceFlags()


@with_flags
def encode(
    ranker: RankerName,
    collection: CollectionFolder,
    out: Annotated[Path, typer.Option("--out", help=VECTORS)],
    shard: Shard = "1/1",
    removal: RemovalFile = None,
    keep_removed: KeepRemoved = False,
    as_json: AsJson = False,
    on: DeviceFlags = DEVICE,
) -> None:
    """Write the vectors of all documents to an Arrow file, by shards, without what the ranker was asked to forget."""
    number, of = read_shard(shard)
    from unrank.collection.collection import open_collection
    from unrank.collection.removal import Removal
    from unrank.engine.runtime import Runtime
    from unrank.forgetting.previous_requests import not_recognised
    from unrank.forgetting.progress import show_progress
    from unrank.index.document_side import DocumentSide
    from unrank.index.encode import Encoding, in_words
    from unrank.rankers import load_ranker
    from unrank.record import Record

    check_outside(out, ranker, collection)
    opened = open_collection(collection)
    with show_progress(on.quiet or as_json) as progress:
        side = DocumentSide.of(load_ranker(ranker, on.fast), Runtime.on(on.device, progress))
        record = None if keep_removed else Record.read(Path(ranker))
        if warning := not_recognised(record):
            progress.say(f"{warning}; name it with --removal, or its vectors are written")
        named = Removal.load(removal) if removal else None
        done = Encoding(out, side, opened, record, named).run(number, of, progress)
    if as_json:
        say_json(vars(done))
    elif not on.quiet:
        say(in_words(done, out))
