"""What still remembers a request when it is closed, and how a run is undone while its original is kept."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.desk.conftest import take_in
from tests.desk.made import made_run, ranks
from tests.tiny import made_record
from unrank.cli.main import run
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.desk.closing import close, state_kind
from unrank.desk.copies import OTHER_COLLECTION, Copy
from unrank.desk.history_index import Json
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.remains import find_remains
from unrank.desk.request import Item, State, items_of
from unrank.desk.service import (
    Role,
    ServiceRanker,
    add_ranker,
    replace_ranker,
    service_ranker,
    service_rankers,
    settle,
    states_of,
)
from unrank.desk.trust import revocations
from unrank.desk.undo import undo_run
from unrank.disk import folder_hash
from unrank.errors import UnrankError
from unrank.forgetting.anchor_file import KIND, AnchorFile, AnchorList, IdHashes
from unrank.forgetting.outcome import ForgetState, Judgement
from unrank.forgetting.previous_requests import hashed
from unrank.forgetting.proxies import remember_proxies
from unrank.owner import fact_path, owner_key, recall, remember
from unrank.record import HeldOut

ITEM = Removal(documents=["doc1"])
HELD = ("collection", "holds 1 of 1 named")
TRAINED = ("ranker", "was trained on this collection, and its record does not show that it forgot all of it")


@dataclass(frozen=True)
class Desk:
    """A ledger with one request, and the places of its run."""

    ledger: Ledger
    key: Key
    folder: Path
    collection: Collection

    @property
    def original(self) -> Path:
        return self.folder / "ranker"

    @property
    def new(self) -> Path:
        return self.folder / "ranker-run1"

    @property
    def data(self) -> Path:
        return self.folder / "collection"

    def remains(self, *look: Path) -> set[tuple[str, str]]:
        return {(copy.kind, copy.why) for copy in find_remains(self.ledger, 1, look).there}

    def gone(self) -> set[tuple[str, str]]:
        return {(copy.kind, copy.why) for copy in find_remains(self.ledger, 1).gone}

    def run(self, state: State = State.FORGOTTEN, settles: bool = True, member: str | None = None) -> int:
        """Enter a run from the original to the new ranker, as small as one can be."""
        asked = {
            "ranker": str(self.original),
            "collection": str(self.data),
            "collection_fingerprint": self.collection.fingerprint,
            "ranker_files": folder_hash(self.original),
            "requests": [1],
        }
        record: Json = {"record": {"collection": {"name": self.collection.name}}, "run_name": "run"}
        result = record | {"files": {"ranker": folder_hash(self.new)}, "holders": []}
        with self.ledger.transaction():
            row = ["passed" if settles else "failed", str(self.new), json.dumps(asked), json.dumps(result)]
            insert = "INSERT INTO run (state, out, asked, result) VALUES (?, ?, ?, ?) RETURNING id"
            [[run]] = self.ledger.ask(insert, row)
            self.ledger.write_of_run(row[0], run, requests=[1])
            if settles:
                ranker = service_ranker(self.ledger, member) if member else None
                settle(self.ledger, 1, state, run, ranker)
                if ranker and state is not State.NOTHING_TO_FORGET:
                    replace_ranker(self.ledger, ranker, run, self.new)
        return int(run)


@pytest.fixture
def desk(ledger: Ledger, key: Key, dense: Collection, tmp_path: Path) -> Desk:
    """A request for one document of a collection, with the ranker that was trained on it and the one that forgot it."""
    made = Desk(ledger, key, tmp_path, dense)
    shutil.copytree(dense.folder, made.data)
    for place, removed in ((made.original, None), (made.new, hashed(ITEM))):
        place.mkdir()
        (place / "model.safetensors").write_bytes(b"weights")
        record = made_record(dense.fingerprint, removed=removed).to_json()
        (place / "unrank.json").write_text(json.dumps(record))
    take_in(ledger, key, *items_of(ITEM, dense))
    return made


def test_the_original_and_the_collection_remember(desk: Desk) -> None:
    desk.run()
    assert desk.remains() == {HELD, TRAINED}
    shutil.rmtree(desk.original)
    assert desk.remains() == {HELD} and desk.gone() == {("ranker", "is no longer there")}
    shutil.rmtree(desk.data)  # what is left is still recognised when the collection is gone
    (desk.folder / "look" / "old").mkdir(parents=True)
    record = made_record(desk.collection.fingerprint).to_json()
    (desk.folder / "look" / "old" / "unrank.json").write_text(json.dumps(record))
    assert desk.remains(desk.folder / "look") == {TRAINED}
    assert desk.gone() == {("ranker", "is no longer there"), ("collection", "is no longer there")}


def test_caches_checkpoints_and_changed_rankers_remember(desk: Desk) -> None:
    desk.run()
    for place in (desk.original, desk.data):
        shutil.rmtree(place)
    unfinished = desk.folder / "ranker-run1.unfinished"
    unfinished.mkdir()
    (unfinished / "checkpoint.safetensors").write_bytes(b"weights")
    cache = desk.folder / "look" / f"tokens-{desk.collection.fingerprint[:16]}-1"
    cache.mkdir(parents=True)
    assert desk.remains(desk.folder / "look") == {
        ("checkpoint", "holds the weights of a run that has not ended"),
        ("cache", "made from this collection"),
    }
    shutil.rmtree(unfinished)
    kept = desk.folder / "look" / "kept" / desk.collection.fingerprint
    kept.mkdir(parents=True)
    cache.rename(kept / cache.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNRANK_STATE", str(desk.folder / "look"))
        assert all(kind != "cache" for kind, _ in desk.remains(desk.folder / "look")), "closing erases from kept state"
    (desk.new / "model.safetensors").write_bytes(b"those of the original")
    assert desk.remains() == {("ranker", "was changed since run 1 wrote it")}


def test_a_run_that_did_not_make_it_forget_leaves_a_ranker_that_remembers(desk: Desk) -> None:
    failed = desk.run(settles=False)
    for place in (desk.original, desk.data):
        shutil.rmtree(place)
    desk.ledger.ask("UPDATE request SET state = 'forgotten' WHERE id = 1")
    assert desk.remains() == {("ranker", f"may remember it: the request is not settled by run {failed}")}


def test_an_index_that_was_not_written_since_the_run_remembers(desk: Desk) -> None:
    index = desk.folder / "index.faiss"
    index.write_bytes(b"vectors")
    os.utime(index, (0, 0))
    add_ranker(desk.ledger, ServiceRanker("a", Role.retriever, str(desk.original), str(desk.data), (str(index),)))
    desk.run(member="a")
    for place in (desk.original, desk.data):
        shutil.rmtree(place)
    [(kind, why)] = desk.remains()
    assert kind == "index" and why.startswith("was not written since the run")
    os.utime(index, (time.time() + 1, time.time() + 1))
    assert desk.remains() == set()


def test_where_there_was_nothing_to_forget_the_ranker_may_stay(desk: Desk) -> None:
    desk.run(State.NOTHING_TO_FORGET)
    assert desk.remains() == {HELD}


@pytest.mark.parametrize("served", [False, True])
def test_another_ranker_in_the_place_of_one_with_nothing_to_forget_is_looked_at(desk: Desk, served: bool) -> None:
    """The request was not in the ranker of the run. The one that stands there now was trained on it."""
    if served:
        add_ranker(desk.ledger, ServiceRanker("a", Role.retriever, str(desk.original), str(desk.data)))
    desk.run(State.NOTHING_TO_FORGET, member="a" if served else None)
    shutil.rmtree(desk.data)
    assert desk.remains() == set()
    (desk.original / "model.safetensors").write_bytes(b"those that remember")
    assert desk.remains() == {TRAINED}
    (desk.original / "unrank.json").unlink()
    (desk.original / "config.json").write_text("{}")
    assert desk.remains() == {("ranker", "has no record, so its training data is not known")}
    (desk.original / "unrank.json").write_text(json.dumps(made_record().to_json()))
    assert desk.remains() == {("ranker", "was changed since run 1 found nothing to forget in it")}
    shutil.rmtree(desk.original)
    assert desk.remains() == set()


def test_a_ranker_with_a_record_of_another_collection_is_listed_as_not_checked(desk: Desk) -> None:
    desk.run()
    for place in (desk.original, desk.data):
        shutil.rmtree(place)
    other = desk.folder / "look" / "other"
    other.mkdir(parents=True)
    (other / "unrank.json").write_text(json.dumps(made_record("another").to_json()))
    found = find_remains(desk.ledger, 1, [desk.folder / "look"])
    assert found.there == [] and found.unchecked == [Copy("ranker", str(other), OTHER_COLLECTION)]
    proxy = replace(made_record("another"), held_out=HeldOut(3, 1))
    (other / "unrank.json").write_text(json.dumps(proxy.to_json()))
    assert [copy.kind for copy in find_remains(desk.ledger, 1, [desk.folder / "look"]).unchecked] == ["proxy"]
    (other / "unrank.json").write_text(json.dumps(made_record(desk.collection.fingerprint).to_json()))
    assert find_remains(desk.ledger, 1, [desk.folder / "look"]).unchecked == []


def test_a_ranker_on_a_hub_is_not_checked_and_that_is_said(desk: Desk) -> None:
    run = desk.run()
    [[asked]] = desk.ledger.ask("SELECT asked FROM run WHERE id = ?", [run])
    asked = json.dumps(json.loads(asked) | {"ranker": "owner/model"})
    desk.ledger.ask("UPDATE run SET asked = ? WHERE id = ?", [asked, run])
    assert find_remains(desk.ledger, 1).unchecked == [
        Copy("ranker", "owner/model", "is on a hub, which is not checked")
    ]


def test_proxies_that_saw_a_request_remember_it_and_can_be_deleted(
    desk: Desk, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNRANK_STATE", str(desk.folder / "state"))
    proxies, folds = desk.folder / "proxies", [HeldOut(3, fold) for fold in (1, 2, 3)]
    desk.run()
    for place in (desk.original, desk.data, desk.new):
        shutil.rmtree(place)
    for held in folds:
        (proxies / f"proxy-{held.fold}").mkdir(parents=True)
        record = replace(made_record(desk.collection.fingerprint), method="retrain", held_out=held)
        (proxies / f"proxy-{held.fold}" / "unrank.json").write_text(json.dumps(record.to_json()))
    assert desk.remains() == set()
    remember_proxies("of any ranker", proxies)
    [own] = [held.fold for held in folds if held.holds("document", "doc1")]
    there = [Path(copy.path).name for copy in find_remains(desk.ledger, 1).there if copy.kind == "proxy"]
    assert there == [f"proxy-{held.fold}" for held in folds if held.fold != own]
    old = desk.folder / "look" / "old"
    old.mkdir(parents=True)
    (old / "unrank.json").write_text(json.dumps(made_record(desk.collection.fingerprint).to_json()))
    close = ["desk", "close", "1", "--ledger", str(path), "--delete-proxies"]
    assert run([*close, "--look", str(old)]) == 3  # something else remembers it, so nothing is deleted
    assert len(list(proxies.iterdir())) == 3
    assert "proxy" in capsys.readouterr().out
    assert run(close) == 0
    assert [place.name for place in proxies.iterdir()] == [f"proxy-{own}"]
    assert capsys.readouterr().out.count("was deleted now") == 2
    assert desk.ledger.history(1)[-1].values["deleted"]["proxy"] == 2


def test_closing_clears_what_the_state_folder_holds_of_a_request(desk: Desk) -> None:
    desk.run()
    for request in (1, 2):
        remember(state_kind(desk.ledger, request), "anchors", "a fact")
    close(desk.ledger, 1, deleted={"ranker": 1})
    assert recall(state_kind(desk.ledger, 1), "anchors") is None
    assert recall(state_kind(desk.ledger, 2), "anchors") == "a fact"
    assert desk.ledger.history(1)[-1].values["deleted"] == {"ranker": 1}
    desk.ledger.verify()


def test_closing_erases_it_from_anchor_files(
    desk: Desk, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRANK_STATE", str(tmp_path / "state"))
    owner = owner_key(make=True)
    assert owner is not None
    gone, other = map(IdHashes(owner).document, (ITEM.documents[0], "another"))
    anchors = AnchorFile(owner.name, {"query": AnchorList({other: 1.0}, {gone: 2.0})}, {"run": {"pair": 0.5}})
    assert anchors.write("first")
    desk.run()
    remember(KIND, "second", "damaged")
    damaged = fact_path(KIND, "second")
    assert damaged is not None
    with pytest.raises(UnrankError, match=f"request 1 is not closed: .*{damaged}.*delete it"):
        close(desk.ledger, 1)
    assert desk.ledger.request(1).state is State.FORGOTTEN
    damaged.unlink()
    close(desk.ledger, 1)
    after = AnchorFile.read("first", owner)
    assert after == replace(anchors, lists={"query": AnchorList({other: 1.0}, {})}), "its places stay, as hashes"
    withdrawn = take_in(desk.ledger, key, Item(document="another", document_text="another text")).id
    close(desk.ledger, withdrawn, State.WITHDRAWN)
    assert AnchorFile.read("first", owner) == after, "what was not forgotten is still held"


def test_a_run_is_undone_while_its_original_is_kept(desk: Desk) -> None:
    add_ranker(desk.ledger, ServiceRanker("a", Role.retriever, str(desk.original), str(desk.data)))
    desk.run(member="a")
    assert desk.ledger.request(1).state is State.FORGOTTEN
    with desk.ledger.transaction():
        desk.ledger.write("certificate", 1, content="a hash")
    owner = owner_key(make=True)
    assert owner is not None
    assert AnchorFile(owner.name, {}, {"run": {"pair": 0.5}, "other": {"pair": 0.25}}).write("undone")
    undone = undo_run(desk.ledger, 1)
    assert AnchorFile.read("undone", owner) == AnchorFile(owner.name, {}, {"other": {"pair": 0.25}})
    assert undone.revoked == 1 and [each.certificate for each in revocations(desk.ledger)] == ["a hash"]
    assert undone.requests == {1: State.OPEN} and undone.original == str(desk.original)
    assert service_rankers(desk.ledger)[0].ranker == str(desk.original)
    assert states_of(desk.ledger, 1)[0].state is State.OPEN and desk.ledger.request(1).run is None
    desk.ledger.verify()
    with pytest.raises(UnrankError, match="settled no request"):
        undo_run(desk.ledger, 1)
    assert desk.run(member="a") == 2 and desk.ledger.request(1).state is State.FORGOTTEN


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda desk: shutil.rmtree(desk.original), "is not there"),
        (lambda desk: (desk.original / "model.safetensors").write_bytes(b"x"), "was changed since the run read it"),
        (lambda desk: close(desk.ledger, 1), "request 1 is closed"),
    ],
)
def test_runs_that_cannot_be_undone(change: object, words: str, desk: Desk) -> None:
    desk.run()
    assert callable(change)
    change(desk)
    before = desk.ledger.head()
    with pytest.raises(UnrankError, match=f"run 1 cannot be undone: .*{words}"):
        undo_run(desk.ledger, 1)
    with pytest.raises(UnrankError, match="there is no run 7"):
        undo_run(desk.ledger, 7)
    assert desk.ledger.head() == before


def test_a_request_with_nothing_to_forget_is_closed(ledger: Ledger, key: Key, path: Path) -> None:
    """Its run wrote no ranker, so it has no record."""
    take_in(ledger, key)
    made_run(ledger, {1: Judgement(ForgetState.NOTHING, "why", ranks([4], [4]))})
    assert run(["desk", "close", "1", "--ledger", str(path)]) == 0
    assert ledger.request(1).outcome is State.NOTHING_TO_FORGET
