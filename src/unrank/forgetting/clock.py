"""A clock that knows what its time went to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from unrank.engine.checkpoint import Checkpoint
from unrank.engine.runtime import Runtime


class Clock:
    """Seconds by purpose. What is not timed by it does not count."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.seconds: dict[str, float] = {}

    @contextmanager
    def on(self, purpose: str) -> Iterator[None]:
        self._runtime.wait()
        started = perf_counter()
        try:
            yield
        finally:
            self._runtime.wait()
            self.add(purpose, perf_counter() - started)

    def add(self, purpose: str, seconds: float) -> None:
        self.seconds[purpose] = self.seconds.get(purpose, 0.0) + seconds

    def state(self) -> Checkpoint:
        return Checkpoint(dict(self.seconds))

    def restore(self, state: Checkpoint) -> None:
        """Time before a run was stopped counts; time to come back to where it was does not."""
        self.seconds = dict(state.facts)

    @property
    def total(self) -> float:
        return sum(self.seconds.values())
