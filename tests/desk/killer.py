"""Run what is open, and kill it at random, again and again: `python -m tests.desk.killer FOLDER KILLS`.

A process of its own that imports all that a run needs and computes nothing: torch does not survive a fork after it has
computed, and starting anew each time would kill imports and no work. Prints how often a run was killed at work.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic

import torch

from unrank.audit.context import Thoroughness
from unrank.cli.main import run
from unrank.desk import run_context
from unrank.desk.gates import RequestPairs
from unrank.desk.ledger import Ledger
from unrank.forgetting.outcome import ForgetState

ADD = ("desk", "add", "--document", "doc2", "--quiet")
"""A request that comes while a run is unfinished."""
MODULES = ("unrank.rankers.bi_encoder", "sentence_transformers", "bm25s")


def command(folder: Path, ranker: Path) -> list[str]:
    told = ["desk", "run", str(ranker), str(folder / "collection"), "--ledger", str(folder / "desk.ledger")]
    return [
        *told,
        "--yes",
        "--quiet",
        "--device",
        "cpu",
        "--set",
        "learning_rate=1e-3",
        "--queries",
        "10",
        "--checkpoint-every",
        "0",
    ]


def work(folder: Path, ranker: Path) -> None:
    """Cut short what takes most of a tiny audit's time, and leave the gates open: it is too small to be certified."""
    judge = RequestPairs.judge
    RequestPairs.judge = lambda *given: {  # type: ignore[method-assign]
        id: replace(result, state=ForgetState.FORGOTTEN) for id, result in judge(*given).items()
    }
    run_context.Thoroughness = partial(Thoroughness, relearning_steps=(1,))  # type: ignore[attr-defined, assignment]
    torch.set_num_threads(1)
    os._exit(run(command(folder, ranker)))


def has_begun(ledger: Path) -> bool:
    with Ledger.open(ledger) as opened:
        return bool(opened.ask("SELECT 1 FROM run"))


def started(folder: Path, ranker: Path) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=work, args=(folder, ranker))
    process.start()
    return process


def main(folder: Path, kills: int) -> None:
    for module in MODULES:
        importlib.import_module(module)
    began = monotonic()
    first = started(folder / "whole", folder / "whole" / "ranker")
    first.join(120)
    assert first.exitcode == 0, "the run did not come to its end"
    whole, generator, killed = monotonic() - began, random.Random(3), 0
    added = False
    for _ in range(kills):
        process = started(folder / "killed", folder / "killed" / "ranker")
        process.join(generator.uniform(0.05, 0.6 * whole))
        killed += process.is_alive()
        process.kill()
        process.join()
        if not added and has_begun(folder / "killed" / "desk.ledger"):
            added = (
                run([*ADD, str(folder / "killed" / "collection"), "--ledger", str(folder / "killed" / "desk.ledger")])
                == 0
            )
    last = started(folder / "killed", folder / "killed" / "ranker")
    last.join(120)
    assert last.exitcode == 0, "the run did not come to its end"
    print(killed, file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
