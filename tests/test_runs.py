"""The runs that the documentation's figures come from do run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unrank.collection.collection import Collection

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_soak_of_three_requests(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "runs/soak.py",
        str(dense.folder),
        "--out",
        str(tmp_path / "out"),
        "--base",
        str(encoder),
    ]
    done = subprocess.run(
        [*command, "--requests", "3", "--share", "0.2", "--target", "50%", "--device", "cpu", "--set", "held=2"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "out" / "table.md").read_text().splitlines()
    assert table[0].startswith("bi-encoder: the bar was ")
    rows = [line.split(" | ") for line in table[4:7]]
    assert [row[0] for row in rows] == ["| 1", "| 2", "| 3"]
    assert all(len(row) == 11 for row in rows)
    records = [json.loads(line) for line in (tmp_path / "out" / "records.jsonl").read_text().splitlines()]
    assert {record["settings"]["held"] for record in records} == {2}
    assert [record["removed_before"] for record in records] == [0, 1, 2]
