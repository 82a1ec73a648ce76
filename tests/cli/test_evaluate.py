"""`unrank evaluate` beside retrained references: query by query, with their rankers or with their details alone."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.conftest import Refused
from tests.tiny import made_record
from unrank.cli.main import run
from unrank.cli.show import tell_other_collection
from unrank.collection.collection import open_collection
from unrank.collection.removal import Removal
from unrank.evaluation.agreement import agreement
from unrank.forgetting.evaluate import evaluate
from unrank.forgetting.stored_scores import StoredScores
from unrank.rankers import load_ranker
from unrank.record import CollectionName

FIGURES = {"queries", "distance", "low", "high", "correlation", "rank_biased_overlap"}


@pytest.fixture(scope="module")
def references(collection: Path, removal: Path, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two rankers that were trained without what is removed, with two seeds."""
    folder = tmp_path_factory.mktemp("references")
    for seed in ("0", "1"):
        given = ["--ranker", "bi-encoder", "--base", encoder, "--removal", removal, "--out", folder / seed, "--quiet"]
        settings = ["--set", "epochs=1", "--set", "batch=48", "--set", "learning_rate=1e-3", "--seed", seed]
        assert run(["train", *map(str, [collection, *given]), *settings]) == 0
    return [folder / "0", folder / "1"]


