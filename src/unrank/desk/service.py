"""The service: the rankers that answer searches together, and the state of every request in each of them.

A request is only as forgotten as in the ranker that remembers it best, so its own state is the worst of its states by
ranker. If no ranker is registered, the ledger belongs to one ranker, and a request has one state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from unrank.desk.covered_rows import SERVICE
from unrank.desk.history_index import BrokenChain
from unrank.desk.ledger import Ledger
from unrank.desk.paths import names_item, refuse_names
from unrank.desk.request import PENDING, RUNNABLE, SETTLED, Item, Request, State, marks
from unrank.disk import exists, folder_hash
from unrank.errors import UnrankError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
HUB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}")
WORST_FIRST = (*RUNNABLE, State.FULFILLED, *(state for state in SETTLED if state is not State.FULFILLED))


class Role(StrEnum):
    """The part of a ranker in a service."""

    retriever = "retriever"
    reranker = "reranker"


@dataclass(frozen=True)
class ServiceRanker:
    """A ranker of the service, as it is now."""

    name: str
    role: Role
    ranker: str
    """Its folder, or its id on a hub."""
    collection: str
    indexes: tuple[str, ...] = ()
    since: date | None = None
    """The day since when it answers searches; `None` if its owner has not said so."""
    run: int | None = None
    """The run that made it; `None` if it is as it was registered."""
    before: tuple[str, str | None] | None = None
    """The ranker that the run replaced, and since when that one was in service."""

    @classmethod
    def named(
        cls, name: str, role: Role, ranker: str, collection: Path, indexes: Sequence[Path], since: date | None
    ) -> ServiceRanker:
        """Return a ranker as somebody registers it; refuse places that are not there, and a folder of no ranker."""
        from unrank.collection.collection import open_collection

        open_collection(collection)
        _check_ranker(ranker)
        for index in indexes:
            if not exists(index):
                raise UnrankError(f"index {index}: no such file or folder")
        places = tuple(str(index.resolve()) for index in indexes)
        return cls(name, role, absolute(ranker), str(collection.resolve()), places, since)

    def to_json(self) -> dict[str, object]:
        since = str(self.since) if self.since else None
        plain = {"name": self.name, "role": str(self.role), "ranker": self.ranker, "collection": self.collection}
        return {**plain, "indexes": list(self.indexes), "in_service_since": since, "run": self.run}


@dataclass(frozen=True)
class StateThere:
    """The state of a request in one ranker of the service, and the run that gave it that state."""

    ranker: str
    state: State
    run: int | None = None


def service_rankers(ledger: Ledger) -> list[ServiceRanker]:
    """Return the rankers of the service, in the order in which they were registered."""
    return [_ranker(row) for row in ledger.ask(f"{SERVICE} ORDER BY rowid")]


def service_ranker(ledger: Ledger, name: str) -> ServiceRanker:
    """Return the ranker of the service with this name."""
    found = service_rankers(ledger)
    for ranker in found:
        if ranker.name == name:
            return ranker
    known = f"its rankers are {', '.join(ranker.name for ranker in found)}" if found else "no ranker is registered"
    raise UnrankError(f"the service has no ranker {name!r}: {known}; see 'unrank desk service list'")


def ranker_at(ledger: Ledger, ranker: str) -> ServiceRanker | None:
    """Return the ranker of the service in this folder; `None` if no ranker is registered at all. Refuse others."""
    found = service_rankers(ledger)
    place = absolute(ranker)
    for each in found:
        if absolute(each.ranker) == place:
            return each
    if found:
        known = ", ".join(f"{each.name} in {each.ranker}" for each in found)
        raise UnrankError(
            f"{ranker} is not in the service ({known}): run one of these, or register it with 'unrank desk service add'"
        )
    return None


def add_ranker(ledger: Ledger, new: ServiceRanker) -> list[int]:
    """Register a ranker; return the requests that are open again because it has not forgotten them."""
    if not NAME.fullmatch(new.name):
        raise UnrankError(f"the name {new.name!r} cannot be used: take up to 40 letters, digits, - and _")
    with ledger.transaction():
        items = [item for request in ledger.requests(PENDING) for item in ledger.items(request.id)]
        refuse_names((new.ranker, new.collection, *new.indexes), items)
        before = service_rankers(ledger)
        for each in before:
            if new.name == each.name:
                raise UnrankError(f"the service has a ranker {new.name!r} already: choose another name, or remove it")
            if new.ranker == each.ranker:
                raise UnrankError(f"{new.ranker} is in the service already, as {each.name!r}")
        made_by = max(_runs_that_wrote(ledger, new.ranker, "state = 'passed'"), default=None)
        if new.since is not None:
            _check_since(ledger, made_by, new.since)
        _check_name_is_new(ledger, new.name, made_by)
        ledger.ask("INSERT INTO service_ranker VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _row(replace(new, run=made_by)))
        ledger.write_of_service("added", new.name)
        if not before:
            _keep_states(ledger, new)
        return _weigh(ledger, new.name)


def remove_ranker(ledger: Ledger, name: str) -> list[int]:
    """Take a ranker out of the service; return the requests whose state changes."""
    with ledger.transaction():
        service_ranker(ledger, name)
        ledger.ask("DELETE FROM service_ranker WHERE name = ?", [name])
        ledger.write_of_service("removed", name)
        changed = _weigh(ledger, name)
        for request in ledger.requests(PENDING):
            if ledger.ask("SELECT 1 FROM state_by_ranker WHERE request = ? AND ranker = ?", [request.id, name]):
                ledger.ask("DELETE FROM state_by_ranker WHERE request = ? AND ranker = ?", [request.id, name])
                ledger.move(request.id, request.state, removed=name)
        return changed


def deploy(ledger: Ledger, name: str, since: date) -> ServiceRanker:
    """Record since when the present ranker of this name answers searches."""
    with ledger.transaction():
        present = service_ranker(ledger, name)
        there = exists(Path(present.ranker))
        if there and present.run is not None and present.run not in _runs_that_wrote(ledger, present.ranker):
            raise UnrankError(
                f"{present.ranker} is not as run {present.run} wrote it: put that ranker there, or register this one "
                "with 'unrank desk service add'"
            )
        _check_since(ledger, present.run, since)
        ledger.ask("UPDATE service_ranker SET since = ? WHERE name = ?", [since.isoformat(), name])
        ledger.write_of_service("deployed", name, since=since.isoformat())
        return service_ranker(ledger, name)


def states_of(ledger: Ledger, request: int) -> list[StateThere]:
    """Return the state of a request in each ranker of the service; it is open where no run has taken it."""
    known = {
        row[0]: row for row in ledger.ask("SELECT ranker, state, run FROM state_by_ranker WHERE request = ?", [request])
    }
    names = [name for (name,) in ledger.ask("SELECT name FROM service_ranker ORDER BY rowid")]
    try:
        return [
            StateThere(name, State(known[name][1]), known[name][2]) if name in known else StateThere(name, State.OPEN)
            for name in names
        ]
    except ValueError as error:
        raise BrokenChain(f"request {request} was changed outside its history: {error}") from error


def worst(states: Iterable[State]) -> State:
    """Return the state that says least of several.

    >>> print(worst([State.FORGOTTEN, State.NOT_VERIFIABLE, State.NOTHING_TO_FORGET]))
    forgotten, not verifiable
    """
    return min(states, key=WORST_FIRST.index)


def runnable_in(ledger: Ledger, ranker: ServiceRanker | None) -> list[Request]:
    """Return the requests that a run of this ranker takes."""
    requests = ledger.requests(RUNNABLE)
    if ranker is None:
        return requests
    query = f"SELECT request FROM state_by_ranker WHERE ranker = ? AND state NOT IN ({marks(RUNNABLE)})"
    done = {id for (id,) in ledger.ask(query, [ranker.name, *RUNNABLE])}
    return [request for request in requests if request.id not in done]


def settle(ledger: Ledger, request: int, state: State, run: int, ranker: ServiceRanker | None, **details: Any) -> State:
    """Record the state that a run gives to a request in one ranker; return the state of the request in all of them."""
    ledger.ask("UPDATE request SET run = ? WHERE id = ?", [run, request])
    if ranker is not None and _is_registered(ledger, ranker):
        ledger.ask("INSERT OR REPLACE INTO state_by_ranker VALUES (?, ?, ?, ?)", [request, ranker.name, state, run])
        details |= {"ranker": ranker.name, "there": state}
    if there := states_of(ledger, request):
        state = worst(each.state for each in there)
    ledger.move(request, state, run=run, **details)
    return state


def replace_ranker(ledger: Ledger, old: ServiceRanker, run: int, out: Path) -> None:
    """Put the new ranker of a run in the place of the old one. Its owner says later since when it answers searches."""
    if not _is_registered(ledger, old):  # it was taken out of the service during the run
        return
    before = json.dumps([old.ranker, old.since.isoformat() if old.since else None])
    change = "UPDATE service_ranker SET ranker = ?, since = NULL, run = ?, before = ? WHERE name = ?"
    ledger.ask(change, [str(out), run, before, old.name])
    ledger.write_of_service("changed", old.name, run=run)


def put_back(ledger: Ledger, run: int, original: str) -> ServiceRanker | None:
    """Put the original of a run back into the service; return it, or `None` if no ranker there is of this run."""
    for each in service_rankers(ledger):
        if each.run == run:
            ranker, since = each.before or (original, None)
            query = "SELECT id, json_extract(asked, '$.ranker') FROM run WHERE out = ? AND state = 'passed' ORDER BY id"
            made_by, replaced = (ledger.ask(query, [ranker]) or [(None, None)])[-1]
            before = json.dumps([replaced, None]) if replaced else None
            change = "UPDATE service_ranker SET ranker = ?, since = ?, run = ?, before = ? WHERE name = ?"
            ledger.ask(change, [ranker, since, made_by, before, each.name])
            ledger.write_of_service("put back", each.name, run=run)
            return service_ranker(ledger, each.name)
    return None


def erase_from_service(ledger: Ledger, request: int, items: Sequence[Item]) -> None:
    """Refuse to end a request that a path of the service names; forget a replaced ranker whose path does."""
    for each in service_rankers(ledger):
        for path in (each.ranker, each.collection, *each.indexes):
            if names_item(path, items):
                raise UnrankError(
                    f"{path}, in the service as {each.name}, holds an id or words of request {request}, and the ledger "
                    "keeps this path: rename it, take the ranker out of the service, and add it again"
                )
        if each.before and names_item(each.before[0], items):
            ledger.ask("UPDATE service_ranker SET before = NULL WHERE name = ?", [each.name])
            ledger.write_of_service("erased", each.name)


@contextmanager
def naming_entry(name: str | None, *places: str) -> Iterator[None]:
    """Let an error about one of these places of a service, or a file in it, name the entry and how to take it out.

    `name` is `None` for places that are in no service.
    """
    try:
        yield
    except UnrankError as error:
        if name is None or not str(error).startswith(tuple(f"{place}{end}" for place in places for end in ":/")):
            raise
        raise UnrankError(
            f"{error}; it is in the service as {name}: mend it, or take it out with 'unrank desk service remove {name}'"
        ) from error


def _check_ranker(ranker: str) -> None:
    """Refuse a folder that is no ranker's, and a name that no ranker can have. What is on a hub is not looked at."""
    from unrank.desk.copies import looks_like_ranker

    place = Path(ranker)
    if exists(place):
        if not place.is_dir():
            raise UnrankError(f"{ranker}: a file; a ranker is a folder")
        if not looks_like_ranker(place):
            raise UnrankError(f"{ranker}: not a ranker's folder: no model is in it that can be read")
    elif not HUB_ID.fullmatch(ranker):
        raise UnrankError(f"{ranker}: no such ranker folder, and no id on a hub, such as owner/name")


