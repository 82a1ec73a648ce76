"""The short form of `make fuzz`: some trials of every reader, and properties that hold for any text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tests.fuzz.specimen import Specimen, make_specimens
from tests.fuzz.trial import try_out
from unrank.bench.grid import read_grid
from unrank.collection.removal import Removal
from unrank.collection.sources import read_source
from unrank.disk import read_json
from unrank.errors import UnrankError, one_line, printable
from unrank.rankers.word_file import read_vectors
from unrank.report.table import latex_text

COST = 50
"""So many trials of the quickest reader; of others fewer."""
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
text = some.text(some.characters(blacklist_categories=["Cs"]), max_size=40)
a_line = text.map(lambda value: " ".join(value.split())).filter(bool)
an_id = some.text(some.characters(whitelist_categories=["L", "N", "P"]), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def specimens(tmp_path_factory: pytest.TempPathFactory) -> list[Specimen]:
    return make_specimens(tmp_path_factory.mktemp("specimens"))


@pytest.mark.fuzz
def test_what_is_spoiled_could_be_read_before(specimens: list[Specimen]) -> None:
    """Else every trial of a reader would end in the same refusal, and say nothing."""
    assert [specimen.name for specimen in specimens if specimen.read(specimen.folder) is None] == []


@pytest.mark.fuzz
def test_every_reader_refuses_or_reads(specimens: list[Specimen]) -> None:
    outcomes = [try_out(each, seed) for each in specimens for seed in range(max(2, COST // each.cost))]
    assert [outcome.fault for outcome in outcomes if outcome.fault] == []
    assert sum(outcome.refused for outcome in outcomes) > len(outcomes) / 3
    assert sum(not outcome.refused for outcome in outcomes) > len(outcomes) / 20


@pytest.mark.fuzz
def test_damage_is_noticed_or_makes_no_difference(specimens: list[Specimen]) -> None:
    for specimen in (each for each in specimens if each.hashed):
        right = specimen.read(specimen.folder)
        for seed in range(6):
            assert try_out(specimen, f"damaged {seed}", right, damage=True).fault == ""


def test_a_trial_can_fail(tmp_path: Path) -> None:
    """What is no error of unrank's, what is not the right result, and what is not one plain line."""

    def refuse(folder: Path) -> None:
        error = UnrankError("")
        error.args = ("two\nlines",)
        raise error

    (tmp_path / "file").write_text("some text")
    readers = {"KeyError": lambda _: json.loads("{}")["x"], "a wrong result": lambda _: 2, "not one plain line": refuse}
    for problem, read in readers.items():
        assert problem in try_out(Specimen("made", tmp_path, read), 0, right=1).fault
    assert (tmp_path / "file").read_text() == "some text"


@QUICK
@given(rows=some.dictionaries(an_id, text, min_size=1, max_size=5))
def test_any_text_comes_back_from_json_lines(rows: dict[str, str], tmp_path: Path) -> None:
    folder = _trec(tmp_path)
    lines = [json.dumps({"_id": id, "text": value}, ensure_ascii=len(value) % 2 == 0) for id, value in rows.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert list(read_source(f"trec:{folder}").queries()) == [(id, value.strip()) for id, value in rows.items()]


@QUICK
@given(rows=some.lists(some.tuples(an_id, an_id, some.integers(-5, 5)), min_size=1, max_size=6))
def test_any_judgement_comes_back_from_qrels(rows: list[tuple[str, str, int]], tmp_path: Path) -> None:
    folder = _trec(tmp_path)
    (folder / "queries.jsonl").write_text("")
    (folder / "qrels.txt").write_text("".join(f"{q} 0 {d} {g}\n" for q, d, g in rows), encoding="utf-8")
    assert list(read_source(f"trec:{folder}").splits["train"]()) == rows


@QUICK
@given(queries=some.sets(a_line, max_size=4), documents=some.sets(text, min_size=1, max_size=4))
def test_any_removal_comes_back(queries: set[str], documents: set[str], tmp_path: Path) -> None:
    path = tmp_path / "removal.json"
    path.unlink(missing_ok=True)
    removal = Removal(sorted(queries), sorted(documents))
    removal.save(path)
    assert Removal.load(path) == removal


@QUICK
@given(data=some.binary(max_size=200))
def test_any_bytes_are_refused_or_read(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_bytes(data)
    for read in (read_json, read_grid, Removal.load, read_vectors, lambda path: Removal.load_ids(path, "queries")):
        try:
            read(path)
        except UnrankError as error:
            assert printable(str(error)) == str(error)
            assert "\n" not in str(error)


@QUICK
@given(value=some.text())
def test_nothing_steers_a_terminal_or_latex(value: str) -> None:
    line = one_line(value, 50)
    assert len(line) <= 51
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in line)
    assert "\x1b" not in latex_text(value)
    bare = latex_text(value).replace(r"\textbackslash{}", "").replace(r"\{", "").replace(r"\}", "")
    assert "%" not in bare.replace(r"\%", "")
    assert "#" not in bare.replace(r"\#", "")


def _trec(folder: Path) -> Path:
    (folder / "documents.tsv").write_text("d1\tba\n")
    (folder / "qrels.txt").write_text("q1 0 d1 1\n")
    return folder
