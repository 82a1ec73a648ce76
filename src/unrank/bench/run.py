"""A grid from its cells to its records: what is there already stays, the rest is run, whatever fails is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unrank.bench.cell import Cell
from unrank.bench.crew import Crew, crew_of
from unrank.bench.job import Bench, Task
from unrank.bench.schedule import Schedule
from unrank.bench.shelf import Shelf
from unrank.bench.times import Times
from unrank.bench.worker import Result
from unrank.disk import sole_user
from unrank.errors import UnrankError


@dataclass(frozen=True)
class Survey:
    """A grid, and how far it is."""

    shelf: Shelf
    cells: Sequence[Cell]
    finished: frozenset[str]
    times: Times
    namesakes: Sequence[str]
    """Finished cells that a table would take for cells of this grid, though they were made with other settings."""
    renamed: Mapping[str, str]
    """What this grid calls its finished cells, and what they are called on disk, where that is not the same."""

    @classmethod
    def of(cls, cells: Sequence[Cell], out: Path) -> Survey:
        if out.exists() and not out.is_dir():
            raise UnrankError(f"{out} is a file; --out is the folder of the records")
        shelf = Shelf(out)
        finished = shelf.finished()
        mine = {cell.name for cell in cells}
        called = {_called(cell.describe()) for cell in cells}
        namesakes = [name for name, told in finished.items() if name not in mine and _called(told) in called]
        there = [(cell.label, str(finished[cell.name].get("label"))) for cell in cells if cell.name in finished]
        renamed = {label: other for label, other in there if label != other}
        return cls(shelf, cells, frozenset(mine & finished.keys()), Times(finished.values()), namesakes, renamed)

    @property
    def without_rankers(self) -> frozenset[str]:
        """Cells that are finished and whose rankers were not kept."""
        return self.finished - self.shelf.trained()

    def schedule(self) -> Schedule:
        """What is to do."""
        return Schedule(self.cells, self.finished, self.shelf.trained())


def _called(told: Mapping[str, Any]) -> str:
    """What a report calls a cell by."""
    keys = ("collection", "ranker", "removal", "share", "label", "target", "seed")
    return json.dumps([told.get(key) for key in keys])


@dataclass(frozen=True)
class Step:
    """A task that has come to its end."""

    result: Result
    fallen: Sequence[Task]
    """What cannot be done because of it."""
    tasks_left: int
    seconds_left: float | None


def run_grid(survey: Survey, bench: Bench, jobs: int, tell: Callable[[Step], None]) -> int:
    """Run what is not finished; how many tasks failed or could not be begun."""
    schedule, lost = survey.schedule(), 0
    with crew_of(bench, jobs) as crew:
        for result in _results(schedule, crew):
            fallen = schedule.failed(result.task) if result.failed else []
            if not result.failed:
                schedule.done(result.task)
                survey.times.learn(result.task, result.seconds)
            lost += result.failed + len(fallen)
            left = schedule.left
            tell(Step(result, fallen, len(left), survey.times.left(left, jobs)))
    return lost


def _results(schedule: Schedule, crew: Crew) -> Iterator[Result]:
    """Keep everybody at work until nothing is left that can be done."""
    while True:
        for worker in crew.idle():
            if (task := schedule.take(worker.at_hand)) is not None:
                worker.give(task)
        results = crew.wait()
        if not results:
            return
        yield from results


@contextmanager
def at_work(shelf: Shelf) -> Iterator[None]:
    """Make the folder ready, and keep every other run out of it."""
    with sole_user(shelf.out, f"another 'unrank bench' is at work in {shelf.out}: wait for it, or stop it"):
        shelf.tidy()
        yield
