"""The guard: what every message must pass before the desk sees it. Each check refuses by raising `Refused`."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from unrank.serve.limits import Limits, Rate
from unrank.serve.people import Right
from unrank.serve.sessions import Session

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""The browser may load nothing but our style and our script, and no other page may show ours in a frame."""
HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""The headers of every answer. With no referrer at all, browsers would hide where a post comes from."""
LOCAL = ("127.0.0.1", "localhost", "[::1]")


class Refused(Exception):
    """A message that does not pass, with the status of the answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Gate:
    """The names under which the desk answers, and its limits."""

    names: frozenset[str]
    """Names of hosts with their ports, in small letters. A page elsewhere that points its own name here is refused."""
    secure: bool = False
    """Whether browsers reach it by https."""
    limits: Limits = field(default_factory=Limits)

    @property
    def cookie(self) -> str:
        return "__Host-desk" if self.secure else "desk"

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Refuse a message to another name: a name that leads here need not be ours (DNS rebinding)."""
        if headers.get("host", "").lower() not in self.names:
            raise Refused(421, "this desk does not answer under that name: use the address that it printed")

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Refuse a post that does not come from a page of ours."""
        scheme = "https" if self.secure else "http"
        if headers.get("origin", "").lower() not in {f"{scheme}://{name}" for name in self.names}:
            raise Refused(403, "this form was not sent from a page of the desk")
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise Refused(403, "this form was not sent from a page of the desk")


def check_right(session: Session, right: Right) -> None:
    if right not in session.person.rights:
        roles = ", ".join(session.person.roles)
        raise Refused(403, f"your role ({roles}) may not do this: it needs the right to {right}")


def check_token(expected: str, given: str) -> None:
    """Refuse a form without the token of the session."""
    if not expected or not hmac.compare_digest(expected.encode(), given.encode(errors="replace")):
        raise Refused(403, "this form is not of your session: load the page again")


def check_rate(rate: Rate, key: str) -> None:
    if not rate.count(key):
        raise Refused(429, "too often: wait a minute")


def names_of(hosts: tuple[str, ...], port: int, secure: bool) -> frozenset[str]:
    """Return the names under which the desk answers.

    >>> sorted(names_of((), 8000, False))
    ['127.0.0.1:8000', '[::1]:8000', 'localhost:8000']
    >>> sorted(names_of(("desk.example.org",), 8000, True))
    ['desk.example.org', 'desk.example.org:443']
    """
    if secure:
        return frozenset(name for host in hosts for name in (host.lower(), f"{host.lower()}:443"))
    own = (*LOCAL, *hosts)
    plain = [host.lower() for host in own] if port == 80 else []
    return frozenset([*plain, *(f"{host.lower()}:{port}" for host in own)])
