"""The paper's two constructions: which training queries are kept."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.tiny import GOLDEN, text_of

from unrank.collection.build import build_collection
from unrank.collection.options import ImportOptions
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.errors import UnrankError

SEVERAL, SHARING = "queries-with-several-documents", "queries-sharing-documents"
ORDINARY = [(f"plain{number}", f"own{number}") for number in range(6)]


def kept(out: Path, options: ImportOptions, grades: dict[str, int] | None = None) -> list[str]:
    """The training queries that are left of the paper's example and six ordinary ones."""
    generator, grades = random.Random(1), grades or {}
    pairs = [*GOLDEN, *ORDINARY]
    queries, documents = ([*dict.fromkeys(pair[side] for pair in pairs)] for side in (0, 1))
    raw = Raw(
        "golden",
        lambda: [Text(query, text_of(generator, 3)) for query in queries],
        lambda: [Text(document, text_of(generator, 5)) for document in documents],
        {"train": lambda: [Judgement(query, document, grades.get(document, 1)) for query, document in pairs]},
    )
    collection = build_collection(raw, out, options)
    return sorted(collection.queries.ids(collection.training_queries))


@pytest.mark.parametrize(
    ("keep", "queries"),
    [
        ((SEVERAL,), ["q1", "q4"]),
        ((SHARING,), ["q1", "q2", "q3", "q4"]),
        ((SEVERAL, SHARING), ["q1", "q2", "q3", "q4"]),
    ],
)
def test_the_golden_example(tmp_path: Path, keep: tuple[str, ...], queries: list[str]) -> None:
    assert kept(tmp_path / "out", ImportOptions(candidates=3, keep=keep)) == queries


def test_ordinary_ones_fill_up(tmp_path: Path) -> None:
    filled = kept(tmp_path / "filled", ImportOptions(candidates=3, keep=(SHARING,), train_queries=6))
    assert len(filled) == 6 and {"q1", "q2", "q3", "q4"} < set(filled)
    again = kept(tmp_path / "again", ImportOptions(candidates=3, keep=(SHARING,), train_queries=6))
    other = kept(tmp_path / "other", ImportOptions(candidates=3, keep=(SHARING,), train_queries=6, seed=5))
    assert filled == again != other
    assert set(kept(tmp_path / "few", ImportOptions(candidates=3, keep=(SHARING,), train_queries=3))) < set(filled)


def test_only_what_is_relevant_counts(tmp_path: Path) -> None:
    options = ImportOptions(candidates=3, keep=(SHARING,), min_grade=2)
    grades = {"d2": 2, "own1": 2, "d3": 1}
    assert kept(tmp_path / "out", options, grades) == ["q1", "q3"]


def test_what_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(UnrankError, match=f"did you mean '{SHARING}'"):
        ImportOptions(keep=("queries-sharing",))
    with pytest.raises(UnrankError, match=f"no training query is one of the {SHARING}"):
        kept(tmp_path / "out", ImportOptions(candidates=3, keep=(SHARING,), min_grade=2), {"own1": 2})
    assert not (tmp_path / "out").exists()
