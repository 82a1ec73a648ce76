"""Synthetic collections of any size, in the format of `unrank import`; a million texts take seconds.

Each query has four words and two relevant documents: to remove one of them entangles the other. A document begins with
the first word of its query and one more of them, which says much of what it is relevant to, but not all: the words of
queries are few, so other documents begin alike. What is beyond that can be learned by heart alone: most, if a document
has the first word of its query alone. The rest of a document is sampled from a pool of sentences, about a hundred words
in all. Negatives are a hundred other documents. A larger collection begins with the documents of a smaller one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unrank import ImportOptions
from unrank.collection.arrow import TEXTS_A_BATCH, list_column, write_table, write_texts
from unrank.collection.collection import FILES, FORMAT_VERSION, Ragged
from unrank.disk import sha256, write_json

ASKED, TOPICS = 4, 24
"""The number of words of a query, and of the words that queries are made of."""
SENTENCE, SENTENCES, POOL = 12, 8, 20_000
RELEVANT, NEGATIVES = 2, 100
TEST_SHARE = 0.02


@dataclass(frozen=True)
class Size:
    """The number of documents, and of pairs: two for each query, test queries included."""

    documents: int
    pairs: int

    @property
    def queries(self) -> int:
        return self.pairs // RELEVANT


def make_collection(
    folder: Path, size: Size, words: Sequence[str], length: int = SENTENCES, told: Literal[1, 2] = 2
) -> None:
    """Write a collection of this size, with texts of these words; `length` is the number of sentences in a document.

    `told` is how many of its first two words are of its query: with one, about four in a hundred others begin alike.
    """
    folder.mkdir(parents=True)
    topics = pa.array(words[:TOPICS], pa.string())
    asked = np.random.default_rng(0).integers(len(topics), size=(size.documents // RELEVANT, ASKED))
    sentences = _joined(words[TOPICS:], np.random.default_rng(1), POOL, SENTENCE)
    second = [asked[:, 1 + one] for one in range(RELEVANT)]
    if told == 1:
        second = [np.random.default_rng([4, one]).integers(len(topics), size=len(asked)) for one in range(RELEVANT)]
    openings = [_lists(topics, np.stack([asked[:, 0], other], axis=1), " ") for other in second]
    write_texts(folder / "documents.arrow", _documents(size.documents, openings, sentences, length))
    rows = np.arange(size.queries)
    tests = max(1, round(TEST_SHARE * size.queries))
    queries = {
        "id": _ids("q", rows),
        "text": _lists(topics, asked[: size.queries], " "),
        "test": pa.array(rows >= size.queries - tests),
    }
    write_table(folder / "queries.arrow", queries)
    relevant = np.arange(RELEVANT * size.queries, dtype=np.int32)
    judged = {"query": np.repeat(rows, RELEVANT).astype(np.int32), "document": relevant}
    grades = np.ones(len(relevant), np.int16)
    write_table(folder / "judgements.arrow", {name: pa.array(v) for name, v in (judged | {"grade": grades}).items()})
    negatives = _negatives(size)
    lists = {
        "relevant": list_column(RELEVANT * np.arange(size.queries + 1), relevant),
        "negatives": list_column(negatives.offsets, negatives.values),
    }
    write_table(folder / "candidates.arrow", lists)
    describe(folder)


def _documents(count: int, openings: Sequence[pa.Array], sentences: pa.Array, length: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, count, TEXTS_A_BATCH):
        rows = np.arange(start, min(start + TEXTS_A_BATCH, count))
        body = _lists(sentences, np.random.default_rng([2, start]).integers(POOL, size=(len(rows), length)), ". ")
        places = pa.array(np.minimum(rows // RELEVANT, len(openings[0]) - 1))
        said = [opening.take(places) for opening in openings]
        opening = pc.choose(pa.array(rows % RELEVANT), *said)
        yield pa.record_batch({"id": _ids("d", rows), "text": pc.binary_join_element_wise(opening, body, ". ")})


def _negatives(size: Size) -> Ragged:
    """Return documents at equal distances, without those of the query."""
    generator, others = np.random.default_rng(3), size.documents - RELEVANT
    count = min(NEGATIVES, others)
    start = generator.integers(others, size=size.queries)
    stride = generator.integers(1, max(2, others // count), size=size.queries)
    within = (start[:, None] + stride[:, None] * np.arange(count)) % others
    own = RELEVANT * np.arange(size.queries)[:, None]
    values = np.where(within < own, within, within + RELEVANT).astype(np.int32)
    return Ragged(count * np.arange(size.queries + 1), values.reshape(-1))


def _joined(words: Sequence[str], generator: np.random.Generator, count: int, length: int) -> pa.Array:
    return _lists(pa.array(words, pa.string()), generator.integers(len(words), size=(count, length)), " ")


def _lists(values: pa.Array, chosen: np.ndarray[tuple[int, int], np.dtype[np.int64]], between: str) -> pa.Array:
    """Return the values of each row as one text."""
    offsets = pa.array(np.arange(len(chosen) + 1, dtype=np.int32) * chosen.shape[1])
    return pc.binary_join(pa.ListArray.from_arrays(offsets, values.take(pa.array(chosen.reshape(-1)))), between)


def _ids(prefix: str, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pc.cast(pa.array(rows), pa.string()), "")


def describe(folder: Path) -> None:
    """Write the description of a collection whose tables are there."""
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in FILES}
    fingerprint = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    head = {"format_version": FORMAT_VERSION, "name": "synthetic", "source": "memory", "licence": None}
    write_json(
        folder / "collection.json", {**head, **asdict(ImportOptions()), "files": files, "fingerprint": fingerprint}
    )
