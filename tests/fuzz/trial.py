"""One trial: a reader meets a bad file. It may answer with one line or with a result, soon, in little room."""

from __future__ import annotations

import random
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.fuzz.mutation import DAMAGE, MUTATIONS, mutate
from tests.fuzz.specimen import Specimen
from unrank.errors import UnrankError, printable

SECONDS = 10
ROOM = 2**30
LONGEST_LINE = 1_000
STATM = Path("/proc/self/statm")


class TooSlow(Exception):
    """A reader that did not come to an end."""


@dataclass(frozen=True)
class Outcome:
    """What became of it; `fault` is empty where all is well."""

    refused: bool
    seconds: float
    fault: str = ""


def try_out(specimen: Specimen, seed: object, right: Any = None, damage: bool = False) -> Outcome:
    """Spoil one file of a specimen, read it, and put the file back. With `right`, no other result will do."""
    generator = random.Random(f"{specimen.name}:{seed}")
    path = generator.choice(specimen.targets)
    good = path.read_bytes()
    bad = mutate(good, generator, DAMAGE if damage else MUTATIONS)
    _put(path, bad)
    started = perf_counter()
    refused, fault = False, ""
    try:
        with _bounded():
            found = specimen.read(specimen.folder)
        if right is not None and found != right:
            fault = "a wrong result"
    except UnrankError as error:
        refused, fault = True, _wrong_with(str(error))
    except (Exception, KeyboardInterrupt) as error:
        fault = f"{type(error).__name__}: {error}"
    finally:
        _put(path, good)
    where = f"{specimen.name}, {path.relative_to(specimen.folder)}, seed {seed}: "
    return Outcome(refused, perf_counter() - started, fault and where + fault)


def _put(path: Path, data: bytes) -> None:
    """As another file of the same name: the old one may still be mapped."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(data)
    new.replace(path)


def _wrong_with(line: str) -> str:
    if len(line.splitlines()) != 1 or printable(line) != line:
        return f"not one plain line: {line!r}"
    return f"a line of {len(line)} characters" if len(line) > LONGEST_LINE else ""


@contextmanager
def _bounded() -> Iterator[None]:
    """Within so much time and so much more memory than now."""

    def ring(*_: object) -> None:
        raise TooSlow(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if STATM.exists():  # on Linux
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + ROOM, limits[1]))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, before)


def _address_space() -> int:
    return int(STATM.read_text().split()[0]) * resource.getpagesize()
