"""BM25's library is kept from what it would do on import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
