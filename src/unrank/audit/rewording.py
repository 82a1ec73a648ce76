"""Rewording: is a forget query still forgotten in other words?

A ranker may have unlearned the exact words of a query and no more. Each forget query is asked in three other ways: with
a quarter of its words dropped, with a quarter replaced by words of another query, and in another order. The random
choices depend on the seed and the query alone.

A collection has paraphrases of its own: other queries of the same document. Two kinds are asked in the place of a
forget query: test queries, which no ranker was trained on, and training queries whose pair with the document is removed
too. If a document is removed, these are all its queries; if a query is removed, the queries of its documents that go
with it. Queries whose pair with the document is kept are not asked: a retrained ranker was trained on them as well, so
a high rank is right and shows nothing.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unrank.audit.context import AuditContext, AuditedRanker
from unrank.audit.recovery_test import BeforeAfter, find_recovered
from unrank.audit.verdict import Finding, Verdict, as_attack
from unrank.collection.collection import Collection, Pairs
from unrank.collection.texts import Rows, Texts, hashed_order
from unrank.engine.scoring import scores_of
from unrank.engine.tokens import TokenStore
from unrank.errors import count
from unrank.evaluation.measure import Floats

NO_REFERENCE = "there is no retrained ranker to compare with"
PARAPHRASES = "the forget MRR if other queries of the same documents are asked"
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
    texts = {name: reworded(context.collection, queries, name, context.seed) for name in REWORDINGS}
    asks = {name: _ask(context, forget, each) for name, each in texts.items()}
    answers = context.each(lambda one: [one.reciprocals(forget), *(ask(one) for ask in asks.values())])
    by_form = {name: context.compare_means(answers.map(itemgetter(place))) for place, name in enumerate(REWORDINGS, 1)}
    return find_recovered(
        context,
        "the forget MRR of reworded queries",
        answers.map(lambda answer: BeforeAfter(answer[0], np.mean(answer[1:], axis=0))),
        **{name: compared.to_json() for name, compared in by_form.items()},
    )


def paraphrases(context: AuditContext) -> Finding:
    """Ask other queries of the same documents. Finding nothing shows nothing: many forget queries have no paraphrase.

    Without a reference nothing is known. The original was not trained on test queries either, so to be no lower than it
    shows no memory.
    """
    forget, asked = context.sets["forget"], other_queries(context)
    few = f"{count(len(asked), 'forgotten query')} {'has' if len(asked) == 1 else 'have'} a paraphrase"
    if not asked or not context.rankers.references:
        return Finding(PARAPHRASES, Verdict.MEASURED, f"not tested: {few if not asked else NO_REFERENCE}")
    pairs = forget[[query in asked and document in asked[query].documents for query, document in forget.tolist()]]
    ask = _ask(context, pairs, context.collection.queries.texts([asked[row].query for row in sorted(asked)]))
    answers = context.each(lambda one: BeforeAfter(one.reciprocals(pairs), ask(one)))
    details = {"asked": len(asked), "of_test_queries": sum(one.test for one in asked.values())}
    return as_attack(find_recovered(context, PARAPHRASES, answers, **details))


@dataclass(frozen=True)
class Paraphrase:
    """A query to ask in the place of a forget query, and the forgotten documents that both are about."""

    query: int
    test: bool
    documents: frozenset[int]


def other_queries(context: AuditContext) -> dict[int, Paraphrase]:
    """Return for each forget query that has one another query of its forgotten documents, which no ranker kept.

    A test query comes first. Of several, the seed chooses.
    """
    collection, forget = context.collection, context.sets["forget"]
    never_kept = np.concatenate([collection.test_pairs, context.partition.forget])
    about: dict[int, set[int]] = {}
    for query, document in never_kept[np.isin(never_kept[:, 1], forget[:, 1])].tolist():
        about.setdefault(document, set()).add(query)
    found: dict[int, Paraphrase] = {}
    for query in np.unique(forget[:, 0]).tolist():
        own = {document: about[document] for document in forget[forget[:, 0] == query, 1].tolist()}
        others = sorted({*itertools.chain(*own.values())} - {query})
        texts = dict(zip([query, *others], collection.queries.texts([query, *others]), strict=True))
        others = [row for row in others if texts[row].casefold().split() != texts[query].casefold().split()]
        tests = [row for row in others if collection.is_test[row]]
        if some := tests or others:
            chosen = some[hashed_order(collection.queries.ids(some), f"{context.seed}:{query}")[0]]
            documents = frozenset(document for document, queries in own.items() if chosen in queries)
            found[query] = Paraphrase(chosen, bool(tests), documents)
    return found


def _ask(context: AuditContext, pairs: Pairs, texts: Sequence[str]) -> Callable[[AuditedRanker], Floats]:
    """Return a function that measures these pairs with other texts in the place of their queries, in row order."""
    queries = np.unique(pairs[:, 0])
    asked = copy.copy(context.collection)
    asked.queries = Texts("query", pa.table({"id": list(map(str, range(len(texts)))), "text": list(texts)}))

    def reciprocals(one: AuditedRanker) -> Floats:
        store = TokenStore(one.ranker, asked)

        def score(listed: Pairs) -> NDArray[np.float32]:
            moved = np.stack([np.searchsorted(queries, listed[:, 0]), listed[:, 1]], axis=1)
            return scores_of(one.ranker, store, moved, one.workspace.runtime)

        return one.reciprocals(pairs, score)

    return reciprocals
