"""The people who may sign in, and what each may do: a file of names, roles and hashed tokens.

A token is 32 random bytes, so a plain SHA-256 of it can be neither reversed nor guessed. Nobody but the owner of the
file may read or write it. A line that is taken out ends the sessions of that token.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from unrank.desk.history_index import check_person
from unrank.disk import open_regular
from unrank.errors import BadFile, UnrankError

BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO
LONGEST = 1 << 20
"""The most bytes of a token file that are read."""


class Right(StrEnum):
    """What a person may do."""

    read = "read"
    add = "add"
    run = "run"
    close = "close"
    verify = "verify"


class Role(StrEnum):
    """The part of a person at the desk."""

    clerk = "clerk"
    engineer = "engineer"
    auditor = "auditor"


RIGHTS = {
    Role.clerk: {Right.read, Right.add},
    Role.engineer: {Right.read, Right.run, Right.close},
    Role.auditor: {Right.read, Right.verify},
}


@dataclass(frozen=True)
class Person:
    """A person with a token."""

    name: str
    roles: tuple[Role, ...]
    digest: str
    """The SHA-256 of the token."""

    @property
    def rights(self) -> set[Right]:
        return set().union(*(RIGHTS[role] for role in self.roles))


class People:
    """The people of a token file. The file is read again when it was changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._known: dict[str, Person] = {}

    def with_token(self, token: str) -> Person | None:
        """Return the person who has a token; `None` if nobody has it."""
        digest, found = digest_of(token), None
        for known, person in self._read().items():  # all of them: the time tells nothing
            found = person if hmac.compare_digest(known, digest) else found
        return found

    def with_digest(self, digest: str) -> Person | None:
        """Return the person whose token has this hash; `None` if it was taken out."""
        return self._read().get(digest)

    def _read(self) -> dict[str, Person]:
        try:
            now = self.path.stat()
        except OSError as error:
            why = error.strerror or "cannot be read"
            raise BadFile(self.path, f"{why}; 'unrank desk token NAME --role clerk' makes it") from error
        stamp = (now.st_mtime_ns, now.st_size, now.st_ino)
        if stamp != self._stamp:
            self._known = {person.digest: person for person in read_people(self.path)}
            self._stamp = stamp
        return self._known


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def read_people(path: Path) -> list[Person]:
    """Read a token file; refuse one that others may read or write."""
    try:
        with open_regular(path) as file:
            mode, owner = os.fstat(file.fileno()).st_mode, os.fstat(file.fileno()).st_uid
            text = file.read(LONGEST).decode()
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise BadFile(path, "not a token file: not UTF-8 text") from error
    if mode & BY_OTHERS:
        raise BadFile(path, f"others may read or write it (mode {stat.S_IMODE(mode):o}): run chmod 600 on it first")
    if owner != os.getuid():
        raise BadFile(path, "belongs to another user: make one of your own with 'unrank desk token'")
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    return [_person(path, number, parts) for number, parts in lines]


def _person(path: Path, line: int, parts: Sequence[str]) -> Person:
    try:
        name, roles, digest = parts
        check_person(name)
        if len(bytes.fromhex(digest)) != 32 or digest != digest.lower():
            raise ValueError(digest)
        return Person(name, tuple(Role(role) for role in roles.split(",")), digest)
    except (ValueError, UnrankError) as error:
        raise BadFile(path, "not NAME, ROLES and the SHA-256 of a token", line) from error


def make_token(path: Path, name: str, roles: Iterable[Role]) -> str:
    """Add a person to a token file, which is made if there is none; return the token, which is stored nowhere."""
    check_person(name)
    parts = ",".join(dict.fromkeys(role.value for role in roles))
    if path.exists() and any(person.name == name for person in read_people(path)):
        raise UnrankError(f"{path}: {name} has a token already: take its line out first, or choose another name")
    token = secrets.token_urlsafe(32)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8") as file:
            file.write(f"{name} {parts} {digest_of(token)}\n")
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be written") from error
    return token
