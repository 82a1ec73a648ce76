"""Vectors by shards: whoever makes which piece, and whenever, the file is the same bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.index.conftest import NewCollection, some_texts
from tests.index.test_update import counting
from unrank.collection.removal import Removal
from unrank.engine.runtime import Silence
from unrank.errors import UnrankError
from unrank.index.document_side import DocumentSide
from unrank.index.encode import PIECES, VECTORS, Encoded, Encoding


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrank.index.encode.PIECE", 4)


def table_of(out: Path) -> pa.Table:
    with pa.OSFile(str(out / VECTORS)) as file:
        return pa.ipc.open_file(file).read_all()


def test_shards_of_which_one_is_killed_give_the_file_of_one_process(
    new_collection: NewCollection, side: DocumentSide, tmp_path: Path
) -> None:
    collection = new_collection(some_texts())
    assert Encoding(tmp_path / "whole", side, collection).run(1, 1, Silence()) == Encoded(8, 8, 0)
    out = tmp_path / "shards"
    assert Encoding(out, side, collection).run(3, 3, Silence()) == Encoded(8, 2, 6)
    with pytest.raises(KeyboardInterrupt):
        Encoding(out, counting(side, pieces=1), collection).run(2, 3, Silence())
    assert len([*(out / PIECES).iterdir()]) == 3 and not (out / VECTORS).exists()
    assert Encoding(out, side, collection).run(1, 3, Silence()) == Encoded(8, 3, 2)
    again = counting(side)
    assert Encoding(out, again, collection).run(2, 3, Silence()) == Encoded(8, 2, 0)
    assert len(again.encoded) == 6, "what was there is not encoded again"
    assert (out / VECTORS).read_bytes() == (tmp_path / "whole" / VECTORS).read_bytes()
    assert not (out / PIECES).exists()
    assert Encoding(out, counting(side, pieces=0), collection).run(1, 3, Silence()) == Encoded(8, 0, 0)
    table = table_of(out)
    assert table["id"].to_pylist() == list(some_texts())
    vectors = np.array(table["vector"].to_pylist(), np.float32)
    assert vectors == pytest.approx(side.encode(list(some_texts().values()), "document"), abs=1e-5)


def test_what_was_removed_is_left_out(new_collection: NewCollection, side: DocumentSide, tmp_path: Path) -> None:
    collection = new_collection(some_texts(9))
    removal = Removal(documents=["d3", *(f"d{number}" for number in range(4, 8))])
    Encoding(tmp_path / "out", side, collection, removal=removal).run(1, 1, Silence())
    assert table_of(tmp_path / "out")["id"].to_pylist() == ["d0", "d1", "d2", "d8"]
    with pytest.raises(UnrankError, match="made otherwise: removed differ; choose another --out"):
        Encoding(tmp_path / "out", side, collection).run(1, 1, Silence())


def test_vectors_of_two_rankers_are_not_mixed(
    new_collection: NewCollection, side: DocumentSide, other_side: DocumentSide, tmp_path: Path
) -> None:
    collection = new_collection(some_texts(9))
    Encoding(tmp_path / "out", side, collection).run(1, 2, Silence())
    with pytest.raises(UnrankError, match="made otherwise: model differ"):
        Encoding(tmp_path / "out", other_side, collection).run(2, 2, Silence())


def test_a_folder_that_cannot_be_written(new_collection: NewCollection, side: DocumentSide, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnrankError, match=r"cannot write to .*: Not a directory|File exists"):
        Encoding(tmp_path / "file", side, new_collection(some_texts(9))).run(1, 1, Silence())
