"""The anchor file: hashes alone, what a removal erases from it, and who can read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unrank.collection.removal import Removal
from unrank.forgetting.anchor_file import (
    KIND,
    AnchorFile,
    AnchorList,
    AnchorUpdate,
    IdHashes,
    drop_places,
    erase_from_anchors,
)
from unrank.owner import OwnerKey, fact_path, owner_key, recall, remember

LISTS = {"q1": (["d1", "d2"], ["d3", "d4"]), "q2": (["d1"], ["d5"])}


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnerKey:
    """The key of an owner who has no anchor file yet."""
    monkeypatch.setenv("UNRANK_STATE", str(tmp_path / "state"))
    made = owner_key(make=True)
    assert made is not None
    return made


def lists(key: OwnerKey) -> dict[str, AnchorList]:
    hashes = IdHashes(key)
    return {
        hashes.query(query): AnchorList(*({hashes.document(document): 1.5 for document in side} for side in sides))
        for query, sides in LISTS.items()
    }


def left(file: AnchorFile, key: OwnerKey) -> dict[str, tuple[list[str], list[str]]]:
    """The ids that are in a file."""
    hashes = IdHashes(key)
    names = {hashes.document(f"d{number}"): f"d{number}" for number in range(9)}
    queries = {hashes.query(query): query for query in LISTS}
    return {
        queries[query]: ([names[each] for each in of.kept], [names[each] for each in of.negatives])
        for query, of in file.lists.items()
    }


@pytest.mark.parametrize(
    ("removal", "expected"),
    [
        (Removal(queries=["q1"]), {"q2": (["d1"], ["d5"])}),
        (Removal(documents=["d3"]), {"q1": (["d1", "d2"], ["d4"]), "q2": (["d1"], ["d5"])}),
        (Removal(documents=["d1"]), {"q1": (["d2"], ["d3", "d4"])}),
        (Removal(pairs=[("q1", "d1")]), {"q1": (["d2"], ["d3", "d4"]), "q2": (["d1"], ["d5"])}),
        (Removal(pairs=[("q1", "d3")]), {"q1": (["d1", "d2"], ["d4"]), "q2": (["d1"], ["d5"])}),
        (Removal(queries=["q7"], documents=["d7"]), LISTS),
    ],
)
def test_what_a_removal_names_is_erased(removal: Removal, expected: dict[str, object], key: OwnerKey) -> None:
    assert left(AnchorFile(key.name, lists(key)).without(removal, IdHashes(key)), key) == expected
    said: list[str] = []
    AnchorUpdate("first", "run", removal, lists(key), {}, said.append).write()
    found = AnchorFile.read("first", key)
    assert found is not None and left(found, key) == expected
    assert not said


def test_a_file_that_is_there_keeps_its_lists_and_collects_places(key: OwnerKey) -> None:
    pair = IdHashes(key).pair
    steps = [
        (Removal(documents=["d2"]), {pair("q1", "d2"): 0.25, pair("q3", "d2"): -0.5}),
        (Removal(queries=["q3"]), {pair("q3", "d2"): -0.75}),
    ]
    for name, (removal, places) in zip(("one", "two"), steps, strict=True):
        AnchorUpdate("first", name, removal, lists(key), places, pytest.fail).write()
    found = AnchorFile.read("first", key)
    assert found is not None and left(found, key) == {"q1": (["d1"], ["d3", "d4"]), "q2": (["d1"], ["d5"])}
    assert found.places == {"one": {pair("q1", "d2"): 0.25}, "two": {pair("q3", "d2"): -0.75}}
    assert drop_places("one") == []
    assert (AnchorFile.read("first", key) or found).places == {"two": {pair("q3", "d2"): -0.75}}
    text = recall(KIND, "first") or ""
    assert not any(json.dumps(id) in text for id in ("q1", "q2", "d1", "d3", "d4", "d5"))


def test_without_a_first_file_a_later_request_writes_none(key: OwnerKey) -> None:
    AnchorUpdate("first", "two", Removal(queries=["q3"]), {}, {"pair": 0.5}, pytest.fail).write()
    assert recall(KIND, "first") is None


def test_who_cannot_read_it(key: OwnerKey) -> None:
    file = AnchorFile(key.name, lists(key))
    assert file.write("first")
    assert AnchorFile.read("first", key) == file
    assert AnchorFile.read("first", None) is None
    assert AnchorFile.read("first", OwnerKey(b"another")) is None
    assert AnchorFile.read("second", key) is None
    for damaged in ("", "[1]", '{"key": 3}', "[" * 100_000):
        remember(KIND, "first", damaged)
        assert AnchorFile.read("first", key) is None


def test_what_cannot_be_erased_is_named(key: OwnerKey, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = AnchorFile(key.name, lists(key))
    for name in ("first", "second"):
        assert whole.write(name)
    assert erase_from_anchors(Removal(queries=["q1"])) == []
    assert [set(left(AnchorFile.read(name, key) or whole, key)) for name in ("first", "second")] == [{"q2"}] * 2
    remember(KIND, "second", "damaged")
    damaged = fact_path(KIND, "second")
    assert erase_from_anchors(Removal(queries=["q2"])) == [damaged]
    monkeypatch.setattr("unrank.owner._write", lambda path, value: False)
    assert erase_from_anchors(Removal(queries=["q2"])) == [damaged], "nothing is left of it in the other one"
    said: list[str] = []
    AnchorUpdate("first", "run", Removal(queries=["q1"]), {}, {"pair": 0.5}, said.append).write()
    AnchorUpdate("third", "run", Removal(queries=["q1"]), lists(key), {}, said.append).write()
    assert said == [
        f"{fact_path(KIND, 'first')} could not be written and may still hold scores of what was removed: delete it",
        "no anchor file could be written: later requests will hold to what the run before left",
    ]
