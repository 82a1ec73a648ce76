"""A collection with fewer training queries and shorter lists, for rankers that read every pair.

    python runs/smaller.py COLLECTION --out SMALLER [--queries 600] [--candidates 20 50] [--held-out 200]

All test queries stay, with the first 50 candidates, and a training query keeps its first 20. With `--held-out` so many
of the training queries are the test queries instead, so that a recipe can be chosen by them. It needs bm25s.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

import unrank
from unrank.collection.build import build_collection
from unrank.collection.collection import Collection, Pairs
from unrank.collection.options import ImportOptions
from unrank.collection.sources.source import Candidate, Judgement, Raw, Text


def smaller(
    collection: Collection, out: Path, queries: int, candidates: Sequence[int], held_out: int = 0
) -> Collection:
    """Write a collection with fewer training queries, and lists of at most so many negatives in training and test.

    If any are held out, so many of the training queries are the test queries, and the others are left out.
    """
    texts, documents, train, test = collection.queries, collection.documents, collection.pairs, collection.test_pairs
    if held_out:
        chosen = np.random.default_rng(0).permutation(np.unique(train[:, 0]))[:held_out]
        apart = np.isin(train[:, 0], chosen)
        train, test = train[~apart], train[apart]
    tested = set(test[:, 0].tolist())
    every = np.unique(np.concatenate([train[:, 0], test[:, 0]]))
    names, files = dict(zip(every.tolist(), texts.ids(every), strict=True)), documents.ids(np.arange(len(documents)))

    def judged(pairs: Pairs) -> Callable[[], Iterator[Judgement]]:
        return lambda: (Judgement(names[query], files[document], 1) for query, document in pairs.tolist())

    def listed() -> Iterator[Candidate]:
        for row in names:
            for document in collection.negatives[row][: candidates[row in tested]].tolist():
                yield Candidate(names[row], files[document])

    raw = Raw(
        f"{collection.named.name}-{queries}{'-held-out' if held_out else ''}",
        lambda: (Text(*both) for both in zip(names.values(), texts.texts(every), strict=True)),
        lambda: (Text(*both) for both in zip(files, documents.texts(np.arange(len(files))), strict=True)),
        {"train": judged(train), "test": judged(test)},
        listed,
    )
    return build_collection(raw, out, ImportOptions(candidates=max(candidates), train_queries=queries))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("collection")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--queries", type=int, default=600)
    options.add_argument("--candidates", nargs=2, type=int, default=[20, 50], metavar=("TRAIN", "TEST"))
    options.add_argument("--held-out", type=int, default=0, help="training queries that are the test queries instead")
    given = options.parse_args()
    smaller(unrank.open_collection(given.collection), given.out, given.queries, given.candidates, given.held_out)


if __name__ == "__main__":
    main()
