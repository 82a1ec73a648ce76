"""`unrank index`, `preview`, and `--index` of `evaluate` and `forget`, through the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Refused
from unrank.cli.main import run
from unrank.cli.show import show_whole_index
from unrank.collection.collection import open_collection
from unrank.collection.removal import Removal
from unrank.record import Record
from unrank.report.run_page import _afterwards

pytest.importorskip("faiss", reason="FAISS is not installed: pip install 'unrank[faiss]'")

QUICK = ["--target", "beyond:3", "--set", "epochs=2", "--quiet"]


@pytest.fixture(scope="module")
def index(ranker: Path, collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the trained ranker."""
    out = tmp_path_factory.mktemp("index") / "index"
    assert run(["index", "build", str(out), str(ranker), str(collection), "--quiet"]) == 0
    return out


@pytest.fixture(scope="module")
def removed(collection: Path) -> str:
    """A document that a training query is about."""
    opened = open_collection(collection)
    return opened.documents.id(int(opened.pairs[0, 1]))


@pytest.fixture(scope="module")
def clean(ranker: Path, collection: Path, index: Path, removed: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ranker after it forgot that document on the query side alone, measured over the index too."""
    out = tmp_path_factory.mktemp("clean") / "clean"
    given = [str(ranker), str(collection), "--document", removed, "--no-copies", "--freeze", "documents"]
    assert run(["forget", *given, "--index", str(index), "--out", str(out), *QUICK]) in (0, 3, 4)
    return out


@pytest.fixture
def answered(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command, and return its exit status and its JSON."""

    def answer(*arguments: object) -> tuple[int, Any]:
        capsys.readouterr()
        status = run([*map(str, arguments), "--json"])
        return status, json.loads(capsys.readouterr().out)

    return answer


def test_an_index_follows_the_ranker(
    answered: Any, index: Path, ranker: Path, clean: Path, collection: Path, removed: str, tmp_path: Path, capsys: Any
) -> None:
    here = _copy(index, tmp_path)
    documents = len(open_collection(collection).documents)
    status, found = answered("index", "check", here, ranker, collection)
    assert status == 0 and found["sound"] and found["points"] == documents
    capsys.readouterr()
    assert run(["index", "check", str(here), str(clean), str(collection)]) == 3
    said = capsys.readouterr()
    assert f"1 document removed, or not in the collection: '{removed}'" in said.out and "is not sound" in said.err
    assert "another model" not in said.out, "its document side is the original's"
    text = open_collection(collection).documents.text(0)
    assert run(["index", "search", str(here), str(ranker), text, "--most", "3"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["1", "2", "3"]
    status, done = answered("index", "update", here, ranker, clean, collection)
    assert (status, done) == (0, {"documents": documents - 1, "deleted": 1, "encoded": 0, "switched": False})
    status, hits = answered("index", "search", here, clean, text, "--most", documents)
    assert removed not in {hit["id"] for hit in hits} and len(hits) == documents - 1
    assert run(["index", "check", str(here), str(clean), str(collection), "--sample", "0"]) == 0
    said = capsys.readouterr().out
    assert f"sound: all {documents - 1} points" in said and f"{documents - 1} texts encoded again" in said


def test_another_model_is_refused(
    refused: Refused, index: Path, encoder: Path, ranker: Path, collection: Path, tmp_path: Path
) -> None:
    from tests.tiny import make_bi_encoder

    other = make_bi_encoder(encoder, tmp_path / "other")
    assert "holds vectors of another document side" in refused("index", "search", index, other, "ba be")
    assert "holds vectors of another document side" in refused("evaluate", other, collection, "--index", index)
    assert "exists already" in refused("index", "build", index, ranker, collection)
    assert "is inside" in refused("index", "build", collection / "index", ranker, collection)
    assert "neither a collection nor an index" in refused("preview", ranker, other, tmp_path, "--query", "ba")
    assert "no such collection folder" in refused("index", "build", tmp_path / "new", ranker, tmp_path / "none")


def test_rankers_without_vectors_get_one_line(
    refused: Refused, answered: Any, encoder: Path, collection: Path, ranker: Path, tmp_path: Path
) -> None:
    from unrank.rankers import create_ranker

    for kind, said in (("cross-encoder", "has no document vectors"), ("colbert", "does not compare one vector")):
        create_ranker(kind, str(encoder), 0).save(tmp_path / kind)
        assert said in refused("index", "build", tmp_path / "index", tmp_path / kind, collection)
    assert "bm25 has no document vectors" in refused("evaluate", "bm25", collection, "--index", tmp_path / "index")
    text = open_collection(collection).documents.text(0)
    status, (shown,) = answered("preview", tmp_path / "cross-encoder", ranker, collection, "--query", text)
    assert status == 0 and "the first 100 that BM25 finds: a cross-encoder" in shown["among"][0]
    assert shown["among"][1].startswith("all ") and len(shown["before"]) == len(shown["after"]) == 10


def test_ranks_over_the_whole_index(
    answered: Any, index: Path, ranker: Path, clean: Path, collection: Path, removed: str, tmp_path: Path
) -> None:
    Removal(documents=[removed]).save(tmp_path / "removal.json")
    asked = (collection, "--removal", tmp_path / "removal.json", "--no-copies")
    status, before = answered("evaluate", ranker, *asked, "--index", index)
    after = answered("evaluate", clean, *asked, "--index", index)[1]
    assert status == 0
    record = Record.read(clean)
    assert record is not None and record.whole_index is not None
    assert record.whole_index.documents == len(open_collection(collection).documents)
    for found, side in ((before, record.whole_index.before), (after, record.whole_index.after)):
        assert found["whole_index"]["forget"] == vars(side)
        assert found["whole_index"]["forget"]["not_in_index"] == 0
        assert found["whole_index"]["forget"]["mrr"] <= found["forget"]["mrr"], "all documents compete"
    assert run(["index", "update", str(_copy(index, tmp_path)), str(ranker), str(clean), str(collection)]) == 0
    gone = answered("evaluate", clean, *asked, "--index", tmp_path / "index")[1]["whole_index"]["forget"]
    assert (gone["mrr"], gone["median_rank"], gone["not_in_index"]) == (0, None, gone["queries"])


def _copy(index: Path, folder: Path) -> Path:
    return Path(shutil.copytree(index, folder / "index"))


def test_both_figures_are_shown(index: Path, ranker: Path, clean: Path, collection: Path, capsys: Any) -> None:
    warning = "an MRR over imported lists is not a rank in production"
    capsys.readouterr()
    assert run(["evaluate", str(ranker), str(collection), "--quiet", "--index", str(index)]) == 0
    said = capsys.readouterr().out
    assert warning in said and "median rank" in said
    show_whole_index(None)
    assert "for a ranker with document vectors, --index measures that" in capsys.readouterr().out
    record = Record.read(clean)
    assert record is not None
    page = _afterwards(record)
    assert warning[1:] in page[0] and page[1].startswith("Over the whole index (")


def test_preview_shows_two_lists_and_marks_what_is_forgotten(
    answered: Any,
    index: Path,
    ranker: Path,
    clean: Path,
    collection: Path,
    removed: str,
    capsys: Any,
    tmp_path: Path,
) -> None:
    opened = open_collection(collection)
    text = opened.documents.text(int(opened.documents.rows([removed])[0]))
    asked = ("--query", text, "--query", "ba be")
    status, whole = answered("preview", ranker, clean, collection, *asked)
    assert status == 0 and [shown["query"] for shown in whole] == [text, "ba be"]
    by_index = answered("preview", ranker, clean, index, *asked)[1]
    for shown, again in zip(whole, by_index, strict=True):
        assert [hit["id"] for hit in shown["before"]] == [hit["id"] for hit in again["before"]]
        assert [*shown["forgotten"]] == [removed], "the record of the new ranker says so"
    place = whole[0]["forgotten"][removed]["before"]
    assert place > 10 or whole[0]["before"][place - 1]["id"] == removed
    capsys.readouterr()
    everything = str(len(opened.documents))
    assert run(["preview", str(ranker), str(clean), str(collection), "--query", text, "--most", everything]) == 0
    said = capsys.readouterr().out
    assert said.count(f"✗ {removed}") == 3 and f"rank {place} before" in said
    other = opened.documents.id(3)
    marked = answered("preview", ranker, clean, collection, *asked, "--document", other)[1]
    assert [*marked[0]["forgotten"]] == [other], "what is named takes the place of the record"
    named, new = tmp_path / "removal.json", opened.documents.id(4)
    named.write_text(json.dumps({"documents": [other], "substitutes": {other: new}}))
    marked = answered("preview", ranker, clean, collection, *asked, "--removal", named)[1]
    assert [(*shown["forgotten"], *shown["substitutes"]) for shown in marked] == [(other, new)] * 2
    place = marked[0]["substitutes"][new]["after"]
    words = ["--removal", str(named), "--most", everything]
    assert run(["preview", str(ranker), str(clean), str(collection), "--query", text, *words]) == 0
    said = capsys.readouterr().out
    before = marked[0]["substitutes"][new]["before"]
    assert said.count(f"+ {new}") == 3 and f"a substitute: rank {before} before, rank {place} after" in said
