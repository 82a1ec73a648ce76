"""Attacks on a ranker's folder: what it holds is all that the attacker has."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiny import made_record
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.forgetting.previous_requests import hashed
from unrank.record import RECORD


def strings_of(value: object) -> Iterator[str]:
    """All texts in a JSON value, keys included."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from strings_of(part)
    if isinstance(value, str):
        yield value


@pytest.mark.attack(14)
@pytest.mark.parametrize("kind", ["queries", "documents", "pairs"])
def test_removed_ids_cannot_be_guessed_from_the_record(dense: Collection, kind: str, tmp_path: Path) -> None:
    removal = Removal(["query1", "query2"], ["doc1", "doc2"], [("query3", "doc3")])
    made_record(dense.fingerprint, removed=hashed(removal)).write(tmp_path, {})
    record = json.loads((tmp_path / RECORD).read_text())
    hashes = set(record["removed"][kind]["hashes"])
    assert len(hashes) == len(getattr(removal, kind))
    guesses = [json.dumps(item) for texts in (dense.queries, dense.documents) for item in texts.ids(range(len(texts)))]
    guesses += [json.dumps(pair) for pair in removal.pairs]
    tried = 0
    for secret in {"", *strings_of(record)}:
        for guess in guesses:
            plain = hashlib.sha256(f"{secret}:{guess}".encode()).hexdigest()
            keyed = hmac.digest(secret.encode(), guess.encode(), "sha256").hex()
            assert not hashes & {plain[:32], keyed[:32], plain, keyed}
            tried += 1
    assert tried > 1_000
