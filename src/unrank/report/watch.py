"""The state of a run or a bench, read from its folder: running, done, died, stopped, failed, or not begun.

A run that is at work has a journal beside its checkpoints. One that is done has its record. Nothing is asked of the
process itself, and nothing is written. Without a journal that can be read, the state of what is there is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from time import time
from typing import Any, Literal

from unrank.collection.collection import Collection, open_collection
from unrank.disk import CHECKPOINT, JOURNAL, beside, whole_path
from unrank.errors import UnrankError, count
from unrank.journal import Lines, QueryList, read_journal
from unrank.record import CELL, RECORD, SETS, Check, Record
from unrank.report.wording import duration, epochs_of

State = Literal["not begun", "unknown", "running", "elsewhere", "done", "stopped", "failed", "died"]
OVER: tuple[State, ...] = ("done", "stopped", "failed", "died")
UNFINISHED = ".unfinished"
NAME_ONE = "name the --out of 'unrank forget', 'train' or 'bench'"
SHOWN_LINES = 12
LONGEST_TEXT = 110
"""The characters of a text that are shown."""


@dataclass(frozen=True)
class Entry:
    """A document of a list."""

    rank: int
    text: str
    marked: bool
    """Whether it answers the query; in the list of a forget query, whether it is to be forgotten."""


@dataclass(frozen=True)
class ListView:
    """The list of a chosen query: its first documents now, and the ranks of what is marked."""

    part: str
    query: str
    entries: int
    before: tuple[int, ...]
    now: tuple[int, ...]
    first: tuple[Entry, ...]


@dataclass(frozen=True)
class RunView:
    """A run as it stands."""

    name: str
    state: State
    words: str
    """The state in one sentence."""
    title: str = ""
    what: str = ""
    """The piece of work under way."""
    done: int = 0
    of: int = 0
    elapsed: float | None = None
    """The seconds since it was started, or those that it took."""
    steps_a_second: float | None = None
    seconds_left: float | None = None
    at_most: bool = True
    """Whether it may need less than the time left."""
    before: Mapping[str, float] | None = None
    now: Mapping[str, float] | None = None
    """The last MRR of each set that is known."""
    target: float | None = None
    distance_before: float | None = None
    checks: tuple[Check, ...] = ()
    lists: tuple[ListView, ...] = ()
    said: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return {"kind": "run", **found}


@dataclass(frozen=True)
class BenchView:
    """A bench as it stands, with its jobs that are at work or were broken off."""

    name: str
    state: State
    words: str
    done: int = 0
    """The cells that are done."""
    jobs_done: int = 0
    jobs_of: int = 0
    seconds_left: float | None = None
    jobs: tuple[RunView, ...] = ()
    said: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        jobs = [job.to_json() for job in self.jobs]
        return {"kind": "bench", **vars(self), "said": list(self.said), "jobs": jobs}


View = RunView | BenchView


def look(folder: Path, texts: bool = True) -> View:
    """Return the state of the run whose result is `folder`, of its checkpoints' folder, or of a bench."""
    folder = whole_path(folder)
    name = folder.name.removesuffix(UNFINISHED)
    if not name:
        raise UnrankError(f"{folder} names no run and no bench: {NAME_ONE}")
    folder = folder.with_name(name)
    own = read_journal(folder / JOURNAL)
    if (folder / "cells").is_dir() or (own is not None and own.start.kind == "bench"):
        return _bench_view(folder, own, texts)
    lines = read_journal(beside(folder) / JOURNAL)  # before the record is looked for: a run that ends may delete it now
    if (folder / RECORD).is_file():
        return _done(folder)
    if found := _unfinished(name, beside(folder), lines, texts):
        return found
    if own is None and _is_there(folder / JOURNAL):
        return _unread(name, folder / JOURNAL)
    if folder.exists():
        raise UnrankError(f"{folder} holds no run and no bench: {NAME_ONE}")
    return RunView(name, "not begun", f"It has not begun: {beside(folder)} holds no journal of a run.")


def _unfinished(name: str, folder: Path, lines: Lines | None, texts: bool) -> RunView | None:
    """Return the run whose checkpoints are in a folder; `None` if that holds no journal."""
    if lines is not None:
        return run_view(name, lines, (folder / CHECKPOINT).exists(), texts)
    return _unread(name, folder / JOURNAL) if _is_there(folder / JOURNAL) else None


