"""An update deletes first, encodes what it must and no more, and survives being killed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from tests.index.conftest import NewCollection, some_texts
from unrank.engine.runtime import Silence
from unrank.errors import UnrankError
from unrank.index.check import check_index
from unrank.index.document_side import DocumentSide
from unrank.index.store import Points, Store, Vectors, open_store
from unrank.index.update import build_index, check_one_model, text_digest, update_index
from unrank.index.whole import measure_forgotten
from unrank.rankers.base import Role


@dataclass(frozen=True)
class Counting(DocumentSide):
    """A document side that notes what it encodes, and is killed after some pieces."""

    encoded: list[str] = field(default_factory=list)
    pieces: list[int] = field(default_factory=lambda: [1_000_000])

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        if list(texts) != ["a"]:  # the text that tells the width
            self.pieces[0] -= 1
            if self.pieces[0] < 0:
                raise KeyboardInterrupt
            self.encoded.extend(texts)
        return super().encode(texts, role)


def counting(side: DocumentSide, pieces: int = 1_000_000) -> Counting:
    return Counting(side.ranker, side.runtime, pieces=[pieces])


def content(store: Store) -> tuple[Points, list[bytes]]:
    """All that an index holds, in its order."""
    return store.points(), [row.tobytes() for _, rows in store.blocks() for row in rows]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrank.index.update.PIECE", 4)


def test_only_new_and_edited_texts_are_encoded(store: Store, side: DocumentSide, new_collection: NewCollection) -> None:
    texts = some_texts()
    first = build_index(store, side, new_collection(texts), {"d3"}, Silence())
    assert (first.documents, first.deleted, first.encoded, first.switched) == (29, 0, 29, False)
    changed = {**texts, "d5": "ba be", "d7": "bi bo", "new": "bu ban"}
    del changed["d9"]
    counted = counting(side)
    done = update_index(store, side.digest, counted, new_collection(changed), {"d3", "d4"}, Silence())
    assert (done.documents, done.deleted, done.encoded, done.switched) == (28, 2, 3, False)
    assert counted.encoded == ["ba be", "bi bo", "bu ban"]
    points = store.points()
    assert dict(zip(points.ids, points.texts, strict=True)) == {
        id: text_digest(text) for id, text in changed.items() if id not in ("d3", "d4")
    }
    stored = {id: row for ids, rows in store.blocks() for id, row in zip(ids, rows, strict=True)}
    again = side.encode([changed[id] for id in points.ids], "document")
    assert np.allclose(np.stack([stored[id] for id in points.ids]), again, atol=1e-5)
    idle = counting(side)
    assert update_index(store, side.digest, idle, new_collection(changed), {"d3", "d4"}, Silence()).encoded == 0
    assert idle.encoded == []


def test_another_document_side_encodes_all_beside_and_switches(
    store: Store, side: DocumentSide, other_side: DocumentSide, new_collection: NewCollection
) -> None:
    collection = new_collection(some_texts())
    build_index(store, side, collection, (), Silence())
    with pytest.raises(KeyboardInterrupt):
        update_index(store, side.digest, counting(other_side, 2), collection, {"d1"}, Silence())
    assert set(store.points().models) == {side.digest}, "the index is still the old one"
    assert "d1" not in store.points().ids, "what was removed is gone first"
    done = update_index(store, side.digest, counting(other_side), collection, {"d1"}, Silence())
    assert (done.encoded, done.switched) == (29 - 8, True)
    header = store.header()
    assert header is not None and header.model == other_side.digest
    assert set(store.points().models) == {other_side.digest} and len(store.points()) == 29
    with pytest.raises(UnrankError, match="vectors of neither ranker"):
        update_index(store, "old", side, collection, (), Silence())


def test_killed_again_and_again_it_ends_as_if_undisturbed(
    store: Store, side: DocumentSide, new_collection: NewCollection, database_or_folder: str
) -> None:
    texts = some_texts()
    collection, edited = new_collection(texts), new_collection({**texts, **{f"d{i}": f"ba be d{i}" for i in range(20)}})
    whole = open_store(database_or_folder)
    for each in (store, whole):
        build_index(each, side, collection, (), Silence())
    update_index(whole, side.digest, side, edited, {"d2"}, Silence())
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            update_index(store, side.digest, counting(side, 1), edited, {"d2"}, Silence())
    assert update_index(store, side.digest, counting(side), edited, {"d2"}, Silence()).encoded == 19 - 4 * 4
    assert content(store) == content(whole)


@pytest.fixture
def database_or_folder(store: Store) -> str:
    """The name of another store of the same kind."""
    return f"{store.name}_2"


def test_a_text_that_was_edited_meanwhile_is_encoded_again(
    store: Store, side: DocumentSide, new_collection: NewCollection
) -> None:
    texts = some_texts(8)
    with pytest.raises(KeyboardInterrupt):
        build_index(store, counting(side, 1), new_collection(texts), (), Silence())
    counted = counting(side)
    build_index(store, counted, new_collection({**texts, "d0": "ba be"}), {"d1"}, Silence())
    assert counted.encoded == ["ba be", *[texts[f"d{i}"] for i in range(4, 8)]][: len(counted.encoded)]
    assert len(counted.encoded) == 5 and "d1" not in store.points().ids
    assert len(store.put_aside()) == 0


def plant(store: Store, id: str, **changes: str) -> None:
    """Replace a point by one that says something else, with its vector as it was."""
    points, header = store.points(), store.header()
    vectors = {each: row for ids, rows in store.blocks() for each, row in zip(ids, rows, strict=True)}
    row = points.ids.index(id) if id in points.ids else 0
    fields = {"texts": points.texts[row], "models": points.models[row], **changes}
    assert header is not None
    with store.writing():
        store.put(header, Points([id], [fields["texts"]], [fields["models"]]), vectors[points.ids[row]][None])
        store.switch(header, keep=True)


def test_check_finds_what_was_planted(
    store: Store, side: DocumentSide, other_side: DocumentSide, new_collection: NewCollection
) -> None:
    collection = new_collection(some_texts())
    build_index(store, side, collection, {"d3"}, Silence())
    whole = check_index(store, side, collection, {"d3"}, 0, Silence())
    assert whole.sound and (whole.points, whole.compared, whole.unfinished) == (29, 29, 0)
    plant(store, "d5", texts=text_digest("an earlier text"))
    plant(store, "d3")
    plant(store, "d7", models=other_side.digest)
    found = check_index(store, side, collection, {"d3"}, 0, Silence())
    assert not found.sound
    assert (found.stale, found.removed, found.other_model, found.missing) == (("d5",), ("d3",), ("d7",), ())
    for refused in (
        lambda: check_one_model(store),
        lambda: update_index(store, side.digest, side, collection, {"d3"}, Silence()),
    ):
        with pytest.raises(UnrankError, match="mixes models: 1 point of 30"):
            refused()
    all_other = check_index(store, other_side, collection, {"d3"}, 0, Silence())
    assert len(all_other.other_model) == 29


def test_check_compares_the_model_that_the_index_says_it_is_of(
    store: Store, side: DocumentSide, new_collection: NewCollection
) -> None:
    collection = new_collection(some_texts(6))
    build_index(store, side, collection, (), Silence())
    header = store.header()
    assert header is not None
    with store.writing():
        store.switch(replace(header, model="another"), keep=True)
    found = check_index(store, side, collection, (), 0, Silence())
    assert not any(found.findings.values()) and not found.same_model and not found.sound
    assert found.compared == 0, "vectors of two models are not compared"


def test_an_update_that_encodes_nothing_notes_where_the_collection_is(
    store: Store, side: DocumentSide, new_collection: NewCollection
) -> None:
    texts = some_texts(6)
    build_index(store, side, new_collection(texts), (), Silence())
    moved, before = new_collection(texts), store.points()
    done = update_index(store, side.digest, side, moved, (), Silence())
    header = store.header()
    assert header is not None and header.collection == str(moved.folder.resolve())
    assert (done.encoded, done.switched, store.points()) == (0, False, before)


def test_check_finds_a_vector_that_is_not_that_of_its_text(
    store: Store, side: DocumentSide, new_collection: NewCollection
) -> None:
    collection = new_collection(some_texts())
    build_index(store, side, collection, (), Silence())
    header, points = store.header(), store.points()
    assert header is not None
    text = points.texts[points.ids.index("d4")]
    with store.writing():
        store.put(header, Points(["d4"], [text], [side.digest]), -side.encode(["ba be"], "document"))
        store.switch(header, keep=True)
        store.delete(["d6"])
    found = check_index(store, side, collection, (), 0, Silence())
    assert (found.wrong_vector, found.missing, found.stale) == (("d4",), ("d6",), ())


def test_what_cannot_be_built_or_updated_is_refused(
    store: Store, side: DocumentSide, new_collection: NewCollection
) -> None:
    collection = new_collection(some_texts(6))
    with pytest.raises(UnrankError, match="does not exist or was not finished"):
        update_index(store, side.digest, side, collection, (), Silence())
    with pytest.raises(UnrankError, match="does not exist or was not finished"):
        check_index(store, side, collection, (), 0, Silence())
    build_index(store, side, collection, (), Silence())
    with pytest.raises(UnrankError, match="exists already"):
        build_index(store, side, collection, (), Silence())


def test_both_rankers_are_measured_over_the_same_documents(
    store: Store, side: DocumentSide, other_side: DocumentSide, new_collection: NewCollection
) -> None:
    """The text of a document that left the collection is gone, so the new ranker cannot encode it."""
    texts = some_texts()
    build_index(store, side, new_collection(texts), (), Silence())
    left = new_collection({id: text for id, text in texts.items() if id not in ("d20", "d21")})
    found = measure_forgotten(store, (side, other_side), left, left.pairs, Silence())
    assert found.documents == 28 and found.before.not_in_index == 0
    build_index(again := open_store(f"{store.name}_again"), side, left, (), Silence())
    assert found.before == measure_forgotten(again, (side, other_side), left, left.pairs, Silence()).before
    assert measure_forgotten(store, (side, side), left, left.pairs, Silence()).documents == 30
