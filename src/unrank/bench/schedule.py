"""What to do next: an original before its cells, a retrained ranker before those that aim at it, nothing twice.

One schedule hands out all tasks, so that no two workers train the same ranker. A worker is given what shares the
original that it has at hand; else an original that nobody is at; else whatever is there.
"""

from __future__ import annotations

from collections.abc import Iterable

from unrank.bench.cell import Cell, Original
from unrank.bench.job import Task


class Schedule:
    """Tasks by name, and what each waits for."""

    def __init__(self, cells: Iterable[Cell], finished: Iterable[str], trained: Iterable[str]) -> None:
        cells, finished = list(cells), set(finished)
        self._met = finished | set(trained)
        self._open: dict[str, Task] = {}
        for cell in cells:
            if cell.name not in finished:
                if cell.original.name not in self._met:
                    self._open.setdefault(cell.original.name, cell.original)
                self._open[cell.name] = cell
        self._under_way: dict[str, Task] = {}

    @property
    def left(self) -> list[Task]:
        """All that is not done yet, in order."""
        return [*self._under_way.values(), *self._open.values()]

    def take(self, at_hand: str | None) -> Task | None:
        """The next task for a worker that has this original at hand; None where there is none now."""
        ready = [task for task in self._open.values() if self._met.issuperset(_needs(task))]
        busy = {original_of(task).name for task in self._under_way.values()}
        ready.sort(key=lambda task: (original_of(task).name != at_hand, original_of(task).name in busy))
        if not ready:
            return None
        self._under_way[ready[0].name] = self._open.pop(ready[0].name)
        return ready[0]

    def done(self, task: Task) -> None:
        del self._under_way[task.name]
        self._met.add(task.name)

    def failed(self, task: Task) -> list[Task]:
        """The tasks that fall with it: they can never be begun."""
        del self._under_way[task.name]
        lost, fallen = {task.name}, []
        for other in list(self._open.values()):  # what is needed stands before what needs it
            if lost.intersection(_needs(other)):
                lost.add(other.name)
                fallen.append(self._open.pop(other.name))
        return fallen


def original_of(task: Task) -> Original:
    return task if isinstance(task, Original) else task.original


def _needs(task: Task) -> list[str]:
    if isinstance(task, Original):
        return []
    return [task.original.name, *([task.yardstick.name] if task.yardstick else [])]
