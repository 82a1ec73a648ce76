"""A run in the ledger: what was asked of it, and what each of its steps read and wrote.

A step writes one folder. Its entry in the history binds the folder to the digests of the step's inputs, and is written
before the folder gets its name. So a folder of that name is the step's own if it has the digest of the last entry. If a
folder has another digest, the run is refused. If the inputs are others now, the step is done again.

The places of the pairs stay in the private folder of the run, beside its checkpoints, until each request is judged by
them. The entry of the step has the hash of that file.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unrank.audit.margins import SaidMargins
from unrank.desk.history_index import Json
from unrank.desk.ledger import Ledger
from unrank.disk import PLACES_FILE, beside, check_free, clear_unfinished, flush, folder_hash, sole_user, whole_path
from unrank.errors import UnrankError
from unrank.record import current_target

StepName = Literal["ranker", "audit"]
STEP, MARGINS = "run step", "run margins"


def only_run(ledger: Path) -> AbstractContextManager[None]:
    """Allow one run at a time on a ledger, by any path."""
    place = ledger.resolve()
    # No lock on the ledger itself: closing that file would release the locks of SQLite.
    return sole_user(
        place.with_name(f".{place.name}.run"), "another run is in progress on this ledger: wait until it has ended"
    )


@dataclass(frozen=True)
class UnfinishedRun:
    """A run that has begun: its number, the folder of its ranker, and what was asked of it."""

    id: int
    out: Path
    asked: Json

    @property
    def requests(self) -> list[int]:
        """The requests that it began with."""
        return list(self.asked["requests"])

    @property
    def audit_out(self) -> Path:
        return audit_folder(self.out)

    @property
    def former_default(self) -> str | None:
        """The target of a run that an earlier version began without `--target`; `None` for other runs."""
        return current_target(self.asked["target"]) if self.asked.get("target") == "unseen" else None

    def is_asked_again(self, asked: Json, out: Path | None) -> bool:
        own = {**self.asked, **({"target": self.former_default} if self.former_default else {})}
        return own == json.loads(json.dumps(asked)) and out in (None, self.out)


@dataclass(frozen=True)
class Step:
    """The last time that a step of a run was done."""

    inputs: dict[str, object]
    output: str
    """The digest of the folder that it wrote."""
    places: str | None = None
    """The hash of the file with the places that it brought pairs to; `None` if its target was another one."""


def audit_folder(out: Path) -> Path:
    return out.with_name(f"{out.name}-audit")


def unfinished_run(ledger: Ledger) -> UnfinishedRun | None:
    """Return the run that was begun and not finished; there is at most one."""
    found = ledger.ask("SELECT id, out, asked FROM run WHERE state = 'begun' ORDER BY id DESC LIMIT 1")
    return UnfinishedRun(found[0][0], Path(found[0][1]), json.loads(found[0][2])) if found else None


def begin_run(ledger: Ledger, asked: Json, out: Path | None) -> UnfinishedRun:
    """Begin a run. One that was begun before is abandoned: its checkpoints hold what it had to forget, so they go."""
    abandoned: list[Path] = []
    with ledger.transaction():
        for id, place in ledger.ask("SELECT id, out FROM run WHERE state = 'begun'"):
            ledger.ask("UPDATE run SET state = 'abandoned' WHERE id = ?", [id])
            ledger.write_of_run("abandoned", id)
            abandoned += [Path(place), audit_folder(Path(place))]
        [[id]] = ledger.ask("SELECT coalesce(max(id), 0) + 1 FROM run")
        place = out or beside_ranker(asked["ranker"], id)
        for folder in (place, audit_folder(place)):
            check_free(folder)
        for folder in abandoned:  # not before: a run that is refused costs no work of another
            clear_places(folder)
            clear_unfinished(folder)
        written = json.dumps(asked, sort_keys=True)
        ledger.ask("INSERT INTO run (id, state, out, asked) VALUES (?, 'begun', ?, ?)", [id, str(place), written])
        ledger.write_of_run("begun", id, requests=asked["requests"])
    return UnfinishedRun(id, place, asked)


def beside_ranker(ranker: str, run: int) -> Path:
    """Return the default folder for the ranker of a run: beside the old one, or here if that is from a hub."""
    old = Path(ranker)
    folder = old.parent if old.is_dir() else Path()
    return whole_path(folder / f"{re.sub(r'-run[0-9]+$', '', old.name)}-run{run}")


def last_step(ledger: Ledger, run: UnfinishedRun, name: StepName) -> Step | None:
    for (details,) in ledger.ask("SELECT details FROM history WHERE event = ? ORDER BY number DESC", [STEP]):
        found = json.loads(details)
        if (found["run"], found["step"]) == (run.id, name):
            return Step(found["inputs"], found["output"], found.get("places"))
    return None


def write_margins(ledger: Ledger, run: UnfinishedRun, said: SaidMargins) -> None:
    """Record in the history the margins that the audit of a run will go by."""
    with ledger.transaction():
        ledger.write_of_run("margins", run.id, margins=said.to_json())


def said_margins(ledger: Ledger, run: UnfinishedRun) -> SaidMargins | None:
    """Return the margins that were said before a run; `None` if none were."""
    for (details,) in ledger.ask("SELECT details FROM history WHERE event = ? ORDER BY number DESC", [MARGINS]):
        found = json.loads(details)
        if found["run"] == run.id:
            return SaidMargins.of(found["margins"])
    return None


def is_done(ledger: Ledger, run: UnfinishedRun, name: StepName, out: Path, inputs: dict[str, object]) -> bool:
    """Return whether a step has written its folder from these inputs. Delete what it wrote from others."""
    if not out.exists():
        return False
    last = last_step(ledger, run, name)
    if last is None or folder_hash(out) != last.output:
        raise UnrankError(f"{out} exists and is not what this run wrote: remove it, or name another --out")
    if last.inputs == inputs:
        return True
    shutil.rmtree(out)
    return False


def do_step(
    ledger: Ledger,
    run: UnfinishedRun,
    name: StepName,
    out: Path,
    inputs: dict[str, object],
    write: Callable[[Path], None],
    **kept: str,
) -> None:
    """Let `write` make a folder, bind it to the step's inputs in the history, and move it to its place.

    `kept` are hashes of what the step left in the private folder of the run.
    """
    apart = out.with_name(f".{out.name}.partial-run{run.id}")
    shutil.rmtree(apart, ignore_errors=True)
    apart.mkdir(parents=True, mode=0o700)
    try:
        made = apart / out.name
        write(made)
        with ledger.transaction():
            ledger.write_of_run("step", run.id, step=name, inputs=inputs, output=folder_hash(made), **kept)
        check_free(out)
        made.replace(out)
        flush(out.parent)
    finally:
        shutil.rmtree(apart, ignore_errors=True)


def check_step(ledger: Ledger, run: UnfinishedRun, name: StepName, out: Path, inputs: dict[str, object]) -> str:
    """Return the digest of a step's folder; refuse it if the folder or an input was changed since."""
    last, digest = last_step(ledger, run, name), folder_hash(out)
    if last is None or digest is None or digest != last.output:
        raise UnrankError(f"{out} was changed since this run wrote it: remove it, and run again")
    changed = [key for key in inputs if last.inputs.get(key) != inputs[key]]
    if changed:
        raise UnrankError(f"{out} was made from another {changed[0]} than the one that is there now: run again")
    return digest


def clear_places(out: Path) -> None:
    """Delete the places of a run that has ended, and its private folder if nothing else is in it."""
    for path in beside(out).glob(f"{PLACES_FILE}*"):  # it may be half written
        path.unlink()
    with suppress(OSError):  # it is gone, or a checkpoint is in it
        beside(out).rmdir()


def clear_ended(ledger: Ledger) -> None:
    """Delete the places that runs left behind which were killed when their result had been written."""
    for (out,) in ledger.ask("SELECT out FROM run WHERE state != 'begun'"):
        clear_places(Path(out))