def absolute(ranker: str) -> str:
    """Return the absolute path of a ranker's folder, links followed; a hub id unchanged."""
    return str(Path(ranker).resolve()) if exists(Path(ranker)) else ranker


def _check_since(ledger: Ledger, run: int | None, since: date) -> None:
    """Refuse a day that is to come, or before the run that made a ranker ended: it was not in service then."""
    if since > date.today():
        raise UnrankError(f"{since} is in the future: give a day on which it was in service")
    at = "min(coalesce(json_extract(details, '$.clock'), at))"
    query = f"SELECT {at} FROM history WHERE event = 'run passed' AND json_extract(details, '$.run') = ?"
    [[made]] = ledger.ask(query, [run])
    if made is not None and since < (first := (datetime.fromisoformat(made) - timedelta(days=1)).date()):
        raise UnrankError(f"{since} is before run {run} made it: give a day from {first} on")


def _runs_that_wrote(ledger: Ledger, ranker: str, which: str = "TRUE") -> set[int]:
    """Return the runs whose new ranker has the files of this folder: another ranker may have taken its place since."""
    files = folder_hash(Path(ranker))
    same, known = ("json_extract(result, '$.files.ranker') = ?", files) if files else ("out = ?", ranker)
    return {run for (run,) in ledger.ask(f"SELECT id FROM run WHERE {which} AND {same}", [known])}


