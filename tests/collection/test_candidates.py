"""BM25: which documents it takes, and what its library is kept from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from unrank.collection.candidates import Bm25

GREEDY = "import pathlib; pathlib.Path(__file__).with_name('taken').touch()"


def test_no_gpu_is_taken_by_a_library_that_only_sorts(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text(GREEDY)
    (tmp_path / "jax" / "lax.py").write_text("def top_k(values, k): return values, values")
    program = "import sys; from unrank.collection.candidates import Bm25; print('jax' in sys.modules)"
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
