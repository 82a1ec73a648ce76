"""Limits: how often something may happen in a while, for each address or session, and how large a message may be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import monotonic

MOST_KEYS = 10_000
"""The most addresses and sessions that are counted; beyond that all of them share one count."""


@dataclass(frozen=True)
class Limits:
    """What one address or one session may do."""

    sign_ins: int = 10
    """Wrong tokens of one address in a minute."""
    posts: int = 120
    """Posts of one session in a minute."""
    streams: int = 8
    """Pages of one session that follow a run at once."""
    form_bytes: int = 1 << 20
    upload_bytes: int = 16 << 20
    body_seconds: float = 30.0
    """The longest time in which a message must arrive."""


class Rate:
    """A count of events by key, within the last seconds."""

    def __init__(self, most: int, seconds: float = 60.0, now: Callable[[], float] = monotonic) -> None:
        self._most, self._seconds, self._now = most, seconds, now
        self._times: dict[str, deque[float]] = {}
        self._lock = Lock()

    def is_full(self, key: str) -> bool:
        """Return whether this key has used up its events."""
        with self._lock:
            return len(self._recent(key)) >= self._most

    def count(self, key: str) -> bool:
        """Count an event, unless the key has used up its events; return whether it was counted."""
        with self._lock:
            recent = self._recent(key)
            if len(recent) >= self._most:
                return False
            recent.append(self._now())
            return True

    def _recent(self, key: str) -> deque[float]:
        since = self._now() - self._seconds
        if len(self._times) >= MOST_KEYS:
            self._times = {name: times for name, times in self._times.items() if times and times[-1] > since}
            key = key if len(self._times) < MOST_KEYS else ""
        times = self._times.setdefault(key, deque())
        while times and times[0] <= since:
            times.popleft()
        return times
