"""Kill a job at random moments, let it end, and look at what it has left."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import astuple, dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic, sleep

from tests.torture.job import Job, result_of
from unrank.disk import CHECKPOINT, sha256
from unrank.engine.checkpoint import Checkpoint
from unrank.errors import UnrankError

MOST_KILLS = 2
"""A job may be killed again while it goes on."""
FROM_THE_START = 0.25


@dataclass(frozen=True)
class Tally:
    kills: int = 0
    jobs: int = 0
    identical: int = 0
    corrupt_folders: int = 0
    lost_records: int = 0
    left_behind: int = 0
    resumed: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.jobs} jobs ended, {self.resumed} of them from a checkpoint: "
            f"{self.identical} bit-identical, {self.corrupt_folders} corrupt folders, "
            f"{self.lost_records} lost records, {self.left_behind} left behind"
        )

    @property
    def clean(self) -> bool:
        return self.identical == self.jobs and not (self.corrupt_folders or self.lost_records or self.left_behind)


def kill_and_finish(job: Job, work: Path, seed: int) -> Tally:
    """One job from its beginning to its end, with kills between."""
    job.learn(work)
    generator, out, log, tally = random.Random(seed), work / "killed" / "out", work / "log", Tally()
    for _ in range(generator.randint(1, MOST_KILLS)):
        process = job.start(out, log)
        _let_run(process, out, generator, job.seconds)
        if not process.is_alive():
            break
        process.kill()
        process.join()
        tally += Tally(kills=1, corrupt_folders=corrupt(out))
    if tally.kills:
        tally += _ending(job, out, log)
    shutil.rmtree(out.parent)
    return tally


def _let_run(process: BaseProcess, out: Path, generator: random.Random, seconds: float) -> None:
    """For a random time; more often than not counted from the first checkpoint, for a small job is mostly its start."""
    if generator.random() < FROM_THE_START:
        process.join(generator.uniform(0.0, seconds))
        return
    began = monotonic()
    while not any(out.parent.rglob(CHECKPOINT)) and process.is_alive() and monotonic() - began < seconds / 2:
        sleep(0.01)
    process.join(generator.uniform(0.0, seconds / 3))


def _ending(job: Job, out: Path, log: Path) -> Tally:
    """Let the job come to its end, and compare it with one that was left alone."""
    was_whole = out.exists() and job.name != "bench"  # killed after its last deed but one: the same command says so
    resumed = not was_whole and any(out.parent.rglob(CHECKPOINT))
    process = job.start(out, log)
    process.join(300)
    assert process.exitcode in ((2,) if was_whole else (0, 3)), log.read_text()[-2000:]
    result = result_of(out)
    different = {name for name in job.result.keys() | result if job.result.get(name) != result.get(name)}
    if different:
        print(f"{job.name} has come to others: {', '.join(sorted(different))}", flush=True)
    records = {name for name in different if name.endswith((".json", ".jsonl"))}
    left = [path for path in out.parent.rglob("*") if "partial" in path.name or path.name.endswith(".unfinished")]
    return Tally(
        jobs=1,
        resumed=int(resumed),
        identical=int(not different - records),
        lost_records=len(records),
        left_behind=len(left),
        corrupt_folders=corrupt(out),
    )


def corrupt(out: Path) -> int:
    """How many folders are there under their final names and not whole, or kept and not to be read."""
    return sum(not _is_whole(path.parent) for path in out.parent.rglob("config.json") if _is_final(path)) + sum(
        not _can_be_read(path) for path in out.parent.rglob(CHECKPOINT)
    )


def _is_final(path: Path) -> bool:
    return not any(".partial-" in part for part in path.parts)


def _is_whole(folder: Path) -> bool:
    """Whether every file that the record of a ranker names is as it was written."""
    while not (folder / "unrank.json").exists():
        if folder == folder.parent:
            return False
        folder = folder.parent
    hashes = json.loads((folder / "unrank.json").read_text())["hashes"]
    return all((folder / name).is_file() and sha256(folder / name) == hashed for name, hashed in hashes.items())


def _can_be_read(path: Path) -> bool:
    try:
        return Checkpoint.load(path) is not None
    except UnrankError:
        return False
