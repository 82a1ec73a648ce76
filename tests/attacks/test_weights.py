"""Attacks on a ranker's folder: what it holds is all that the attacker has."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.forgetting.conftest import FAST, QUICK_TRAINING
from tests.tiny import SECRET, SPECIAL, UNUSED, WORDS, made_record, make_secret_collection
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.forgetting.forget import forget
from unrank.forgetting.previous_requests import hashed
from unrank.forgetting.train import Trained, train
from unrank.rankers import create_ranker, load_ranker
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


ARTICLE = Removal(documents=["secret"])


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return make_secret_collection(tmp_path_factory.mktemp("secret") / "collection")


@pytest.fixture(scope="module")
def original(secrets: Collection, encoder: Path) -> Trained:
    return train(secrets, "bi-encoder", str(encoder), method=replace(QUICK_TRAINING, epochs=2))


def moved_words(folder: Path, base: Path) -> set[str]:
    """The words whose rows differ from the public base's, and that stand in no kept text."""
    initial = create_ranker("bi-encoder", str(base), 0).vocabularies[0].tables[0]
    tables = load_ranker(folder).vocabularies[0].tables
    moved = {row for table in tables for row in (table != initial).any(1).nonzero().flatten().tolist()}
    return {[*SPECIAL, *WORDS][row] for row in moved} & {*SECRET, *UNUSED}


@pytest.mark.attack(1)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="all"),
        pytest.param({"train_layers": 1}, id="last", marks=pytest.mark.slow),
        pytest.param({"freeze": "documents"}, id="frozen", marks=pytest.mark.slow),
    ],
)
def test_moved_rows_do_not_spell_what_was_removed(
    secrets: Collection, original: Trained, encoder: Path, options: dict[str, Any], tmp_path: Path
) -> None:
    original.save(tmp_path / "original")
    assert moved_words(tmp_path / "original", encoder) == {*SECRET}  # the attack works where nothing is forgotten
    result = forget(
        original.ranker, secrets, ARTICLE, method=replace(FAST, epochs=3), target=0.3, record=original.record, **options
    )
    result.save(tmp_path / "forgotten")
    cleared = result.record.cleared
    assert cleared is not None and (cleared.rows, cleared.reset, cleared.left) == (len(SECRET), len(SECRET), 0)
    assert moved_words(tmp_path / "forgotten", encoder) == set()
