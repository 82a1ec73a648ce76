"""Two processes on one job: the scores of one alone to the last bit, and nearly its weights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from socket import socket

import numpy as np
import torch
from numpy.typing import NDArray

from tests.engine import team_job
from unrank.collection.collection import Collection
from unrank.engine.team import Team

KINDS = ("cross-encoder", "colbert")


def in_processes(count: int, collection: Collection, encoder: Path, out: Path) -> dict[str, NDArray[np.float64]]:
    """What the first of so many finds, started as torchrun starts them. In a process where much was computed before,
    kernels of other shapes and threads may be at hand, and the last bits are others."""
    with socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, team_job.__file__, str(collection.folder), str(encoder), str(out), *KINDS]
    started = [
        subprocess.Popen(command, env=os.environ | where | {"RANK": str(number), "LOCAL_RANK": str(number)})
        for number in range(count)
    ]
    assert [process.wait(timeout=300) for process in started] == [0] * count
    return dict(np.load(out))


def test_two_processes_score_alike_and_come_to_the_same(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    one, two = (in_processes(count, dense, encoder, tmp_path / f"{count}.npz") for count in (1, 2))
    for kind in KINDS:
        assert (float(one[f"{kind} processes"]), float(two[f"{kind} processes"])) == (1, 2)
        assert np.array_equal(one[f"{kind} scores"], two[f"{kind} scores"])
        np.testing.assert_allclose(two[f"{kind} trained"], one[f"{kind} trained"], atol=1e-4)
        np.testing.assert_allclose(two[f"{kind} mrrs"], one[f"{kind} mrrs"], atol=0.002)


def test_a_process_alone_is_a_team_of_one() -> None:
    alone = Team()
    parts = alone.map(lambda chunk: torch.full((2,), float(chunk)), [1, 2], torch.device("cpu"))
    assert [part.tolist() for part in parts] == [[1.0, 1.0], [2.0, 2.0]]
    assert alone.agree(True) and not alone.agree(False)


def test_what_follows_writes_and_says_nothing(dense: Collection, tmp_path: Path) -> None:
    out = tmp_path / "removal.json"
    arguments = ["split", str(dense.folder), "--remove", "documents", "--share", "0.2", "--out", str(out)]
    command = [sys.executable, "-m", "unrank", *arguments]
    done = subprocess.run(command, env=os.environ | {"RANK": "1"}, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, out.exists()) == (0, b"", False)
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert out.exists()
