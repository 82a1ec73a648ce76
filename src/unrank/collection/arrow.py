"""How a collection's tables are laid down as Arrow files, and opened again without being read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from unrank.collection.collection import Ragged
from unrank.collection.sources.source import TEXTS_A_BATCH, Text, batched


def text_batches(texts: Iterable[Text]) -> Iterator[pa.RecordBatch]:
    for batch in batched(texts, TEXTS_A_BATCH):
        ids, values = zip(*batch, strict=True)
        yield pa.record_batch({"id": pa.array(ids, pa.string()), "text": pa.array(values, pa.string())})


def write_texts(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_table(path: Path, columns: dict[str, pa.Array]) -> pa.Table:
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return table


def open_table(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def list_column(ragged: Ragged) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(ragged.offsets, pa.int64()), pa.array(ragged.values, pa.int32()))
