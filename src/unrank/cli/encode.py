"""The command `encode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unrank.cli.index import KeepRemoved
from unrank.cli.option import AsJson, CollectionFolder, DeviceFlags, PieceFlags, RankerName, RemovalFile, with_flags
from unrank.cli.show import show_made, tell_unrecognised
from unrank.disk import check_outside

VECTORS = "The folder of the vectors; pieces that are there are not encoded again."
PIECES, DEVICE = PieceFlags(), DeviceFlags()


@with_flags
def encode(
    ranker: RankerName,
    collection: CollectionFolder,
    out: Annotated[Path, typer.Option("--out", help=VECTORS)],
    share: PieceFlags = PIECES,
    removal: RemovalFile = None,
    keep_removed: KeepRemoved = False,
    as_json: AsJson = False,
    on: DeviceFlags = DEVICE,
) -> None:
    """Write the vectors of all documents to an Arrow file, by shards, without what the ranker was asked to forget."""
    share.check()
    from unrank.forgetting.progress import show_progress
    from unrank.index.encode import EncodingJob
    from unrank.rankers import record_of

    check_outside(out, ranker, collection)
    if not keep_removed:
        tell_unrecognised(record_of(ranker), on.quiet or as_json)
    job = EncodingJob(out, ranker, collection, removal, keep_removed, on.device, on.fast)
    with show_progress(on.quiet or as_json) as progress:
        pieces = job.open(progress)
        done = share.run(pieces, job, progress)
    show_made(done, pieces, as_json, on.quiet)
