"""Faults that are not kills: a full disk, a disk that may only be read, damaged checkpoints, steps that overflow."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.torture.job import Job, result_of
from unrank.disk import CHECKPOINT

DAMAGES = 30


@dataclass(frozen=True)
class Fault:
    """What was done, what was said, and whether it ended in the right result or in one clear line."""

    name: str
    said: str
    well: bool


def faults(job: Job, work: Path, seed: int) -> Iterator[Fault]:
    """All of them on one job of steps; those that need a disk of their own where one may be mounted."""
    job.learn(work)
    yield overflow(job, work)
    yield from damages(job, work, random.Random(seed))
    if os.geteuid() == 0:
        yield from full_disk(job, work)
        yield read_only_disk(job, work)


def overflow(job: Job, work: Path) -> Fault:
    wild = Job("overflow", [re.sub(r"^learning_rate=.*", "learning_rate=1e30", word) for word in job.command])
    assert wild.command != job.command
    return _refused(wild, work / "fault" / "out", "a learning rate that overflows", "finite")


def damages(job: Job, work: Path, generator: random.Random) -> Iterator[Fault]:
    """Bytes flipped, cut off and added in a checkpoint."""
    kept = _killed_with_checkpoint(job, work / "damaged" / "out", generator)
    whole = kept.read_bytes()
    for number in range(DAMAGES):
        content = bytearray(whole)
        place = generator.randrange(len(whole))
        if number % 3 == 0:
            del content[place:]
        else:
            content[place] ^= 1 << generator.randrange(8)
        kept.write_bytes(content)
        yield _refused(job, work / "damaged" / "out", f"damage {number + 1} at byte {place:,}", "--no-resume")
    kept.write_bytes(whole)
    yield _ends_well(job, work / "damaged" / "out", "the same checkpoint undamaged")


def full_disk(job: Job, work: Path) -> Iterator[Fault]:
    """On disks so small that a checkpoint, the result, or both do not fit."""
    for size in (8, 64, 128, 256, 512):
        with _small_disk(work / "disk", size) as disk:
            out = disk / "out"
            process = job.start(out, work / "log")
            process.join(300)
            if process.exitcode == 2:
                yield Fault(
                    f"a disk of {size} KiB", _last_line(work / "log"), not out.exists() and _one_line(work / "log")
                )
                subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
                yield _ends_well(job, out, "the same with room")
            else:
                yield Fault(f"a disk of {size} KiB", "ended", result_of(out) == job.result)


def read_only_disk(job: Job, work: Path) -> Fault:
    with _small_disk(work / "disk", 1024) as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        return _refused(job, disk / "out", "a disk that may only be read", "")


@contextmanager
def _small_disk(disk: Path, kibibytes: int) -> Iterator[Path]:
    disk.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def _killed_with_checkpoint(job: Job, out: Path, generator: random.Random) -> Path:
    while True:
        process = job.start(out, out.parent.with_suffix(".log"))
        process.join(generator.uniform(0.0, job.seconds))
        process.kill()
        process.join()
        if found := [*out.parent.rglob(CHECKPOINT)]:
            return found[0]
        shutil.rmtree(out.parent, ignore_errors=True)


def _refused(job: Job, out: Path, name: str, word: str) -> Fault:
    log = out.parent.with_suffix(".log")
    log.unlink(missing_ok=True)
    process = job.start(out, log)
    process.join(300)
    said = _last_line(log)
    return Fault(name, said, process.exitcode == 2 and word in said and not out.exists() and _one_line(log))


def _ends_well(job: Job, out: Path, name: str) -> Fault:
    log = out.parent.with_suffix(".log")
    log.unlink(missing_ok=True)
    process = job.start(out, log)
    process.join(300)
    return Fault(name, _last_line(log), process.exitcode in (0, 3) and result_of(out) == job.result)


def _last_line(log: Path) -> str:
    return (log.read_text().splitlines() or [""])[-1]


def _one_line(log: Path) -> bool:
    """Whether what went wrong is said in a line, and not by a traceback."""
    text = log.read_text()
    return text.splitlines()[-1].startswith("unrank: ") and "Traceback" not in text and "a bug in" not in text
