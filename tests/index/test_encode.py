"""Vectors by shards: whoever makes which piece, and whenever, the file is the same bit by bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import sleep

import numpy as np
import pyarrow as pa
import pytest

from tests.bench.test_fleet import ENVIRONMENT, two_nodes
from tests.index.conftest import NewCollection, some_texts
from tests.index.test_update import counting
from tests.tiny import make_bi_encoder
from unrank.collection.removal import Removal
from unrank.engine.pieces import Made, Pieces
from unrank.engine.runtime import Silence
from unrank.errors import BadFile, UnrankError
from unrank.index.document_side import DocumentSide
from unrank.index.encode import Encoding

VECTORS = "vectors.arrow"
PIECES = "pieces-vectors"


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
    assert Pieces(tmp_path / "whole", Encoding(side, collection)).run(1, 1, Silence()) == Made(8, 8, 0)
    out = tmp_path / "shards"
    assert Pieces(out, Encoding(side, collection)).run(3, 3, Silence()) == Made(8, 2, 6)
    with pytest.raises(KeyboardInterrupt):
        Pieces(out, Encoding(counting(side, pieces=1), collection)).run(2, 3, Silence())
    assert len([*(out / PIECES).iterdir()]) == 3 and not (out / VECTORS).exists()
    assert Pieces(out, Encoding(side, collection)).run(1, 3, Silence()) == Made(8, 3, 2)
    again = counting(side)
    assert Pieces(out, Encoding(again, collection)).run(2, 3, Silence()) == Made(8, 2, 0)
    assert len(again.encoded) == 6, "what was there is not encoded again"
    assert (out / VECTORS).read_bytes() == (tmp_path / "whole" / VECTORS).read_bytes()
    assert not (out / PIECES).exists()
    assert Pieces(out, Encoding(counting(side, pieces=0), collection)).run(1, 3, Silence()) == Made(8, 0, 0)
    table = table_of(out)
    assert table["id"].to_pylist() == list(some_texts())
    vectors = np.array(table["vector"].to_pylist(), np.float32)
    assert vectors == pytest.approx(side.encode(list(some_texts().values()), "document"), abs=1e-5)


def test_what_was_removed_is_left_out(new_collection: NewCollection, side: DocumentSide, tmp_path: Path) -> None:
    collection = new_collection(some_texts(9))
    removal = Removal(documents=["d3", *(f"d{number}" for number in range(4, 8))])
    Pieces(tmp_path / "out", Encoding(side, collection, removal=removal)).run(1, 1, Silence())
    assert table_of(tmp_path / "out")["id"].to_pylist() == ["d0", "d1", "d2", "d8"]
    with pytest.raises(UnrankError, match="made otherwise: removed differ; choose another folder"):
        Pieces(tmp_path / "out", Encoding(side, collection)).run(1, 1, Silence())


def test_vectors_of_two_rankers_are_not_mixed(
    new_collection: NewCollection, side: DocumentSide, other_side: DocumentSide, tmp_path: Path
) -> None:
    collection = new_collection(some_texts(9))
    Pieces(tmp_path / "out", Encoding(side, collection)).run(1, 2, Silence())
    with pytest.raises(UnrankError, match="made otherwise: model differ"):
        Pieces(tmp_path / "out", Encoding(other_side, collection)).run(2, 2, Silence())


def test_a_folder_that_cannot_be_written(new_collection: NewCollection, side: DocumentSide, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnrankError, match=r"cannot write to .*: Not a directory|File exists"):
        Pieces(tmp_path / "file", Encoding(side, new_collection(some_texts(9)))).run(1, 1, Silence())


def test_a_damaged_file_is_no_table(new_collection: NewCollection, side: DocumentSide, tmp_path: Path) -> None:
    pieces = Pieces(tmp_path / "out", Encoding(side, new_collection(some_texts(9))))
    assert pieces.run(1, 1, Silence()) == Made(3, 3, 0)
    whole = pieces.file.read_bytes()
    for left in (b"", whole[: len(whole) // 2]):
        pieces.file.write_bytes(left)
        with pytest.raises(
            BadFile, match=r"vectors\.arrow: cannot be read: .*; if it is damaged, delete it and run this again"
        ):
            pieces.run(1, 1, Silence())
    pieces.file.unlink()
    assert pieces.run(1, 1, Silence()) == Made(3, 3, 0)
    assert pieces.file.read_bytes() == whole


@pytest.mark.slow
def test_workers_of_a_ray_cluster_give_the_file_of_one_process(
    new_collection: NewCollection, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes, two workers, and one of them is killed: vectors, and scores, are those of one process."""
    pytest.importorskip("ray.data", reason="Ray Data is not installed: pip install 'unrank[ray]'")
    collection = new_collection(some_texts(20_000))
    ranker = make_bi_encoder(encoder, tmp_path / "ranker")
    command = [sys.executable, "-m", "unrank"]
    vectors = [*command, "encode", str(ranker), str(collection.folder), "--device", "cpu", "--out"]
    scores = [*command, "evaluate", str(ranker), str(collection.folder), "--device", "cpu", "--json", "--scores"]
    on_ray = ["--on", "ray", "--jobs", "2", "--resource", "num_cpus=1"]

    def run(*arguments: str) -> str:
        return subprocess.run(arguments, env=ENVIRONMENT, check=True, capture_output=True, text=True).stdout

    run(*vectors, str(tmp_path / "one"))
    figures = run(*scores, str(tmp_path / "one"))
    with two_nodes() as cluster:
        monkeypatch.setitem(ENVIRONMENT, "RAY_ADDRESS", cluster.address)
        process = subprocess.Popen(
            [*vectors, str(tmp_path / "ray"), *on_ray], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
        )
        while not [*(tmp_path / "ray" / PIECES).glob("[!.]*")]:
            assert process.poll() is None, process.communicate()[1]
            sleep(0.05)
        os.kill(ray_workers()[0], signal.SIGKILL)
        said = process.communicate(timeout=300)[1]
        assert process.returncode == 0, said
        assert run(*scores, str(tmp_path / "ray"), *on_ray) == figures
    for name in (VECTORS, "scores.arrow"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


def ray_workers() -> list[int]:
    """The processes that run a worker of Ray Data."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"_MapWorker" in path.read_bytes() and b"MapBatches(_Worker)" in path.read_bytes():
                found.append(int(path.parent.name))
    return found
