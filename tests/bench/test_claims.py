"""Claims: a job has one worker, whatever dies, pauses or has another clock."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import monotonic, sleep, time

import pytest

from unrank.bench import claims as claims_module
from unrank.bench import heartbeat
from unrank.bench.claims import MOST_DEATHS, Claims, joined
from unrank.bench.heartbeat import Heartbeats, Worker, runners_here
from unrank.errors import UnrankError
from unrank.journal import Process


def worker_on(folder: Path, machine: str = "", lease: float = 10.0) -> Claims:
    """A worker that has looked; without the name of a machine it is on this one."""
    worker = Worker.this(1, lease)
    claims = Claims(folder, Heartbeats(folder, replace(worker, machine=machine) if machine else worker))
    folder.mkdir(exist_ok=True)
    claims.heartbeats.beat()
    claims.look()
    return claims


class Clock:
    """A clock of one's own."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(heartbeat, "monotonic", clock)
    return clock


def dead_process() -> Process:
    process = multiprocessing.get_context("fork").Process(target=os._exit, args=(0,))
    process.start()
    found = Process(process.pid or 0, Process.this().host, "0")
    process.join()
    return found


def test_one_of_two_gets_a_job_and_gives_it_back(tmp_path: Path) -> None:
    one, two = worker_on(tmp_path / "claims", "a"), worker_on(tmp_path / "claims", "b")
    assert one.take("job") and one.take("job")
    assert not two.take("job"), "not seen yet, and made by another"
    two.look()
    assert not two.take("job") and not two.failure("job")
    assert one.end("job")
    assert two.take("job")
    assert json.loads((tmp_path / "claims" / "job.2").read_text())["deaths"] == 0
    two.done("job")
    one.leave()
    two.leave()
    assert not (tmp_path / "claims").exists()


def test_a_worker_on_another_machine_is_dead_when_its_heartbeat_stands_still(tmp_path: Path, clock: Clock) -> None:
    """By the reader's own clock: what the other's says, and how far off it is, does not matter."""
    one, two = worker_on(tmp_path, "a"), worker_on(tmp_path, "b", lease=1)
    assert one.take("job")
    os.utime(tmp_path / "job.1", (time() - 1e6, time() - 1e6))
    two.look()
    for _ in range(5):
        clock.now += 9.9  # the lease of a worker is its own
        assert not two.take("job")
        one.heartbeats.beat()
    assert not two.take("job")
    clock.now += 10.1
    assert two.take("job")
    assert json.loads((tmp_path / "job.2").read_text())["deaths"] == 1
    assert not one.end("job", "too late"), "another worker has it now"
    one.look()
    one.heartbeats.beat()
    assert not one.take("job") and not one.failure("job")
    assert two.end("job", "it broke")
    one.look()
    assert one.failure("job") == "it broke" and not one.take("job")


def test_a_reader_that_was_paused_first_looks_again(tmp_path: Path, clock: Clock) -> None:
    one, two = worker_on(tmp_path, "a"), worker_on(tmp_path, "b")
    assert one.take("job")
    two.look()
    assert not two.take("job")
    clock.now += 1000
    one.heartbeats.beat()
    assert not two.take("job")


def test_a_dead_process_of_this_machine_is_seen_at_once(tmp_path: Path) -> None:
    one, two = worker_on(tmp_path), worker_on(tmp_path)
    assert runners_here(tmp_path) == 2
    one.heartbeats.worker = replace(one.heartbeats.worker, process=dead_process())
    one.heartbeats.beat()
    assert one.take("job") and runners_here(tmp_path) == 1
    two.look()
    assert two.take("job")
    assert two.heartbeats.others() == []


def test_a_job_that_kills_its_workers_has_failed(tmp_path: Path) -> None:
    for number in range(MOST_DEATHS):
        one = worker_on(tmp_path)
        assert one.take("job"), number
        one.heartbeats.stop()
    last = worker_on(tmp_path)
    assert not last.take("job")
    last.look()
    assert last.failure("job") == "5 workers died on it, one after the other; was there enough memory?"
    later = worker_on(tmp_path)
    later.old = later.last
    assert not later.failure("job") and later.take("job"), "the next bench tries it again"


def test_a_claim_that_was_half_written_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "job.1").write_text("")
    one = worker_on(tmp_path)
    assert not one.take("job")
    clock.now += 9
    assert not one.take("job")
    clock.now += 2
    assert one.take("job")


def test_a_heartbeat_goes_on_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims_module, "BEATS", 100)
    with joined(tmp_path / "claims", Worker.this(3, lease=1.0)) as claims:
        assert runners_here(tmp_path / "claims") == claims.heartbeats.runners() == 3
        began = monotonic()
        while claims.heartbeats.worker.beat < 3:
            assert monotonic() - began < 10
            sleep(0.01)
        assert claims.take("job")
    left = worker_on(tmp_path / "claims")
    assert left.heartbeats.others() == [] and left.take("job")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UnrankError, match=r"cannot write to .*claims: Not a directory"),
        joined(tmp_path / "file" / "claims", Worker.this(1)),
    ):
        pass


def work(folder: Path, number: int, die: bool, together: Barrier) -> None:
    """Do all jobs, as far as others leave some; one that dies does so in the middle of its third job."""
    with joined(folder / "claims", replace(Worker.this(1, lease=1.5), machine=f"machine {number}")) as claims:
        together.wait()
        had = 0
        names = {f"{name:02}" for name in range(40)}
        while left := sorted(names - {path.name for path in folder.glob("done/*")}):
            claims.look()
            for job in left:
                if claims.take(job):
                    if (folder / "done" / job).exists():
                        claims.done(job)
                        continue
                    had += 1
                    if die and had == 3:
                        os.kill(os.getpid(), signal.SIGKILL)
                    with (folder / "begun").open("a") as file:
                        file.write(f"{job}\n")
                    sleep(0.02)
                    (folder / "done" / job).touch(exist_ok=False)
                    claims.done(job)
            sleep(0.02)


def test_every_job_is_done_once_though_workers_die(tmp_path: Path) -> None:
    (tmp_path / "done").mkdir()
    context = multiprocessing.get_context("fork")
    together = context.Barrier(4)
    given = [(tmp_path, number, number % 2 == 1, together) for number in range(4)]
    workers = [context.Process(target=work, args=each) for each in given]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0, -signal.SIGKILL, 0, -signal.SIGKILL]
    begun = (tmp_path / "begun").read_text().split()
    assert sorted(begun) == sorted(set(begun)) == [f"{name:02}" for name in range(40)]
    assert not [*(tmp_path / "claims").glob("*.[0-9]*")]
