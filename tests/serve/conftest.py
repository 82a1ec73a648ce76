"""A desk for a browser without a window: a tiny collection, requests in several states, four people."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.desk.made import made_run, ranks
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.desk.request import Basis, items_of
from unrank.desk.service import Role as RankerRole
from unrank.desk.service import ServiceRanker, add_ranker, service_ranker
from unrank.forgetting.outcome import ForgetState, Judgement
from unrank.serve.app import Server
from unrank.serve.guard import Gate
from unrank.serve.limits import Limits
from unrank.serve.office import Office, Place
from unrank.serve.people import People, Role, make_token

HOST = "http://desk.test"
CSRF = re.compile(r'name="csrf" value="([^"]+)"')


@dataclass(frozen=True)
class Desk:
    """A desk with its people."""

    office: Office
    people: People
    tokens: dict[str, str]
    limits: Limits

    def app(self) -> Any:
        return Server(self.office, self.people, Gate(frozenset({"desk.test"}), limits=self.limits)).app()

    def browser(self) -> Browser:
        return Browser(self.app())

    def signed_in(self, name: str) -> Browser:
        browser = self.browser()
        assert browser.sign_in(self.tokens[name]).status_code == 303
        return browser


class Browser:
    """A browser without a window: it keeps cookies, and sends the forms of pages."""

    def __init__(self, app: Any) -> None:
        client = pytest.importorskip("starlette.testclient").TestClient
        self.client = client(app, base_url=HOST, follow_redirects=False, headers={"origin": HOST})

    def get(self, path: str) -> Any:
        return self.client.get(path)

    def csrf(self, path: str = "/") -> str:
        found = CSRF.search(self.get(path).text)
        assert found is not None
        return found.group(1)

    def post(self, path: str, data: dict[str, Any] | None = None, token: str | None = None, **more: Any) -> Any:
        token = self.csrf() if token is None else token
        return self.client.post(path, data={"csrf": token, **(data or {})}, **more)

    def sign_in(self, token: str) -> Any:
        return self.post("/sign-in", {"token": token}, self.csrf("/sign-in"))


@pytest.fixture
def desk(tmp_path: Path, dense: Collection) -> Iterator[Desk]:
    """Request 1 is open, request 2 is forgotten by a run, request 3 is open."""
    pytest.importorskip("starlette")
    path = tmp_path / "desk.ledger"
    with Ledger.open(path, make_with=key_file(path)) as ledger:
        key = ledger.key(key_file(path))
        (tmp_path / "ranker").mkdir()
        add_ranker(
            ledger, ServiceRanker("first", RankerRole.retriever, str(tmp_path / "ranker"), str(dense.folder.resolve()))
        )
        for document in ("doc1", "doc4", "doc3"):
            items = items_of(Removal([], [document]), dense)
            ledger.add(items, date(2026, 2, 1), date(2026, 3, 1), Basis.consent.value, key)
        judged = Judgement(ForgetState.FORGOTTEN, "all fell", ranks([1, 1], [9, 8]))
        made_run(ledger, {2: judged}, member=service_ranker(ledger, "first"))
    tokens = tmp_path / "desk.tokens"
    made = {role.value: make_token(tokens, role.value, [role]) for role in Role}
    made["chief"] = make_token(tokens, "chief", list(Role))
    office = Office(Place(path, key_file(path), tmp_path / "certificates"))
    yield Desk(office, People(tokens), made, Limits())
    office.close()
