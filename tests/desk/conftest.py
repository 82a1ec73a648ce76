"""A ledger to test on, and requests that name things with texts nobody would meet by chance."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from unrank.desk.key import Key, key_file
from unrank.desk.ledger import Ledger
from unrank.desk.request import Basis, Item, Request

DAY = date(2026, 3, 1)
QUERY = Item(query="query-zanzibar", query_text="who sold the zanzibar clock")
DOCUMENT = Item(document="document-quixote", document_text="Mr Quixote  of Dulcinea Street owns a windmill")
PAIR = Item("query-left", "document-right", "left handed spanners", "The right-handed spanner, and why it is Spanish")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "desk.ledger"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path, make_with=key_file(path)) as opened:
        opened.key(key_file(path))
        yield opened


@pytest.fixture
def key(ledger: Ledger, path: Path) -> Key:
    return ledger.key(key_file(path))


def take_in(ledger: Ledger, key: Key, *items: Item, due: date = DAY) -> Request:
    return ledger.add(items or (DOCUMENT,), date(2026, 2, 1), due, Basis.consent.value, key)
