"""The command `audit`: what it prints, what it writes, how it exits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Refused
from unrank.cli.main import run
from unrank.rankers import create_ranker


@pytest.fixture(scope="module")
def much(collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A removal of so much that there are queries enough to tell anything."""
    out = tmp_path_factory.mktemp("much") / "removal.json"
    command = ["split", str(collection), "--remove", "documents", "--share", "0.5", "--out", str(out)]
    assert run(command) == 0
    return out


def test_a_table_and_why(
    ranker: Path, collection: Path, much: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The original beside itself has forgotten nothing: exit 3."""
    capsys.readouterr()
    command = ["audit", str(ranker), str(collection), "--removal", str(much), "--original", str(ranker)]
    assert run([*command, "--out", str(tmp_path / "out"), "--quiet", "--queries", "12"]) == 3
    said = capsys.readouterr().out
    for word in (
        "forgetting",
        "retention",
        "membership",
        "recovery",
        "relearning",
        "displacement",
        "rewording",
        "other forms",
    ):
        assert f"\n{word}, by " in said
    assert "noise floor, by the largest difference between two retrained rankers: undecided; it takes two" in said
    assert "tested on 12 of the " in said
    assert "in all: still remembered; " in said and f"written to {tmp_path / 'out'}" in said
    assert said.rstrip().endswith("or no less than before it was asked to forget.")
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["verdict"] == "still remembered"


def test_a_few_queries_acquit_nobody(
    ranker: Path, encoder: Path, collection: Path, removal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create_ranker("bi-encoder", str(encoder), 7).save(tmp_path / "other")
    command = ["audit", str(ranker), str(collection), "--removal", str(removal), "--reference", str(tmp_path / "other")]
    capsys.readouterr()
    assert run([*command, "--out", str(tmp_path / "out"), "--quiet", "--queries", "5"]) == 0
    said = capsys.readouterr().out
    few = "needs 5 more queries: 5 were tested, and 10 are the fewest that tell"
    assert f"forgetting, by the forget MRR: undecided; {few}" in said
    unseen = "needs 20 pairs that no ranker saw to compare with, and there are 5"
    assert said.startswith(f"single pairs: {unseen}\n") and "in all: undecided: equivalence: " in said
    assert ": equivalent" not in said and "kept;" not in said


def test_a_base_that_is_not_there_is_refused(
    ranker: Path, collection: Path, removal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", str(ranker), str(collection), "--removal", str(removal), "--base", "./nowhere"]
    assert run([*command, "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert "nowhere: no such folder" in capsys.readouterr().err


def test_json_alone(
    ranker: Path, encoder: Path, collection: Path, removal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create_ranker("bi-encoder", str(encoder), 7).save(tmp_path / "other")
    capsys.readouterr()
    command = ["audit", str(ranker), str(collection), "--removal", str(removal), "--reference", str(tmp_path / "other")]
    assert run([*command, "--out", str(tmp_path / "out"), "--json", "--queries", "5"]) == 0
    said = capsys.readouterr()
    value = json.loads(said.out)
    assert value == json.loads((tmp_path / "out" / "audit.json").read_text())
    assert [other["kind"] for other in value["rankers"]["references"]] == ["bi-encoder"]
    assert said.err == ""


def test_a_full_audit_makes_more_attempts(
    ranker: Path, encoder: Path, collection: Path, removal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", ranker, collection, "--removal", removal, "--full", "--json", "--base", encoder]
    capsys.readouterr()
    assert run([*map(str, command), "--out", str(tmp_path / "out"), "--queries", "3"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["thoroughness"]["full"] is True
    assert set(value["tests"]["other_forms"]["details"]["forms"]) == {"int8", "int4", "averaged", "trained"}
    assert len(value["tests"]["relearning"]["details"]["attempts"]) == 18


def test_bad_input(
    ranker: Path, collection: Path, removal: Path, tmp_path: Path, refused: Refused, golden_folder: Path
) -> None:
    out = tmp_path / "out"
    plain = ["audit", ranker, collection, "--out", out, "--quiet"]
    assert "'--removal'" in refused(*plain)
    assert "no such file" in refused(*plain, "--removal", tmp_path / "none.json")
    assert "not in the collection" in refused("audit", ranker, golden_folder, "--out", out, "--removal", removal)
    assert "no such" in refused(*plain, "--removal", removal, "--reference", tmp_path / "none")
    saw = refused(*plain, "--removal", removal, "--reference", ranker)
    assert saw == f"{ranker} was trained on what is removed, as its record says: it cannot be a reference"
    shutil.copytree(ranker, tmp_path / "copy", ignore=shutil.ignore_patterns("unrank.json"))
    itself = refused(*plain, "--removal", removal, "--reference", tmp_path / "copy")
    assert itself == "reference 1 is the ranker itself: name another retrained ranker"
    assert "--queries" in refused(*plain, "--removal", removal, "--queries", "0")
    taken = tmp_path / "taken"
    taken.mkdir()
    assert "exists already" in refused("audit", ranker, collection, "--removal", removal, "--out", taken)
    empty = tmp_path / "empty.json"
    empty.write_text("{}")
    assert "an empty removal" in refused(*plain, "--removal", empty)


def test_another_kind_of_reference(
    ranker: Path, collection: Path, removal: Path, encoder: Path, tmp_path: Path, refused: Refused
) -> None:
    from unrank.rankers import create_ranker

    create_ranker("cross-encoder", str(encoder), 0).save(tmp_path / "other")
    command = ["audit", ranker, collection, "--removal", removal, "--out", tmp_path / "out", "--quiet"]
    assert "cannot be compared" in refused(*command, "--reference", tmp_path / "other")


def test_a_damaged_record(ranker: Path, collection: Path, removal: Path, tmp_path: Path, refused: Refused) -> None:
    shutil.copytree(ranker, tmp_path / "damaged")
    (tmp_path / "damaged" / "unrank.json").write_text('{"removed": 3}')
    command = ["audit", tmp_path / "damaged", collection, "--removal", removal, "--out", tmp_path / "out", "--quiet"]
    assert "damaged" in refused(*command)


def test_the_plan_says_what_can_be_found_and_does_nothing(
    ranker: Path, collection: Path, removal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", str(ranker), str(collection), "--removal", str(removal)]
    capsys.readouterr()
    assert run(command) == 2
    assert "--out is missing: name the folder to write, or ask for the --plan" in capsys.readouterr().err
    assert run([*command, "--plan", "--quiet"]) == 0
    said = capsys.readouterr().out.splitlines()
    why = "there is no ranker that never saw the pairs: give a --reference, or prepared proxies"
    assert said[0] == f"single pairs cannot be tested: {why}"
    assert said[1].startswith("no margin can be said, so the verdict cannot be 'equivalent'")
    assert said[2].startswith("11 pairs of 11 queries; all tests take ") and said[3] == "nothing was done"
    assert run([*command, "--plan", "--json", "--out", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out)["single"]["power"] is None and not (tmp_path / "out").exists()
