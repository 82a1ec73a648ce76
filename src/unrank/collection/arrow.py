"""A collection's tables as Arrow files: how they are written, and how they are opened without being read.

An Arrow file states how large its parts are and where each text begins. If that is wrong, a reader leaves the file: it
crashes, or reads memory that is not its own. So `open_arrow` checks the file first. The columns must be those that
unrank writes. Nothing may be compressed or kept in a dictionary, and no part may be listed twice: a few bytes could
otherwise become any number of rows. Offsets must be in order. The check reads offsets and no text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unrank.collection.sources.source import Text
from unrank.disk import check_regular
from unrank.errors import BadFile, UnrankError

TEXTS_A_BATCH = 50_000
BYTES_A_BATCH = 2**31 - 2
"""The most bytes of a batch: Arrow puts no more into one column of strings."""
TEXT = {"id": pa.string(), "text": pa.string()}
LIST = pa.large_list(pa.int32())
COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "queries": TEXT | {"test": pa.bool_()},
    "documents": TEXT,
    "judgements": {"query": pa.int32(), "document": pa.int32(), "grade": pa.int16()},
    "candidates": {"relevant": LIST, "negatives": LIST},
}
MAGIC = b"ARROW1"
DICTIONARIES, BATCHES = 2, 3
"""The numbers of a footer's fields that list the parts of a file."""
LONG_METADATA = 0xFFFFFFFF
"""The marker in front of the length of a message's metadata."""


def text_batches(texts: Iterable[Text], most: int = TEXTS_A_BATCH) -> Iterator[pa.RecordBatch]:
    """Yield texts as Arrow batches of at most `most` texts. Refuse a text that is too long for any batch."""
    ids, values, held = list[str](), list[str](), 0
    for id, text in texts:
        size = _bytes(id) + _bytes(text)
        if size > BYTES_A_BATCH:
            raise UnrankError(
                f"the text of {id!r} has {size:,} bytes with its id, and a collection takes at most "
                f"{BYTES_A_BATCH:,}: cut it, or leave it out"
            )
        if len(ids) == most or held + size > BYTES_A_BATCH:
            yield _text_batch(ids, values)
            ids, values, held = [], [], 0
        ids.append(id)
        values.append(text)
        held += size
    if ids:
        yield _text_batch(ids, values)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _text_batch(ids: list[str], values: list[str]) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.string()), "text": pa.array(values, pa.string())})


def write_texts(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """Write batches of texts as they come."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, pa.schema(list(TEXT.items()))) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_table(path: Path, columns: dict[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Write columns as one table, and return it."""
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return table


def list_column(offsets: NDArray[np.int64], values: NDArray[np.int32]) -> pa.Array:
    """Return a column of lists that lie end to end in `values`."""
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(values, pa.int32()))


def open_table(path: Path) -> pa.Table:
    """Open a table that this process has just written."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def open_arrow(path: Path) -> pa.Table:
    """Open a table that anyone may have written, and check it. The file's name says which table it is."""
    try:
        check_regular(path)
        mapped = pa.memory_map(str(path))
        for batch in _batches(mapped.read_buffer()):
            if _field(batch, _table(batch, _message(batch), 2), 3):
                raise ValueError("it is compressed")
        reader = pa.ipc.open_file(mapped)
        if list(zip(reader.schema.names, reader.schema.types, strict=True)) != list(COLUMNS[path.stem].items()):
            raise ValueError(f"its columns are not {', '.join(COLUMNS[path.stem])}")
        table = reader.read_all()
        table.validate()
        for column in table.columns:
            for chunk in column.chunks:
                _check(chunk)
    except (OSError, ValueError, struct.error, pa.ArrowException) as error:
        raise BadFile(path, f"not a readable table ({error}); import the collection again") from error
    return table


def _check(chunk: pa.Array) -> None:
    """Raise a ValueError if a value is missing or an offset is out of order."""
    if chunk.null_count:
        raise ValueError("a value is missing")
    if not len(chunk) or chunk.type not in (pa.string(), LIST):
        return
    width = np.int32 if chunk.type == pa.string() else np.int64
    starts: NDArray[Any] = np.frombuffer(chunk.buffers()[1], width)[chunk.offset : chunk.offset + len(chunk) + 1]
    if starts[0] < 0 or (starts[1:] < starts[:-1]).any():
        raise ValueError("its offsets are out of order")
    if chunk.type == LIST and chunk.values.null_count:
        raise ValueError("a value is missing")


def _batches(file: pa.Buffer) -> Iterator[memoryview]:
    """Yield the metadata of each batch that the file's footer lists."""
    whole = memoryview(file)
    if len(whole) < 10 or bytes(whole[-6:]) != MAGIC:
        raise ValueError("it does not end as an Arrow file does")
    (length,) = struct.unpack_from("<i", whole, len(whole) - 10)
    if not 0 < length <= len(whole) - 10:
        raise ValueError("its footer is longer than it is")
    footer = whole[len(whole) - 10 - length : len(whole) - 10]
    if any(_blocks(footer, DICTIONARIES)):
        raise ValueError("it keeps values in a dictionary")
    end = 0
    for place, size, body in sorted(_blocks(footer, BATCHES)):
        if not end <= place <= place + size <= place + size + body <= len(whole) or size < 8:
            raise ValueError("a part of it lies outside, or is listed twice")
        end = place + size + body
        head = 8 if _unsigned(whole, place) == LONG_METADATA else 4
        yield whole[place + head : place + size]


def _blocks(footer: memoryview, number: int) -> Iterator[tuple[int, int, int]]:
    """Yield the place, the size of the metadata and the size of the body of each part that a footer lists."""
    blocks = _field(footer, _message(footer), number)
    if blocks:
        start = blocks + _unsigned(footer, blocks)
        for each in range(_unsigned(footer, start)):
            place, size, body = struct.unpack_from("<qi4xq", footer, start + 4 + 24 * each)
            yield place, size, body


def _message(data: memoryview) -> int:
    """Return the position of a flatbuffer's root table."""
    return _unsigned(data, 0)


def _field(data: memoryview, table: int, number: int) -> int:
    """Return the position of a table's field, or 0 if the table leaves it out."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    slot = 4 + 2 * number
    if fields < 0 or slot >= struct.unpack_from("<H", data, fields)[0]:
        return 0
    (within,) = struct.unpack_from("<H", data, fields + slot)
    return table + within if within else 0


def _table(data: memoryview, table: int, number: int) -> int:
    """Return the position of the table that a field refers to."""
    place = _field(data, table, number)
    if not place:
        raise ValueError("a batch without a header")
    return place + _unsigned(data, place)


def _unsigned(data: memoryview, place: int) -> int:
    number: int = struct.unpack_from("<I", data, place)[0]
    return number
