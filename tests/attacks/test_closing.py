"""Attacks on the end of a request: what is said to be forgotten, or closed, while something still remembers it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.desk.conftest import take_in
from tests.desk.test_remains import ITEM, Desk
from tests.tiny import made_record
from unrank.cli.main import run
from unrank.collection.collection import Collection
from unrank.desk.certificate import certificate
from unrank.desk.key import Key, key_file
from unrank.desk.ledger import Ledger
from unrank.desk.remains import find_remains
from unrank.desk.request import State, items_of
from unrank.desk.service import Role, ServiceRanker, add_ranker
from unrank.errors import UnrankError
from unrank.forgetting.previous_requests import hashed

Said = pytest.CaptureFixture[str]


@pytest.fixture
def desk(tmp_path: Path, dense: Collection) -> Desk:
    """A request that a run has settled, and the folders of that run."""
    ledger = Ledger.open(tmp_path / "desk.ledger", make_with=key_file(tmp_path / "desk.ledger"))
    key: Key = ledger.key(key_file(tmp_path / "desk.ledger"))
    made = Desk(ledger, key, tmp_path, dense)
    shutil.copytree(dense.folder, made.data)
    for place, removed in ((made.original, None), (made.new, hashed(ITEM))):
        place.mkdir()
        (place / "model.safetensors").write_bytes(str(removed).encode())
        (place / "unrank.json").write_text(json.dumps(made_record(dense.fingerprint, removed=removed).to_json()))
    take_in(ledger, key, *items_of(ITEM, dense))
    return made


def close(desk: Desk, *words: str) -> int:
    return run(["desk", "close", "1", *words, "--ledger", str(desk.folder / "desk.ledger")])


@pytest.mark.attack(0)
def test_a_request_is_not_forgotten_while_another_ranker_remembers_it(desk: Desk) -> None:
    for name, place in (("a", desk.original), ("b", desk.folder / "b")):
        add_ranker(desk.ledger, ServiceRanker(name, Role.retriever, str(place), str(desk.data)))
    desk.run(member="a")
    assert desk.ledger.request(1).state is State.OPEN
    with pytest.raises(UnrankError, match="request 1 is open"):
        certificate(desk.ledger, desk.key, 1)


@pytest.mark.attack(0)
def test_a_ranker_that_is_registered_late_opens_the_request_again(desk: Desk) -> None:
    desk.run()
    assert desk.ledger.request(1).state is State.FORGOTTEN
    add_ranker(desk.ledger, ServiceRanker("late", Role.reranker, str(desk.folder / "late"), str(desk.data)))
    with pytest.raises(UnrankError, match="request 1 is open"):
        certificate(desk.ledger, desk.key, 1)


@pytest.mark.attack(0)
def test_a_request_is_not_closed_while_the_original_lies_elsewhere(desk: Desk, capsys: Said) -> None:
    desk.run()
    shutil.move(desk.original, desk.folder / "backup")
    shutil.rmtree(desk.data)
    assert close(desk, "--look", str(desk.folder)) == 3
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("request 1 is not closed: 1 place may still remember it")
    assert f"ranker {desk.folder / 'backup'}" in said[1]
    assert desk.ledger.request(1).state is State.FORGOTTEN
    shutil.rmtree(desk.folder / "backup")
    assert close(desk, "--look", str(desk.folder)) == 0


@pytest.mark.attack(16)
def test_weights_of_the_original_in_the_certified_folder_are_noticed(desk: Desk, capsys: Said) -> None:
    desk.run()
    shutil.copy(desk.original / "model.safetensors", desk.new / "model.safetensors")
    assert ("ranker", "was changed since run 1 wrote it") in {
        (c.kind, c.why) for c in find_remains(desk.ledger, 1).there
    }
    assert close(desk, "--json") == 3
    assert json.loads(capsys.readouterr().out)["state"] == "forgotten"


@pytest.mark.attack(0)
@pytest.mark.parametrize("reason", ["doc1", "the text itself", ""])
def test_a_reason_cannot_name_what_is_erased(reason: str, desk: Desk, capsys: Said) -> None:
    desk.run()
    assert close(desk, "--leave", reason) == 2
    assert "legal-duty" in capsys.readouterr().err
    assert desk.ledger.request(1).state is State.FORGOTTEN
