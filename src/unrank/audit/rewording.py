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
from numpy.typing import NDArray

from unrank.audit.case import Case, Subject
from unrank.audit.comeback import Comeback, find_comeback
from unrank.audit.verdict import Finding
from unrank.collection.collection import Collection, Pairs
from unrank.collection.texts import Texts
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


class Reworded(Texts):
    """Queries in other words: those of each rewording in turn, as many rows each as there are queries."""

    def __init__(self, collection: Collection, seed: int) -> None:
        self.what = collection.queries.what
        self._collection, self._seed = collection, seed

    def __len__(self) -> int:
        return len(REWORDINGS) * len(self._collection.queries)

    def texts(self, rows: Sequence[int] | NDArray[np.integer]) -> list[str]:
        wanted = np.asarray(rows, np.int64)
        forms, queries = np.divmod(wanted, len(self._collection.queries))
        texts = self._collection.queries.texts(queries)
        names = list(REWORDINGS)
        return [self._reword(text, names[form]) for text, form in zip(texts, forms.tolist(), strict=True)]

    def _reword(self, text: str, name: str) -> str:
        words = text.split()
        if not words:
            return text
        digest = hashlib.sha256(f"{self._seed}:{name}:{text}".encode()).digest()
        generator = np.random.default_rng(list(digest))
        other = self._collection.queries.text(int(generator.integers(len(self._collection.queries))))
        return " ".join(REWORDINGS[name](words, other.split() or words, generator))


def rewording(case: Case) -> Finding:
    forget = case.sets["forget"]
    asked = copy.copy(case.collection)
    asked.queries = Reworded(case.collection, case.seed)

    def ask(subject: Subject) -> Sequence[Floats]:
        """The reciprocal rank of each query, as it stands and in each rewording."""
        store = TokenStore(subject.ranker, asked)

        def reciprocals(form: int) -> Floats:
            def score(pairs: Pairs) -> NDArray[np.float32]:
                moved = pairs + np.array([form * len(case.collection.queries), 0])
                return scores_of(subject.ranker, store, moved, subject.workshop.runtime)

            return subject.reciprocals(forget, score)

        return [subject.reciprocals(forget), *map(reciprocals, range(len(REWORDINGS)))]

    answers = case.each(ask)
    by_form = {name: case.readings(answers.map(itemgetter(place))) for place, name in enumerate(REWORDINGS, 1)}
    return find_comeback(
        case,
        "forget MRR of reworded queries",
        answers.map(lambda answer: Comeback(answer[0], np.mean(answer[1:], axis=0))),
        **{name: readings.to_json() for name, readings in by_form.items()},
    )
