"""Run a grid whole, then kill it at random, again and again: `python -m tests.bench.killer GRID OUT KILLS`.

A process of its own that imports all that a bench needs and computes nothing: torch does not survive a fork after it
has computed, and starting anew each time would kill imports and no cells. Prints how often the grid was killed.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
import sys
from pathlib import Path
from time import monotonic

import torch

from unrank.bench.cell import Job
from unrank.bench.runner import JobRunner
from unrank.cli.main import run


def run_logged(grid: Path, out: Path, log: Path) -> None:
    """Run a grid, writing down what it begins and what it ends."""
    run_job = JobRunner.run

    def logged(self: JobRunner, job: Job) -> str:
        with log.open("a") as file:
            print("begins", job.name, file=file)
        said = run_job(self, job)
        with log.open("a") as file:
            print("ends", job.name, file=file)
        return said

    JobRunner.run = logged  # type: ignore[method-assign]
    torch.set_num_threads(1)
    os._exit(run(["bench", str(grid), "--out", str(out), "--quiet", "--device", "cpu"]))


def started(grid: Path, out: Path) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=run_logged, args=(grid, out, out.with_suffix(".log")))
    process.start()
    return process


def finish(grid: Path, out: Path) -> float:
    """Let a grid come to its end; the seconds that it took."""
    began = monotonic()
    process = started(grid, out)
    process.join(60)
    assert process.exitcode == 0, "the grid did not come to its end"
    return monotonic() - began


def main(grid: Path, out: Path, kills: int) -> None:
    for module in ("unrank.bench.run", "unrank.rankers.bi_encoder", "sentence_transformers", "bm25s"):
        importlib.import_module(module)
    whole = finish(grid, out / "whole")
    generator, killed = random.Random(1), 0
    for _ in range(kills):
        process = started(grid, out / "killed")
        process.join(generator.uniform(0.05, whole / 2.5))
        killed += process.is_alive()
        process.kill()
        process.join()
    finish(grid, out / "killed")
    print(killed, file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
