"""Other queries of the same documents, asked in the place of forget queries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.audit.conftest import LEARNED, THOROUGHNESS, learned
from tests.table import TableRanker, as_set
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditOptions, open_context
from unrank.audit.mrr_tests import forgetting
from unrank.audit.rewording import other_queries, paraphrases
from unrank.audit.verdict import Verdict
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition, make_partition
from unrank.collection.removal import Removal
from unrank.rankers.base import Ranker


def generalising(world: Collection, removed: Pairs, seed: int) -> TableRanker:
    """A ranker that has learned from its pairs what test queries ask for too. Removed pairs it knows from no query."""
    tests = world.test_pairs
    known = np.concatenate([world.pairs, tests[~np.isin(tests[:, 1], removed[:, 1])]])
    gone = {*as_set(removed)}
    return learned(world, np.array([pair for pair in known.tolist() if tuple(pair) not in gone]), seed)


def context_of(
    world: Collection,
    partition: Partition,
    ranker: TableRanker,
    references: int = 2,
    original: TableRanker | None = None,
) -> AuditContext:
    honest = tuple(generalising(world, partition.forget, seed) for seed in (1, 2))
    rankers: PerRanker[Ranker] = PerRanker(ranker, original, honest[:references])
    return open_context(rankers, world, partition, AuditOptions(THOROUGHNESS, device="cpu"))


@pytest.fixture
def by_word(world: Collection, partition: Partition) -> TableRanker:
    """Unlearned the very words of the forget queries: test queries still find what is removed."""
    ranker = generalising(world, partition.forget, seed=3)
    tests = world.test_pairs[np.isin(world.test_pairs[:, 1], partition.documents)]
    table = ranker.table.detach().numpy().copy()
    table[tests[:, 0], tests[:, 1]] += LEARNED
    return TableRanker(table)


def test_a_ranker_that_unlearned_words_alone_is_found(
    world: Collection, partition: Partition, by_word: TableRanker
) -> None:
    context = context_of(world, partition, by_word)
    assert forgetting(context).verdict is Verdict.EQUIVALENT
    found = paraphrases(context)
    assert found.verdict is Verdict.SUPPRESSED and found.words.startswith("it comes back")
    assert found.details["of_test_queries"] <= found.details["asked"] == found.to_json()["queries"]


def test_a_retrained_ranker_is_not(world: Collection, partition: Partition) -> None:
    ranker = generalising(world, partition.forget, seed=3)
    found = paraphrases(context_of(world, partition, ranker))
    assert found.verdict is Verdict.MEASURED and found.words.startswith("no difference was found, where 0.")


@pytest.mark.parametrize("by", ["documents", "queries", "pairs"])
def test_no_query_is_asked_whose_pair_is_kept(world: Collection, by: str) -> None:
    pairs = world.pairs[::3]
    names = {
        "documents": Removal(documents=world.documents.ids(np.unique(pairs[:, 1])[::2])),
        "queries": Removal(queries=world.queries.ids(np.unique(pairs[:, 0]))),
        "pairs": Removal(pairs=world.pair_ids(pairs)),
    }
    partition = make_partition(world, names[by])
    context = context_of(world, partition, generalising(world, partition.forget, seed=3))
    asked, kept, forget = other_queries(context), as_set(partition.retain), as_set(partition.forget)
    relevant = as_set(np.concatenate([world.pairs, world.test_pairs]))
    assert asked
    for query, other in asked.items():
        assert other.query != query and other.documents
        assert other.test == bool(world.is_test[other.query])
        for document in other.documents:
            assert (query, document) in forget and (other.query, document) in relevant - kept
    if by == "queries":
        assert all(other.test or other.query in partition.queries for other in asked.values())


def test_too_few_paraphrases_give_no_verdict(world: Collection, partition: Partition, by_word: TableRanker) -> None:
    context = context_of(world, partition, by_word)
    one = next(iter(other_queries(context)))
    forget = context.sets["forget"]
    few = replace(context, sets=context.sets | {"forget": forget[forget[:, 0] == one]})
    found = paraphrases(few)
    assert found.verdict is Verdict.MEASURED and found.figure is not None
    assert found.words == "needs 9 more queries: 1 was tested, and 10 are the fewest that tell"
    relevant = np.concatenate([world.test_pairs, partition.forget])
    alone = np.array([pair for pair in forget.tolist() if (relevant[:, 1] == pair[1]).sum() == 1]).reshape(-1, 2)
    none = paraphrases(replace(context, sets=context.sets | {"forget": alone[:1]}))
    assert len(alone) and none.verdict is Verdict.MEASURED and none.figure is None
    assert none.words == "not tested: 0 forgotten queries have a paraphrase"


def test_the_original_is_no_measure_of_what_it_was_not_trained_on(
    world: Collection, partition: Partition, original: TableRanker
) -> None:
    found = paraphrases(context_of(world, partition, original, references=0, original=original))
    assert found.verdict is Verdict.MEASURED and "no retrained ranker" in found.words
