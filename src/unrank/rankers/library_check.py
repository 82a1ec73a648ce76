"""A check that unrank scores a ranker from elsewhere as the library that wrote it does.

A library may do more with a text than unrank knows, such as apply a chat template, and the scores would be wrong
without a word. So a few pairs are scored both ways when a model is tried for the first time (`trial.py`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unrank.errors import BadFile
from unrank.rankers.base import Ranker
from unrank.rankers.model_folder import quiet

PAIRS = (
    ("how do magnets work", "A magnet has two poles; unlike poles attract each other."),
    ("Ünï 漢字, 1.5e-3?", "[SEP] names, NUMBERS and symbols: 42 % of café"),
    ("a", "a long text " * 400),
)
"""Pairs that differ in length, case and script; the last is longer than most encoders read."""
TOLERANCE = 1e-3
"""Largest difference of two scores, as a share of the largest score."""


def check_library_scores(ranker: Ranker, folder: Path) -> None:
    """Refuse a ranker if its library scores pairs differently."""
    queries, documents = zip(*PAIRS, strict=True)
    with quiet():
        expected = ranker.library_scores(queries, documents)
    if expected is None:
        return
    given = ranker.score_texts(queries, documents)
    allowed = TOLERANCE * max(1e-3, *map(abs, expected))
    if not np.allclose(given, expected, rtol=0, atol=allowed, equal_nan=True):
        worst = int(np.nanargmax(np.abs(np.subtract(given, expected))))
        raise BadFile(
            folder,
            f"unrank scores a pair {given[worst]:.4g} and the model's own library {expected[worst]:.4g}: "
            f"the model does more with a text than unrank supports{_template(folder)}",
        )


def _template(folder: Path) -> str:
    configs = [path for path in folder.rglob("tokenizer_config.json") if '"chat_template"' in path.read_text("utf-8")]
    return " (it has a chat template)" if configs or list(folder.rglob("chat_template*")) else ""
