"""The jobs themselves: train an original, or run one cell."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter

import torch

from unrank.bench.cell import Cell, Job, Original
from unrank.bench.heartbeat import runners_here
from unrank.bench.splits import split_hash
from unrank.bench.store import Store
from unrank.collection.collection import open_collection
from unrank.disk import CHECKPOINT
from unrank.engine.checkpoint import Checkpoint
from unrank.engine.resume import EVERY, ResumableRun, resumable
from unrank.engine.runtime import Device, Progress, Silence, deterministic
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.forget import Forgotten, forget_in
from unrank.forgetting.save import save_ranker
from unrank.forgetting.target import destination
from unrank.forgetting.trackers import reporting
from unrank.forgetting.train import train
from unrank.forgetting.workspace import Workspace
from unrank.rankers.base import Ranker
from unrank.record import Record

NO_TARGET = 1.0
"""The target that `forget` is given for a method without one. It has no effect, and the record leaves it out."""


@dataclass
class JobRunner:
    """Runs jobs one after another. It keeps the last original in memory, and its metrics on the last removal."""

    store: Store
    device: Device
    keep_rankers: bool
    jobs: int = 1
    """Number of runners of this bench on a machine. The time of a cell says little if there are several."""
    deterministic: bool = False
    checkpoint_every: float = EVERY
    resume: bool = True
    fast: bool = True
    """Use the faster passes of encoders."""
    command: str = ""
    """The command that runs the jobs, for their records."""
    report_to: tuple[str, ...] = ()
    """The trackers that get the figures of each job."""
    _loaded: tuple[str, Ranker, Record] | None = None
    _measured: tuple[Hashable, Scorecard] | None = None

    def run(self, job: Job) -> str:
        """Run one job, and return its outcome in words."""
        out = (self.store.rankers if isinstance(job, Original) else self.store.cells) / job.name
        checkpoints = resumable(out, self.store.unfinished(job.name), self.checkpoint_every, self.resume)
        reported = reporting(
            Silence(), self.report_to, self.store.out / "logs" / job.name, self.device, {"job": str(job)}
        )
        with deterministic(self.deterministic), checkpoints as run, reported as listener:
            if isinstance(job, Original):
                return self._train(job, run, listener)
            return self._run_cell(job, run, listener)

    def _run_cell(self, cell: Cell, run: ResumableRun, progress: Progress) -> str:
        started, jobs = perf_counter() - seconds_before(run), most_jobs(run, self._beside())
        ranker, record = self._load(cell.original)
        result = self._forget(cell, ranker, record, run, progress)
        kept = self.store.rankers / cell.name
        if self.keep_rankers and not kept.is_dir():  # a killed run may have written it
            save_ranker(result.ranker, result.record, kept)  # a bench asks nothing of its rankers again
        trained = {
            "learned": record.history[-1].learned,
            "epochs": record.epochs,
            "seconds": record.seconds,
        }
        run_as = {"took": perf_counter() - started, "jobs": max(jobs, self._beside()), "original": trained}
        self.store.write(cell, result, run_as | {"split": self._split(cell), "made": self._made()})
        return _in_words(result)

    def _beside(self) -> int:
        """Return the number of jobs that run on this machine now, those of other benches in the folder included."""
        return max(self.jobs, runners_here(self.store.claims))

    def _split(self, cell: Cell) -> str:
        return split_hash(cell.removal.sample(open_collection(cell.original.folder)))

    def _made(self) -> dict[str, object]:
        """Return how a cell was run, as far as its bits may depend on it."""
        how: dict[str, object] = {
            "fast": self.fast,
            "deterministic": self.deterministic,
            "threads": torch.get_num_threads(),
        }
        return {"command": self.command, **how} if self.command else how

    def _train(self, original: Original, run: ResumableRun, progress: Progress) -> str:
        trained = train(
            open_collection(original.folder),
            original.ranker,
            original.base,
            method=original.training,
            seed=original.seed,
            device=self.device,
            progress=progress,
            run=run,
            cache=self.store.cache,
            fast=self.fast,
            reserve=original.reserve,
        )
        trained.save(self.store.rankers / original.name)
        return f"MRR {trained.record.history[-1].learned:.3f} on training queries in {trained.record.epochs:g} epochs"

    def _load(self, original: Original) -> tuple[Ranker, Record]:
        if self._loaded is None or self._loaded[0] != original.name:
            self._loaded = None  # free it first: two rankers at once are too many for a small GPU
            self._loaded = original.name, *self.store.load_original(original, self.fast)
        return self._loaded[1:]

    def _forget(self, cell: Cell, ranker: Ranker, record: Record, run: ResumableRun, progress: Progress) -> Forgotten:
        collection = open_collection(cell.original.folder)
        removed = cell.original.name, cell.removal
        options = cell.options(self._target(cell), self.device)
        workspace = Workspace.for_removal(
            ranker,
            collection,
            cell.removal.sample(collection),
            record,
            device=self.device,
            progress=progress,
            cache=self.store.cache,
        )
        before = self._measured[1] if self._measured and self._measured[0] == removed else None
        result = forget_in(workspace, ranker, options, record=record, run=run, before=before)
        self._measured = removed, result.before
        made = replace(result.record, target_name=cell.target, state=None)  # a bench measures methods, not requests
        return replace(result, record=made if cell.target else replace(made, target=None, pairs=None))

    def _target(self, cell: Cell) -> float | str:
        if cell.reference is not None:
            assert cell.target is not None
            return destination(cell.target, self.store.record_of(cell.reference).after)
        return cell.target or NO_TARGET


def seconds_before(run: ResumableRun) -> float:
    """Return the seconds that a run had taken at its last checkpoint; 0 if there is none."""
    kept = Checkpoint.load(run.folder / CHECKPOINT) if run.folder else None
    return sum(kept.facts.get("clock", {}).values()) if kept else 0.0


def most_jobs(run: ResumableRun, jobs: int) -> int:
    """Return the largest number of jobs that ran at once, now or before a stop. A file beside the checkpoint
    holds it."""
    if run.folder is None:
        return jobs
    path = run.folder / f"{CHECKPOINT}.jobs"
    with suppress(OSError, ValueError):
        jobs = max(jobs, int(path.read_text()) if (run.folder / CHECKPOINT).exists() else 0)
    with suppress(OSError):
        path.write_text(f"{jobs}")
    return jobs


def _in_words(result: Forgotten) -> str:
    """Return the outcome of a cell in one line."""
    assert result.after.forget is not None
    aim = f" (target {result.target:.3f})" if result.record.target is not None else ""
    kept = ", ".join(f"{name} {share:.3f}" for name, share in result.kept.items())
    return f"forget MRR {result.after.forget.mean:.3f}{aim}; of the original's MRR kept: {kept}"
