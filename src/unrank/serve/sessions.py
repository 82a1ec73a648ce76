"""Sessions: small files, so that people stay signed in when the server starts again.

A file has the hash of the cookie as its name. Who can read the folder cannot use a session. A session ends after some
hours, when its person signs out, and when the token is taken out of the token file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import time

from unrank.serve.people import People, Person

HOURS = 8.0
COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True)
class Session:
    """A person who is signed in."""

    cookie: str
    person: Person
    csrf: str
    """The token that every form of this session holds."""


class Sessions:
    """The sessions in a folder."""

    def __init__(self, folder: Path, people: People, hours: float = HOURS, now: Callable[[], float] = time) -> None:
        self._folder, self._people, self._hours, self._now = folder, people, hours, now

    def begin(self, person: Person) -> Session:
        """Begin a session, and delete those that have ended."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in self._folder.glob("*.json"):
            if self._read(path) is None:
                path.unlink(missing_ok=True)
        session = Session(secrets.token_urlsafe(32), person, secrets.token_urlsafe(32))
        value = {"token": person.digest, "csrf": session.csrf, "until": self._now() + self._hours * 3600}
        path = self._path(session.cookie)
        partial = path.with_name(f".{path.name}.partial")
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(value, file)
        partial.replace(path)
        return session

    def find(self, cookie: str) -> Session | None:
        """Return the session of a cookie; `None` if there is none, or it has ended."""
        if not COOKIE.fullmatch(cookie) or (found := self._read(self._path(cookie))) is None:
            return None
        person = self._people.with_digest(found["token"])
        return Session(cookie, person, found["csrf"]) if person is not None else None

    def end(self, session: Session) -> None:
        self._path(session.cookie).unlink(missing_ok=True)

    def _path(self, cookie: str) -> Path:
        return self._folder / f"{hashlib.sha256(cookie.encode()).hexdigest()}.json"

    def _read(self, path: Path) -> dict[str, str] | None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            value = json.loads(path.read_text())
            if float(value["until"]) > self._now():
                return {name: str(value[name]) for name in ("token", "csrf")}
        return None
