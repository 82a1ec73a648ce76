"""A grid of forty cells whose workers are killed: with submitit, with two nodes of Ray, and with plain benches."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.bench.conftest import QUICK
from tests.bench.test_kill import ROOT, is_alive, records
from tests.bench.test_share import FORTY
from unrank.bench import fleet as fleet_module
from unrank.bench.claims import MOST_DEATHS
from unrank.bench.fleet import Fleet, Launcher, Shift
from unrank.bench.runner import JobRunner
from unrank.bench.store import Store
from unrank.collection.collection import Collection
from unrank.errors import UnrankError

KILLS, LEASE, MINUTES = 10, 6, 20
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])}


def start(grid: Path, out: Path, *more: str, apart: bool = False) -> subprocess.Popen[str]:
    program = [sys.executable, "-c", "from tests.bench.logged import main; main()"]
    given = [str(grid), "--out", str(out), "--device", "cpu", "--checkpoint-every", "0.5", "--lease", str(LEASE), *more]
    environment = {**ENVIRONMENT, **({"TEST_APART": "1"} if apart else {})}
    return subprocess.Popen([*program, *given], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def alone(dense: Collection, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The grid, and the folder of a run on one machine."""
    folder = tmp_path_factory.mktemp("forty")
    grid, out = folder / "grid.toml", folder / "alone"
    head = f'collections = ["{dense.folder}"]\nrankers = ["bi-encoder"]\nbase = "{encoder}"\n'
    grid.write_text(f"{head}{QUICK}{FORTY}\n")
    process = start(grid, out, "--quiet")
    said = process.communicate(timeout=60 * MINUTES)[1]
    assert process.returncode == 0, said
    assert len(records(out)) == 40 * 5
    return grid, out


def workers(out: Path) -> list[int]:
    """The processes that are at work on a bench, but for those whose job would be given up if one more died on it."""
    texts = {path: path.read_text() for path in out.glob("claims/[!.]*") if path.exists()}
    claims = [json.loads(text) for path, text in texts.items() if text and path.suffix[1:].isdecimal()]
    spared = {claim["worker"] for claim in claims if claim["deaths"] >= MOST_DEATHS - 1}
    beats = {path.stem: json.loads(text) for path, text in texts.items() if text and path.suffix == ".worker"}
    found = [each["process"]["pid"] for name, each in beats.items() if each["jobs"] and name not in spared]
    return [process for process in found if is_alive(process)]


def kill_some(out: Path, process: subprocess.Popen[str], kills: int = KILLS) -> None:
    """Kill workers at random, once there is a cell."""
    generator, began, killed = random.Random(7), monotonic(), 0
    while killed < kills:
        assert process.poll() is None, f"the bench ended after {killed} kills"
        assert monotonic() - began < 60 * MINUTES
        sleep(generator.uniform(0.5, 3))
        if [*out.glob("cells/[!.]*")] and (found := workers(out)):
            os.kill(generator.choice(found), signal.SIGKILL)
            killed += 1


def check(out: Path, alone: Path) -> None:
    """Every cell is done once, and equal to that of one machine."""
    assert records(out) == records(alone)
    lines = [line.split() for line in out.with_suffix(".log").read_text().splitlines()]
    ended = [name for what, name in lines if what == "ends"]
    made = {path.name for path in (*out.glob("cells/*"), *out.glob("rankers/*"))}
    assert {name for _, name in lines} == made and len(made) == 42
    assert len(ended) == len(set(ended)), "a job was done twice"
    assert len(lines) - 2 * len(ended) > 0, "no kill has met a job at work"
    assert not [*out.glob("claims/*.[0-9]*")] and not [*out.rglob("*.partial-*")]


@pytest.mark.slow
def test_submitit(alone: tuple[Path, Path], tmp_path: Path) -> None:
    """Every worker takes itself for a machine of its own: the others see by its heartbeat that it is dead."""
    pytest.importorskip("submitit", reason="submitit is not installed: pip install 'unrank[slurm]'")
    out = tmp_path / "submitit"
    process = start(alone[0], out, "--on", "local", "--jobs", "3", apart=True)
    kill_some(out, process)
    said = process.communicate(timeout=60 * MINUTES)[1]
    assert process.returncode == 0, said
    check(out, alone[1])


@contextmanager
def two_nodes() -> Iterator[Any]:
    """A Ray cluster of two nodes on this machine."""
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed: pip install 'unrank[ray]'")
    cluster = cluster_utils.Cluster()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("OMP_NUM_THREADS", "PYTHONPATH"):
                patch.setenv(name, ENVIRONMENT[name])
            for _ in range(2):
                cluster.add_node(num_cpus=2, object_store_memory=100 * 2**20, include_dashboard=False)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.mark.slow
def test_ray(alone: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "ray"
    with two_nodes() as cluster:
        monkeypatch.setitem(ENVIRONMENT, "RAY_ADDRESS", cluster.address)
        process = start(alone[0], out, "--on", "ray", "--jobs", "3")
        kill_some(out, process)
        said = process.communicate(timeout=60 * MINUTES)[1]
    assert process.returncode == 0, said
    check(out, alone[1])


@pytest.mark.slow
def test_two_benches_in_one_folder(alone: tuple[Path, Path], tmp_path: Path) -> None:
    """They share the work; one is killed, and the other does the rest."""
    out = tmp_path / "two"
    one, two = start(alone[0], out, "--quiet"), start(alone[0], out)
    began = monotonic()
    while len([*out.glob("cells/[!.]*")]) < 20:
        assert one.poll() is two.poll() is None and monotonic() - began < 60 * MINUTES
        sleep(0.1)
    one.kill()
    one.communicate()
    said = two.communicate(timeout=60 * MINUTES)[1]
    assert two.returncode == 0 and "done by another worker" in said, said
    check(out, alone[1])


class Doomed:
    """Starts workers that die at once."""

    def __init__(self, fates: Sequence[str | None]) -> None:
        self.fates, self.started, self.cancelled = list(fates), 0, 0

    def start(self, shift: Shift) -> int:
        self.started += 1
        return self.started

    def fate(self, worker: int) -> str | None:
        return self.fates[min(worker, len(self.fates)) - 1]

    def cancel(self, worker: int) -> None:
        self.cancelled += 1


def fleet_of(launcher: Launcher, tmp_path: Path) -> Fleet:
    return Fleet(launcher, Shift(tmp_path, [], JobRunner(Store(tmp_path), "cpu", False), 10, {}), 2)


def test_a_worker_that_dies_is_replaced_and_one_that_ends_is_not(tmp_path: Path) -> None:
    launcher = Doomed(["killed", "", None])
    fleet = fleet_of(launcher, tmp_path)
    assert not fleet.idle() and not fleet.wait(0)
    assert launcher.started == 3 and not fleet.is_over
    launcher.fates[2] = ""
    fleet.wait(0)
    assert launcher.started == 3 and fleet.is_over
    fleet.stop()
    assert launcher.cancelled == 0


def test_workers_that_all_die_end_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "MOST_RESTARTS", 1)
    fleet = fleet_of(Doomed(["no torch there"]), tmp_path)
    with pytest.raises(UnrankError, match="3 workers died, and no cell was finished between; the last: no torch there"):
        for _ in range(5):
            fleet.wait(0)
