"""Counts of a collection, and the pairs that a removal touches."""

from __future__ import annotations

from typing import Any

import numpy as np

from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition
from unrank.collection.selection import repeated, sharing_documents
from unrank.collection.texts import Rows


def describe(collection: Collection) -> dict[str, str | float]:
    """Return counts of a collection. Scripts rely on the keys."""
    pairs = collection.pairs
    per_query = np.unique(pairs[:, 0], return_counts=True)[1]
    per_document = np.unique(pairs[:, 1], return_counts=True)[1]
    return {
        "name": collection.name,
        "queries": len(collection.queries),
        "documents": len(collection.documents),
        "pairs": len(pairs),
        "training_queries": len(collection.training_queries),
        "test_queries": len(collection.test_queries),
        "test_pairs": len(collection.test_pairs),
        "candidates_per_query": _mean(collection.negatives.counts + collection.relevant.counts),
        "relevant_per_query": _mean(per_query),
        "queries_per_document": _mean(per_document),
        "queries_with_several_documents": int(np.count_nonzero(per_query > 1)),
        "documents_with_several_queries": int(np.count_nonzero(per_document > 1)),
        "relevant_in_no_list": collection.unlisted,
    }


def dataset_table(collection: Collection) -> dict[str, dict[str, float]]:
    """Return the rows of the paper's table of datasets, for each kind of removal. A pairwise sample is a query and one
    of its negatives."""
    queries, documents = collection.pairs.T
    asking, shared = repeated(queries), repeated(documents)
    return {
        "document_removal": {
            "queries_with_several_documents": len(asking),
            "documents_per_query": _mean(np.unique(queries[np.isin(queries, asking)], return_counts=True)[1]),
            **_lists(collection, asking),
        },
        "query_removal": {
            "documents_with_several_queries": len(shared),
            "queries_per_document": _mean(np.unique(documents[np.isin(documents, shared)], return_counts=True)[1]),
            **_lists(collection, sharing_documents(queries, documents)),
        },
    }


def _lists(collection: Collection, queries: Rows) -> dict[str, float]:
    """Return the list length of these training queries, and the numbers of training and test samples."""
    relevant, negatives = collection.relevant.counts, collection.negatives.counts
    return {
        "ranked_per_query": _mean((relevant + negatives)[queries]),
        "training_samples": int(negatives[queries].sum()),
        "test_samples": int(negatives[collection.test_queries].sum()),
    }


def describe_removal(collection: Collection, partition: Partition) -> dict[str, list[list[str]]]:
    """Return the three sets of a removal, as ids."""
    return {name: pair_ids(collection, getattr(partition, name)) for name in ("forget", "entangled", "disjoint")}


def pair_ids(collection: Collection, pairs: Pairs) -> list[list[str]]:
    """Return pairs as lists of a query id and a document id."""
    return [list(pair) for pair in collection.pair_ids(pairs)]


def _mean(counts: np.ndarray[Any, np.dtype[np.int64]]) -> float:
    return round(float(counts.mean()), 2) if len(counts) else 0.0
