"""The option `--index` of `forget` and `evaluate`: ranks among all documents of an index."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from unrank.errors import UnrankError

if TYPE_CHECKING:
    from unrank.cli.option import DeviceFlags
    from unrank.collection.collection import Collection
    from unrank.collection.removal import Removal
    from unrank.engine.runtime import Progress
    from unrank.forgetting.forget import Forgotten
    from unrank.forgetting.options import ForgetOptions
    from unrank.forgetting.workspace import Workspace
    from unrank.rankers.base import Ranker
    from unrank.record import WholeIndexRanks


def check_whole_index(index: str, ranker: Ranker, options: ForgetOptions) -> None:
    """Refuse an index that the ranker did not make, before the run."""
    from unrank.engine.runtime import Runtime
    from unrank.index.document_side import DocumentSide
    from unrank.index.store import open_store
    from unrank.index.whole import check_index_of

    check_index_of(open_store(index), DocumentSide.of(ranker, Runtime.on(options.device)))


def over_index(result: Forgotten, original: Ranker, workspace: Workspace, index: str) -> Forgotten:
    """Measure the forget pairs among all documents of an index too, before and after."""
    from unrank.index.document_side import DocumentSide
    from unrank.index.store import open_store
    from unrank.index.whole import measure_forgotten

    runtime = workspace.runtime
    sides = DocumentSide.of(original, runtime), DocumentSide.of(result.ranker, runtime)
    pairs = workspace.partition.forget
    found = measure_forgotten(open_store(index), sides, workspace.collection, pairs, runtime.progress)
    return replace(result, record=replace(result.record, whole_index=found))


def ranks_over_index(
    index: str,
    ranker: str,
    collection: Collection,
    removal: Removal | None,
    measure: int,
    on: DeviceFlags,
    progress: Progress,
) -> dict[str, WholeIndexRanks]:
    """Measure a ranker among all documents of an index that it made."""
    from unrank.engine.runtime import Runtime
    from unrank.forgetting.evaluate import measured_pairs
    from unrank.index.document_side import DocumentSide
    from unrank.index.store import open_store
    from unrank.index.whole import Documents, check_index_of, whole_ranks
    from unrank.rankers import load_ranker, record_of

    if ranker == "bm25":
        raise UnrankError("--index: bm25 has no document vectors, so no index is its own")
    store, side = open_store(index), DocumentSide.of(load_ranker(ranker, on.fast), Runtime.on(on.device, progress))
    check_index_of(store, side)
    pairs = measured_pairs(collection, removal, record_of(ranker), measure)
    return whole_ranks(Documents.stored(side, store), collection, pairs)
