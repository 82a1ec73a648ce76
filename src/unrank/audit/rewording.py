"""Rewording: is a forget query still forgotten in other words?

A ranker may have unlearned the exact words of a query and no more. Each forget query is asked in three other ways: with
a quarter of its words dropped, with a quarter replaced by words of another query, and in another order. The random
choices depend on the seed and the query alone.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from operator import itemgetter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unrank.audit.context import AuditContext, AuditedRanker
from unrank.audit.recovery_test import BeforeAfter, find_recovered
from unrank.audit.verdict import Finding
from unrank.collection.collection import Collection, Pairs
from unrank.collection.texts import Rows, Texts
from unrank.engine.scoring import scores_of
from unrank.engine.tokens import TokenStore
from unrank.evaluation.measure import Floats

SHARE = 0.25
"""The share of a query's words that are dropped or replaced; at least one word."""

Words = Sequence[str]
Rewording = Callable[[Words, Words, np.random.Generator], Words]


def drop(words: Words, others: Words, generator: np.random.Generator) -> Words:
    """Drop a share of the words.

    >>> len(drop("a b c d e f g h".split(), [], np.random.default_rng(0))), drop(["a"], [], np.random.default_rng(0))
    (6, ['a'])
    """
    gone = {*_some(words, generator)} if len(words) > 1 else set()
    return [word for place, word in enumerate(words) if place not in gone]


def swap(words: Words, others: Words, generator: np.random.Generator) -> Words:
    """Replace a share of the words by words of other queries.

    >>> swap("a b c d".split(), ["x"], np.random.default_rng(0)).count("x")
    1
    """
    drawn = {place: others[int(generator.integers(len(others)))] for place in _some(words, generator)}
    return [drawn.get(place, word) for place, word in enumerate(words)]


def reorder(words: Words, others: Words, generator: np.random.Generator) -> Words:
    """Put the words in a random order.

    >>> sorted(reorder("a b c d".split(), [], np.random.default_rng(0)))
    ['a', 'b', 'c', 'd']
    """
    return [words[place] for place in generator.permutation(len(words))]


REWORDINGS: dict[str, Rewording] = {"dropped": drop, "swapped": swap, "reordered": reorder}


def _some(words: Words, generator: np.random.Generator) -> list[int]:
    size = max(1, round(SHARE * len(words)))
    places: list[int] = generator.permutation(len(words))[:size].tolist()
    return places


def reworded(collection: Collection, queries: Rows, name: str, seed: int) -> list[str]:
    """Return the texts of these queries in other words."""

    def reword(text: str) -> str:
        digest = hashlib.sha256(f"{seed}:{name}:{text}".encode()).digest()
        generator = np.random.default_rng(list(digest))
        other = collection.queries.text(int(generator.integers(len(collection.queries))))
        words = text.split()
        return " ".join(REWORDINGS[name](words, other.split() or words, generator)) if words else text

    return [reword(text) for text in collection.queries.texts(queries)]


def rewording(context: AuditContext) -> Finding:
    forget = context.sets["forget"]
    queries = np.unique(forget[:, 0])
    texts = [text for name in REWORDINGS for text in reworded(context.collection, queries, name, context.seed)]
    asked = copy.copy(context.collection)
    asked.queries = Texts("query", pa.table({"id": list(map(str, range(len(texts)))), "text": texts}))

    def ask(one: AuditedRanker) -> Sequence[Floats]:
        """Return the reciprocal rank of each query, unchanged and in each rewording."""
        store = TokenStore(one.ranker, asked)

        def reciprocals(form: int) -> Floats:
            def score(pairs: Pairs) -> NDArray[np.float32]:
                rows = form * len(queries) + np.searchsorted(queries, pairs[:, 0])
                moved = np.stack([rows, pairs[:, 1]], axis=1)
                return scores_of(one.ranker, store, moved, one.workspace.runtime)

            return one.reciprocals(forget, score)

        return [one.reciprocals(forget), *map(reciprocals, range(len(REWORDINGS)))]

    answers = context.each(ask)
    by_form = {name: context.compare_means(answers.map(itemgetter(place))) for place, name in enumerate(REWORDINGS, 1)}
    return find_recovered(
        context,
        "the forget MRR of reworded queries",
        answers.map(lambda answer: BeforeAfter(answer[0], np.mean(answer[1:], axis=0))),
        **{name: compared.to_json() for name, compared in by_form.items()},
    )
