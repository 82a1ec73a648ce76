"""The office: one ledger with its key, the collections of its service, its jobs and its certificates.

Every page asks the same functions of the desk as the command line. Requests are added by one thread, whose connection
to the ledger stays open until another file is in its place: so the whole history is verified only if somebody else has
written to it.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TypeVar

from unrank.collection.collection import open_collection
from unrank.desk.history_index import BrokenChain
from unrank.desk.intake import Finder
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.request import PENDING, RUNNABLE, marks
from unrank.desk.service import service_rankers
from unrank.errors import BadFile, UnrankError
from unrank.serve.jobs import Jobs

T = TypeVar("T")
EVERY, COST = 30.0, 50.0
"""The fewest seconds between two verifications, and how many times as long as one took."""
NO_SERVICE = "no ranker is registered: an engineer does that on the page 'Service'"


@dataclass(frozen=True)
class Place:
    """Where an office keeps its files."""

    ledger: Path
    key: Path
    certificates: Path
    """The folder of the certificates that the page writes."""
    run_words: tuple[str, ...] = ()
    """More words for every 'unrank desk run'."""

    @property
    def folder(self) -> Path:
        """The folder of sessions and jobs, beside the ledger."""
        return self.ledger.with_name(f"{self.ledger.name}.serve")


class Health:
    """Whether the history is unbroken, as it was found not long ago."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._lock = Lock()
        self._found: str | None = None
        self._next = 0.0

    @property
    def broken(self) -> str | None:
        """Where the history is broken; `None` if it is not.

        It is verified again after a while, which is longer for a longer history. One page waits for it.
        """
        if monotonic() >= self._next and self._lock.acquire(blocking=False):
            try:
                began = monotonic()
                self._found = self._verify()
                self._next = monotonic() + max(EVERY, COST * (monotonic() - began))
            finally:
                self._lock.release()
        return self._found

    def _verify(self) -> str | None:
        try:
            with Ledger.read(self._ledger) as ledger:
                ledger.verify()
        except BrokenChain as error:
            return str(error)
        return None


@dataclass(frozen=True)
class Adder:
    """The ledger that stays open to add requests to it."""

    file: tuple[int, int]
    """The device and the number of its file."""
    ledger: Ledger
    key: Key


class Office:
    """The open office."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.jobs = Jobs(place.folder / "jobs")
        self.health = Health(place.ledger)
        self._finders: dict[str, tuple[tuple[int, ...], Finder]] = {}
        self._opening = Lock()
        self._adding = ThreadPoolExecutor(1, "adding")
        self._adder: Adder | None = None

    @contextmanager
    def reading(self) -> Iterator[Ledger]:
        """Open the ledger to read it, as of one moment."""
        with Ledger.read(self.place.ledger) as ledger, ledger.snapshot():
            yield ledger

    @contextmanager
    def writing(self, by: str) -> Iterator[tuple[Ledger, Key]]:
        """Open the ledger with its key, to write to it for a person."""
        with Ledger.open(self.place.ledger, by=by) as ledger:
            yield ledger, ledger.key(self.place.key)

    def adding(self, by: str, add: Callable[[Ledger, Key], T]) -> T:
        """Let `add` write to the ledger for a person, in the thread that keeps it open."""
        return self._adding.submit(self._add, by, add).result()

    def _add(self, by: str, add: Callable[[Ledger, Key], T]) -> T:
        try:
            adder = self._opened()
            return add(adder.ledger.written_by(by), adder.key)
        except BaseException:
            self._close()
            raise

    def _opened(self) -> Adder:
        """Return the ledger that stays open; open it again if another file is in its place by now."""
        there = self.place.ledger.stat()
        file = there.st_dev, there.st_ino
        if self._adder is None or self._adder.file != file:
            self._close()
            with ExitStack() as stack:
                ledger = stack.enter_context(Ledger.open(self.place.ledger))
                self._adder = Adder(file, ledger, ledger.key(self.place.key))
                stack.pop_all()
        return self._adder

    def close(self) -> None:
        """Close the ledger."""
        self._adding.submit(self._close).result()
        self._adding.shutdown()

    def _close(self) -> None:
        if self._adder is not None:
            ledger, self._adder = self._adder.ledger, None
            ledger.__exit__(None, None, None)

    def collections(self) -> dict[str, str]:
        """Return the folders of the service's collections, each with its name and the rankers that use it."""
        with self.reading() as ledger:
            members = service_rankers(ledger)
        if not members:
            raise UnrankError(NO_SERVICE)
        users: dict[str, list[str]] = {}
        for member in members:
            users.setdefault(member.collection, []).append(member.name)
        return {folder: f"{Path(folder).name} ({', '.join(names)})" for folder, names in users.items()}

    def finder(self, folder: str) -> Finder:
        """Return the search in a collection of the service; it is kept while the collection stays as it is."""
        if folder not in self.collections():
            raise UnrankError("choose one of the collections of the service")
        try:
            written = (Path(folder) / "collection.json").stat()
        except OSError as error:
            raise BadFile(folder, "the collection is not there any more") from error
        stamp = (written.st_mtime_ns, written.st_size, written.st_ino)
        with self._opening:
            known = self._finders.get(folder)
            if known is None or known[0] != stamp:
                known = self._finders[folder] = stamp, Finder(open_collection(Path(folder)))
            return known[1]

    def runnable(self) -> list[int]:
        """Return the requests that a run takes now."""
        with self.reading() as ledger:
            query = f"SELECT id FROM request WHERE state IN ({marks(RUNNABLE)}) ORDER BY id"
            return [id for (id,) in ledger.ask(query, [*RUNNABLE])]

    def clear_jobs(self) -> None:
        """Delete what jobs printed about requests that were ended since."""
        if not self.jobs.all():
            return
        with self.reading() as ledger:
            pending = {request.id for request in ledger.requests(PENDING)}
        self.jobs.clear(pending)

    def run_command(self, *words: str) -> list[str]:
        """Return the command that plans or runs, with the options of this office."""
        where = ["--ledger", str(self.place.ledger), "--key", str(self.place.key)]
        return [sys.executable, "-m", "unrank", "desk", "run", *where, "--json", *words, *self.place.run_words]


def name_of(requests: Sequence[int]) -> str:
    """Return a short name of a set of requests, by which a form says which ones its page showed.

    >>> name_of([1, 3]) == name_of([3, 1]), name_of([1, 3]) == name_of([1])
    (True, False)
    """
    return hashlib.sha256(",".join(map(str, sorted(requests))).encode()).hexdigest()[:32]
