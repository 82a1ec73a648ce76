"""The ids behind a text."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from unrank.collection.find import Found, find_texts
from unrank.collection.texts import Texts
from unrank.errors import UnrankError

TEXTS = ["Jane Doe opened a shop", "The shop of John Doe", "a heap", "JANE DOE moved (again)", "doe a deer"]


def texts(values: Sequence[str]) -> Texts:
    """Each text in a chunk of its own."""
    ids = [f"d{row}" for row in range(len(values))]
    table = pa.table({"id": pa.array(ids, pa.string()), "text": pa.array(values, pa.string())})
    return Texts("document", pa.concat_tables([table.slice(row, 1) for row in range(len(values))] or [table]))


def found(words: str, exact: bool = False, most: int = 10) -> list[str]:
    return [one.id for one in find_texts(texts(TEXTS), words, exact, most)]


def test_the_best_match_comes_first() -> None:
    assert found("jane doe")[:2] in (["d0", "d3"], ["d3", "d0"])
    assert set(found("jane doe")) == {"d0", "d1", "d3", "d4"}
    assert found("heap") == ["d2"]
    assert find_texts(texts(TEXTS), "heap") == [Found("d2", "a heap")]


def test_exact_words_as_they_stand_in_any_letter_case() -> None:
    assert found("jane doe", exact=True) == ["d0", "d3"]
    assert found("doe jane", exact=True) == []
    assert found("(again)", exact=True) == ["d3"]
    assert found(".", exact=True) == []


def test_at_most_so_many() -> None:
    assert len(found("doe", most=2)) == 2
    assert found("DOE", exact=True, most=3) == ["d0", "d1", "d3"]


@pytest.mark.parametrize("words", ["the", "zebra", "???"])
def test_words_that_no_text_shares(words: str) -> None:
    assert found(words) == []


@pytest.mark.parametrize("words", ["", " \n"])
def test_no_words_find_nothing_and_are_refused(words: str) -> None:
    for exact in (False, True):
        with pytest.raises(UnrankError, match="nothing to look for"):
            found(words, exact)


def test_texts_without_a_word_and_no_texts() -> None:
    for values in (["", "the"], []):
        assert find_texts(texts(values), "heap") == []
        assert find_texts(texts(values), "heap", exact=True) == []
