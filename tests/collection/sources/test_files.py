"""Tables: rows come through whatever stands in them, and go by their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.collection.sources.test_triples import HEAP, TRIPLES, imported, write_table

from unrank.collection.sources.files import read_rows
from unrank.errors import UnrankError


@pytest.mark.parametrize("ending", ["jsonl", "tsv", "csv"])
def test_bytes_that_are_not_utf_8_are_said_with_their_line(tmp_path: Path, ending: str) -> None:
    source = write_table(tmp_path / f"a.{ending}", TRIPLES)
    whole = source.read_bytes().splitlines(keepends=True)
    source.write_bytes(b"".join([*whole[:2], b"\xff\n", *whole[2:]]))
    with pytest.raises(UnrankError, match=f"a.{ending}, line 3: not UTF-8 text"):
        imported(tmp_path, source)


def test_a_bad_row_of_parquet_goes_by_its_number(tmp_path: Path) -> None:
    rows = [{"query": HEAP, "positive": f"document {number}"} for number in range(1_500)]
    source = write_table(tmp_path / "a.parquet", [*rows, {"query": HEAP, "positive": None}])
    with pytest.raises(UnrankError, match=r"a\.parquet, line 1501: the column 'positive' holds no text"):
        imported(tmp_path, source)


def test_a_long_text_in_csv_comes_through(tmp_path: Path) -> None:
    source = write_table(tmp_path / "a.csv", [{"query": HEAP, "positive": "word " * 50_000}])
    assert [len(row["positive"]) for _, row in read_rows(source)] == [250_000]


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=10)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.fixed_dictionaries({"query": texts, "positive": texts}), min_size=1, max_size=5))
@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_any_texts_come_through(tmp_path: Path, ending: str, rows: list[dict[str, Any]]) -> None:
    path = write_table(tmp_path / f"a.{ending}", rows)
    assert [row for _, row in read_rows(path)] == rows
