"""The commands, as a user types them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from tests.cli.conftest import Refused, some_pairs, tree
from unrank.cli.main import run
from unrank.collection.collection import open_collection
from unrank.forgetting.outcome import pair_ranks
from unrank.forgetting.target import tolerance
from unrank.forgetting.workspace import Workspace
from unrank.rankers import load_ranker
from unrank.record import Record

Ran = Callable[..., tuple[int, str]]

INSPECT_KEYS = {
    "dataset_table",
    "name", "queries", "documents", "pairs", "training_queries", "test_queries", "test_pairs", "candidates_per_query",
    "relevant_per_query", "queries_per_document", "queries_with_several_documents", "documents_with_several_queries",
    "relevant_in_no_list",
}  # fmt: skip
SETS = {"forget", "entangled", "disjoint", "test", "forget_full"}
MEASURES = {"mrr", "low", "high", "ndcg@10", "queries"}
FAST = ("--set", "learning_rate=1e-3", "--set", "batch=16", "--quiet")


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Ran:
    """Run a command: its exit status and what it printed. Nothing may stand on standard error."""

    def call(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert said.err == ""
        return status, said.out

    return call


@pytest.fixture
def done(ran: Ran) -> Callable[..., str]:
    """Run a command that must succeed: what it printed."""

    def call(*arguments: object) -> str:
        status, out = ran(*arguments)
        assert status == 0, out
        return out

    return call


def record_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "unrank.json").read_text())
    return found


def write_json(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_texts_that_are_empty_are_counted_at_an_import(done: Callable[..., str], beir: Path, tmp_path: Path) -> None:
    folder, imported = Path(shutil.copytree(beir, tmp_path / "beir")), tmp_path / "collection"
    for name, texts in (("corpus", ["", " \n"]), ("queries", ["\t"])):
        rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        rows = [row | {"text": text} for row, text in zip(rows, texts, strict=False)] + rows[len(texts) :]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = done("import", f"beir:{folder}", "--out", imported, "--candidates", 10).splitlines()
    assert said[-3:] == ["2 documents without any text", "1 query without any text", f"written to {imported}"]
    assert "without any text" not in done("import", f"beir:{beir}", "--out", tmp_path / "whole", "--candidates", 10)


def test_the_whole_walk(done: Callable[..., str], beir: Path, encoder: Path, tmp_path: Path) -> None:
    collection, removal = tmp_path / "collection", tmp_path / "removal.json"
    original, clean = tmp_path / "original", tmp_path / "clean"

    said = done("import", f"beir:{beir}", "--out", collection, "--candidates", 10)
    assert f"written to {collection}" in said and "listed per query" in said and "candidates per query" not in said
    counts = json.loads(done("inspect", collection, "--json"))
    assert (counts["queries"], counts["test_queries"], counts["pairs"]) == (24, 6, 54)
    assert "for example, to the query query0" in done("inspect", collection)

    first = json.loads((beir / "corpus.jsonl").read_text().splitlines()[0])
    assert first["_id"] in done("find", collection, first["text"], "--documents")

    said = done("split", collection, "--remove", "documents", "--share", 0.2, "--out", removal)
    assert "the removal would" in said
    removed = json.loads(removal.read_text())["documents"]
    assert f"{len(removed)} documents written to" in said
    assert "forget" in done("inspect", collection, "--removal", removal)

    train = (
        "train",
        collection,
        "--ranker",
        "cross-encoder",
        "--base",
        encoder,
        "--out",
        original,
        "--set",
        "epochs=2",
    )
    assert "2 epochs in " in done(*train, "--set", "learning_rate=1e-3", "--quiet")
    before = json.loads(done("evaluate", original, collection, "--removal", removal, "--json"))

    said = done("forget", original, collection, "--removal", removal, "--target", "80%", "--out", clean, *FAST)
    made = Record.read(clean)
    assert made is not None and made.target is not None
    (mrr, queries), target = (made.after["forget"].mrr, made.after["forget"].queries), made.target
    assert mrr <= target + tolerance(queries)
    within = f"{mrr:.3f}, which counts as the target of {target:.3f} (for {queries} forget queries the tolerance is "
    goal = f"the target of {target:.3f}" if mrr <= target else within
    assert f"the forget MRR was brought to {goal}" in said
    assert said.startswith("forgotten: ") and record_of(clean)["state"] == "forgotten"
    assert re.search(
        r"worst pair of \d+: query \w+, document \w+: rank \d+ of 11 before, rank \d+ now\n\d+ pairs had to fall, \d+",
        said,
    )
    after = json.loads(done("evaluate", clean, collection, "--removal", removal, "--json"))
    record = record_of(clean)
    assert record["before"] == before
    assert record["after"] == after
    assert after["forget"]["mrr"] < before["forget"]["mrr"]
    assert record["reached"] is True


def test_quiet_commands_print_results_only(done: Callable[..., str], beir: Path, tmp_path: Path) -> None:
    collection, removal = tmp_path / "collection", tmp_path / "removal.json"
    assert done("import", f"beir:{beir}", "--out", collection, "--candidates", 10, "--quiet") == ""
    split = ("split", collection, "--remove", "queries", "--share", 0.2, "--out", removal)
    assert done(*split, "--quiet") == ""
    assert "for example" not in done("inspect", collection, "--quiet")
    assert "training queries" in done("inspect", collection, "--quiet")
    assert done("inspect", collection, "--quiet", "--json") == done("inspect", collection, "--json")
    found = done("find", collection, "alpha beta", "--quiet")
    assert "documents:" not in found
    assert done("list", "sources", "--quiet").split() == ["beir", "trec", "triples", "irds", "pydocs"]


def test_inspect_json_is_stable(done: Callable[..., str], collection: Path, removal: Path) -> None:
    counts = json.loads(done("inspect", collection, "--json"))
    assert counts.keys() == INSPECT_KEYS
    train, test = some_pairs()
    assert (counts["pairs"], counts["test_pairs"], counts["training_queries"]) == (len(train), len(test), 18)
    with_removal = json.loads(done("inspect", collection, "--removal", removal, "--json"))
    assert with_removal.keys() == INSPECT_KEYS | {"forget", "entangled", "disjoint"}
    sets = [tuple(pair) for name in ("forget", "entangled", "disjoint") for pair in with_removal[name]]
    assert sorted(sets) == sorted(train)


@pytest.mark.parametrize(
    ("removal", "forget", "entangled", "disjoint"),
    [
        (
            {"queries": ["q1", "q2"]},
            [["q1", "d1"], ["q1", "d2"], ["q2", "d3"]],
            [["q3", "d2"], ["q4", "d3"]],
            [["q4", "d4"], ["q5", "d5"]],
        ),
        (
            {"documents": ["d2", "d3"]},
            [["q1", "d2"], ["q2", "d3"], ["q3", "d2"], ["q4", "d3"]],
            [["q1", "d1"], ["q4", "d4"]],
            [["q5", "d5"]],
        ),
        (
            {"pairs": [["q4", "d3"]]},
            [["q4", "d3"]],
            [["q2", "d3"], ["q4", "d4"]],
            [["q1", "d1"], ["q1", "d2"], ["q3", "d2"], ["q5", "d5"]],
        ),
    ],
    ids=["queries", "documents", "a pair"],
)
def test_the_golden_example(
    done: Callable[..., str],
    golden_folder: Path,
    tmp_path: Path,
    removal: dict[str, Any],
    forget: list[list[str]],
    entangled: list[list[str]],
    disjoint: list[list[str]],
) -> None:
    path = write_json(tmp_path / "removal.json", removal)
    found = json.loads(done("inspect", golden_folder, "--removal", path, "--json"))
    assert (found["forget"], found["entangled"], found["disjoint"]) == (forget, entangled, disjoint)


def test_evaluate_json_is_stable(done: Callable[..., str], ranker: Path, collection: Path, removal: Path) -> None:
    found = json.loads(done("evaluate", ranker, collection, "--removal", removal, "--json"))
    assert found.keys() == SETS
    for measured in found.values():
        assert measured.keys() == MEASURES
        assert 0 <= measured["low"] <= measured["mrr"] <= measured["high"] <= 1
        assert measured["queries"] > 0


def test_bm25_is_measured_on_the_same_lists(
    done: Callable[..., str], ranker: Path, collection: Path, removal: Path
) -> None:
    ours, theirs = (
        json.loads(done("evaluate", name, collection, "--removal", removal, "--json")) for name in (ranker, "bm25")
    )
    assert theirs.keys() == SETS
    assert {name: found["queries"] for name, found in theirs.items()} == {
        name: found["queries"] for name, found in ours.items()
    }
    assert theirs["disjoint"]["mrr"] != ours["disjoint"]["mrr"]


def test_a_set_without_a_query_is_null(done: Callable[..., str], ranker: Path, golden_folder: Path) -> None:
    found = json.loads(done("evaluate", ranker, golden_folder, "--json"))
    empty = {name for name, measured in found.items() if measured is None}
    assert empty == {"forget", "entangled", "test", "forget_full"}
    assert "none" in done("evaluate", ranker, golden_folder)


def test_find_looks_where_it_is_told(done: Callable[..., str], beir: Path, collection: Path) -> None:
    query = json.loads((beir / "queries.jsonl").read_text().splitlines()[3])
    found = json.loads(done("find", collection, query["text"].upper(), "--exact", "--queries", "--json"))
    assert found == {"queries": [{"id": query["_id"], "text": query["text"]}]}
    both = json.loads(done("find", collection, query["text"], "--json", "--most", 2))
    assert both.keys() == {"queries", "documents"}
    assert both["queries"][0]["id"] == query["_id"]
    assert len(both["documents"]) == 2
    assert "none" in done("find", collection, "no such words", "--exact", "--documents")


def test_split_draws_the_same_for_the_same_seed(done: Callable[..., str], collection: Path, tmp_path: Path) -> None:
    drawn = []
    for number, seed in enumerate((0, 0, 1)):
        out = tmp_path / f"{number}.json"
        done("split", collection, "--remove", "queries", "--share", 0.3, "--seed", seed, "--out", out)
        drawn.append(json.loads(out.read_text()))
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]["queries"]) == 5  # 15 of 54 pairs, the nearest to a share of 0.3


def test_list_names_what_there_is(done: Callable[..., str]) -> None:
    assert "cocol" in (methods := done("list", "methods"))
    assert "--set learning_rate=5e-05" in methods
    assert "bi-encoder" in (rankers := done("list", "rankers"))
    assert "(also: bertcat)" in rankers
    assert "    retrain: learning_rate=0.001" in rankers
    assert "beir:" in done("list", "sources")


@pytest.mark.parametrize(("name", "rate"), [("duet", 5e-4), ("matchpyramid", 1e-3)])
def test_a_word_ranker_is_trained_by_its_recipe_forgets_and_is_retrained(
    done: Callable[..., str], collection: Path, removal: Path, tmp_path: Path, name: str, rate: float
) -> None:
    trained, retrained = tmp_path / "trained", tmp_path / "retrained"
    done("train", collection, "--ranker", name, "--base", "random", "--out", trained, "--set", "epochs=2", "--quiet")
    record = record_of(trained)
    assert record["base"] == "random"
    assert record["settings"]["learning_rate"] == rate
    assert record["settings"]["epochs"] == 2
    forget = ("forget", trained, collection, "--removal", removal, "--quiet")
    done(*forget, "--method", "retrain", "--set", "epochs=1", "--out", retrained)
    assert record_of(retrained)["settings"]["learning_rate"] == rate
    assert "test" in done("evaluate", retrained, collection)


def test_train_with_a_removal_trains_on_what_is_kept(
    done: Callable[..., str], collection: Path, encoder: Path, removal: Path, tmp_path: Path
) -> None:
    out = tmp_path / "retrained"
    command = ("train", collection, "--ranker", "bertdot", "--base", encoder, "--removal", removal, "--out", out)
    done(*command, "--set", "epochs=1", "--set", "negatives=1", "--quiet")
    record = record_of(out)
    assert record["method"] == "retrain"
    assert record["removed"]["documents"]["count"] == len(json.loads(removal.read_text())["documents"])
    assert record["after"]["forget"]["queries"] > 0


def test_retrain_has_no_target_and_takes_the_known_learning_epoch(
    ran: Ran, ranker: Path, collection: Path, removal: Path, encoder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "retrained"
    command = ("forget", ranker, collection, "--removal", removal, "--method", "retrain", "--out", out, "--quiet")
    status, _ = ran(*command, "--base", encoder, "--set", "epochs=1", "--set", "negatives=1")
    assert status == 0
    record, known = record_of(out), record_of(ranker)
    assert record["learning_epoch"] == known["learning_epoch"]
    assert record["learning_epoch"]["how"] == "measured"
    assert record["base"] == known["base"] == encoder.name
    assert record["reached"] is None


def test_forget_takes_files_of_ids(ran: Ran, ranker: Path, collection: Path, tmp_path: Path) -> None:
    (tmp_path / "queries.txt").write_text("query1\n\n  query2  \nquery1\n")
    (tmp_path / "documents.txt").write_text("doc1\r\ndoc3\r\n")
    both = ("--queries", tmp_path / "queries.txt", "--documents", tmp_path / "documents.txt")
    ran("forget", ranker, collection, *both, "--target", 1.0, "--out", tmp_path / "clean", "--quiet")
    removed = record_of(tmp_path / "clean")["removed"]
    assert {kind: removed[kind]["count"] for kind in ("queries", "documents", "pairs")} == {
        "queries": 2, "documents": 2, "pairs": 0,
    }  # fmt: skip


def test_forget_takes_ids(ran: Ran, ranker: Path, collection: Path, tmp_path: Path) -> None:
    """As `desk add` does."""
    opened = open_collection(collection)
    (pair,) = opened.pair_ids(opened.pairs[-1:])
    named = ("--document", "doc1", "--query", "query1", "--document", "doc3", "--pair", *pair)
    ran("forget", ranker, collection, *named, "--target", 1.0, "--out", tmp_path / "clean", "--quiet")
    removed = record_of(tmp_path / "clean")["removed"]
    assert [removed[kind]["count"] for kind in ("queries", "documents", "pairs")] == [1, 2, 1]


def test_a_removal_and_files_are_joined(
    ran: Ran, ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    (tmp_path / "queries.txt").write_text("query1\n")
    named = ("--removal", removal, "--queries", tmp_path / "queries.txt")
    ran("forget", ranker, collection, *named, "--target", 1.0, "--out", tmp_path / "clean", "--quiet")
    removed = record_of(tmp_path / "clean")["removed"]
    assert removed["queries"]["count"] == 1
    assert removed["documents"]["count"] == len(json.loads(removal.read_text())["documents"])


def test_a_target_above_unseen_is_no_forgetting_though_it_is_met(
    ran: Ran, ranker: Path, collection: Path, tmp_path: Path
) -> None:
    out = tmp_path / "same"
    status, said = ran("forget", ranker, collection, "--query", "query1", "--target", 1, "--out", out, "--quiet")
    assert status == 3 and said.startswith("not forgotten: no weight was changed, and ")
    assert "nothing was done" in said and f"saved unchanged to {out}" in said
    before, after = (load_file(folder / "model.safetensors") for folder in (ranker, out))
    assert before.keys() == after.keys()
    assert all((before[name] == after[name]).all() for name in before)


def test_the_new_default_target_is_told_once(
    ranker: Path,
    collection: Path,
    removal: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("UNRANK_STATE", str(tmp_path / "state"))
    command = ["forget", str(ranker), str(collection), "--removal", str(removal), "--out", str(tmp_path / "out")]
    assert run([*command, "--target", "unseen", "--base", "no-such-model"]) == 2
    assert "what unseen was is now test-mrr" in capsys.readouterr().err
    assert run([*command, "--base", "no-such-model"]) == 2
    assert "test-mrr" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["bi-encoder", pytest.param("colbert", marks=pytest.mark.slow)])
def test_frozen_documents_keep_their_vectors(
    ran: Ran, done: Callable[..., str], encoder: Path, collection: Path, removal: Path, tmp_path: Path, kind: str
) -> None:
    trained, frozen, again = (tmp_path / name for name in ("trained", "frozen", "again"))
    done("train", collection, "--ranker", kind, "--base", encoder, "--out", trained, "--set", "epochs=1", "--quiet")
    towards = ("--removal", removal, "--target", 0.001, *FAST, "--set", "epochs=1", "--out")
    done("forget", trained, collection, "--removal", removal, "--freeze", "documents", "--dry-run")
    status, said = ran("forget", trained, collection, "--freeze", "documents", *towards, frozen)
    assert status == 3
    assert "document vectors that were stored with the old ranker stay valid: only the query side has moved" in said
    assert "use encode_query() for queries and encode_document() for documents" in said
    assert "stale" not in said
    assert record_of(frozen)["settings"]["freeze"] == "documents"
    assert record_of(frozen)["index_valid"] is True
    found = json.loads(done("evaluate", frozen, collection, "--removal", removal, "--json"))
    assert found == record_of(frozen)["after"]
    _, said = ran("forget", frozen, collection, *towards, again)
    assert "stale: encode the collection again" in said
    assert record_of(again)["index_valid"] is False
    same = [load_file(folder / "document_0_Transformer" / "model.safetensors") for folder in (frozen, again)]
    assert any((same[0][name] != same[1][name]).any() for name in same[0])


def test_few_queries_are_not_verifiable_unless_they_did_not_move(
    ran: Ran, ranker: Path, collection: Path, tmp_path: Path
) -> None:
    """Exit code 4, and the state first; with 3 if a named pair stays where it was."""
    opened = open_collection(collection)
    (query, document), *_ = opened.pair_ids(opened.pairs)
    one = ("forget", ranker, collection, "--pair", query, document, "--target", 0.09, "--json", "--set", "warm_up=1")
    status, said = ran(*one, "--set", "learning_rate=1e-2", "--set", "epochs=4", "--out", tmp_path / "clean")
    found = json.loads(said)
    assert status == found["exit_status"] == 4 and found["state"] == "forgotten, not verifiable"
    assert found["words"].startswith(
        "the one pair that had to fall did, but this cannot be verified; 1 query, where 10 are"
    )
    assert found["pairs"]["pairs"] == found["pairs"]["changed"] == 1 and found["pairs"]["unmoved"] == 0
    assert found["pairs"]["worst"]["after"] > found["pairs"]["worst"]["before"]
    record = record_of(tmp_path / "clean")
    assert record["state"] == found["state"] and record["pairs"] == found["pairs"]
    assert query not in json.dumps(record["pairs"]) and document not in json.dumps(record["pairs"])
    status, said = ran(*one, "--set", "learning_rate=1e-9", "--set", "epochs=1", "--out", tmp_path / "same")
    assert status == 3 and json.loads(said)["state"] == "not forgotten"


def test_what_was_never_ranked_high_is_nothing_to_forget(
    ran: Ran, ranker: Path, collection: Path, tmp_path: Path
) -> None:
    opened = open_collection(collection)
    score = Workspace.open(load_ranker(ranker), opened, None, "cpu").scorer(load_ranker(ranker))
    lowest = int(pair_ranks(opened, opened.pairs, score).argmax())
    ((query, document),) = opened.pair_ids(opened.pairs[lowest : lowest + 1])
    status, said = ran(
        "forget",
        ranker,
        collection,
        "--pair",
        query,
        document,
        "--target",
        "test-mrr",
        "--out",
        tmp_path / "same",
        "--quiet",
    )
    assert status == 0
    assert said.startswith("nothing to forget: no weight was changed: nothing was ranked above the target\n")
    assert record_of(tmp_path / "same")["state"] == "nothing to forget"
    again = ("forget", tmp_path / "same", collection, "--pair", query, document, "--target", "test-mrr", "--quiet")
    status, said = ran(*again, "--out", tmp_path / "again")
    assert status == 0
    assert said.startswith("nothing to forget: no weight was changed: nothing was ranked above the target\n")
    assert "before" not in said.splitlines()[-1], "no earlier run has forgotten it"


def test_a_target_out_of_reach_exits_with_3_and_keeps_the_best_model(
    ran: Ran, done: Callable[..., str], ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    out = tmp_path / "best"
    command = ("forget", ranker, collection, "--removal", removal, "--target", 0.001, "--out", out, *FAST)
    status, said = ran(*command, "--set", "epochs=1")
    assert status == 3
    assert re.search(rf"was not reached in 1 epoch, .*; the best model was written to {out}", said)
    assert record_of(out)["reached"] is False
    found = json.loads(done("evaluate", out, collection, "--removal", removal, "--json"))
    assert found == record_of(out)["after"]


def test_losing_more_than_keep_at_least_exits_with_3_and_keeps_the_model(
    ran: Ran, ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    """Steps far too large, and nothing held in place."""
    out = tmp_path / "harmed"
    command = ("forget", ranker, collection, "--removal", removal, "--target", "50%", "--out", out, "--quiet")
    careless = (
        "learning_rate=0.03",
        "min_steps=1",
        "anchors=paper",
        "without_entangled=true",
        "without_disjoint=true",
    )
    settings = [item for setting in careless for item in ("--set", setting)]
    status, said = ran(*command, *settings, "--keep-at-least", 1.0)
    record = record_of(out)
    kept = {name: record["after"][name]["mrr"] / record["before"][name]["mrr"] for name in SETS - {"forget_full"}}
    assert min(kept[name] for name in ("entangled", "disjoint", "test")) < 1
    assert status == 3
    assert "less than --keep-at-least 1; the model is in" in said


def test_a_budget_in_minutes_exits_with_3_and_keeps_the_best_model(
    ran: Ran, ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    out = tmp_path / "best"
    command = ("forget", ranker, collection, "--removal", removal, "--target", 0.001, "--out", out, *FAST)
    status, said = ran(*command, "--minutes", "0.00001", "--check-every", 1)
    assert status == 3
    assert f"the best model was written to {out}" in said
    record = record_of(out)
    assert 0 < record["epochs"] < 1
    assert len((out / "history.jsonl").read_text().splitlines()) == len(record["history"]) == 1


def test_a_reference_sets_the_target_and_its_recovery_stands_beside(
    ran: Ran, ranker: Path, collection: Path, removal: Path, encoder: Path, tmp_path: Path
) -> None:
    reference, out = tmp_path / "reference", tmp_path / "clean"
    retrain = ("train", collection, "--ranker", "bi-encoder", "--base", encoder, "--removal", removal, "--quiet")
    assert ran(*retrain, "--out", reference, "--set", "epochs=1", "--set", "negatives=1")[0] == 0
    command = ("forget", ranker, collection, "--removal", removal, "--out", out, *FAST, "--set", "epochs=1")
    _, said = ran(*command, "--reference", reference, "--target", "destination-1", "--recovery")
    assert re.search(
        r"after one epoch on kept data the forget MRR goes from 0\.\d+ to [01]\.\d+; the reference's", said
    )
    record = record_of(out)
    assert record["target"] == pytest.approx(record_of(reference)["after"]["forget"]["mrr"])
    assert record["recovery"]["reference_before"] == pytest.approx(record["target"])


@pytest.mark.usefixtures("undrawn")
def test_a_substitute_of_what_answers_no_training_query(
    ran: Ran, refused: Refused, ranker: Path, collection: Path, tmp_path: Path, removal: Path
) -> None:
    opened = open_collection(collection)
    silent, *_, kept = opened.documents.ids(sorted({*range(len(opened.documents))} - {*opened.pairs[:, 1].tolist()}))
    removed, named = json.loads(removal.read_text())["documents"], tmp_path / "removal.json"
    assert {silent, kept}.isdisjoint(removed)
    named.write_text(json.dumps({"documents": [*removed, silent], "substitutes": {silent: kept}}))
    command = ("forget", ranker, collection, "--removal", named, *FAST, "--out", tmp_path / "out")
    said = refused(*command, "--method", "curd")
    assert "curd has nothing to raise: no removed document with a substitute answers a training query" in said
    _, said = ran(*command, "--set", "epochs=1", "--target", "0.2")
    assert "no substitute was measured: what they replace answers no training query" in said


@pytest.mark.usefixtures("undrawn")
def test_a_substitute_is_raised_and_measured(
    ran: Ran, ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    """By curd, which needs one; evaluate and the page say where it stands."""
    removed = json.loads(removal.read_text())["documents"]
    documents = open_collection(collection).documents
    kept = [id for id in documents.ids(range(len(documents))) if id not in removed][-1]
    named, out = tmp_path / "removal.json", tmp_path / "clean"
    named.write_text(json.dumps({"documents": removed, "substitutes": dict.fromkeys(removed, kept)}))
    command = ("forget", ranker, collection, "--removal", named, "--method", "curd", "--out", out, *FAST)
    status, said = ran(*command, "--set", "epochs=6", "--target", "0.15")
    assert status in (0, 3), said
    found = record_of(out)["substitutes"]
    pairs = found["after"]["pairs"]
    assert pairs == found["before"]["pairs"] > 0 and found["after"]["mrr"] > found["before"]["mrr"], said
    line = next(line for line in said.splitlines() if line.startswith(f"substitutes of {pairs} forget pair"))
    assert f"median rank {found['after']['median_rank']:g}, MRR {found['after']['mrr']:.3f}" in line
    assert f"before: median rank {found['before']['median_rank']:g}" in line
    status, said = ran("evaluate", out, collection, "--removal", named, "--quiet", "--json")
    assert status == 0 and json.loads(said)["substitutes"] == pytest.approx(found["after"])
    status, said = ran("evaluate", out, collection, "--removal", named, "--quiet")
    assert f"substitutes of {pairs} forget pair" in said and "before" not in said.splitlines()[-1]
    assert ran("report", out, "--out", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Substitutes of removed documents, over" in page and "stand above the document that they replace" in page


@pytest.mark.parametrize(
    "method",
    [
        "neggrad",
        "ssd",
        "badt",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("amnesiac", "bad-teacher", "cf")),
    ],
)
def test_every_method_by_name(
    ran: Ran, ranker: Path, collection: Path, removal: Path, encoder: Path, tmp_path: Path, method: str
) -> None:
    out = tmp_path / "clean"
    command = ("forget", ranker, collection, "--removal", removal, "--method", method, "--out", out, "--quiet")
    status, said = ran(*command, "--base", encoder, "--set", "epochs=1", "--target", 0.001)
    record = record_of(out)
    assert record["method"] == {"cf": "finetune", "badt": "bad-teacher"}.get(method, method)
    assert status == 3 and said.startswith("not forgotten: ") and record["state"] == "not forgotten"
    assert ("ssd has no target" in said) == (method == "ssd")


@pytest.mark.slow
def test_request_after_request(
    ran: Ran, done: Callable[..., str], ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    once, twice, again = (tmp_path / name for name in ("once", "twice", "again"))
    done("forget", ranker, collection, "--removal", removal, "--target", "80%", "--out", once, *FAST)

    said = done("forget", once, collection, "--removal", removal, "--target", "80%", "--out", again, *FAST)
    assert said.startswith("forgotten: an earlier run had forgotten all of it")
    assert "nothing was done: this ranker has forgotten all of it before" in said and f"unchanged to {again}" in said
    assert "stale" not in said
    before, after = (load_file(folder / "model.safetensors") for folder in (once, again))
    assert all((before[name] == after[name]).all() for name in before)

    (tmp_path / "queries.txt").write_text("query1\n")
    more = ("forget", once, collection, "--queries", tmp_path / "queries.txt")
    plain, known = (done("forget", folder, *more[2:], "--dry-run") for folder in (ranker, once))
    kept = [sum(map(int, re.findall(r"(?:touch|leave) +(\d+)", text))) for text in (plain, known)]
    assert kept[0] > kept[1]
    _, said = ran(*more, "--target", 0.001, "--out", twice, *FAST, "--set", "epochs=1")
    assert "what was forgotten before had an MRR of" in said
    queries = json.dumps({"queries": ["query1"]})
    (tmp_path / "queries.json").write_text(queries)
    found = json.loads(done("evaluate", twice, collection, "--removal", tmp_path / "queries.json", "--json"))
    assert found == record_of(twice)["after"]
    (before_that,) = record_of(twice)["removed_before"]
    assert before_that == record_of(once)["removed"] | {
        "by": "cocol",
        "reached": True,
        "target": record_of(once)["target"],
        "target_name": "80%",
        "state": "forgotten",
    }


def test_a_dry_run_writes_nothing(
    done: Callable[..., str], ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    folders = (ranker.parent, collection.parent, removal.parent, tmp_path)
    before = [tree(folder) for folder in folders]
    for more in (("--target", "0.5"), ("--out", tmp_path / "clean")):
        said = done("forget", ranker, collection, "--removal", removal, "--dry-run", *more)
        assert "the removal would" in said
        assert "entangled" in said
        assert ("depending on how many epochs it needs" in said) == ("--target" in more), "a run to places has as many"
        assert "nothing was done" in said
    assert [tree(folder) for folder in folders] == before


def test_progress_is_told_on_standard_error_alone(
    capsys: pytest.CaptureFixture[str], ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    command = ["forget", str(ranker), str(collection), "--removal", str(removal), "--target", "0.001"]
    command += ["--out", str(tmp_path / "clean"), "--set", "epochs=1", "--watch", "5"]
    assert run(command) == 3
    said = capsys.readouterr()
    assert "epoch 1: forget MRR" in said.err
    assert "test 0." in said.err
    assert "epoch 1: forget MRR" not in said.out


def test_no_command_shows_the_help(done: Callable[..., str]) -> None:
    assert done() == done("--help")
    assert "Commands:" in done()


def test_a_bug_is_one_line_and_exit_1(
    capsys: pytest.CaptureFixture[str], collection: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("unrank.collection.inspect.describe", broken)
    assert run(["inspect", str(collection)]) == 1
    said = capsys.readouterr()
    assert said.err == "unrank: a bug in unrank: RuntimeError: two lines (UNRANK_DEBUG=1 shows where)\n"
    monkeypatch.setenv("UNRANK_DEBUG", "1")
    assert run(["inspect", str(collection)]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interruption_leaves_nothing(
    capsys: pytest.CaptureFixture[str], beir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("unrank.collection.build.make_negatives", interrupted)
    assert run(["import", f"beir:{beir}", "--out", str(tmp_path / "collection")]) == 130
    assert capsys.readouterr().err == "unrank: stopped; nothing was left half written\n"
    assert list(tmp_path.iterdir()) == []
