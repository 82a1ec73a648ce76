"""Which queries of a source are used: training and test splits, grades, samples and the paper's constructions.

A query without a relevant document cannot be ranked, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unrank.collection.options import SEVERAL_DOCUMENTS, SHARING_DOCUMENTS, ImportOptions
from unrank.collection.sources.source import PAIRS_A_BATCH, Raw, batched, grade_of
from unrank.collection.texts import Rows, Texts, hashed_order
from unrank.errors import UnknownIds, UnknownName, UnrankError, count, listed


def with_several_documents(queries: Rows, documents: Rows) -> Rows:
    """Return the queries with several relevant documents.

    >>> with_several_documents(np.array([1, 1, 2, 3]), np.array([1, 2, 3, 3])).tolist()
    [1]
    """
    return repeated(queries)


def sharing_documents(queries: Rows, documents: Rows) -> Rows:
    """Return the queries that share a relevant document with another query.

    >>> sharing_documents(np.array([1, 1, 2, 3]), np.array([1, 2, 3, 3])).tolist()
    [2, 3]
    """
    return np.unique(queries[np.isin(documents, repeated(documents))])


KEPT_BY: Mapping[str, Callable[[Rows, Rows], Rows]] = {
    SEVERAL_DOCUMENTS: with_several_documents,
    SHARING_DOCUMENTS: sharing_documents,
}
"""The constructions of a collection. Each takes the query and the document of every relevant pair, and returns the
queries to keep."""


@dataclass(frozen=True)
class Judged:
    """The judgements of one split: documents as rows, queries as positions in `query_ids`."""

    query_ids: list[str]
    queries: Rows
    documents: Rows
    grades: NDArray[np.int16]

    def take(self, positions: Iterable[int]) -> Judged:
        """Keep the queries at these positions."""
        kept = sorted(positions)
        place = np.full(len(self.query_ids), -1)
        place[kept] = np.arange(len(kept))
        here = place[self.queries] >= 0
        ids = [self.query_ids[position] for position in kept]
        return Judged(ids, place[self.queries[here]], self.documents[here], self.grades[here])

    def with_relevant(self, min_grade: int) -> Judged:
        """Keep the queries with a document of at least this grade."""
        return self.take(np.unique(self.queries[self.grades >= min_grade]).tolist())

    def sample(self, most: int | None, salt: str, first: set[int] | None = None) -> Judged:
        """Keep `most` sampled queries, those at `first` before others. `None`: all of `first`, or all queries."""
        if most is None:
            return self if first is None else self.take(first)
        order = hashed_order(self.query_ids, salt)
        if first is not None:
            order.sort(key=lambda position: position not in first)
        return self.take(order[:most])


def select_queries(raw: Raw, documents: Texts, options: ImportOptions) -> tuple[Judged, Judged]:
    """Return the training and the test judgements of the queries to use."""
    train_split, test_split = _choose_splits(list(raw.splits), options)
    train = _read_judgements(raw, train_split, documents).with_relevant(options.min_grade)
    if not train.query_ids:
        raise UnrankError(
            f"split {train_split!r} has no training query with a document of grade {options.min_grade} or more: lower "
            "--min-grade, or check the judgements"
        )
    if test_split is not None:
        test = _read_judgements(raw, test_split, documents)
    else:
        train, test = _cut(train, options)
    test = test.with_relevant(options.test_min_grade)
    graded = test_split is not None and options.test_min_grade != ImportOptions.test_min_grade
    if not test.query_ids and (options.test_split is not None or options.test_share or graded):
        raise UnrankError(
            f"no query to test on has a document of grade {options.test_min_grade} or more: lower --test-min-grade, "
            "or check the judgements"
        )
    if both := sorted(set(train.query_ids) & set(test.query_ids)):
        raise UnrankError(f"queries that are both for training and for testing: {listed(both)}")
    first = _constructed(train, options)
    train = train.sample(options.train_queries, f"{options.seed}:train queries", first)
    test = test.sample(options.test_queries, f"{options.seed}:test queries")
    return train, test


def _cut(judged: Judged, options: ImportOptions) -> tuple[Judged, Judged]:
    """Return the judgements of the queries to train on, and those of the share to test on."""
    order = hashed_order(judged.query_ids, f"{options.seed}:test")
    share = options.test_share or 0.0
    cut = round(len(order) * share)
    if share and cut in (0, len(order)):
        use, way = ("test", "raise") if cut == 0 else ("train", "lower")
        whole = count(len(order), "query")
        raise UnrankError(f"a test share of {share:g} of {whole} leaves none to {use} on: {way} it, or leave it out")
    return judged.take(order[cut:]), judged.take(order[:cut])


def _choose_splits(names: list[str], options: ImportOptions) -> tuple[str, str | None]:
    test = options.test_split
    if test is not None and test not in names:
        raise UnknownName("split", test, names)
    if test is None and options.test_share is None and "test" in names and len(names) > 1:
        test = "test"
    others = [name for name in names if name != test]
    if not others:
        raise UnrankError(f"{test!r} is the only split, so nothing is left to train on: use --test-share instead")
    return ("train" if "train" in others else others[0]), test


def _read_judgements(raw: Raw, split: str, documents: Texts) -> Judged:
    where = f"the judgements of split {split!r}"
    query_ids: dict[str, int] = {}
    queries, rows, grades = [], [], []
    for batch in batched(raw.splits[split](), PAIRS_A_BATCH):
        found = documents.find(pa.array([judgement.document for judgement in batch], pa.string()))
        if missing := [batch[i].document for i in np.flatnonzero(found < 0)]:
            raise UnknownIds("document", list(dict.fromkeys(missing)), where)
        queries.append(np.array([query_ids.setdefault(judgement.query, len(query_ids)) for judgement in batch]))
        rows.append(found)
        try:
            grades.append(np.array([grade_of(judgement) for judgement in batch], np.int16))
        except ValueError as error:
            raise UnrankError(f"{raw.name}: {error}") from error
    none = np.empty(0, np.int64)
    return Judged(
        list(query_ids),
        np.concatenate([none, *queries]),
        np.concatenate([none, *rows]),
        np.concatenate([none.astype(np.int16), *grades]),
    )


def _constructed(train: Judged, options: ImportOptions) -> set[int] | None:
    """Return the positions of the queries that the constructions keep; `None` if none is requested."""
    if not options.keep:
        return None
    relevant = train.grades >= options.min_grade
    queries, documents = np.unique(np.stack([train.queries[relevant], train.documents[relevant]]), axis=1)
    kept = {row for name in options.keep for row in KEPT_BY[name](queries, documents).tolist()}
    if not kept:
        raise UnrankError(f"no training query is one of the {' or '.join(options.keep)}: leave --keep out")
    return kept


def repeated(values: Rows) -> Rows:
    """Return the values that occur more than once."""
    found, counts = np.unique(values, return_counts=True)
    return found[counts > 1]
