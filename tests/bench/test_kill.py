"""A grid that is killed at random goes on: the same records, and no cell twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.bench.conftest import Grid, RunBench

ROOT = Path(__file__).parents[2]
TIMES = {"seconds", "timing", "learning_epoch", "normalised_epoch", "total_time", "took", "jobs", "seal"}
"""What differs from run to run: times, how many jobs ran beside it, and the seal, which covers the times."""
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


@pytest.mark.slow
@pytest.mark.parametrize("times", [3, 10])
def test_a_grid_that_is_killed_again_and_again_goes_on(grid: Grid, tmp_path: Path, times: int) -> None:
    command = [sys.executable, "-m", "tests.bench.killer", str(grid(SOME)), str(tmp_path), str(times)]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stderr.splitlines()[-1]) >= times // 2
    assert records(tmp_path / "killed") == records(tmp_path / "whole")
    assert not [*tmp_path.rglob("*.partial-*")]
    lines = [line.split() for line in (tmp_path / "killed.log").read_text().splitlines()]
    ended: set[str] = set()
    for what, name in lines:
        assert name not in ended, "a finished task was begun again"
        if what == "ends":
            ended.add(name)
    assert len(lines) > 2 * len(ended), "no kill has met a task at work"
    made = [*tmp_path.glob("killed/cells/*"), *tmp_path.glob("killed/rankers/*")]
    assert {name for _, name in lines} == {path.name for path in made}
    assert {path.suffix for path in tmp_path.glob("killed/cache/*")} == {".cache"}


def test_what_a_killed_run_left_half_written_is_taken_away_and_its_time_counts(
    grid: Grid, bench: RunBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unrank.bench.runner.seconds_before", lambda run: 1000.0)
    half = tmp_path / "out" / "cells" / ".abc.partial-xyz"
    half.mkdir(parents=True)
    (half / "cell.json").write_text("{")
    assert bench(grid('methods = ["ssd"]\nremovals = ["documents"]')) == 0
    assert not half.exists()
    [cell] = (tmp_path / "out" / "cells").glob("*/cell.json")
    assert json.loads(cell.read_text())["took"] > 1000


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["bench", "worker"])
def test_processes_side_by_side(grid: Grid, tmp_path: Path, victim: str) -> None:
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
    alone = [*command[: command.index("--out")], "--out", str(tmp_path / "alone"), "--device", "cpu"]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as each of two workers has on two cores
    assert subprocess.run(alone, stderr=subprocess.DEVNULL, timeout=240, check=False, env=one_thread).returncode == 0
    assert records(out) == records(tmp_path / "alone")
