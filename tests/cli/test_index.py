"""`unrank index`, `preview`, and `--index` of `evaluate` and `forget`, through the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Refused
from tests.index.conftest import some_texts, write_collection
from tests.tiny import make_bi_encoder
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
    assert (status, done) == (
        0,
        {"documents": documents - 1, "deleted": 1, "encoded": 0, "switched": False, "unknown": []},
    )
    status, hits = answered("index", "search", here, clean, text, "--most", documents)
    assert removed not in {hit["id"] for hit in hits} and len(hits) == documents - 1
    assert run(["index", "check", str(here), str(clean), str(collection), "--sample", "0"]) == 0
    said = capsys.readouterr().out
    assert f"sound: all {documents - 1} points" in said and f"{documents - 1} texts encoded again" in said


def test_another_model_is_refused(
    refused: Refused, index: Path, encoder: Path, ranker: Path, collection: Path, tmp_path: Path
) -> None:
    other = make_bi_encoder(encoder, tmp_path / "other")
    assert "holds vectors of another document side" in refused("index", "search", index, other, "ba be")
    assert "holds vectors of another document side" in refused("evaluate", other, collection, "--index", index)
    assert "exists already" in refused("index", "build", index, ranker, collection)
    assert "is inside" in refused("index", "build", collection / "index", ranker, collection)
    assert "neither a collection nor an index" in refused("preview", ranker, other, tmp_path, "--query", "ba")
    assert "no such collection folder" in refused("index", "build", tmp_path / "new", ranker, tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no text to search for: give QUERY with some words"),
        (" \n", "no text to search for: give QUERY with some words"),
        ("\udcff\udcfe", "QUERY is not UTF-8, so it cannot be read as text"),
    ],
)
def test_what_is_no_text_is_not_searched_for(refused: Refused, index: Path, ranker: Path, text: str, said: str) -> None:
    assert refused("index", "search", index, ranker, text) == said
    assert refused("preview", ranker, ranker, index, "--query", text) == said.replace("QUERY", "--query")


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
    assert status == 0 and "documents that BM25 puts first: a cross-encoder" in shown["among"][0]
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
    assert run(["preview", str(ranker), str(clean), str(collection), "--query", "x\udcff"]) == 2
    assert "--query is not UTF-8" in capsys.readouterr().err


def test_preview_marks_a_pair_or_a_query_for_its_own_text_alone(
    answered: Any, ranker: Path, collection: Path, tmp_path: Path, capsys: Any
) -> None:
    opened = open_collection(collection)
    row, document = (int(each) for each in opened.pairs[0])
    query, text, id = opened.queries.id(row), opened.queries.text(row), opened.documents.id(document)
    named = {"pairs.json": {"pairs": [[query, id]]}, "queries.json": {"queries": [query]}}
    for name, removal in named.items():
        (tmp_path / name).write_text(json.dumps(removal))
        asked = ("--query", text.upper(), "--query", "ba be", "--removal", tmp_path / name)
        shown, other = answered("preview", ranker, ranker, collection, *asked)[1]
        assert id in shown["forgotten"] and other["forgotten"] == {}
        assert run(["preview", str(ranker), str(ranker), str(collection), *map(str, asked)]) == 0
        said = capsys.readouterr().out
        assert said.count("nothing is marked: nothing of what is to be forgotten is for this text") == 1
        assert "name what is to be forgotten" not in said
    assert run(["preview", str(ranker), str(ranker), str(collection), "--query", "ba be"]) == 0
    assert "nothing is marked: name what is to be forgotten" in capsys.readouterr().out


def test_preview_refuses_documents_that_are_nowhere(
    refused: Refused, index: Path, ranker: Path, collection: Path, removed: str, tmp_path: Path
) -> None:
    asked = ("preview", ranker, ranker, collection, "--query", "ba be")
    said = refused(*asked, "--document", "nosuch")
    assert "the removal: 1 document id not in the collection: 'nosuch'; check" in said
    there = refused("preview", ranker, ranker, index, "--query", "ba be", "--document", "nosuch")
    assert f"1 document id neither in the collection nor in faiss:{index}: 'nosuch'" in there
    named = tmp_path / "removal.json"
    for wrong in ({"documents": [removed], "substitutes": {removed: "nosuch"}}, {"pairs": [["query0", "nosuch"]]}):
        named.write_text(json.dumps(wrong))
        assert "1 document id not in the collection: 'nosuch'" in refused(*asked, "--removal", named)
    named.write_text(json.dumps({"pairs": [["nosuch", removed]]}))
    assert "1 query id not in the collection: 'nosuch'" in refused(*asked, "--removal", named)


def _import_without(beir: Path, document: str, folder: Path, out: Path) -> None:
    """Import a BEIR folder again, without a document."""
    for path in shutil.copytree(beir, folder).rglob("*.*"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text(
            "".join(line for line in lines if f'"{document}"' not in line and f"\t{document}\t" not in line)
        )
    shutil.rmtree(out, ignore_errors=True)
    assert run(["import", f"beir:{folder}", "--out", str(out), "--candidates", "10"]) == 0


def test_preview_of_an_index_with_documents_that_left_the_collection(
    answered: Any, beir: Path, ranker: Path, clean: Path, encoder: Path, collection: Path, removed: str, tmp_path: Path,
    capsys: Any,
) -> None:  # fmt: skip
    here, index = Path(shutil.copytree(collection, tmp_path / "here")), tmp_path / "index"
    text, size = open_collection(here).documents.text(0), len(open_collection(here).documents)
    assert run(["index", "build", str(index), str(ranker), str(here)]) == 0
    _import_without(beir, removed, tmp_path / "beir", here)
    assert len(open_collection(here).documents) == size - 1
    (shown,) = answered("preview", ranker, clean, index, "--query", text, "--most", size)[1]
    assert shown["among"] == [f"all {size} documents of the index"] * 2
    assert [*shown["forgotten"]] == [removed], "the record names what only the index still holds"
    rank = shown["forgotten"][removed]["before"]
    assert shown["before"][rank - 1]["id"] == removed
    words = ["--query", text, "--most", str(size), "--document", removed]
    assert run(["preview", str(ranker), str(ranker), str(index), *words]) == 0
    said = capsys.readouterr().out
    assert said.count(f"✗ {removed}  (not in the collection)") == 2 and f"rank {rank} before, rank {rank} after" in said
    other = make_bi_encoder(encoder, tmp_path / "other")
    assert run(["preview", str(ranker), str(other), str(index), *words]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"after: {size - 1} documents of {size} in the index: the others have left the collection" in said
    assert f"rank {rank} before, not among those ranked after" in said


def test_a_cross_encoder_says_how_many_documents_it_ranked(
    answered: Any, encoder: Path, tmp_path: Path, capsys: Any
) -> None:
    from unrank.rankers import create_ranker

    create_ranker("cross-encoder", str(encoder), 0).save(tmp_path / "ce")
    write_collection(tmp_path / "c", {"d0": "ba ka", "d1": "bi ka", "d2": "bo bu"})
    asked = ["preview", tmp_path / "ce", tmp_path / "ce", tmp_path / "c", "--document", "d2"]
    few, none = answered(*asked, "--query", "ka", "--query", "zebra")[1]
    assert few["among"][0].startswith("2 documents that BM25 puts first: a cross-encoder") and len(few["before"]) == 2
    assert none["among"][0].startswith("no document: BM25 finds none") and none["before"] == []
    assert run([*map(str, asked), "--query", "zebra"]) == 0
    assert "✗ d2, to be forgotten: not among those ranked before, not among those ranked after" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize("kind", ["bi-encoder", "cross-encoder"])
def test_a_tie_has_the_same_place_in_the_table_and_below(
    kind: str, answered: Any, encoder: Path, tmp_path: Path
) -> None:
    from unrank.rankers import create_ranker

    create_ranker(kind, str(encoder), 0).save(tmp_path / "r")
    write_collection(tmp_path / "c", {**dict.fromkeys(("d0", "d1", "d2"), "ba be"), "d3": "bu bo ka"})
    asked = ("--query", "ba be", "--document", "d1", "--document", "d2")
    (shown,) = answered("preview", tmp_path / "r", tmp_path / "r", tmp_path / "c", *asked)[1]
    places = {hit["id"]: place for place, hit in enumerate(shown["before"], 1)}
    assert {id: ranks["before"] for id, ranks in shown["forgotten"].items()} == {id: places[id] for id in ("d1", "d2")}
    assert sorted(places[id] for id in ("d1", "d2")) == [1, 2], "a tie is decided for what is to be forgotten"


def test_a_misspelt_removal_is_said_by_update_and_check(
    answered: Any, index: Path, ranker: Path, collection: Path, removed: str, tmp_path: Path, capsys: Any
) -> None:
    here, named = _copy(index, tmp_path), tmp_path / "removal.json"
    named.write_text(json.dumps({"documents": [removed, "nosuch"]}))
    line = f"{named}: 1 document id neither in the collection nor in faiss:{here}: 'nosuch'; check them with"
    asked = (here, ranker, collection, "--removal", named)
    assert run(["index", "update", *map(str, [here, ranker, *asked[1:]])]) == 0
    said = capsys.readouterr()
    assert line in said.err and "1 document deleted" in said.out
    status, found = answered("index", "check", *asked)
    assert (status, found["sound"], found["unknown"]) == (0, True, ["nosuch"])
    assert run(["index", "check", *map(str, asked)]) == 0
    assert line in capsys.readouterr().err


def test_an_index_of_no_points_is_empty_and_of_one_model(
    encoder: Path, ranker: Path, tmp_path: Path, capsys: Any
) -> None:
    texts = some_texts(3)
    write_collection(tmp_path / "c", texts)
    removal, index = tmp_path / "removal.json", str(tmp_path / "index")
    removal.write_text(json.dumps({"documents": [*texts]}))
    asked = [str(tmp_path / "c"), "--removal", str(removal)]
    assert run(["index", "build", index, str(ranker), *asked]) == 0
    capsys.readouterr()
    assert run(["index", "check", index, str(ranker), *asked]) == 0
    said = capsys.readouterr().out
    assert f"faiss:{index} is empty: it has no points" in said and "all 0 points" not in said
    other = make_bi_encoder(encoder, tmp_path / "other")
    assert run(["index", "check", index, str(other), *asked]) == 3
    assert f"faiss:{index} is of another model" in capsys.readouterr().out
    words = ["--query", "ba be", "--document", "d0"]
    assert run(["preview", str(ranker), str(ranker), index, *words]) == 0
    assert "ranked: all 0 documents of the index" in capsys.readouterr().out


def test_what_cannot_be_recognised_is_said_however_quiet(
    clean: Path,
    collection: Path,
    removed: str,
    tmp_path: Path,
    answered: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With another owner's key nobody can tell which documents the ranker forgot."""
    here, vectors = str(tmp_path / "index"), str(tmp_path / "vectors")
    monkeypatch.setenv("UNRANK_STATE", str(tmp_path / "another"))
    said = "what this ranker forgot before cannot be recognised here"
    for command in (
        ["index", "build", here, str(clean), str(collection), "--quiet"],
        ["encode", str(clean), str(collection), "--out", vectors, "--quiet"],
        ["evaluate", str(clean), str(collection), "--json"],
    ):
        capsys.readouterr()
        assert run(command) == 0 and said in capsys.readouterr().err
    status, found = answered("index", "check", here, clean, collection)
    assert status == 3 and not found["sound"] and not found["recognised"] and not found["removed"]
    assert run(["index", "check", here, str(clean), str(collection)]) == 3
    assert "documents that the ranker forgot may be there" in capsys.readouterr().out
    (tmp_path / "removal.json").write_text(json.dumps({"documents": [removed]}))
    status, found = answered("index", "check", here, clean, collection, "--removal", tmp_path / "removal.json")
    assert status == 3 and found["recognised"] and found["removed"] == [removed]
    monkeypatch.delenv("UNRANK_STATE")
    assert run(["encode", str(clean), str(collection), "--out", vectors, "--quiet"]) == 2, (
        "other documents are left out"
    )
