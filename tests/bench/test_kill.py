"""A grid that is killed at random goes on: the same records, and no cell twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.bench.conftest import Grid, RunBench
from unrank.bench.job import Bench, Task

TIMES = {"seconds", "timing", "learning_epoch", "normalised_epoch", "total_time", "took"}
SOME = 'methods = ["retrain", "cocol", "neggrad"]'


def timeless(value: Any) -> Any:
    """A record without what is another every time."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in TIMES}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def records(out: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(out)): [timeless(json.loads(line)) for line in _values(path)]
        for path in sorted((out / "cells").rglob("*.json*"))
    }


def _values(path: Path) -> list[str]:
    text = path.read_text()
    return text.splitlines() if path.suffix == ".jsonl" else [text]


def run_logged(grid: Path, out: Path, log: Path) -> None:
    """Run a grid in a process of its own, writing down what it begins and what it ends."""
    from unrank.cli.main import run

    work = Bench.work

    def logged(self: Bench, task: Task) -> str:
        with log.open("a") as file:
            print("begins", task.name, file=file)
        said = work(self, task)
        with log.open("a") as file:
            print("ends", task.name, file=file)
        return said

    Bench.work = logged  # type: ignore[method-assign]
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os._exit(run(["bench", str(grid), "--out", str(out), "--quiet", "--device", "cpu"]))


def kill_at_random(grid: Path, out: Path, log: Path, kills: int) -> None:
    """Start the grid so many times and kill it each time, unless it ends before; then let it go on to its end."""
    generator = random.Random(kills)
    for kill in range(kills + 1):
        process = multiprocessing.get_context("fork").Process(target=run_logged, args=(grid, out, log))
        process.start()
        process.join(generator.uniform(0.1, 1.2) if kill < kills else 60)
        if process.is_alive():
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join()
            assert kill < kills, "the grid did not come to its end"
    assert process.exitcode == 0


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_killed_grid_goes_on(grid: Grid, bench: RunBench, tmp_path: Path, kills: int) -> None:
    path, killed, whole, log = grid(SOME), tmp_path / "killed", tmp_path / "whole", tmp_path / "log"
    kill_at_random(path, killed, log, kills)
    assert bench(path, out=whole) == 0
    assert records(killed) == records(whole)
    assert not [*killed.rglob("*.partial-*")]
    lines = [line.split() for line in log.read_text().splitlines()]
    ended: set[str] = set()
    for what, name in lines:
        assert name not in ended, "a finished task was begun again"
        if what == "ends":
            ended.add(name)
    assert {name for _, name in lines} == {
        path.name for path in [*(killed / "cells").iterdir(), *(killed / "rankers").iterdir()]
    }


def test_what_a_killed_run_left_half_written_is_taken_away(grid: Grid, bench: RunBench, tmp_path: Path) -> None:
    half = tmp_path / "out" / "cells" / ".abc.partial-xyz"
    half.mkdir(parents=True)
    (half / "cell.json").write_text("{")
    assert bench(grid('methods = ["ssd"]\nremovals = ["documents"]')) == 0
    assert not half.exists()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["bench", "worker"])
def test_processes_side_by_side(grid: Grid, bench: RunBench, tmp_path: Path, victim: str) -> None:
    """Two workers give the records of one. With the bench its workers die; with a worker its task alone is lost."""
    path, out = grid(SOME, rankers='["bi-encoder", "colbert"]'), tmp_path / "out"
    command = [sys.executable, "-m", "unrank", "bench", str(path), "--out", str(out), "--jobs", "2", "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    began = monotonic()
    while len([*out.glob("cells/[!.]*")]) < 2:
        assert process.poll() is None and monotonic() - began < 120
        sleep(0.05)
    workers = [pid for pid in children(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(workers) == 2
    if victim == "bench":
        process.kill()
        process.wait()
        for _ in range(50):
            sleep(0.1)
        assert not any(is_alive(pid) for pid in workers)
    else:
        os.kill(workers[0], signal.SIGKILL)
        said = process.communicate(timeout=120)[1]
        assert process.returncode == 3
        assert "failed: its process died" in said
    assert subprocess.run(command, stderr=subprocess.DEVNULL, timeout=120, check=False).returncode == 0
    assert bench(path, out=tmp_path / "alone") == 0
    assert records(out) == records(tmp_path / "alone")
