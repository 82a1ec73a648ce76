"""The record: every record that was published still reads, and a damaged one says which field is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.report.made import record
from unrank.bench.packed import read_cells
from unrank.errors import BadFile
from unrank.parse import WrongValue, parse
from unrank.record import RECORD, OtherVersion, Record, current_settings, requests_of, run_of

RESULTS = Path(__file__).parents[1] / "results"


def test_every_published_record_reads_and_is_written_as_it_was() -> None:
    cells = [cell for name in ("cells", "quarter", "former") for cell in read_cells(RESULTS / f"{name}.jsonl.gz")]
    assert len(cells) > 350
    for cell in cells[::9]:
        settings = current_settings(cell.record["method"], cell.record["settings"])
        found = run_of(cell.record, cell.path).to_json()
        assert json.dumps(found) == json.dumps({**cell.record, "settings": settings}), cell.path


def test_old_names_of_settings_become_todays() -> None:
    old = record("cocol", (0.6, 0.9, 0.9, 0.6), settings={"held": 2, "looked_at": 30, "epochs": 3})
    assert Record.parse(old, Path(RECORD)).settings == {"anchors_per_pair": 2, "negatives_seen": 30, "epochs": 3}


def test_what_a_training_lacks() -> None:
    trained = record("retrain", (0.6, 0.9, 0.9, 0.6), before=None, removed=None, removed_before=None, set_queries=None)
    found = Record.parse(trained, Path(RECORD))
    assert (found.before, found.removed, found.removed_before, requests_of(found)) == ({}, None, (), ())
    assert [found[key] for key in ("before", "removed", "set_queries")] == [None] * 3


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"method": None}, "method is missing"),
        ({"epochs": True}, "epochs is not a number"),
        ({"seconds": float("inf")}, "seconds is not a number"),
        ({"seed": 1.5}, "seed is not a whole number"),
        ({"settings": {"epochs": []}}, "settings.epochs is not text"),
        ({"history": [{"seconds": 1.0}]}, "history[0].epoch is missing"),
        ({"history": {}}, "history is not a list"),
        ({"collection": "nfcorpus"}, "collection is not an object"),
        ({"removed": {"salt": "x"}}, "removed.queries is missing"),
        ({"removed_before": [{"salt": "x", "queries": 1}]}, "removed_before[0].queries is not an object"),
        ({"after": {"forget": {"mrr": "high"}}}, "after.forget.mrr is not a number"),
        ({"before": {"test": {"mrr": 1, "low": 1, "high": 1, "queries": 1}}}, "before and after do not have the same"),
        ({"learning_epoch": {"seconds": 0, "how": "measured"}}, "learning_epoch.seconds is not above 0"),
        ({"record_version": None}, "record_version is missing"),
    ],
)
def test_a_damaged_record_names_the_field(change: dict[str, Any], wrong: str, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(json.dumps(record("cocol", (0.6, 0.9, 0.9, 0.6)) | change))
    with pytest.raises(BadFile) as caught:
        Record.read(tmp_path)
    assert f"damaged record: {wrong}" in str(caught.value)
    assert "restore the file from a copy, or remove it" in str(caught.value)


def test_another_version_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(json.dumps({"record_version": 3}))
    with pytest.raises(OtherVersion, match="record version 3, this unrank reads 1 and 2"):
        Record.read(tmp_path)


def test_a_union_of_types() -> None:
    assert parse(bool | int | float | str, 3) == 3
    assert parse(float | None, None) is None
    with pytest.raises(WrongValue, match="the value is not text"):
        parse(int | str, 2.5)
