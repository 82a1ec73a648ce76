"""The remains of a request: what still remembers it, in all places that the ledger knows or that its owner names.

The ledger knows the rankers, collections and indexes of the service, what each run read and wrote, and the copies that
a run listed. The owner's state folder knows where proxies are. A place on a hub, on another machine or in a backup
cannot be checked from here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from typing import Any

from unrank.desk.copies import Copy, adapters_beside, find_copies, not_searched, of_other_collections
from unrank.desk.erasing import ERASED
from unrank.desk.history_index import Json
from unrank.desk.ledger import Ledger
from unrank.desk.request import SETTLED, Item, State
from unrank.desk.service import service_rankers, states_of
from unrank.disk import beside, exists, folder_hash, regular_files
from unrank.forgetting.proxies import remembered_proxies
from unrank.record import CollectionName

GONE = "is no longer there"
CLEAN = "no longer holds it"
DELETED = "was deleted now"


@dataclass(frozen=True)
class PastRun:
    """A run of the ledger: what it read and wrote."""

    id: int
    out: Path
    asked: Json
    result: Json

    @property
    def ranker(self) -> str:
        return str(self.asked.get("ranker", ""))

    @property
    def record(self) -> Json:
        """The record of its ranker; empty if it wrote none."""
        return self.result.get("record") or {}

    @property
    def is_unchanged(self) -> bool:
        """Whether its ranker is as the run wrote it."""
        return bool(folder_hash(self.out) == self.result.get("files", {}).get("ranker", ""))

    @cached_property
    def read_was_changed(self) -> bool:
        """Whether the folder of the ranker that it read is there, and is not as it was then."""
        there = bool(self.ranker) and exists(Path(self.ranker))
        return there and folder_hash(Path(self.ranker)) != self.asked.get("ranker_files")

    @property
    def collection(self) -> CollectionName:
        """The name of its collection, which may be gone."""
        return CollectionName(
            self.record.get("collection", {}).get("name", ""), self.asked.get("collection_fingerprint", "")
        )

    @property
    def places(self) -> list[str]:
        """The folders that it read and wrote, with those of its checkpoints."""
        folders = [self.ranker, str(self.out), *self.asked.get("references", [])]
        return [*folders, *(str(beside(Path(folder))) for folder in folders if Path(folder).name), self._data]

    @property
    def listed(self) -> list[Copy]:
        """The ranker and the collection that it read, and the copies that it listed."""
        read = [Copy("ranker", self.ranker, ""), Copy("collection", self._data, "")]
        return [*read, *(Copy(**holder) for holder in self.result.get("holders", []))]

    @property
    def _data(self) -> str:
        return str(self.asked.get("collection", ""))


@dataclass(frozen=True)
class Remains:
    """The places that still remember a request, and those that no longer do."""

    there: list[Copy]
    gone: list[Copy]
    """Places that were listed, and are deleted or no longer hold it."""
    unchecked: list[Copy]
    """Places that cannot be reached from here."""

    def to_json(self) -> Json:
        return {name: [vars(copy) for copy in getattr(self, name)] for name in ("there", "gone", "unchecked")}


def counted(copies: Sequence[Copy]) -> dict[str, int]:
    """Return the number of places by kind. The history names no path: a path may name what is erased."""
    return dict(Counter(copy.kind for copy in copies))


def past_runs(ledger: Ledger) -> list[PastRun]:
    """Return all runs of the ledger."""
    rows = ledger.ask("SELECT id, out, asked, result FROM run ORDER BY id")
    return [PastRun(id, Path(out), json.loads(asked), json.loads(result or "{}")) for id, out, asked, result in rows]


def settling_runs(ledger: Ledger, request: int) -> dict[int, State]:
    """Return the runs that gave a request its states, and these states."""
    found = ledger.request(request)
    there = {each.run: each.state for each in states_of(ledger, request) if each.run is not None}
    return there or ({found.run: found.state} if found.run is not None else {})


def held_nothing(runs: Sequence[PastRun], settled: Mapping[int, State]) -> set[str]:
    """Return the rankers in which these runs found nothing to forget, and which were not changed since."""
    found = [run for run in runs if settled.get(run.id) is State.NOTHING_TO_FORGET]
    return {run.ranker for run in found if not run.read_was_changed}


def find_remains(ledger: Ledger, request: int, look: Sequence[Path] = ()) -> Remains:
    """Look for a settled request in every place that the ledger knows, and below the places to look at."""
    items, runs, settled = ledger.items(request), past_runs(ledger), settling_runs(ledger, request)
    members = service_rankers(ledger)
    known = [copy for run in runs if run.id in settled for copy in run.listed]
    known += [Copy("ranker", member.before[0], "") for member in members if member.before]
    places = [*(place for run in runs for place in run.places), *(copy.path for copy in known)]
    places += [place for member in members for place in (member.ranker, member.collection, *member.indexes)]
    here = [Path(place) for place in dict.fromkeys(places) if place and exists(Path(place))]
    here += adapters_beside(here)
    proxies = remembered_proxies()
    found: dict[str, Copy] = {}
    for name in dict.fromkeys(run.collection for run in runs):
        for copy in find_copies([*here, *proxies, *look], items, name, ledger.path):
            found.setdefault(copy.path, copy)
    for copy in (*_unsettled(runs, request, settled), *_indexes(ledger, request, items, runs)):
        found.setdefault(copy.path, copy)
    never = held_nothing(runs, settled)
    never |= {str(run.out) for run in runs if run.id in settled and run.is_unchanged}
    there = [found[path] for path in sorted(found) if path not in never]
    strange = of_other_collections([*here, *look], [run.collection for run in runs])
    strange = [copy for copy in strange if copy.path not in never and copy.path not in found]
    gone, unchecked = _checked(known, {copy.path for copy in there}, never | {copy.path for copy in strange})
    return Remains(there, gone, [*unchecked, *strange, *not_searched(look)])


def delete_proxies(remains: Remains) -> Remains:
    """Delete the proxies that still remember a request; return the remains without them."""
    proxies = [copy for copy in remains.there if copy.kind == "proxy"]
    for copy in proxies:
        rmtree(copy.path)
    there = [copy for copy in remains.there if copy not in proxies]
    return replace(remains, there=there, gone=[*remains.gone, *(replace(copy, why=DELETED) for copy in proxies)])


def _checked(known: Sequence[Copy], there: set[str], never: set[str]) -> tuple[list[Copy], list[Copy]]:
    """Return the listed places that no longer hold the request, and those that cannot be checked."""
    gone, unchecked = {}, {}
    for copy in known:
        inside = any(path == copy.path or path.startswith(f"{copy.path}/") for path in there)
        if not copy.path or inside or copy.path in never:
            continue
        if ERASED in Path(copy.path).parts:
            unchecked[copy.path] = replace(copy, why="cannot be found: a closed request took its name; give --look")
        elif not Path(copy.path).is_absolute():
            unchecked[copy.path] = replace(copy, why="is on a hub, which is not checked")
        else:
            gone[copy.path] = replace(copy, why=CLEAN if exists(Path(copy.path)) else GONE)
    return list(gone.values()), list(unchecked.values())


def _unsettled(runs: Sequence[PastRun], request: int, settled: dict[int, State]) -> Iterator[Copy]:
    """Yield the rankers of runs that do not settle the request now, and the rankers that were changed since."""
    for run in runs:
        if request in run.asked.get("requests", []) and run.id not in settled and run.out.exists():
            yield Copy("ranker", str(run.out), f"may remember it: the request is not settled by run {run.id}")
        elif run.id in settled and run.out.exists() and not run.is_unchanged:
            yield Copy("ranker", str(run.out), f"was changed since run {run.id} wrote it")
        if settled.get(run.id) is State.NOTHING_TO_FORGET and run.read_was_changed:
            yield Copy("ranker", run.ranker, f"was changed since run {run.id} found nothing to forget in it")


def _indexes(ledger: Ledger, request: int, items: Sequence[Item], runs: Sequence[PastRun]) -> Iterator[Copy]:
    """Yield the indexes of the service that were not written since the request was settled."""
    settled = [entry.when for entry in ledger.history(request) if entry.event in SETTLED]
    valid = all(run.record.get("index_valid") for run in runs if run.record)
    if not settled or (valid and all(item.kind == "query" for item in items)):
        return
    last = datetime.fromisoformat(settled[-1]).astimezone(UTC).timestamp()
    for path in {path for member in service_rankers(ledger) for path in member.indexes}:
        if exists(Path(path)) and _written(Path(path)) < last:
            yield Copy("index", path, "was not written since the run: it may hold vectors of what was removed")


def _written(place: Path) -> float:
    """Return when a file, or a file below a folder, was last written."""
    files: Sequence[Any] = regular_files(place) if place.is_dir() else [place]
    return max((file.stat().st_mtime for file in files), default=0.0)
