"""Trackers of experiments (trackio, TensorBoard, wandb, mlflow, and others that accelerate knows): off by default.

A tracker gets the figures of each check, settings, and the names of method, ranker and collection. It gets no id and no
text. One that fails while a run is at work is left out from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers
from accelerate.utils import LoggerType

from unrank.disk import follows
from unrank.engine.runtime import Device, Progress, Runtime, Silence
from unrank.errors import UnknownName, UnrankError, one_line
from unrank.forgetting.progress import Relay
from unrank.journal import Before
from unrank.record import SETS, Check

PROJECT = "unrank"
RUN_NAMES = {"wandb": "name", "trackio": "name", "mlflow": "run_name"}
"""For some trackers, the keyword for the name of a run."""
LONGEST_REASON = 200


class TrackerListener(Silence):
    """A listener that gives the figures of a run to a tracker. A step of the tracker is a hundredth of an epoch."""

    def __init__(self, tracker: Any, other: Progress) -> None:
        self._tracker, self._other, self._failed = tracker, other, False

    def before(self, figures: Before) -> None:
        more = {"target": figures.target, "distance": figures.distance}
        self._log({f"mrr/{name}": mrr for name, mrr in figures.mrrs.items()} | more, 0)

    def plan(self, epochs: float, exact: bool) -> None:
        return

    def check(self, check: Check) -> None:
        values: dict[str, float | None] = {f"mrr/{name}": getattr(check, name) for name in (*SETS, "learned")}
        values |= {f"loss/{phase}": loss for phase, loss in check.losses.items()}
        values |= {"epoch": check.epoch, "distance": check.distance}
        if check.steps and check.seconds:
            values["steps_per_second"] = check.steps / check.seconds
        self._log(values, round(100 * check.epoch))

    def finish(self) -> None:
        """Let the tracker write what it still holds."""
        self._attempt(_end_trackio if self._tracker.name == "trackio" else self._tracker.finish)

    def _log(self, values: Mapping[str, float | None], step: int) -> None:
        known = {name: float(value) for name, value in values.items() if value is not None}
        self._attempt(self._tracker.log, known, step=step)

    def _attempt(self, call: Any, *given: Any, **named: Any) -> None:
        """Call a tracker; if it fails, say so once and leave it out."""
        if self._failed:
            return
        try:
            with redirect_stdout(sys.stderr):  # what a tracker says is not a part of the result
                call(*given, **named)
        except Exception as error:  # whatever a network or a service comes up with
            self._failed = True
            reason = one_line(f"{type(error).__name__}: {error}", LONGEST_REASON)
            self._other.say(f"--report-to {self._tracker.name} failed ({reason}); going on without")


def check_trackers(names: Sequence[str]) -> None:
    """Raise an error if a tracker is not known, or its package is not installed."""
    known, there = sorted(LOGGER_TYPE_TO_CLASS), {str(each) for each in get_available_trackers()}
    for name in names:
        if name not in known:
            raise UnknownName("tracker for --report-to", name, known)
        if name in {str(each) for each in LoggerType} and name not in there:
            raise UnrankError(f"--report-to {name}: the package {name} is not installed: pip install {name}")


@contextmanager
def reporting(
    progress: Progress, names: Sequence[str], out: Path, device: Device, about: Mapping[str, Any]
) -> Iterator[Progress]:
    """Yield a listener that also reports to trackers. Those that write files write to `OUT-logs`."""
    if not names or follows():
        yield progress
        return
    check_trackers(names)
    Runtime.on(device)  # accelerate keeps one device a process, and a tracker asks for it
    listeners = [TrackerListener(_started(name, out, about), progress) for name in dict.fromkeys(names)]
    try:
        yield Relay(progress, *listeners)
    finally:
        for listener in listeners:
            listener.finish()


def _started(name: str, out: Path, about: Mapping[str, Any]) -> Any:
    """Return a tracker that is ready."""
    kind = LOGGER_TYPE_TO_CLASS[name]
    places = [str(logs_of(out))] if kind.requires_logging_directory else []
    named = {RUN_NAMES[name]: out.name} if name in RUN_NAMES else {}
    try:
        plain = {
            key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in about.items()
        }
        with redirect_stdout(sys.stderr):
            tracker = kind(PROJECT, *places, **named)
            tracker.start()
            tracker.store_init_configuration(plain)
    except Exception as error:
        reason = one_line(f"{type(error).__name__}: {error}", LONGEST_REASON)
        raise UnrankError(f"--report-to {name} cannot start: {reason}") from error
    return tracker


def _end_trackio() -> None:
    """End trackio's run. Accelerate ends it too, but leaves it to trackio, which ends it again at the exit."""
    import trackio

    trackio.finish()


def logs_of(out: Path) -> Path:
    """Return the folder in which trackers write files."""
    return out.with_name(f"{out.name}-logs")
