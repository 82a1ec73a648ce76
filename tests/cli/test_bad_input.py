"""Every mistake of the user's is one line on standard error and exit 2, and leaves nothing behind."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.cli.conftest import Refused, write_beir
from unrank.cli.main import run
from unrank.owner import fact_path, recall, remember
from unrank.rankers import create_ranker
from unrank.record import Record


def write_removal(folder: Path, **removal: list[str] | list[list[str]]) -> Path:
    path = folder / "removal.json"
    path.write_text(json.dumps(removal))
    return path


def spoiled(beir: Path, folder: Path, name: str, line: int, text: str | None = None) -> Path:
    """A copy of the BEIR folder in which one line of a file reads otherwise; without a text, as the line before it."""
    copied = Path(shutil.copytree(beir, folder / "beir"))
    lines = (copied / name).read_text().splitlines()
    lines[line - 1] = lines[line - 2] if text is None else text
    (copied / name).write_text("\n".join(lines) + "\n")
    return copied


@pytest.fixture
def spoilt_ranker(ranker: Path, tmp_path: Path) -> Path:
    """A copy of the trained ranker, to be spoiled."""
    return Path(shutil.copytree(ranker, tmp_path / "ranker"))


@pytest.mark.parametrize(("flag", "files"), [("document", "documents"), ("query", "queries")])
def test_an_id_in_place_of_a_file(refused: Refused, tmp_path: Path, flag: str, files: str) -> None:
    said = refused("forget", "ranker", "collection", f"--{files}", "ART-7", "--out", tmp_path / "out")
    assert said == f"ART-7: no such file; if that is the id of a {flag}, write --{flag} ART-7"


@pytest.mark.parametrize(
    ("name", "line", "text", "problem"),
    [
        ("corpus.jsonl", 3, '{"_id": "x", "text"', "not JSON"),
        ("corpus.jsonl", 2, '{"_id": "x"}', "expected"),
        ("corpus.jsonl", 2, "[1]", "expected a JSON object"),
        ("queries.jsonl", 4, '{"_id": 7, "text": "ba"}', "expected"),
        ("qrels/train.tsv", 5, "query1\tdoc1", "found 2 columns"),
        ("qrels/train.tsv", 5, "query1 doc1 1", "found 1 columns"),
        ("qrels/test.tsv", 2, "test1\tdoc1\tyes", "'yes' is not a whole number"),
    ],
)
def test_a_malformed_line(
    refused: Refused, beir: Path, tmp_path: Path, name: str, line: int, text: str, problem: str
) -> None:
    folder = spoiled(beir, tmp_path, name, line, text)
    said = refused("import", f"beir:{folder}", "--out", tmp_path / "out")
    assert said.startswith(f"{folder / name}, line {line}: ")
    assert problem in said


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/train.tsv"])
def test_a_line_that_is_no_text(refused: Refused, beir: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(beir, tmp_path / "beir"))
    with (folder / name).open("ab") as file:
        file.write(b"\xff\xfe\n")
    assert "not UTF-8 text" in refused("import", f"beir:{folder}", "--out", tmp_path / "out")


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels"])
def test_a_missing_file(refused: Refused, beir: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(beir, tmp_path / "beir"))
    path = folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert refused("import", f"beir:{folder}", "--out", tmp_path / "out").startswith(f"{path}: ")


def test_a_missing_source(refused: Refused, tmp_path: Path) -> None:
    assert "no such folder" in refused("import", f"beir:{tmp_path / 'nowhere'}", "--out", tmp_path / "out")
    assert "did you mean 'beir'" in refused("import", "bier:x", "--out", tmp_path / "out")
    assert "needs a location" in refused("import", "beir:", "--out", tmp_path / "out")


def test_duplicate_documents(refused: Refused, beir: Path, tmp_path: Path) -> None:
    folder = spoiled(beir, tmp_path, "corpus.jsonl", 4)
    twice = json.loads((folder / "corpus.jsonl").read_text().splitlines()[3])["_id"]
    said = refused("import", f"beir:{folder}", "--out", tmp_path / "out")
    assert f"1 document id given more than once: '{twice}'" in said


def test_duplicate_queries(refused: Refused, beir: Path, tmp_path: Path) -> None:
    folder = spoiled(beir, tmp_path, "queries.jsonl", 4)
    said = refused("import", f"beir:{folder}", "--out", tmp_path / "out")
    assert "the query id 'query2' occurs more than once" in said


def test_judgements_of_unknown_documents(refused: Refused, beir: Path, tmp_path: Path) -> None:
    folder = spoiled(beir, tmp_path, "qrels/train.tsv", 2, "query0\tghost\t1")
    said = refused("import", f"beir:{folder}", "--out", tmp_path / "out")
    assert "the judgements of split 'train': 1 document id not in the collection: 'ghost'" in said


def test_judgements_of_unknown_queries(refused: Refused, beir: Path, tmp_path: Path) -> None:
    folder = spoiled(beir, tmp_path, "qrels/test.tsv", 2, "ghost\tdoc1\t1")
    said = refused("import", f"beir:{folder}", "--out", tmp_path / "out")
    assert "1 query id not in the collection: 'ghost'" in said


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("--test-split", "tset"), "did you mean 'test'"),
        (("--test-share", "1.5"), "a test share of 1.5 is not possible"),
        (("--test-share", "0.1", "--test-split", "test"), "not both"),
        (("--test-share", "0.99"), "a test share of 0.99 of 18 queries leaves none to train on: lower it"),
        (("--candidates", "-1"), "candidates must be at least 0"),
        (("--min-grade", "5"), "no training query with a document of grade 5"),
        (("--relevant", "0"), "relevant must be at least 1"),
    ],
)
def test_options_of_import_that_cannot_be(
    refused: Refused, beir: Path, tmp_path: Path, given: tuple[str, ...], problem: str
) -> None:
    assert problem in refused("import", f"beir:{beir}", "--out", tmp_path / "out", *given)


@pytest.mark.parametrize("command", ["inspect", "evaluate", "forget", "train", "find", "split"])
def test_a_missing_collection(refused: Refused, ranker: Path, removal: Path, tmp_path: Path, command: str) -> None:
    nowhere, out = tmp_path / "nowhere", tmp_path / "out"
    commands = {
        "inspect": ("inspect", nowhere),
        "evaluate": ("evaluate", ranker, nowhere, "--removal", removal),
        "forget": ("forget", ranker, nowhere, "--removal", removal, "--out", out),
        "train": ("train", nowhere, "--ranker", "bi-encoder", "--out", out),
        "find": ("find", nowhere, "words"),
        "split": ("split", nowhere, "--remove", "queries", "--share", "0.1", "--out", out),
    }
    said = refused(*commands[command])
    assert said == f"{nowhere}: no such collection folder; make one with 'unrank import'"


def test_a_folder_that_is_no_collection(refused: Refused, ranker: Path) -> None:
    assert "not a collection: it holds no collection.json" in refused("inspect", ranker)


@pytest.mark.parametrize("command", ["evaluate", "forget", "train"])
def test_a_collection_without_candidates(
    refused: Refused, beir: Path, encoder: Path, ranker: Path, removal: Path, tmp_path: Path, command: str
) -> None:
    bare, out = tmp_path / "bare", tmp_path / "out"
    assert run(["import", f"beir:{beir}", "--out", str(bare), "--candidates", "0"]) == 0
    commands = {
        "evaluate": ("evaluate", ranker, bare),
        "forget": ("forget", ranker, bare, "--removal", removal, "--out", out, "--quiet"),
        "train": ("train", bare, "--ranker", "bi-encoder", "--base", encoder, "--out", out, "--quiet"),
    }
    assert "imported without candidates, so there is nothing to rank against" in refused(*commands[command])


def test_a_collection_of_one_document(refused: Refused, encoder: Path, tmp_path: Path) -> None:
    source = write_beir(tmp_path / "beir", [("q1", "d1"), ("q2", "d1")])
    assert run(["import", f"beir:{source}", "--out", str(tmp_path / "one")]) == 0
    train = ("train", tmp_path / "one", "--ranker", "bi-encoder", "--base", encoder, "--out", tmp_path / "out")
    assert "every document is relevant to every query, so there is nothing to rank against; add" in refused(*train)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "not JSON"),
        ("{\n\n]", "line 3: not JSON"),
        ("[]", "not a removal"),
        ("{}", "an empty removal"),
        ('{"queries": [], "documents": []}', "an empty removal"),
        ('{"querys": ["query1"]}', "unknown key 'querys'"),
        ('{"queries": "query1"}', "'queries' must be a list of ids"),
        ('{"queries": [1.5]}', "'queries' must be a list of ids"),
        ('{"pairs": [["query1"]]}', "'pairs' must be a list of [query id, document id]"),
    ],
)
def test_a_removal_that_is_none(refused: Refused, collection: Path, tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "removal.json"
    path.write_text(content)
    said = refused("inspect", collection, "--removal", path)
    assert said.startswith(str(path))
    assert problem in said


def test_wrong_options_are_explained_plainly(refused: Refused, beir: Path, tmp_path: Path) -> None:
    command = ("import", f"beir:{beir}", "--out", tmp_path / "out")
    problem = "Invalid value for '--candidates': expected a whole number (see 'unrank import --help')"
    assert refused(*command, "--candidates", "many") == problem
    assert "'--seed': must be 0 or more (see 'unrank" in refused(*command, "--seed", "-1")
    assert refused(*command, "--seed", 2**63) == f"the seed {2**63} is out of range: give one from 0 to 2**63 - 1"
    assert refused(*command[:2]) == "Missing option '--out' (see 'unrank import --help')"
    choices = "'things' is not one of 'methods', 'rankers', 'sources'"
    assert refused("list", "things") == f"Invalid value for 'WHAT': {choices} (see 'unrank list --help')"
    assert refused("imprt") == "No such command 'imprt'. Did you mean 'import'? (see 'unrank --help')"


@pytest.mark.parametrize("option", ["--removal", "--queries", "--documents"])
def test_a_missing_removal(refused: Refused, ranker: Path, collection: Path, tmp_path: Path, option: str) -> None:
    path = tmp_path / "nowhere"
    assert refused("forget", ranker, collection, option, path, "--out", tmp_path / "out").startswith(
        f"{path}: no such file"
    )


@pytest.mark.parametrize("option", ["--queries", "--documents"])
def test_an_empty_file_of_ids(refused: Refused, ranker: Path, collection: Path, tmp_path: Path, option: str) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("\n  \n")
    said = refused("forget", ranker, collection, option, path, "--out", tmp_path / "out")
    assert said == f"{path}: an empty removal: the file names no id"


def test_no_removal_at_all(refused: Refused, ranker: Path, collection: Path, tmp_path: Path) -> None:
    said = refused("forget", ranker, collection, "--out", tmp_path / "out")
    assert said.startswith("nothing to forget was named: give --query, --document or --pair with ids")


@pytest.mark.parametrize("command", ["inspect", "evaluate", "forget", "train"])
def test_unknown_ids_are_named_and_counted(
    refused: Refused, ranker: Path, collection: Path, encoder: Path, tmp_path: Path, command: str
) -> None:
    ghosts = [f"ghost{number}" for number in range(8)]
    path, out = write_removal(tmp_path, documents=["doc1", *ghosts]), tmp_path / "out"
    commands = {
        "inspect": ("inspect", collection),
        "evaluate": ("evaluate", ranker, collection),
        "forget": ("forget", ranker, collection, "--out", out, "--quiet"),
        "train": ("train", collection, "--ranker", "bi-encoder", "--base", encoder, "--out", out, "--quiet"),
    }
    said = refused(*commands[command], "--removal", path)
    assert "8 document ids not in the collection: 'ghost0', 'ghost1'" in said
    assert "and 3 more" in said


def test_unknown_ids_in_a_file(refused: Refused, ranker: Path, collection: Path, tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("query1\nghost\n")
    said = refused("forget", ranker, collection, "--queries", path, "--out", tmp_path / "out")
    assert f"{path}: 1 query id not in the collection: 'ghost'" in said


@pytest.mark.parametrize(
    ("removal", "problem"),
    [
        ({"pairs": [["query1", "more1"]]}, "1 pair not among the relevant training pairs"),
        ({"documents": ["more1"]}, "nothing that it names is a relevant training pair"),
        ({"queries": ["test1", "query1"]}, "names test queries, which no ranker was trained on: 'test1'"),
        ({"queries": [f"query{number}" for number in range(18)]}, "leaves nothing: all 54 training pairs"),
    ],
    ids=["no pair", "relevant to nothing", "a test query", "everything"],
)
def test_removals_that_make_no_sense(
    refused: Refused, ranker: Path, collection: Path, tmp_path: Path, removal: dict[str, list[str]], problem: str
) -> None:
    path = write_removal(tmp_path, **removal)
    said = refused("forget", ranker, collection, "--removal", path, "--out", tmp_path / "out")
    assert said.startswith(f"{path}: ")
    assert problem in said


@pytest.mark.parametrize("target", ["test-mrr", "half-unseen"])
def test_no_test_queries(refused: Refused, ranker: Path, golden_folder: Path, tmp_path: Path, target: str) -> None:
    path = write_removal(tmp_path, queries=["q1"])
    command = ("forget", ranker, golden_folder, "--removal", path, "--target", target, "--out", tmp_path / "out")
    assert f"the target '{target}' is the MRR on test queries, and none is there" in refused(*command)


@pytest.mark.parametrize("target", ["0", "-0.5", "1.5", "nan", "inf", "0%", "150%"])
def test_a_target_out_of_range(
    refused: Refused, ranker: Path, collection: Path, removal: Path, tmp_path: Path, target: str
) -> None:
    command = ("forget", ranker, collection, "--removal", removal, "--out", tmp_path / "out")
    assert f"a target of {target} is outside (0, 1]" in refused(*command, f"--target={target}")


def test_a_target_that_is_no_number(
    refused: Refused, ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    command = ("forget", ranker, collection, "--removal", removal, "--out", tmp_path / "out", "--target")
    assert "unknown target 'abc'" in refused(*command, "abc")
    assert "did you mean 'places'" in refused(*command, "place")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("--method", "cocoll"), "unknown method 'cocoll': did you mean 'cocol'"),
        (("--method", ""), "unknown method ''"),
        (("--set", "learning-rat=1"), "unknown setting of cocol 'learning_rat': did you mean 'learning_rate'"),
        (("--set", "epochs"), "expected NAME=VALUE"),
        (("--set", "epochs=3", "--set", "epochs=4"), "epochs is given twice: take one out"),
        (("--set", "epochs=many"), "epochs takes a whole number, not 'many'"),
        (("--set", "epochs=0"), "epochs must be more than 0"),
        (("--set", "learning_rate=nan"), "learning_rate must be more than 0"),
        (("--set", "scale=wide"), "unknown value of scale 'wide'"),
        (("--set", "without_disjoint=maybe"), "without_disjoint is true or false"),
        (("--set", "phases=joint", "--set", "anchors=paper"), "phases=joint needs anchors=wide"),
        (("--keep-at-least", "1.1"), "--keep-at-least 1.1 is outside (0, 1]"),
        (("--keep-at-least", "nan"), "--keep-at-least nan is outside (0, 1]"),
        (("--device", "tpu"), "'--device'"),
        (("--seed", "-1"), "'--seed'"),
        (("--seed", str(2**63)), f"the seed {2**63} is out of range: give one from 0 to 2**63 - 1"),
        (("--watch", "-1"), "'--watch'"),
        (("--nonsense",), "--nonsense"),
        (("--method", "curd"), "curd needs substitutes: name them in the file of --removal"),
        (("--preset", "papre"), "unknown preset of cocol 'papre': did you mean 'paper'"),
        (("--preset", "paper", "--method", "finetune"), "finetune has no presets"),
        (("--preset", "paper", "--set", "phases=joint"), "phases=joint needs anchors=wide"),
        (("--method", "badt", "--set", "teacher=nobody"), "unknown value of teacher 'nobody'"),
        (("--method", "ssd", "--set", "alpha=-1"), "alpha must be"),
        (("--method", "ssd", "--minutes", "1"), "ssd has no target to stop at"),
        (("--check-every", "0"), "check-every must be more than 0, not 0"),
        (("--check-every", "half"), "'--check-every'"),
        (("--minutes", "0"), "minutes must be more than 0, not 0"),
        (("--minutes", "nan"), "minutes must be more than 0, not nan"),
        (("--train-layers", "0"), "unknown choice of layers '0'"),
        (("--train-layers", "²"), "unknown choice of layers '²'"),
        (("--train-layers", "heads"), "unknown choice of layers 'heads': did you mean 'head'"),
        (("--train-layers", "3"), "the encoder has 2 layers, so 3 of them cannot be trained"),
        (("--target", "destination-1"), "is measured on a retrained ranker: name it with --reference"),
        (("--target", "destination-4"), "unknown target 'destination-4': did you mean 'destination-"),
        (("--target", "destination-1", "--reference", "./nowhere"), "nowhere: no such folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_of_forget_that_cannot_be(
    refused: Refused,
    ranker: Path,
    collection: Path,
    removal: Path,
    tmp_path: Path,
    given: tuple[str, ...],
    problem: str,
) -> None:
    command = ("forget", ranker, collection, "--removal", removal, "--out", tmp_path / "out", "--quiet")
    assert problem in refused(*command, *given)


def test_a_base_whose_place_is_not_known(
    refused: Refused, ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    record = Record.read(ranker)
    assert record is not None and record.base_digest is not None
    place, file = recall("base", record.base_digest), fact_path("base", record.base_digest)
    assert place is not None and file is not None
    file.unlink()
    try:
        command = ("forget", ranker, collection, "--removal", removal, "--out", tmp_path / "out", "--quiet")
        said = refused(*command, "--method", "bad-teacher")
        assert "needs the model that the ranker was trained from; 'tiny', as its record" in said
    finally:
        remember("base", record.base_digest, place)


def test_retrain_needs_a_base(
    refused: Refused, spoilt_ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    (spoilt_ranker / "unrank.json").unlink()
    command = ("forget", spoilt_ranker, collection, "--removal", removal, "--out", tmp_path / "out", "--quiet")
    assert "name it with --base" in refused(*command, "--method", "retrain")


def test_a_reference_of_another_kind(
    refused: Refused, ranker: Path, collection: Path, removal: Path, encoder: Path, tmp_path: Path
) -> None:
    from unrank.rankers import create_ranker

    create_ranker("cross-encoder", str(encoder), 0).save(tmp_path / "other")
    command = ("forget", ranker, collection, "--removal", removal, "--out", tmp_path / "out", "--quiet")
    for more in ((), ("--dry-run",)):
        said = refused(*command, "--reference", tmp_path / "other", "--target", "destination-1", *more)
        assert said == "the reference is a cross-encoder, the ranker a bi-encoder: they cannot be compared"


def test_a_dry_run_refuses_what_a_run_would(
    refused: Refused, spoilt_ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    (spoilt_ranker / "unrank.json").unlink()
    command = ("forget", spoilt_ranker, collection, "--removal", removal, "--method", "retrain", "--quiet")
    said = [refused(*command, *more) for more in (("--out", tmp_path / "out"), ("--dry-run",))]
    assert said == ["retrain needs the model that the ranker was trained from: name it with --base"] * 2


@pytest.mark.parametrize("content", ["[]", '{"removed": {"salt": 1}}', "{"])
def test_a_damaged_record(
    refused: Refused, spoilt_ranker: Path, collection: Path, removal: Path, tmp_path: Path, content: str
) -> None:
    (spoilt_ranker / "unrank.json").write_text(content)
    command = ("forget", spoilt_ranker, collection, "--removal", removal, "--out", tmp_path / "out", "--quiet")
    assert refused(*command).startswith(f"{spoilt_ranker / 'unrank.json'}")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("cros-encoder", "unknown ranker 'cros-encoder': did you mean 'cross-encoder'"),
        ("bertdog", "unknown ranker 'bertdog'"),
        ("", "unknown ranker ''"),
    ],
)
def test_an_unknown_ranker(refused: Refused, collection: Path, tmp_path: Path, name: str, problem: str) -> None:
    assert problem in refused("train", collection, "--ranker", name, "--out", tmp_path / "out")


def test_a_base_that_is_none(refused: Refused, collection: Path, tmp_path: Path) -> None:
    command = ("train", collection, "--ranker", "bi-encoder", "--out", tmp_path / "out", "--quiet", "--base")
    assert refused(*command, tmp_path / "nowhere") == f"{tmp_path / 'nowhere'}: no such folder"
    assert "could be loaded from the hub" in refused(*command, "nobody/nothing")


@pytest.mark.parametrize("name", ["duet", "match-pyramid"])
def test_word_vectors_that_are_none(refused: Refused, collection: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "vectors.txt"
    command = ("train", collection, "--ranker", name, "--out", tmp_path / "out", "--quiet", "--base")
    path.write_text("ba 1 2 3\nbe 4 5 6\nbi 7 8\n")
    assert refused(*command, path) == f"{path}, line 3: expected a word and 3 finite numbers, separated by spaces"
    assert "no such file of word vectors" in refused(*command, tmp_path / "nowhere")
    assert "a folder; word vectors are a text file" in refused(*command, tmp_path)


def test_a_word_ranker_has_no_layers_to_freeze(
    refused: Refused, collection: Path, removal: Path, tmp_path: Path
) -> None:
    trained = tmp_path / "duet"
    command = ["train", str(collection), "--ranker", "duet", "--base", "random", "--quiet", "--set", "epochs=1"]
    assert run([*command, "--out", str(trained)]) == 0
    forget = ("forget", trained, collection, "--removal", removal, "--out", tmp_path / "out", "--quiet")
    assert "a duet has no layers to choose from" in refused(*forget, "--train-layers", "1")


def test_what_cannot_be_frozen(
    refused: Refused, ranker: Path, encoder: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    create_ranker("cross-encoder", str(encoder), 0).save(tmp_path / "cross")
    rest = (collection, "--removal", removal, "--out", tmp_path / "out", "--quiet", "--freeze")
    stores_none = "a cross-encoder stores no vectors of documents, so there are none to --freeze"
    assert refused("forget", tmp_path / "cross", *rest, "documents") == stores_none
    assert refused("forget", tmp_path / "cross", *rest, "documents", "--dry-run") == stores_none
    anew = "retrain starts again, so it cannot keep the documents' vectors: leave --freeze out"
    assert refused("forget", ranker, *rest, "documents", "--method", "retrain", "--base", encoder) == anew
    assert refused("forget", ranker, *rest, "documents", "--method", "retrain") == anew
    assert "queries" in refused("forget", ranker, *rest, "queries")


@pytest.mark.parametrize("command", ["import", "train", "forget", "split"])
def test_an_output_that_exists(
    refused: Refused, beir: Path, ranker: Path, collection: Path, removal: Path, tmp_path: Path, command: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    commands = {
        "import": ("import", f"beir:{beir}"),
        "train": ("train", collection, "--ranker", "bi-encoder"),
        "forget": ("forget", ranker, collection, "--removal", removal),
        "split": ("split", collection, "--remove", "queries", "--share", "0.1"),
    }
    said = refused(*commands[command], "--out", out)
    assert said == f"{out} exists already: choose another --out, or remove it first"


@pytest.mark.parametrize("command", ["import", "train", "forget", "split"])
def test_a_missing_out(
    refused: Refused, beir: Path, ranker: Path, collection: Path, removal: Path, command: str
) -> None:
    commands = {
        "import": ("import", f"beir:{beir}"),
        "train": ("train", collection, "--ranker", "bi-encoder"),
        "forget": ("forget", ranker, collection, "--removal", removal),
        "split": ("split", collection, "--remove", "queries", "--share", "0.1"),
    }
    assert re.search(r"--out\b", refused(*commands[command]))


def test_an_output_that_cannot_be_written(refused: Refused, beir: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = refused("import", f"beir:{beir}", "--out", tmp_path / "file" / "out")
    assert said.startswith(f"cannot write to {tmp_path / 'file'}")


@pytest.mark.parametrize("share", ["0", "1", "-1", "2", "nan"])
def test_a_share_that_cannot_be(refused: Refused, collection: Path, tmp_path: Path, share: str) -> None:
    command = ("split", collection, "--remove", "queries", f"--share={share}", "--out", tmp_path / "out.json")
    assert f"a share of {share} cannot be removed" in refused(*command)


@pytest.mark.parametrize("command", ["evaluate", "forget", "forget --dry-run"])
def test_a_ranker_without_weights(
    refused: Refused, spoilt_ranker: Path, collection: Path, removal: Path, tmp_path: Path, command: str
) -> None:
    for path in list(spoilt_ranker.rglob("*.safetensors")):
        path.unlink()
    name, *more = command.split()
    out = ("--out", tmp_path / "out") if name == "forget" else ()
    said = refused(name, spoilt_ranker, collection, "--removal", removal, *more, *out)
    assert said == f"{spoilt_ranker}: holds no weights (*.safetensors)"


def test_a_ranker_with_pickled_weights(
    refused: Refused, spoilt_ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    (spoilt_ranker / "model.safetensors").unlink()
    (spoilt_ranker / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    said = refused("forget", spoilt_ranker, collection, "--removal", removal, "--out", tmp_path / "out")
    assert said.startswith(f"{spoilt_ranker / 'pytorch_model.bin'}: pickled weights")


@pytest.mark.parametrize("given", ["nowhere/", "nobody/nothing", "./nowhere"])
def test_a_ranker_that_is_not_there(
    refused: Refused, collection: Path, removal: Path, tmp_path: Path, given: str
) -> None:
    said = refused("forget", given, collection, "--removal", removal, "--out", tmp_path / "out")
    assert "no such folder" in said


@pytest.mark.parametrize("command", ["evaluate", "forget", "forget --quiet", "forget --dry-run"])
def test_scores_that_are_not_finite(
    refused: Refused, spoilt_ranker: Path, collection: Path, removal: Path, tmp_path: Path, command: str
) -> None:
    path = spoilt_ranker / "model.safetensors"
    weights = load_file(path)
    save_file({name: np.full_like(values, np.nan) for name, values in weights.items()}, path, {"format": "pt"})
    (spoilt_ranker / "unrank.json").unlink()  # its hashes would tell
    name, *more = command.split()
    out = ("--out", tmp_path / "out") if name == "forget" else ()
    said = refused(name, spoilt_ranker, collection, "--removal", removal, *more, *out)
    assert re.search(r"the ranker gave ([\d,]+) of \1 scores that are not finite", said)


def test_a_loss_that_is_not_finite(
    refused: Refused, ranker: Path, collection: Path, removal: Path, tmp_path: Path
) -> None:
    """Steps so large that the first of them breaks the ranker."""
    command = ("forget", ranker, collection, "--removal", removal, "--out", tmp_path / "out", "--target", "10%")
    said = refused(*command, "--set", "learning_rate=1e30", "--set", "batch=4")
    assert said.startswith("the loss of forget is not finite in epoch 1; ")


def test_an_unknown_command(refused: Refused) -> None:
    assert "No such command 'forgett'" in refused("forgett")


def test_nothing_to_look_for(refused: Refused, collection: Path) -> None:
    assert "give some words" in refused("find", collection, "  ")


def test_a_collection_of_a_later_format(refused: Refused, collection: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(collection, tmp_path / "copied"))
    described = json.loads((copied / "collection.json").read_text())
    (copied / "collection.json").write_text(json.dumps({**described, "format_version": 99}))
    assert "format version 99" in refused("inspect", copied)


def test_a_collection_that_was_cut_short(refused: Refused, collection: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(collection, tmp_path / "copied"))
    path = copied / "documents.arrow"
    path.write_bytes(path.read_bytes()[:-10])
    assert refused("inspect", copied).startswith(f"{path}: missing or cut short")


def test_a_source_with_one_split_to_test_on(refused: Refused, tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "beir", [], [("q1", "d1")])
    said = refused("import", f"beir:{folder}", "--out", tmp_path / "out", "--test-split", "test")
    assert "is the only split, so nothing is left to train on" in said