@pytest.fixture
def evaluated(ranker: Path, collection: Path, removal: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def measure(*more: object) -> str:
        capsys.readouterr()
        given = [ranker, collection, "--removal", removal, "--quiet", "--device", "cpu", *more]
        assert run(["evaluate", *map(str, given)]) == 0
        return capsys.readouterr().out

    return measure


def named(references: list[Path]) -> list[object]:
    return [item for name in references for item in ("--reference", name)]


def test_a_ranker_beside_two_references(
    evaluated: Any, references: list[Path], ranker: Path, collection: Path, removal: Path
) -> None:
    found = json.loads(evaluated(*named(references), "--json"))
    assert [each["reference"] for each in found["references"]] == [*map(str, references)]
    opened, asked = open_collection(collection), Removal.load(removal)
    mine, *theirs = (
        evaluate(load_ranker(name), opened, asked, device="cpu").forget_figures for name in (ranker, *references)
    )
    assert mine is not None
    for each, figures in zip(found["references"], theirs, strict=True):
        assert figures is not None
        assert {key: each[key] for key in FIGURES} == pytest.approx(vars(agreement(mine, figures)))
    assert theirs[0] is not None and theirs[1] is not None
    assert found["noise"] == pytest.approx(vars(agreement(theirs[0], theirs[1])))
    text = evaluated(*named(references))
    assert f"the forget set, {found['noise']['queries']} queries one by one:" in text
    rows = {line.split("  ")[0].strip(): line for line in text.splitlines()}
    assert f"{found['references'][1]['distance']:.3f}" in rows["1"]
    assert f"{found['noise']['distance']:.3f}" in rows["each other"]


def test_details_stand_for_the_ranker_that_they_were_written_of(
    evaluated: Any, references: list[Path], collection: Path, removal: Path, tmp_path: Path
) -> None:
    details = [tmp_path / name.name for name in references]
    for name, out in zip(references, details, strict=True):
        given = ["evaluate", name, collection, "--removal", removal, "--details", out, "--quiet"]
        assert run([*map(str, given)]) == 0
    first, second = (json.loads(evaluated(*named(names), "--json")) for names in (references, details))
    for each in (*first["references"], *second["references"]):
        del each["reference"]
    assert first == second
    kept, asked = json.loads(details[0].read_text()), Removal.load(removal)
    assert set(kept["reciprocal_ranks"]) == {"forget", "entangled", "disjoint", "test", "forget_full"}
    assert len(kept["reciprocal_ranks"]["forget"]) == len(kept["forget"]["lists"]) == first["noise"]["queries"]
    assert not any(f'"{id}"' in details[0].read_text() for id in asked.documents), "it names nothing"


def test_one_query_has_no_correlation(
    references: list[Path], ranker: Path, collection: Path, removal: Path, tmp_path: Path, capsys: Any
) -> None:
    """It is said to be undefined, and the ranker's folder is never written to."""
    opened, asked = open_collection(collection), Removal.load(removal)
    found = [document for _, document in opened.pair_ids(opened.pairs) if document in asked.documents]
    Removal(documents=[id for id in found if found.count(id) == 1][:1]).save(tmp_path / "one.json")
    given = [ranker, collection, "--removal", tmp_path / "one.json", "--no-copies", "--quiet"]
    for more in ((), ("--json",)):
        capsys.readouterr()
        assert run(["evaluate", *map(str, [*given, "--reference", references[0], *more])]) == 0
        said = capsys.readouterr().out
        if more:
            (each,) = json.loads(said)["references"]
            assert json.loads(said)["noise"] is None, "there is only one"
            assert (each["queries"], each["correlation"]) == (1, None)
        else:
            assert "the forget set, 1 query one by one:" in said and "undefined" in said
            assert "with a second --reference" in said


def test_what_cannot_be_compared_is_refused(
    refused: Refused, references: list[Path], ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    evaluate = ("evaluate", ranker, collection, "--quiet")
    asked = (*evaluate, "--removal", removal)
    assert "name what was removed with --removal" in refused(*evaluate, "--reference", references[0])
    assert "was trained on what is removed, as its record says" in refused(*asked, "--reference", ranker)
    assert "is inside" in refused(*asked, "--details", ranker / "details.json")
    inside = ("--details", references[0] / "details.json")
    assert "is inside" in refused(*asked, "--reference", references[0], *inside), "its seal covers every file"
    assert "exists already: choose another --details" in refused(*asked, "--details", removal)
    assert "not the details that 'unrank evaluate --details' writes" in refused(*asked, "--reference", removal)
    out = tmp_path / "details.json"
    assert run([*map(str, [*asked, "--details", out])]) == 0
    Removal(documents=Removal.load(removal).documents[:1]).save(tmp_path / "other.json")
    other = refused(*evaluate, "--removal", tmp_path / "other.json", "--reference", out)
    assert "holds details of another collection, request or owner: it cannot be compared" in other
    kept = json.loads(out.read_text())
    changes: list[dict[str, list[Any]]] = [
        {"lists": [[0, 0]] * len(kept["forget"]["lists"])},
        {"lists": [[-1]] * len(kept["forget"]["lists"])},
        {"lists": [["0"]] * len(kept["forget"]["lists"])},
        {"lists": [[]]},
        {"pair_scores": ["a"]},
        {"pair_scores": []},
    ]
    for change in changes:
        out.write_text(json.dumps(kept | {"forget": kept["forget"] | change}))
        assert "damaged details: " in refused(*asked, "--reference", out)
    out.write_text(json.dumps(kept | {"forget": None}))
    assert "write them again with --removal" in refused(*asked, "--reference", out)
    out.write_text(json.dumps(kept | {"details_format": 9}))
    assert "details of format 9, this unrank reads 1" in refused(*asked, "--reference", out)


def test_runs_and_qrels_before_and_after(
    evaluated: Any,
    references: list[Path],
    refused: Refused,
    ranker: Path,
    collection: Path,
    removal: Path,
    tmp_path: Path,
) -> None:
    """Each set has a run of both rankers, which the qrels judge; MRRs computed from the files are those printed."""
    folders = ("--runs", tmp_path / "runs", "--qrels", tmp_path / "qrels", "--original", references[0])
    printed = json.loads(evaluated(*folders, "--json"))
    sets = {name for name in printed if printed[name] is not None}
    assert {path.name for path in (tmp_path / "qrels").iterdir()} == {f"{name}.qrels" for name in sets}
    sides = {f"{name}.{when}.run" for name in sets for when in ("before", "after")}
    assert {path.name for path in (tmp_path / "runs").iterdir()} == sides
    for name in sets:
        judged = {tuple(line.split()[:3:2]) for line in (tmp_path / "qrels" / f"{name}.qrels").read_text().splitlines()}
        first: dict[str, float] = {}
        for line in (tmp_path / "runs" / f"{name}.after.run").read_text().splitlines():
            query, _, document, rank, *_ = line.split()
            if (query, document) in judged:
                first.setdefault(query, 1 / int(rank))
        assert sum(first.values()) / len(first) == pytest.approx(printed[name]["mrr"], abs=1e-9)
        assert len(first) == printed[name]["queries"]
    evaluated("--runs", tmp_path / "alone")
    assert (tmp_path / "alone" / "forget.run").is_file()
    bm25 = ["evaluate", "bm25", collection, "--removal", removal, "--original", ranker, "--runs", tmp_path / "bm25"]
    assert run([*map(str, bm25), "--quiet"]) == 0, "bm25 has no record"
    assert (tmp_path / "bm25" / "forget.before.run").is_file()
    asked = ("evaluate", ranker, collection, "--removal", removal)
    assert "name a folder for them with --runs" in refused(*asked, "--original", references[0])
    assert "exists already: choose another --qrels" in refused(*asked, "--qrels", tmp_path / "qrels")
    assert "is inside" in refused(*asked, "--runs", ranker / "runs")
    evaluated("--runs", tmp_path / "both", "--qrels", tmp_path / "qrels" / ".." / "both")
    assert {"forget.run", "forget.qrels"} <= {path.name for path in (tmp_path / "both").iterdir()}, "one folder"


def test_a_path_in_another_that_is_written_is_refused_before_any_work(
    refused: Refused, ranker: Path, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unrank.cli.evaluate.open_both", None)
    monkeypatch.chdir(tmp_path)
    for option, inner, other, outer in (
        ("--details", "new", "--runs", "new"),
        ("--qrels", "new/in", "--runs", tmp_path / "new"),
        ("--runs", "old/../new/in", "--details", "new"),
        ("--scores", "new/in", "--runs", "new"),
        ("--scores", "new", "--qrels", "new"),
    ):
        said = refused("evaluate", ranker, collection, other, outer, option, inner)
        assert said.startswith(f"{option} {tmp_path / 'new'}") and f"is not outside {other} {tmp_path / 'new'}:" in said


def test_a_reference_that_is_given_twice_is_refused(
    refused: Refused, references: list[Path], ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    """How far a ranker is from itself is not the noise between two."""
    first, asked = references[0], ("evaluate", ranker, collection, "--removal", removal)
    (tmp_path / "link").symlink_to(first)
    shutil.copytree(first, tmp_path / "copy")
    for again in (first, first / ".." / first.name, tmp_path / "link", tmp_path / "copy"):
        said = refused(*asked, "--reference", first, "--reference", references[1], "--reference", again)
        assert said == f"--reference {first} and {again} are the same: name another retrained ranker"
    for name in ("one.json", "two.json"):
        (tmp_path / name).write_text("details")
    details = (item for name in ("one.json", "two.json") for item in ("--reference", tmp_path / name))
    assert "are the same" in refused(*asked, *details)


def test_scores_by_shards_give_the_figures_of_one_process(
    evaluated: Any, ranker: Path, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever scores which piece, the file is the same bit by bit, and what is there is not scored again."""
    monkeypatch.setattr("unrank.forgetting.stored_scores.PIECE", 4)
    whole = json.loads(evaluated("--json"))
    assert json.loads(evaluated("--scores", tmp_path / "one", "--json")) == whole
    out = tmp_path / "shards"
    first, second = (json.loads(evaluated("--scores", out, "--shard", f"{one}/3", "--json")) for one in (3, 1))
    assert second["made"] > 0 and first["pieces"] > first["missing"] > second["missing"] > 0
    with monkeypatch.context() as patch:
        made: list[int] = []
        make = StoredScores.make

        def noted(table: StoredScores, piece: int) -> Any:
            made.append(piece)
            return make(table, piece)

        patch.setattr(StoredScores, "make", noted)
        assert json.loads(evaluated("--scores", out, "--shard", "2/3", "--json")) == whole
        assert len(made) == second["missing"]
        assert json.loads(evaluated("--scores", out, "--shard", "2/3", "--json")) == whole
        assert len(made) == second["missing"], "the finished table is read"
    assert (out / "scores.arrow").read_bytes() == (tmp_path / "one" / "scores.arrow").read_bytes()
    assert {path.name for path in out.iterdir()} == {"scores.arrow", "scores.json"}
    with pa.OSFile(str(out / "scores.arrow")) as file:
        table = pa.ipc.open_file(file).read_all()
    assert table.column_names == ["query", "document", "score"]
    opened = open_collection(collection)
    query, document = table["query"][0].as_py(), table["document"][0].as_py()
    texts = (
        opened.queries.text(opened.queries.ids(range(len(opened.queries))).index(query)),
        opened.documents.text(opened.documents.ids(range(len(opened.documents))).index(document)),
    )
    [score] = load_ranker(ranker).score_texts([texts[0]], [texts[1]])
    assert table["score"][0].as_py() == pytest.approx(score, abs=1e-5)


def test_a_damaged_table_of_scores_gives_no_figures(
    refused: Refused, evaluated: Any, ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    evaluated("--scores", tmp_path)
    file = tmp_path / "scores.arrow"
    with pa.OSFile(str(file)) as source:
        whole = pa.ipc.open_file(source).read_all()
    query, document, score = whole.columns
    nothing = [None] * len(whole)
    for columns, problem in (
        ([query, document, pa.array([float("nan"), *score.to_pylist()[1:]], pa.float32())], "missing or not finite"),
        ([query, document, pa.array([None, *score.to_pylist()[1:]], pa.float32())], "missing or not finite"),
        ([pa.array(nothing, pa.string()), document, score], "missing or not finite"),
        ([query, document, score.cast(pa.string())], "its columns are not query (string), document (string), score"),
        ([query, document, score.cast(pa.float64())], "its columns are not"),
        ([query, pa.chunked_array([document.combine_chunks()[::-1]]), score], "not of the pairs that are measured"),
        ([query.combine_chunks()[::-1], document, score], "rows 1 to "),
        ([each[1:] for each in whole.columns], f"it has {len(whole) - 1:,} rows, not {len(whole):,}"),
    ):
        wrong = pa.table(columns, whole.column_names).replace_schema_metadata(whole.schema.metadata)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, wrong.schema) as writer:
            writer.write_table(wrong)
        said = refused("evaluate", ranker, collection, "--removal", removal, "--device", "cpu", "--scores", tmp_path)
        assert "scores.arrow: damaged: " in said and problem in said and "delete it, and make it again" in said
    file.unlink()
    evaluated("--scores", tmp_path)
    with pa.OSFile(str(file)) as source:
        assert pa.ipc.open_file(source).read_all() == whole


def test_scores_that_cannot_be_shared(
    refused: Refused, evaluated: Any, ranker: Path, references: list[Path], collection: Path, tmp_path: Path
) -> None:
    evaluated("--scores", tmp_path / "scores")
    other = refused("evaluate", references[0], collection, "--scores", tmp_path / "scores")
    assert "holds scores that were made otherwise: model" in other
    for more, said in (
        (["--shard", "1/2"], "name it with --scores"),
        (["--scores", collection / "in"], "is inside"),
        (["--scores", tmp_path / "new", "--shard", "3/2"], "expected I/N"),
        (["--scores", tmp_path / "new", "--shard", "1/2", "--on", "ray"], "leave out --shard"),
        (["--scores", tmp_path / "new", "--jobs", "2"], "give --on ray"),
    ):
        assert said in refused("evaluate", ranker, collection, *more)
    assert "bm25 is measured in one piece" in refused("evaluate", "bm25", collection, "--scores", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_ranker_with_a_record_of_another_collection_is_told(
    collection: Path, golden_folder: Path, ranker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured or forgotten from a collection that its record does not name, it may never have seen it."""
    removal = tmp_path / "removal.json"
    removal.write_text(json.dumps({"documents": ["d3"]}))
    said = "the ranker's record is of the collection 'little', not of this one: whether it was trained on this one is"
    for command in (
        ["evaluate", ranker, golden_folder, "--removal", removal, "--quiet"],
        ["audit", ranker, golden_folder, "--removal", removal, "--plan", "--quiet"],
        ["forget", ranker, golden_folder, "--document", "d3", "--target", "0.5", "--dry-run", "--quiet"],
    ):
        assert run([*map(str, command)]) == 0
        assert capsys.readouterr().err.count(said) == 1, command
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"documents": ["doc2"]}))
    assert run(["evaluate", str(ranker), str(collection), "--removal", str(own), "--quiet"]) == 0
    assert run(["evaluate", str(ranker), str(golden_folder), "--quiet"]) == 0, "nobody asks what it remembers"
    assert capsys.readouterr().err == ""
    tell_other_collection(made_record("another"), open_collection(collection))
    assert "of the collection 'made', not of this one" in capsys.readouterr().err
    tell_other_collection(replace(made_record(), collection=CollectionName("little", "x")), open_collection(collection))
    assert "of another collection of the name 'little', not of this one" in capsys.readouterr().err
