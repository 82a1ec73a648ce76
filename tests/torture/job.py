"""The jobs that are tortured: train, forget with every method, and a grid, on the tiny encoder and two rankers.

Each runs in a fork of a process that has imported all that is needed and has computed nothing: torch does not survive a
fork after it has computed, and starting anew each time would kill imports and no steps.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from tests.tiny import make_dense_collection, make_encoder
from unrank.cli.main import run
from unrank.collection.collection import open_collection
from unrank.collection.removal import Removal
from unrank.methods import METHODS

RANKERS = ("bi-encoder", "cross-encoder")
STEPS = {
    "cocol": "learning_rate=2e-4 batch=8 epochs=6",
    "retrain": "learning_rate=1e-3 epochs=3 negatives=4 batch=16",
    "finetune": "learning_rate=1e-3 epochs=2 batch=16 negatives=2",
    "amnesiac": "learning_rate=1e-4 epochs=3 batch=16 negatives=2",
    "neggrad": "learning_rate=1e-5 epochs=8 batch=8",
    "ssd": "",
    "bad-teacher": "learning_rate=1e-4 epochs=2 batch=8",
}
TIMES = {"seconds", "timing", "learning_epoch", "normalised_epoch", "total_time", "took", "salt", "removed", "seal"}
MODULES = (
    "unrank.bench.run", "unrank.forgetting.rankings", "unrank.forgetting.estimate", "unrank.rankers.bi_encoder",
    "unrank.rankers.cross_encoder", "unrank.forgetting.progress", "sentence_transformers", "bm25s",
)  # fmt: skip


@dataclass
class Job:
    """A command, all but its --out; what it comes to and how long it takes where nobody disturbs it."""

    name: str
    command: list[str]
    seconds: float = 0.0
    result: dict[str, str] = field(default_factory=dict)

    def start(self, out: Path, log: Path) -> BaseProcess:
        command = [*self.command, "--out", str(out), "--device", "cpu", "--quiet", "--checkpoint-every", "0"]
        return started(lambda: run(command), log)

    def learn(self, work: Path) -> None:
        """Run it once, undisturbed."""
        if self.result:
            return
        out, log, began = work / "whole" / "out", work / "log", monotonic()
        process = self.start(out, log)
        process.join(300)
        assert process.exitcode in (0, 3), log.read_text()[-2000:]
        self.seconds, self.result = monotonic() - began, result_of(out)
        shutil.rmtree(out.parent)


def started(work: Callable[[], int], log: Path) -> BaseProcess:
    """A fork that does the work and writes what it says into a file."""

    def in_fork() -> None:
        torch.set_num_threads(1)
        with log.open("a") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            status = work()
        os._exit(status)

    process = multiprocessing.get_context("fork").Process(target=in_fork)
    process.start()
    return process


def make_ready() -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    for module in (*MODULES, *(f"unrank.methods.{entry.module}" for entry in METHODS.values())):
        importlib.import_module(module)


def jobs(work: Path) -> list[Job]:
    """Make what they need, in a process of its own, and list them."""
    made = started(lambda: _make(work), work / "made.log")
    made.join()
    assert made.exitcode == 0, (work / "made.log").read_text()
    base, collection, removal = (str(work / name) for name in ("encoder", "collection", "removal.json"))
    training = _settings(STEPS["retrain"])
    found = [
        Job(f"train {ranker}", ["train", collection, "--ranker", ranker, "--base", base, *training])
        for ranker in RANKERS
    ]
    for ranker in RANKERS:
        for method, settings in STEPS.items():
            command = ["forget", str(work / ranker), collection, "--removal", removal, "--method", method]
            found.append(
                Job(f"forget {ranker} {method}", [*command, *_settings(settings), "--target", "30%", "--base", base])
            )
    found.append(Job("bench", ["bench", str(work / "grid.toml"), "--keep-rankers"]))
    return found


def _settings(given: str) -> list[str]:
    return [part for setting in given.split() for part in ("--set", setting)]


def _make(work: Path) -> int:
    base = make_encoder(work / "encoder")
    make_dense_collection(work / "collection")
    collection = open_collection(work / "collection")
    Removal.sample(collection, "documents", 0.2, 0).save(work / "removal.json")
    lines = [f'collections = ["{work / "collection"}"]', f"rankers = {json.dumps(RANKERS)}", f'base = "{base}"']
    lines += ['training = "epochs=2,negatives=1,batch=32,learning_rate=1e-3"', "epochs = 2"]
    lines += ['methods = ["retrain", "cocol"]', 'removals = ["documents"]', "shares = [0.2]", 'destinations = ["0.2"]']
    (work / "grid.toml").write_text("\n".join(lines) + "\n")
    for ranker in RANKERS:
        options = ["--ranker", ranker, "--base", str(base), "--out", str(work / ranker), "--quiet", "--device", "cpu"]
        if status := run(["train", str(work / "collection"), *options, *_settings("learning_rate=1e-3 epochs=4")]):
            return status
    return 0


def result_of(out: Path) -> dict[str, str]:
    """Every file of a result as a hash: records without what is another every time, all else bit by bit.

    A bench's cache is no result: its tokens stand in the order in which they were first asked for.
    """
    files = [path.relative_to(out) for path in sorted(out.rglob("*")) if path.is_file()]
    return {str(name): _hash(out / name) for name in files if name.parts[0] != "cache"}


def _hash(path: Path) -> str:
    content = path.read_bytes()
    if path.suffix in (".json", ".jsonl"):
        lines = content.decode().splitlines() if path.suffix == ".jsonl" else [content.decode()]
        content = json.dumps([_timeless(json.loads(line)) for line in lines]).encode()
    return hashlib.sha256(content).hexdigest()


def _timeless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _timeless(item) for key, item in value.items() if key not in TIMES}
    return [_timeless(item) for item in value] if isinstance(value, list) else value
