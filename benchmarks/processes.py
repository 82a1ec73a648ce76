"""Scoring with several processes and with one: the wall time, and whether the scores are bit-equal.

    python benchmarks/processes.py COLLECTION [--rankers cross-encoder bi-encoder] [--processes 2] [--lists 20]
        [--base FOLDER] [--device cpu]

On a CPU each process has one thread; the machine should be idle and have a core for each process. The script starts
the processes as torchrun does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from socket import socket

import numpy as np
from numpy.typing import NDArray
from stopwatch import seconds

from unrank import open_collection
from unrank.disk import follows
from unrank.forgetting.workspace import Workspace
from unrank.rankers import create_ranker

FOUND = "UNRANK_BENCHMARK_FOUND"
"""The environment variable of a process that is timed: the file that the first one writes."""


def score(arguments: argparse.Namespace, kind: str, found: Path) -> None:
    """Score lists after a warm-up; the first process writes its time and the scores."""
    collection = open_collection(arguments.collection)
    ranker = create_ranker(kind, arguments.base, 0)
    workspace = Workspace.open(ranker, collection, None, arguments.device)
    scorer, device = workspace.scorer(ranker), workspace.runtime.device
    pairs = collection.list_pairs(collection.test_queries[: arguments.lists])
    workspace.store.read(pairs)
    scorer(pairs[: len(pairs) // 10])
    started = seconds(device)
    scores = scorer(pairs)
    took = seconds(device) - started
    if not follows():
        np.savez(found, took=took, scores=scores)


def in_processes(count: int, kind: str, given: Sequence[str], folder: Path) -> tuple[float, NDArray[np.float32]]:
    with socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    found = folder / f"{kind}-{count}.npz"
    where = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, *given, "--rankers", kind]
    started = [
        subprocess.Popen(
            command, env=os.environ | where | {"RANK": str(rank), "LOCAL_RANK": str(rank), FOUND: str(found)}
        )
        for rank in range(count)
    ]
    if any(process.wait() for process in started):
        sys.exit(1)
    with np.load(found) as written:
        return float(written["took"]), written["scores"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--rankers", nargs="+", default=["cross-encoder", "bi-encoder"])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--lists", type=int, default=20)
    parser.add_argument("--base")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    if FOUND in os.environ:
        score(arguments, arguments.rankers[0], Path(os.environ[FOUND]))
        return
    with tempfile.TemporaryDirectory() as folder:
        for kind in arguments.rankers:
            alone, its = in_processes(1, kind, sys.argv[1:], Path(folder))
            together, theirs = in_processes(arguments.processes, kind, sys.argv[1:], Path(folder))
            same = "bit-equal" if np.array_equal(its, theirs) else "NOT equal"
            print(
                f"{kind}: {len(its):,} pairs in {alone:.1f} s by one process, {together:.1f} s by "
                f"{arguments.processes}: {together / alone:.2f}; scores are {same}",
                flush=True,
            )


if __name__ == "__main__":
    main()
