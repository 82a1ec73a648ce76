"""Packed cells: the same as in the folder of a bench, in the same bytes, and damaged files are refused in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.report.made import write_bench
from unrank.bench.packed import LONGEST_LINE, pack_benches, read_cells
from unrank.cli.main import run
from unrank.errors import UnrankError
from unrank.report.bench_folder import read_bench

ONE = b'{"name":"a","cell":{},"record":{},"ranks":{}}\n'
RESULTS = Path(__file__).parents[2] / "results"


def small_bench(folder: Path) -> Path:
    return write_bench(folder, ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0])


def test_a_packed_bench_is_the_bench(tmp_path: Path) -> None:
    folder, out = small_bench(tmp_path / "bench"), tmp_path / "bench.jsonl.gz"
    assert run(["pack", str(folder), "--out", str(out), "--quiet"]) == 0
    assert [cell.to_json() for cell in read_cells(out)] == [cell.to_json() for cell in read_cells(folder)]
    assert [cell.record for cell in read_bench(out).cells] == [cell.record for cell in read_bench(folder).cells]
    again = tmp_path / "again.jsonl.gz"
    assert pack_benches([out, folder], again) == 4  # the cells of a bench that are packed already are not there twice
    assert again.read_bytes() == out.read_bytes()
    with pytest.raises(UnrankError, match=r"does not end with \.jsonl\.gz"):
        pack_benches([folder], tmp_path / "bench.json")


def test_one_cell_with_two_results_is_refused(tmp_path: Path) -> None:
    one, other = small_bench(tmp_path / "one"), small_bench(tmp_path / "other")
    ranks = json.loads((other / "cells" / "0000" / "ranks.json").read_text())
    ranks["forget"]["after"][0] += 1
    (other / "cells" / "0000" / "ranks.json").write_text(json.dumps(ranks))
    with pytest.raises(UnrankError, match="are one cell with other results"):
        pack_benches([one, other], tmp_path / "both.jsonl.gz")


@pytest.mark.parametrize("part", ["cell", "unrank", "ranks"])
def test_a_cell_that_could_not_be_read_again_is_not_packed(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = small_bench(tmp_path / "bench"), tmp_path / "bench.jsonl.gz"
    cell = folder / "cells" / "0001"
    (cell / f"{part}.json").write_text("[]")
    assert run(["pack", str(folder), "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"unrank: {cell}: damaged: cell.json, unrank.json or ranks.json holds no JSON object")
    assert f"remove the folder {cell}, and the same bench" in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert not out.exists()


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (b"not gzip", "damaged, or not compressed by gzip"),
        (gzip.compress(ONE)[:-4], "damaged, or not compressed by gzip"),
        (gzip.compress(b"{\n"), "line 1: not JSON"),
        (gzip.compress(b'{"name": "a"}\n'), "line 1: not a cell"),
        (gzip.compress(b""), "no cell in it"),
        (gzip.compress(ONE * 2), "line 2: the cell a is there twice"),
        (gzip.compress(b" " * (LONGEST_LINE + 1), 1), "too large"),
    ],
    ids=["no-gzip", "cut", "no-json", "no-cell", "empty", "twice", "large"],
)
def test_a_damaged_file_is_refused(data: bytes, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cells.jsonl.gz").write_bytes(data)
    assert run(["report", str(tmp_path / "cells.jsonl.gz"), "--out", str(tmp_path / "page.html")]) == 2
    said = capsys.readouterr().err
    assert wrong in said
    assert said.count("\n") == 1


def test_the_published_results_are_few_files() -> None:
    files = [path for path in RESULTS.rglob("*") if path.is_file() and "made" not in path.parts]
    assert len(files) < 60
    for path in [*RESULTS.glob("*.jsonl.gz")]:
        assert path.read_bytes()[4:8] == bytes(4), f"{path} holds the time of writing"
