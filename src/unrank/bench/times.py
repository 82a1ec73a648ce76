"""How long the rest will take, from what is done: as its likes did, the nearest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from unrank.bench.cell import Original
from unrank.bench.job import Task

TRAINING = "training"


class Times:
    """Seconds by method, then by ranker, then by collection."""

    def __init__(self, finished: Iterable[Mapping[str, Any]]) -> None:
        self._seconds: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for cell in finished:
            likeness = cell["ranker"], cell["fingerprint"]
            self._keep((cell["method"], *likeness), cell["took"])
            self._keep((TRAINING, *likeness), cell["original"]["seconds"])

    def learn(self, task: Task, seconds: float) -> None:
        self._keep(_likeness(task), seconds)

    def left(self, tasks: Iterable[Task], jobs: int) -> float | None:
        """Seconds for all of these; None where nothing is done yet."""
        if not self._seconds:
            return None
        return sum(self._expected(task) for task in tasks) / jobs

    def _keep(self, likeness: tuple[str, ...], seconds: float) -> None:
        for length in range(len(likeness) + 1):
            self._seconds[likeness[:length]].append(seconds)

    def _expected(self, task: Task) -> float:
        likeness = _likeness(task)
        alike = next(likeness[:length] for length in (3, 2, 1, 0) if likeness[:length] in self._seconds)
        return sum(self._seconds[alike]) / len(self._seconds[alike])


def _likeness(task: Task) -> tuple[str, ...]:
    if isinstance(task, Original):
        return TRAINING, task.ranker, task.fingerprint
    return task.method.name, task.original.ranker, task.original.fingerprint