def _check_name_is_new(ledger: Ledger, name: str, made_by: int | None) -> None:
    """Refuse a name under which closed requests have states in another ranker."""
    query = "SELECT DISTINCT run FROM state_by_ranker WHERE ranker = ?"
    known = {run for (run,) in ledger.ask(query, [name])}
    if known and (made_by is None or made_by < max(known)):
        raise UnrankError(f"closed requests have their state in an earlier ranker {name!r}: choose another name")


def _is_registered(ledger: Ledger, ranker: ServiceRanker) -> bool:
    """Tell if this very ranker is still in the service: another one may have taken its name meanwhile."""
    query = "SELECT 1 FROM service_ranker WHERE name = ? AND ranker = ?"
    return bool(ledger.ask(query, [ranker.name, ranker.ranker]))


def _keep_states(ledger: Ledger, first: ServiceRanker) -> None:
    """Keep the states that requests got from the run that made the first registered ranker."""
    made = _runs_that_wrote(ledger, first.ranker)
    for request in ledger.requests(SETTLED):
        if request.run is not None and request.run in made:
            settle(ledger, request.id, request.state, request.run, first)


def _weigh(ledger: Ledger, name: str) -> list[int]:
    """Give each pending request the worst of its states, after the rankers of the service have changed."""
    changed = []
    for request in ledger.requests(PENDING):
        there: Sequence[StateThere] = states_of(ledger, request.id)
        state = worst(each.state for each in there) if there else request.state
        if state is not request.state:
            last = max((each.run for each in there if each.run is not None), default=request.run)
            ledger.ask("UPDATE request SET run = ? WHERE id = ?", [last, request.id])
            ledger.move(request.id, state, service=name)
            changed.append(request.id)
    return changed


def _row(ranker: ServiceRanker) -> list[Any]:
    since = ranker.since.isoformat() if ranker.since else None
    return [
        ranker.name,
        ranker.role,
        ranker.ranker,
        ranker.collection,
        json.dumps(ranker.indexes),
        since,
        ranker.run,
        None,
    ]


def _ranker(row: tuple[Any, ...]) -> ServiceRanker:
    name, role, ranker, collection, indexes, since, run, before = row
    try:
        day = date.fromisoformat(since) if since else None
        replaced = tuple(json.loads(before)) if before else None
        return ServiceRanker(name, Role(role), ranker, collection, tuple(json.loads(indexes)), day, run, replaced)
    except (ValueError, TypeError) as error:
        raise BrokenChain(f"the ranker {name} of the service was changed outside the history: {error}") from error
