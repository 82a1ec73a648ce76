"""The progress of a run as a file, for a page that shows it: written whole, a few times a second at most."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic, time

from unrank.engine.runtime import Progress
from unrank.errors import printable_line

EVERY = 0.25
"""The fewest seconds between two writes."""
LINES = 200
"""The most lines that are kept."""


@dataclass(frozen=True)
class RunProgress:
    """How far a run has come."""

    what: str = "starting"
    """The piece of work under way."""
    steps: int = 0
    """The steps of that piece; 0 if nobody knows."""
    advanced: int = 0
    share: float | None = None
    """The share of the whole run that is done; `None` until it is known."""
    lines: tuple[str, ...] = ()
    at: float = 0.0
    """When this was written, in seconds since 1970."""

    @classmethod
    def read(cls, path: Path) -> RunProgress:
        """Read the progress of a run; one that has written nothing yet is starting."""
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**value, "lines": tuple(value["lines"])})
        except (OSError, ValueError, TypeError, KeyError):
            return cls()


class ProgressFile:
    """A listener that writes the progress of a run to a file, and tells another listener of it."""

    def __init__(self, path: Path, also: Progress) -> None:
        self._path, self._also = path, also
        self._now = RunProgress()
        self._written = -EVERY

    def begin(self, what: str, steps: int) -> None:
        self._also.begin(what, steps)
        self._change(replace(self._now, what=printable_line(what), steps=steps, advanced=0))

    def advance(self, steps: int = 1) -> None:
        self._also.advance(steps)
        self._change(replace(self._now, advanced=self._now.advanced + steps))

    def done(self, share: float) -> None:
        self._also.done(share)
        self._change(replace(self._now, share=max(self._now.share or 0.0, min(share, 1.0))))

    def say(self, line: str) -> None:
        self._also.say(line)
        self._change(replace(self._now, lines=(*self._now.lines, printable_line(line))[-LINES:]))

    def flush(self) -> None:
        """Write the progress now."""
        self._written = monotonic()
        partial = self._path.with_name(f".{self._path.name}.partial-{os.getpid()}")
        partial.write_text(json.dumps(asdict(replace(self._now, at=time()))), encoding="utf-8")
        partial.replace(self._path)

    def _change(self, now: RunProgress) -> None:
        self._now = now
        if monotonic() - self._written >= EVERY:
            self.flush()


@contextmanager
def progress_to(path: Path | None, also: Progress) -> Iterator[Progress]:
    """Yield a listener that writes to a file too; `also` itself if there is no file."""
    if path is None:
        yield also
        return
    listener = ProgressFile(path, also)
    listener.flush()
    try:
        yield listener
    finally:
        listener.flush()
