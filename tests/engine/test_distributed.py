"""Two processes on one job: the scores of one alone to the last bit, and nearly its weights."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from tests.engine import distributed_job
from unrank.cli.main import run
from unrank.collection.collection import Collection
from unrank.disk import CHECKPOINT, beside
from unrank.engine.distributed import ProcessGroup

Processes = list[subprocess.Popen[bytes]]


def start(count: int, *command: object) -> Processes:
    """Start several processes on one job, as torchrun does."""
    port = distributed_job.free_port()
    where = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=os.environ | where | {"RANK": str(number), "LOCAL_RANK": str(number)},
        )
        for number in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cross-encoder", "colbert"])
def test_two_processes_score_alike_and_come_to_the_same(
    kind: str, dense: Collection, encoder: Path, tmp_path: Path
) -> None:
    """Each is a fresh process: where much was computed before, other kernels may be at hand, and other last bits."""
    command = [sys.executable, distributed_job.__file__, str(dense.folder), str(encoder), str(tmp_path), kind]
    subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, timeout=300)
    one, two = (dict(np.load(tmp_path / f"{count}.npz")) for count in (1, 2))
    assert (float(one[f"{kind} processes"]), float(two[f"{kind} processes"])) == (1, 2)
    assert np.array_equal(one[f"{kind} scores"], two[f"{kind} scores"])
    np.testing.assert_allclose(two[f"{kind} trained"], one[f"{kind} trained"], atol=1e-4)
    np.testing.assert_allclose(two[f"{kind} mrrs"], one[f"{kind} mrrs"], atol=0.002)


@pytest.mark.slow
def test_a_killed_job_goes_on_with_another_number_of_processes(
    dense: Collection, encoder: Path, tmp_path: Path
) -> None:
    """Two, then one, then two again; it ends where one that was never killed ends."""
    settings = [word for item in ("epochs=3", "enough=1", "learning_rate=1e-3", "batch=16") for word in ("--set", item)]
    job = ["-m", "unrank", "train", dense.folder, "--ranker", "bi-encoder", "--base", encoder, *settings]
    job += ["--device", "cpu", "--quiet", "--checkpoint-every", "0", "--out"]
    out, whole = tmp_path / "killed", tmp_path / "whole"
    checkpoint = beside(out) / CHECKPOINT
    for count in (2, 1):
        reached = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        started = start(count, *job, out)
        while not checkpoint.exists() or checkpoint.stat().st_mtime_ns == reached:
            assert started[0].poll() is None
            time.sleep(0.01)
        for process in started:
            process.kill()
            process.wait()
    assert not out.exists()
    assert [process.wait(timeout=120) for process in (*start(2, *job, out), *start(1, *job, whole))] == [0, 0, 0]
    assert not checkpoint.exists()
    its, ours = (load_file(folder / "model.safetensors") for folder in (whole, out))
    for name, weight in its.items():
        np.testing.assert_allclose(ours[name], weight, atol=1e-3, err_msg=name)


def test_a_process_alone_is_a_team_of_one() -> None:
    alone = ProcessGroup()
    parts = alone.map(lambda chunk: torch.full((2,), float(chunk)), [1, 2], torch.device("cpu"))
    assert [part.tolist() for part in parts] == [[1.0, 1.0], [2.0, 2.0]]
    assert alone.agree(True) and not alone.agree(False)


def test_a_process_that_follows_writes_and_says_nothing(
    dense: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "removal.json"
    arguments = ["split", str(dense.folder), "--remove", "documents", "--share", "0.2", "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setenv("RANK", "1")
        patch.setattr(sys, "stdout", sys.stdout)  # the command closes it for good: bring it back
        assert run(arguments) == 0
    assert (capsys.readouterr().out, out.exists()) == ("", False)
    assert run(arguments) == 0
    assert capsys.readouterr().out and out.exists()
