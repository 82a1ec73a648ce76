"""BM25: which texts it finds, in which order, and what its library is kept from."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from unrank.collection.bm25 import Bm25, Found, find_texts
from unrank.collection.texts import Texts
from unrank.errors import UnrankError

GREEDY = "import pathlib; pathlib.Path(__file__).with_name('taken').touch()"


def test_no_gpu_is_taken_by_a_library_that_only_sorts(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text(GREEDY)
    (tmp_path / "jax" / "lax.py").write_text("def top_k(values, k): return values, values")
    program = "import sys; from unrank.collection.bm25 import Bm25; print('jax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {program}; import jax"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["False"]
    assert (tmp_path / "jax" / "taken").exists(), "jax itself must still be there for others"


@pytest.mark.parametrize("most", [1, 40, 99, 100, 300])
def test_of_documents_that_score_alike_the_first_are_taken(most: int) -> None:
    texts = ["a cat" if row % 2 else "a dog" for row in range(200)]
    ((rows, scores),) = Bm25([*texts, "cat cat"]).best(["cat"], most)
    assert rows.tolist() == [200, *range(1, 200, 2)][:most]
    assert sorted(scores, reverse=True) == scores.tolist()


def test_a_query_without_known_words_finds_nothing() -> None:
    for index in (Bm25(["a cat"]), Bm25(["the", ""])):
        assert [len(rows) for rows, _ in index.best(["dog", ""], 5)] == [0, 0]


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