def _unread(name: str, journal: Path) -> RunView:
    """Return what is known of a run or a bench whose journal names none: nothing."""
    words = f"Nobody can tell if it is running: no start of it can be read in {journal}."
    why = "It may be just beginning; otherwise that file is damaged, closed to you or another program's."
    return RunView(name, "unknown", f"{words} {why}")


def _is_there(path: Path) -> bool:
    """Return whether something has this name, even if it cannot be read."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def run_view(name: str, lines: Lines, resumes: bool, texts: bool = True) -> RunView:
    """Return the state of a run from its journal; `resumes` if it has a checkpoint."""
    state, now = state_of(lines), time()
    last = lines.steps[-1] if lines.steps else None
    alive, before = state == "running", lines.before
    left = _seconds_left(lines, now) if alive else None
    return RunView(
        name=name,
        state=state,
        words=_words(state, lines, resumes, now),
        title=_title(lines),
        what=last.what if last else "",
        done=last.done if last else 0,
        of=last.of if last else 0,
        elapsed=(now if alive else lines.last) - lines.start.at,
        steps_a_second=_pace(lines),
        seconds_left=left,
        at_most=not lines.exact,
        before=before.mrrs if before else None,
        now=_last_mrrs(before.mrrs if before else {}, lines.checks),
        target=before.target if before else None,
        distance_before=before.distance if before else None,
        checks=lines.checks,
        lists=_lists(lines, texts),
        said=lines.said[-SHOWN_LINES:],
    )


def state_of(lines: Lines) -> State:
    """Return the state of the process that writes a journal.

    A run whose last line says that it is done has its record elsewhere; until that is written it is at work.
    """
    if lines.ending in ("stopped", "failed"):
        return lines.ending
    if not lines.start.process.is_here:
        return "elsewhere"
    return "running" if lines.start.process.is_alive else "died"


def _words(state: State, lines: Lines, resumes: bool, now: float) -> str:
    again = "the same command goes on from its last checkpoint" if resumes else "the same command begins anew"
    ago = duration(max(0.0, now - lines.last))
    if state == "running":
        return "Its ranker is being written." if lines.ending == "done" else "It is running."
    if state == "elsewhere":
        host = lines.start.process.host
        return f"It was started on {host}, and nobody can tell from here if it is running; it last wrote {ago} ago."
    if state == "died":
        return f"It has died: its process is gone, and it last wrote {ago} ago; {again}."
    why = f": {lines.why}" if state == "failed" and lines.why else ""
    return f"It {'was stopped' if state == 'stopped' else 'failed'}{why}; {again}."


def _title(lines: Lines) -> str:
    start = lines.start
    return {"train": f"Training a {start.ranker}", "forget": f"A {start.ranker} forgets, with {start.method}"}.get(
        start.kind, start.kind
    )


def _seconds_left(lines: Lines, now: float) -> float | None:
    """Return the seconds until the last planned epoch; `None` before the first check."""
    if lines.epochs is None or not lines.times:
        return None
    since = lines.checks[-len(lines.times) :]
    epoch, passed = since[-1].epoch, since[-1].epoch - since[0].epoch
    each = (lines.times[-1] - lines.times[0]) / passed if passed > 0 else since[-1].seconds / max(epoch, 1e-9)
    return max(0.0, (lines.epochs - epoch) * each - (now - lines.times[-1]))


def _pace(lines: Lines) -> float | None:
    """Return the steps a second: of the epoch under way or, before its second line, of the last check."""
    here = [steps for steps in lines.steps if steps.what.startswith("epoch") and steps.what == lines.steps[-1].what]
    if len(here) > 1 and here[-1].done > here[0].done and here[-1].at > here[0].at:
        return (here[-1].done - here[0].done) / (here[-1].at - here[0].at)
    return _pace_of(lines.checks)


def _pace_of(checks: tuple[Check, ...]) -> float | None:
    last = next((check for check in reversed(checks) if check.steps and check.seconds), None)
    return last.steps / last.seconds if last and last.steps else None


def _last_mrrs(before: Mapping[str, float], checks: tuple[Check, ...]) -> dict[str, float]:
    """Return the last MRR of each set: that of the last check that measured it."""
    found = dict(before)
    for check in checks:
        found |= {name: value for name in SETS if (value := getattr(check, name)) is not None}
        found |= {"learned": check.learned} if check.learned is not None else {}
    return found


def _lists(lines: Lines, texts: bool) -> tuple[ListView, ...]:
    """Return the chosen lists now; those that no later check scored, as they were at first."""
    if not lines.lists:
        return ()
    first = {each.query: each for each in lines.lists[0]}
    last = {each.query: each for each in lines.lists[-1]}
    collection = _collection(lines.start.collection, lines.start.fingerprint) if texts else None
    found = [_list_view(first.get(query), last.get(query), collection) for query in sorted(first.keys() | last)]
    return tuple(sorted(found, key=lambda each: SETS.index(each.part) if each.part in SETS else len(SETS)))


def _list_view(first: QueryList | None, last: QueryList | None, collection: Collection | None) -> ListView:
    shown = last or first
    assert shown is not None
    query, *documents = _texts(collection, shown)
    return ListView(
        part=shown.part,
        query=query,
        entries=shown.entries,
        before=tuple(sorted(first.ranks.values())) if first else (),
        now=tuple(sorted(last.ranks.values())) if last else (),
        first=tuple(
            Entry(rank, text, str(row) in shown.ranks)
            for rank, (row, text) in enumerate(zip(shown.first, documents, strict=True), 1)
        ),
    )


def _texts(collection: Collection | None, shown: QueryList) -> list[str]:
    """Return the text of a query and of the documents of its list; their rows without a collection."""
    if collection is None:
        return [f"query in row {shown.query}", *(f"document in row {row}" for row in shown.first)]
    texts = [collection.queries.text(shown.query), *collection.documents.texts(shown.first)]
    return [text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…" for text in texts]


@lru_cache(maxsize=8)
def _collection(folder: str, fingerprint: str) -> Collection | None:
    """Return the collection of a run; `None` if it is gone or another one."""
    try:
        found = open_collection(Path(folder))
    except (UnrankError, OSError):
        return None
    return found if found.fingerprint == fingerprint else None


def _done(folder: Path) -> RunView:
    """Return a run that has its record."""
    record = Record.read(folder)
    assert record is not None
    before, after = ({name: each.mrr for name, each in summary.items()} for summary in (record.before, record.after))
    title = f"Training a {record.ranker}" if not record.before else f"A {record.ranker} forgot, with {record.method}"
    return RunView(
        name=folder.name,
        state="done",
        words=_outcome(record),
        title=title,
        elapsed=record.seconds,
        steps_a_second=_pace_of(record.history),
        before=before or None,
        now=_last_mrrs({}, record.history) | after,
        target=record.target,
        distance_before=record.places.distance_before if record.places else None,
        checks=record.history,
    )


def _outcome(record: Record) -> str:
    took = f"{epochs_of(record.epochs)} in {duration(record.seconds)}"
    return f"It is done: {record.state}, {took}." if record.state else f"It is done: {took}."


def _bench_view(folder: Path, own: Lines | None, texts: bool) -> BenchView:
    """Return a bench: what its journal says, its cells, and the journals of its unfinished jobs."""
    state = state_of(own) if own else "unknown"
    if own is not None and own.ending == "done":
        state = "done"
    cells = len([*(folder / "cells").glob(f"[!.]*/{CELL}")])
    jobs = tuple(
        job
        for path in sorted((folder / "unfinished").glob(f"*/{JOURNAL}"))
        if (job := _unfinished(path.parent.name[:8], path.parent, read_journal(path), texts))
    )
    last = own.steps[-1] if own and own.steps else None
    return BenchView(
        name=folder.name,
        state=state,
        words=_bench_words(state, own, cells, _is_there(folder / JOURNAL)),
        done=cells,
        jobs_done=last.done if last else 0,
        jobs_of=last.of if last else 0,
        seconds_left=own.seconds_left if own and state == "running" else None,
        jobs=jobs,
        said=own.said[-SHOWN_LINES:] if own else (),
    )


def _bench_words(state: State, own: Lines | None, cells: int, journal: bool) -> str:
    """Return the state of a bench in one sentence; `journal` if it has one, even if that cannot be read."""
    there = f"{count(cells, 'cell')} {'is' if cells == 1 else 'are'} done"
    if own is None:
        why = "no start of it can be read in its journal" if journal else "it has no journal"
        return f"{there}; {why}, so nobody can tell if it is running."
    if state == "died":
        return f"It has died: its process is gone; {there}, and the same command runs the others."
    if state == "done":
        return f"It is over: {there}."
    if state in ("stopped", "failed"):
        return f"It {'was stopped' if state == 'stopped' else 'failed'}; {there}."
    if state == "elsewhere":
        return f"It was started on {own.start.process.host}, and nobody can tell from here if it is running; {there}."
    return f"It is running: {there}."
