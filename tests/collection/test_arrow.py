"""Tables that say what cannot be are refused when they are opened, whether or not their hashes are checked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from unrank.collection.arrow import COLUMNS, open_arrow
from unrank.collection.collection import FILES, Collection, description_hash, open_collection
from unrank.disk import sha256
from unrank.errors import BadFile, UnrankError


@pytest.fixture
def folder(dense: Collection, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dense.folder, tmp_path / "made"))


def write(path: Path, table: pa.Table, **options: str) -> None:
    settings = pa.ipc.IpcWriteOptions(**options)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, options=settings) as writer:
        writer.write_table(table)


def describe_again(folder: Path) -> None:
    """As one would who means harm: sizes and hashes are right."""
    path = folder / "collection.json"
    described = json.loads(path.read_text())
    described["files"] = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in FILES
    }
    path.write_text(json.dumps(described | {"seal": description_hash(described)}))


@pytest.mark.parametrize("name", FILES)
def test_the_tables_that_unrank_writes(dense: Collection, name: str) -> None:
    assert open_arrow(dense.folder / name).column_names == list(COLUMNS[Path(name).stem])


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_nothing_is_unpacked(folder: Path, codec: str) -> None:
    bomb = pa.table({"id": ["d"], "text": ["a" * 10_000_000]})
    write(folder / "documents.arrow", bomb, compression=codec)
    assert (folder / "documents.arrow").stat().st_size < 100_000
    describe_again(folder)
    with pytest.raises(BadFile, match=r"documents.arrow: not a readable table \(it is compressed\)"):
        open_collection(folder)


def test_offsets_out_of_order(folder: Path) -> None:
    path = folder / "documents.arrow"
    data, texts = path.read_bytes(), open_arrow(path).column("text").chunk(0)
    starts = np.frombuffer(texts.buffers()[1], np.int32)[: len(texts) + 1]
    place = data.index(starts.tobytes()) + 4 * 5
    path.write_bytes(data[:place] + (2**31 - 1).to_bytes(4, "little") + data[place + 4 :])
    describe_again(folder)
    with pytest.raises(BadFile, match="its offsets are out of order"):
        open_collection(folder)


@pytest.mark.parametrize(("column", "row"), [("query", 10_000), ("document", -1), ("document", 10_000)])
def test_judgements_of_what_is_not_there(folder: Path, column: str, row: int) -> None:
    table = open_arrow(folder / "judgements.arrow").to_pydict()
    table[column][3] = row
    schema = pa.schema(COLUMNS["judgements"].items())
    write(folder / "judgements.arrow", pa.table(table, schema=schema))
    describe_again(folder)
    with pytest.raises(BadFile, match="names a query or a document that is not there"):
        open_collection(folder)


def test_lists_of_what_is_not_there_or_too_few(folder: Path) -> None:
    table = open_arrow(folder / "candidates.arrow").to_pydict()
    schema = pa.schema(COLUMNS["candidates"].items())
    write(folder / "candidates.arrow", pa.table({name: rows[:-1] for name, rows in table.items()}, schema=schema))
    describe_again(folder)
    with pytest.raises(BadFile, match="one list for each query"):
        open_collection(folder)
    table["negatives"][0] = [10_000]
    write(folder / "candidates.arrow", pa.table(table, schema=schema))
    describe_again(folder)
    with pytest.raises(BadFile, match="not there"):
        open_collection(folder)


def test_missing_values(folder: Path) -> None:
    table = open_arrow(folder / "documents.arrow").to_pydict()
    table["text"][2] = None
    write(folder / "documents.arrow", pa.table(table))
    describe_again(folder)
    with pytest.raises(BadFile, match="a value is missing"):
        open_collection(folder)


def test_a_text_that_is_no_text(folder: Path, dense: Collection) -> None:
    path = folder / "documents.arrow"
    text = dense.documents.text(7).encode()
    path.write_bytes(path.read_bytes().replace(text, b"\xff" * len(text)))
    opened = open_collection(folder, verify=False)
    with pytest.raises(UnrankError, match="not UTF-8"):
        opened.documents.text(7)
    with pytest.raises(BadFile, match="changed since the collection was written"):
        open_collection(folder)


def test_links_and_seals(folder: Path, tmp_path: Path) -> None:
    path = folder / "collection.json"
    described = json.loads(path.read_text())
    path.write_text(json.dumps(described | {"name": "another"}))
    with pytest.raises(BadFile, match="take 'seal' out"):
        open_collection(folder)
    path.write_text(json.dumps({key: value for key, value in described.items() if key != "seal"}))
    open_collection(folder)
    (folder / "queries.arrow").rename(tmp_path / "queries.arrow")
    (folder / "queries.arrow").symlink_to(tmp_path / "queries.arrow")
    with pytest.raises(BadFile, match="leads outside made"):
        open_collection(folder)
