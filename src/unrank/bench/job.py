"""The work itself: train an original, or run one cell."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter

from unrank.bench.cell import Cell, Original
from unrank.bench.shelf import Shelf
from unrank.collection.collection import open_collection
from unrank.collection.removal import Removal
from unrank.disk import CHECKPOINT
from unrank.engine.checkpoint import Checkpoint
from unrank.engine.resume import EVERY, ResumableRun, resumable
from unrank.engine.runtime import Device, deterministic
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.target import destination
from unrank.forgetting.train import train
from unrank.rankers.base import Ranker
from unrank.record import Record

Task = Original | Cell
NO_TARGET = 1.0
"""What a method that is not steered is given: it asks for no target, and its record names none."""


@dataclass
class Bench:
    """One worker's place: it keeps the original that it worked on last."""

    shelf: Shelf
    device: Device
    keep_rankers: bool
    jobs: int = 1
    """So many workers share the machine: where there are several, a cell's time says little."""
    deterministic: bool = False
    checkpoint_every: float = EVERY
    resume: bool = True
    _held: tuple[str, Ranker, Record] | None = None
    _measured: tuple[Hashable, Scorecard] | None = None
    """What the original measures on the removal that came last."""

    def work(self, task: Task) -> str:
        """Do one task; a line that says what came out."""
        place = (self.shelf.rankers if isinstance(task, Original) else self.shelf.cells) / task.name
        kept = resumable(place, self.shelf.unfinished(task.name), self.checkpoint_every, self.resume)
        with deterministic(self.deterministic), kept as run:
            return self._train(task, run) if isinstance(task, Original) else self._run(task, run)

    def _run(self, task: Cell, run: ResumableRun) -> str:
        started, jobs = perf_counter() - seconds_before(run), most_jobs(run, self.jobs)
        ranker, record = self._original(task.original)
        result = self._forget(task, ranker, record, run)
        kept = self.shelf.rankers / task.name
        if self.keep_rankers and not kept.is_dir():  # a run that was killed may have left it
            result.save(kept)
        trained = {
            "learned": record.history[-1].learned,
            "epochs": record.epochs,
            "seconds": record.seconds,
        }
        told = {"took": perf_counter() - started, "jobs": jobs, "original": trained}
        self.shelf.put(task, result, told)
        return _in_words(result)

    def _train(self, original: Original, run: ResumableRun) -> str:
        trained = train(
            open_collection(original.folder),
            original.ranker,
            original.base,
            method=original.training,
            seed=original.seed,
            device=self.device,
            run=run,
            cache=self.shelf.cache,
        )
        trained.save(self.shelf.rankers / original.name)
        return f"MRR {trained.record.history[-1].learned:.3f} on training queries in {trained.record.epochs:g} epochs"

    def _original(self, original: Original) -> tuple[Ranker, Record]:
        if self._held is None or self._held[0] != original.name:
            self._held = None  # two at once are one too many for a small GPU
            self._held = original.name, *self.shelf.load_original(original)
        return self._held[1:]

    def _forget(self, cell: Cell, ranker: Ranker, record: Record, run: ResumableRun) -> Forgotten:
        collection = open_collection(cell.original.folder)
        removed = cell.original.name, cell.removal, cell.share, cell.removal_seed
        result = forget(
            ranker,
            collection,
            Removal.sample(collection, cell.removal, cell.share, cell.removal_seed),
            method=cell.method,
            target=self._target(cell),
            base=cell.original.base,
            record=record,
            before=self._measured[1] if self._measured and self._measured[0] == removed else None,
            train_layers=cell.train_layers,
            freeze=cell.freeze,
            pace=cell.pace,
            check_recovery=cell.recovery,
            seed=cell.original.seed,
            device=self.device,
            run=run,
            cache=self.shelf.cache,
        )
        self._measured = removed, result.before
        target = result.record.target if cell.target else None
        return replace(result, record=replace(result.record, target=target, target_name=cell.target))

    def _target(self, cell: Cell) -> float | str:
        if cell.yardstick is not None:
            assert cell.target is not None
            return destination(cell.target, self.shelf.record_of(cell.yardstick).after)
        return cell.target or NO_TARGET


def seconds_before(run: ResumableRun) -> float:
    """What a run had taken by its checkpoint, if it goes on from one."""
    kept = Checkpoint.load(run.folder / CHECKPOINT) if run.folder else None
    return sum(kept.facts.get("clock", {}).values()) if kept else 0.0


def most_jobs(run: ResumableRun, jobs: int) -> int:
    """How many cells were run side by side, now or before the run was stopped; kept beside its checkpoint."""
    if run.folder is None:
        return jobs
    path = run.folder / f"{CHECKPOINT}.jobs"
    with suppress(OSError, ValueError):
        jobs = max(jobs, int(path.read_text()) if (run.folder / CHECKPOINT).exists() else 0)
    with suppress(OSError):
        path.write_text(f"{jobs}")
    return jobs


def _in_words(result: Forgotten) -> str:
    assert result.after.forget is not None
    aim = f" (target {result.target:.3f})" if result.record.target is not None else ""
    kept = ", ".join(f"{name} {share:.3f}" for name, share in result.kept.items())
    return f"forget MRR {result.after.forget.mean:.3f}{aim}; of the original's MRR kept: {kept}"
