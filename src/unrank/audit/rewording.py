"""Rewording: does it hold for other words of the same query?

A ranker may have unlearned the very words of a query and no more. Each forget query is asked in three other ways: a
quarter of its words dropped, a quarter swapped for words of another query, all of them in another order. What is drawn
follows from the seed and the query alone.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from operator import itemgetter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unrank.audit.case import Case, Subject
from unrank.audit.comeback import Comeback, find_comeback
from unrank.audit.verdict import Finding
from unrank.collection.collection import Collection, Pairs
from unrank.collection.texts import Rows, Texts
from unrank.engine.scoring import scores_of
from unrank.engine.tokens import TokenStore
from unrank.evaluation.measure import Floats

SHARE = 0.25
"""Of the words that are dropped or swapped; one at least."""

Words = Sequence[str]
Rewording = Callable[[Words, Words, np.random.Generator], Words]


def drop(words: Words, others: Words, generator: np.random.Generator) -> Words:
    """
    >>> len(drop("a b c d e f g h".split(), [], np.random.default_rng(0))), drop(["a"], [], np.random.default_rng(0))
    (6, ['a'])
    """
    gone = {*_some(words, generator)} if len(words) > 1 else set()
    return [word for place, word in enumerate(words) if place not in gone]


def swap(words: Words, others: Words, generator: np.random.Generator) -> Words:
    """
    >>> swap("a b c d".split(), ["x"], np.random.default_rng(0)).count("x")
    1
    """
    drawn = {place: others[int(generator.integers(len(others)))] for place in _some(words, generator)}
    return [drawn.get(place, word) for place, word in enumerate(words)]


def reorder(words: Words, others: Words, generator: np.random.Generator) -> Words:
    """
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
    """The texts of these queries, each in other words."""

    def reword(text: str) -> str:
        digest = hashlib.sha256(f"{seed}:{name}:{text}".encode()).digest()
        generator = np.random.default_rng(list(digest))
        other = collection.queries.text(int(generator.integers(len(collection.queries))))
        words = text.split()
        return " ".join(REWORDINGS[name](words, other.split() or words, generator)) if words else text

    return [reword(text) for text in collection.queries.texts(queries)]


def rewording(case: Case) -> Finding:
    forget = case.sets["forget"]
    queries = np.unique(forget[:, 0])
    texts = [text for name in REWORDINGS for text in reworded(case.collection, queries, name, case.seed)]
    asked = copy.copy(case.collection)
    asked.queries = Texts("query", pa.table({"id": list(map(str, range(len(texts)))), "text": texts}))

    def ask(subject: Subject) -> Sequence[Floats]:
        """The reciprocal rank of each query, as it stands and in each rewording."""
        store = TokenStore(subject.ranker, asked)

        def reciprocals(form: int) -> Floats:
            def score(pairs: Pairs) -> NDArray[np.float32]:
                rows = form * len(queries) + np.searchsorted(queries, pairs[:, 0])
                moved = np.stack([rows, pairs[:, 1]], axis=1)
                return scores_of(subject.ranker, store, moved, subject.workspace.runtime)

            return subject.reciprocals(forget, score)

        return [subject.reciprocals(forget), *map(reciprocals, range(len(REWORDINGS)))]

    answers = case.each(ask)
    by_form = {name: case.readings(answers.map(itemgetter(place))) for place, name in enumerate(REWORDINGS, 1)}
    return find_comeback(
        case,
        "the forget MRR of reworded queries",
        answers.map(lambda answer: Comeback(answer[0], np.mean(answer[1:], axis=0))),
        **{name: readings.to_json() for name, readings in by_form.items()},
    )
