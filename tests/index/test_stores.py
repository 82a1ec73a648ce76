"""Every store keeps the contract."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

from tests.index import qdrant_server
from unrank.errors import BadFile, UnrankError
from unrank.index.faiss_store import FaissStore, _read, _write
from unrank.index.pgvector_store import PgvectorStore
from unrank.index.qdrant_store import QdrantStore
from unrank.index.store import Header, Points, Store, Vectors, open_store

HEADER = Header("model", "bi-encoder", "dot", 4, "somewhere")


def made(ids: str, text: str = "t") -> tuple[Points, Vectors]:
    """One point for each letter, with vectors that its letter and text determine."""
    rows = [np.random.default_rng([ord(id), *text.encode()]).normal(size=4) for id in ids]
    return Points(list(ids), [text] * len(ids), ["model"] * len(ids)), np.array(rows, np.float32)


def in_order(points: Points) -> Points:
    """The same points in the order of their ids: each store has an order of its own."""
    rows = sorted(zip(points.ids, points.texts, points.models, strict=True))
    return Points(*map(list, zip(*rows, strict=True)))


def all_vectors(store: Store) -> dict[str, list[float]]:
    return {id: row.tolist() for ids, rows in store.blocks() for id, row in zip(ids, rows, strict=True)}


def test_points_are_put_aside_and_switched_in(store: Store) -> None:
    points, vectors = made("abcde")
    assert store.header() is None and len(store.points()) == len(store.put_aside()) == 0
    with store.writing():
        store.put(HEADER, *made("ab"))
        store.put(HEADER, *made("cde"))
        assert len(store.points()) == 0 and sorted(store.put_aside().ids) == list("abcde")
        store.switch(HEADER, keep=False)
    assert store.header() == HEADER and in_order(store.points()) == points and len(store.put_aside()) == 0
    assert [id for ids, _ in store.blocks() for id in ids] == store.points().ids, "vectors come in the order of points"
    assert all_vectors(store) == dict(zip("abcde", vectors.tolist(), strict=True))


def test_new_points_replace_those_of_their_ids_or_all(store: Store) -> None:
    with store.writing():
        store.put(HEADER, *made("abc"))
        store.switch(HEADER, keep=False)
        store.put(HEADER, *made("bd", "edited"))
        store.switch(HEADER, keep=True)
        assert dict(zip(store.points().ids, store.points().texts, strict=True)) == {
            "a": "t", "b": "edited", "c": "t", "d": "edited",
        }  # fmt: skip
        assert all_vectors(store)["b"] == made("b", "edited")[1][0].tolist()
        store.put(HEADER, *made("xy"))
        store.switch(replace(HEADER, model="next"), keep=False)
    assert sorted(store.points().ids) == ["x", "y"] and store.header() == replace(HEADER, model="next")


def test_deleted_points_are_gone(store: Store) -> None:
    with store.writing():
        store.delete(["a"])  # there is nothing yet
        store.put(HEADER, *made("abcd"))
        store.switch(HEADER, keep=False)
        store.put(HEADER, *made("ef"))
        store.drop(["e", "never"])
        store.delete(["b", "never"])
        assert (sorted(store.points().ids), store.put_aside().ids) == (["a", "c", "d"], ["f"])
        store.drop(["f"])
        store.delete(["a", "c", "d"])
    assert len(store.put_aside()) == len(store.points()) == 0
    assert store.search(made("a")[1], 3) == [[]] and all_vectors(store) == {}


@pytest.mark.parametrize("similarity", ["dot", "euclidean"])
def test_a_search_finds_the_nearest(store: Store, similarity: str) -> None:
    points, vectors = made("abcdefgh")
    with store.writing():
        header = replace(HEADER, similarity=similarity)
        store.put(header, points, vectors)
        store.switch(header, keep=False)
    query = made("q")[1]
    scores = vectors @ query[0] if similarity == "dot" else -np.linalg.norm(vectors - query[0], axis=1)
    (hits,) = store.search(query, 3)
    best = np.argsort(-scores)[:3]
    assert [hit.id for hit in hits] == [points.ids[row] for row in best]
    assert [hit.score for hit in hits] == pytest.approx(scores[best].tolist(), abs=1e-5)
    assert len(store.search(query, 100)[0]) == 8


def test_an_index_may_become_wider(store: Store) -> None:
    with store.writing():
        store.put(HEADER, *made("ab"))
        store.switch(HEADER, keep=False)
        points, vectors = made("ab")
        wider = replace(HEADER, width=8)
        store.put(wider, points, np.repeat(vectors, 2, axis=1))
        store.switch(wider, keep=False)
    assert {len(vector) for vector in all_vectors(store).values()} == {8}


def test_a_switch_keeps_the_indexes_of_a_table(database: None) -> None:
    store = PgvectorStore("kept")
    with store.writing():
        store.put(HEADER, *made("abc"))
        store.switch(HEADER, keep=False)
        store._run("CREATE INDEX ON kept USING hnsw (vector vector_ip_ops)")
        store.put(HEADER, *made("ade"))
        store.switch(replace(HEADER, model="next"), keep=False)
    found = store._run("SELECT indexdef FROM pg_indexes WHERE tablename = 'kept'")
    assert any("hnsw" in definition for (definition,) in found)
    assert {hit.id for hit in store.search(made("q")[1], 3)[0]} == set("ade")


def test_one_writer_at_a_time(store: Store) -> None:
    with (
        store.writing(),
        pytest.raises(UnrankError, match="another job is at work on"),
        open_store(store.name).writing(),
    ):
        pytest.fail("two writers")


@pytest.fixture
def qdrant_store(qdrant: None) -> QdrantStore:
    store = QdrantStore(f"t{uuid4().hex[:8]}")
    with store.writing():
        store.put(HEADER, *made("abc"))
        store.switch(HEADER, keep=False)
    return store


def test_a_switch_that_was_killed_before_it_deleted_the_old_collection(
    qdrant_store: QdrantStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, old = qdrant_store, qdrant_store._collection(1)
    with store.writing(), monkeypatch.context() as killed:
        store.put(HEADER, *made("xy"))
        killed.setattr(QdrantStore, "_delete_collection", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            store.switch(replace(HEADER, model="next"), keep=False)
    assert sorted(store.points().ids) == ["x", "y"] and store._facts(old) is not None
    with store.writing():
        assert store._facts(old) is None


def test_a_collection_of_somebody_else_is_left_alone(qdrant_store: QdrantStore) -> None:
    from qdrant_client import models

    theirs = QdrantStore(f"t{uuid4().hex[:8]}")
    for name in (theirs.alias, qdrant_store._collection(2)):
        qdrant_store._client.create_collection(name, models.VectorParams(size=4, distance=models.Distance.DOT))
    with pytest.raises(UnrankError, match="is there and no index of unrank"), theirs.writing():
        pytest.fail("it may not be written to")
    with qdrant_store.writing(), pytest.raises(UnrankError, match="is there and no index of unrank"):
        qdrant_store.put(HEADER, *made("d"))
    assert qdrant_store._client.get_collection(theirs.alias).points_count == 0


def test_two_jobs_do_not_write_to_one_index_of_qdrant(qdrant_store: QdrantStore) -> None:
    again = QdrantStore(qdrant_store.alias)
    with qdrant_store.writing(), pytest.raises(UnrankError, match="another job is at work"), again.writing():
        pytest.fail("two at once")


def test_an_old_server_and_none_at_all_are_refused(qdrant: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with qdrant_server.running(qdrant_server.OLD) as variables:
        monkeypatch.setenv("QDRANT_URL", variables["QDRANT_URL"])
        store = QdrantStore("docs")
        with store.writing(), pytest.raises(UnrankError, match=r"Qdrant 1\.16 or later is needed"):
            store.put(HEADER, *made("a"))
        assert store.header() is None and store._facts("docs-1") is None
    with pytest.raises(UnrankError, match=r"qdrant:docs: no answer from http://127.*set QDRANT_URL"):
        QdrantStore("docs").header()


@pytest.fixture
def faiss_store(tmp_path: Path) -> Iterator[FaissStore]:
    pytest.importorskip("faiss", reason="FAISS is not installed: pip install 'unrank[faiss]'")
    store = FaissStore(str(tmp_path / "index"))
    with store.writing():
        store.put(HEADER, *made("abc"))
        store.switch(HEADER, keep=False)
        yield store


def test_what_killed_jobs_left_is_swept_up(faiss_store: FaissStore) -> None:
    folder = faiss_store.folder
    for name in ("points-9", ".points-2.partial-x"):
        shutil.copytree(folder / "points-1", folder / name)
    (folder / "aside").mkdir()
    (folder / "aside" / "000001.arrow.partial").touch()
    faiss_store._sweep()
    assert {path.name for path in folder.iterdir()} == {"index.json", "points-1", ".lock", "aside"}
    assert not [*(folder / "aside").iterdir()]


def test_files_of_others_stay(faiss_store: FaissStore, tmp_path: Path) -> None:
    """Whatever its name, what the store did not make is neither deleted nor in its way."""
    folder, elsewhere = faiss_store.folder, tmp_path / "elsewhere"
    precious = [
        elsewhere / "vectors.faiss",
        *(
            folder / name / "data.csv"
            for name in ("points-of-sale", "points-backup", "points-2", ".points-of.partial-x")
        ),
        folder / "points-of-interest.csv",
        folder / ".points-4.partial-5",
        folder / "aside" / "notes.arrow",
        folder / "aside" / "notes.partial",
    ]
    for path in precious:
        path.parent.mkdir(exist_ok=True)
        path.write_text("precious")
    shutil.copy(folder / "points-1" / "vectors.faiss", folder / "points-2")
    for link in ("points-link", "points-3"):
        (folder / link).symlink_to(elsewhere)
    for number in (4, 5):
        faiss_store._sweep()
        faiss_store.put(HEADER, *made("d"))
        faiss_store.switch(HEADER, keep=True)
        assert (folder / f"points-{number}" / "vectors.faiss").is_file()
    assert sorted(faiss_store.points().ids) == list("abcd") and len(faiss_store.put_aside()) == 0
    assert all(path.read_text() == "precious" for path in precious)
    assert (folder / "points-link").is_symlink() and (folder / "points-3").is_symlink()
    assert not (folder / "points-2" / "vectors.faiss").exists(), "vectors of an older index are deleted all the same"
    (folder / "points-5" / "notes.txt").write_text("precious")
    faiss_store.delete("a")
    assert [path.name for path in (folder / "points-5").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["points-of-sale", "points-1", ".points-of.partial-x"])
def test_a_folder_of_others_is_no_unfinished_index(tmp_path: Path, name: str) -> None:
    pytest.importorskip("faiss", reason="FAISS is not installed: pip install 'unrank[faiss]'")
    (tmp_path / name).mkdir()
    (tmp_path / name / "data.csv").write_text("precious")
    with pytest.raises(BadFile, match="not an index, and not empty"), FaissStore(str(tmp_path)).writing():
        pass
    assert (tmp_path / name / "data.csv").read_text() == "precious"


def test_an_unfinished_index_is_ours(faiss_store: FaissStore) -> None:
    (faiss_store.folder / "index.json").rename(faiss_store.folder / ".index.json.partial-7")
    faiss_store.put(HEADER, *made("d"))
    assert faiss_store.header() is None and faiss_store.put_aside().ids == ["d"]
    faiss_store._sweep()
    assert not (faiss_store.folder / "points-1").exists()


def test_damaged_folders_are_refused(faiss_store: FaissStore, tmp_path: Path) -> None:
    folder = faiss_store.folder
    manifest = (folder / "index.json").read_text()
    for wrong, said in (
        ("[]", "not an index of format 1"),
        (manifest.replace("points-1", "../points-1"), "'../points-1' is no folder of points"),
        (manifest.replace("points-1", "points-abc"), "'points-abc' is no folder of points"),
        (manifest.replace('"width": 4', '"width": "4"'), "damaged"),
        (manifest.replace('"dot"', '"taxi"'), "compares by 'taxi'"),
    ):
        (folder / "index.json").write_text(wrong)
        with pytest.raises(UnrankError, match=said):
            faiss_store.points()
    (folder / "index.json").write_text(manifest)
    vectors = folder / "points-1" / "vectors.faiss"
    vectors.write_bytes(vectors.read_bytes()[:20])
    with pytest.raises(UnrankError, match="FAISS cannot read it"):
        faiss_store.search(made("a")[1], 1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(UnrankError, match="not an index, and not empty"):
        FaissStore(str(tmp_path / "full")).points()


def test_damaged_tables_are_refused(faiss_store: FaissStore) -> None:
    path, aside = faiss_store.folder / "points-1" / "points.arrow", faiss_store.folder / "aside" / "000001.arrow"
    table, whole = _read(path), path.read_bytes()
    numbers = pa.array([1, 2, 3])
    for damaged in (table.drop_columns(["text"]), table.set_column(0, "id", numbers)):
        _write(path, damaged)
        with pytest.raises(BadFile, match=r"points\.arrow: .*build the index again"):
            faiss_store.points()
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 0x80
        path.write_bytes(flipped)
        with contextlib.suppress(BadFile):
            faiss_store.points()
    path.write_bytes(whole)
    faiss_store.put(HEADER, *made("d"))
    _write(aside, _read(aside).drop_columns(["vector"]))
    with pytest.raises(BadFile, match=r"000001\.arrow: .*one vector for each point"):
        faiss_store.switch(HEADER, keep=True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("milvus:x", "unknown store 'milvus'"),
        ("qdrant:Docs-1", "small letters"),
        ("faiss:", "name the index too"),
        ("pgvector:Docs; DROP", "small letters"),
        ("pgvector:unrank_index", "small letters"),
    ],
)
def test_wrong_names_are_refused(name: str, said: str) -> None:
    with pytest.raises(UnrankError, match=said):
        open_store(name)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    with pytest.raises(UnrankError, match=r"pip install 'unrank\[faiss\]'"):
        open_store(str(tmp_path / "index"))
    with pytest.raises(UnrankError, match=r"pip install 'unrank\[pgvector\]'"):
        open_store("pgvector:docs").header()
    with pytest.raises(UnrankError, match=r"pip install 'unrank\[qdrant\]'"):
        open_store("qdrant:docs").header()
