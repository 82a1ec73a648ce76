"""The ids behind a text: where an erasure request begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unrank.collection.candidates import Bm25
from unrank.collection.texts import Rows, Texts
from unrank.errors import UnrankError


@dataclass(frozen=True)
class Found:
    """A query or a document that was found."""

    id: str
    text: str


def find_texts(texts: Texts, words: str, exact: bool = False, most: int = 10) -> list[Found]:
    """Texts that match these words best; with `exact`, those that contain them as they stand, in any letter case."""
    if not words.strip():
        raise UnrankError("nothing to look for: give some words of the text")
    rows = _containing(texts, words) if exact else next(Bm25.over(texts).best([words], most))[0]
    rows = rows[:most]
    return [Found(id, text) for id, text in zip(texts.ids(rows), texts.texts(rows), strict=True)]


def _containing(texts: Texts, words: str) -> Rows:
    hits = [pc.match_substring(chunk, words, ignore_case=True) for chunk in texts.batches()]
    return np.flatnonzero(pa.chunked_array(hits, pa.bool_()).to_numpy()).astype(np.int64)
