"""Sources: runs come best first, and a path without its kind is explained."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unrank.collection.sources import parse_source
from unrank.collection.sources.source import Ranked, best_first
from unrank.errors import UnrankError

ranked = st.builds(Ranked, st.sampled_from("abc"), st.text(max_size=2), st.integers(-3, 3))


@settings(max_examples=100)
@given(st.lists(ranked, max_size=20))
def test_a_run_in_any_order_comes_best_first(lines: list[Ranked]) -> None:
    read = list(best_first(lambda: iter(lines)))
    for query in "abc":
        expected = sorted((line for line in lines if line.query == query), key=lambda line: line.place)
        assert [found.document for found in read if found.query == query] == [line.document for line in expected]


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (["corpus.jsonl", "queries.jsonl"], "beir"),
        (["queries.tsv", "documents.tsv", "qrels.txt"], "trec"),
        (["train.jsonl", "test.parquet"], "triples"),
    ],
)
def test_a_folder_without_its_kind_is_recognised(tmp_path: Path, files: list[str], kind: str) -> None:
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(UnrankError, match=f"did you mean {kind}:{tmp_path}\\?"):
        parse_source(str(tmp_path))


def test_other_paths_without_a_kind_are_explained(tmp_path: Path) -> None:
    with pytest.raises(UnrankError, match=f"write KIND:{tmp_path} with the kind beir, trec or triples"):
        parse_source(str(tmp_path))
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UnrankError, match=r"write KIND:.*notes\.txt with the kind triples"):
        parse_source(str(tmp_path / "notes.txt"))
    (tmp_path / "collection.json").touch()
    with pytest.raises(UnrankError, match="is a collection already"):
        parse_source(str(tmp_path))
    with pytest.raises(UnrankError, match=r"unknown source 'elsewhere': .*; a source is written KIND:LOCATION"):
        parse_source("elsewhere")
