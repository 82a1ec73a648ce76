"""A check that unrank scores a ranker from elsewhere as the library that wrote it does.

A library may do more with a text than unrank knows, such as apply a chat template, and the scores would be wrong
without a word. So a few pairs are scored both ways, once per content of a folder. Passed checks are remembered in the
owner's state folder; if it cannot be written, they are repeated.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import sentence_transformers
import transformers

import unrank
from unrank.disk import regular_files, sha256
from unrank.errors import BadFile
from unrank.owner import recall, remember
from unrank.rankers.base import Ranker
from unrank.rankers.model_folder import quiet
from unrank.record import RECORD

PAIRS = (
    ("how do magnets work", "A magnet has two poles; unlike poles attract each other."),
    ("Ünï 漢字, 1.5e-3?", "[SEP] names, NUMBERS and symbols: 42 % of café"),
    ("a", "a long text " * 400),
)
"""Pairs that differ in length, case and script; the last is longer than most encoders read."""
TOLERANCE = 1e-3
"""Largest difference of two scores, as a share of the largest score."""
PASSED = "scored-as-its-library"


def check_library_scores(ranker: Ranker, folder: Path) -> None:
    """Refuse a ranker that unrank did not write if its library scores pairs differently."""
    if (folder / RECORD).is_file():
        return
    digest = folder_digest(folder, ranker.fast)
    if recall(PASSED, digest) is not None:
        return
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
    remember(PASSED, digest)


def folder_digest(folder: Path, fast: bool) -> str:
    """Return a hash of a folder's files, of the versions of unrank and the libraries, and of the passes used."""
    hashes = [f"{path.relative_to(folder)} {sha256(path)}" for path in regular_files(folder)]
    versions = [unrank.__version__, transformers.__version__, sentence_transformers.__version__, f"fast {fast}"]
    return hashlib.sha256("\n".join([*versions, *hashes]).encode()).hexdigest()


def _template(folder: Path) -> str:
    configs = [path for path in folder.rglob("tokenizer_config.json") if '"chat_template"' in path.read_text("utf-8")]
    return " (it has a chat template)" if configs or list(folder.rglob("chat_template*")) else ""
