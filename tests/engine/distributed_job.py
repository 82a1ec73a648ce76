"""A job that test_distributed.py runs in one process and in two: train, score all lists, forget, write the results."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

import unrank
from unrank.disk import follows
from unrank.engine.distributed import as_held
from unrank.engine.runtime import Runtime
from unrank.engine.scoring import score_pairs, scores_of
from unrank.engine.sharding import as_whole, shard, sharded_runtime
from unrank.forgetting.workspace import Workspace
from unrank.methods.cocol import Cocol
from unrank.methods.retrain import Retrain
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.layers import layer_stack

RANKERS = ("cross_encoder", "colbert", "decoder")


def results(kind: str, collection: unrank.Collection, encoder: str) -> dict[str, NDArray[np.float64]]:
    workspace = Workspace.open(create_ranker(kind, encoder, 0), collection, None, "cpu")
    pairs = collection.list_pairs(collection.training_queries)
    scores = workspace.scorer(create_ranker(kind, encoder, 0))(pairs)
    training = Retrain(learning_rate=1e-3, epochs=1, batch=48, negatives=4)
    trained = unrank.train(collection, kind, encoder, method=training, device="cpu")
    removal = unrank.Removal.sample(collection, "documents", 0.2)
    method = Cocol(learning_rate=1e-3, batch=16, epochs=1)
    after = unrank.forget(trained.ranker, collection, removal, method=method, target="70%", device="cpu").after
    mrrs = [card.mean for card in (after.forget, after.entangled, after.disjoint, after.test) if card]
    found = {
        "processes": workspace.runtime.processes.size,
        "scores": scores,
        "trained": workspace.scorer(trained.ranker)(pairs),
        "mrrs": mrrs,
    }
    return {f"{kind} {name}": np.asarray(value, np.float64) for name, value in found.items()}


def sharded_results(kind: str, collection: unrank.Collection, base: str) -> dict[str, NDArray[np.float64]]:
    """Train a decoder, one step an epoch, sharded if there are several processes; then take one pair's gradients."""
    runtime, pairs = Runtime.on("cpu"), collection.list_pairs(collection.training_queries)
    several = runtime.processes.size > 1
    training = Retrain(learning_rate=1e-3, epochs=3, batch=1_000, negatives=2, enough=1)
    trained = unrank.train(collection, kind, base, method=training, device="cpu", shard_weights=several)
    ranker = trained.ranker
    with TemporaryDirectory() as folder:
        trained.save(Path(folder) / "saved")
        saved = load_ranker(str(Path(folder) / "saved")) if not follows() else ranker
    after = Workspace.open(saved, collection, None, "cpu").scorer(saved)(pairs)
    if several:
        shard(ranker, runtime)
    workspace = Workspace.open(ranker, collection, None, "cpu")
    runtime = sharded_runtime(workspace.runtime, ranker) if several else runtime
    scores = scores_of(ranker, workspace.store, pairs, runtime)
    one = score_pairs(ranker, workspace.store, pairs[:1], runtime.tokens_at_once, processes=runtime.processes)
    one.sum().backward()  # type: ignore[no-untyped-call]
    runtime.processes.sum_gradients(ranker.parameters())
    norms = [float(as_whole(weight.grad).norm()) for weight in ranker.parameters() if weight.grad is not None]
    found = {
        "processes": runtime.processes.size,
        "losses": [check.losses["learn"] for check in trained.record.history if check.losses],
        "scores": scores,
        "trained": after,
        "norms": norms,
        "held": sum(as_held(weight).numel() for weight in layer_stack(ranker, kind).parameters()),
    }
    return {f"{kind} {name}": np.asarray(value, np.float64) for name, value in found.items()}


JOBS = {"decoder": sharded_results}


def free_port() -> int:
    with socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


def run_process(rank: int, count: int, port: int, job: tuple[str, str, Path], kinds: Sequence[str]) -> None:
    """Be one of several processes on the job, as torchrun starts them; the first writes what it found."""
    places = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": count, "RANK": rank, "LOCAL_RANK": rank}
    os.environ |= {name: str(value) for name, value in places.items()}
    folder, encoder, out = job
    collection = unrank.open_collection(folder)
    found = [JOBS.get(kind, results)(kind, collection, encoder) for kind in kinds]
    if not follows():
        np.savez(out, **{name: value for each in found for name, value in each.items()})  # type: ignore[arg-type]


def main(folder: str, encoder: str, out: str, *kinds: str) -> None:
    """Run the job in one process, then in two. All are forks of this one, which imports and computes nothing."""
    for module in ("accelerate", "sentence_transformers", *(f"unrank.rankers.{name}" for name in RANKERS)):
        importlib.import_module(module)
    forks = multiprocessing.get_context("fork")
    for count in (1, 2):
        port, job = free_port(), (folder, encoder, Path(out) / f"{count}.npz")
        started = [forks.Process(target=run_process, args=(rank, count, port, job, kinds)) for rank in range(count)]
        for process in started:
            process.start()
        for process in started:
            process.join()
        if any(process.exitcode for process in started):
            sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
