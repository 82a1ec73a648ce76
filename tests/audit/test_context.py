"""What an audit looks at: whole sets, or samples that follow from the seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.audit.conftest import THOROUGHNESS, Open
from tests.table import TableRanker, as_set
from unrank.audit.audit import audit_ranker
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditOptions, Thoroughness, open_context
from unrank.cli.option import AUDITED
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.collection.removal import Removal
from unrank.errors import UnknownName, UnrankError
from unrank.rankers.base import Ranker
from unrank.record import SETS


def test_small_sets_are_taken_whole(open_world: Open, retrained: TableRanker, partition: Partition) -> None:
    sets = open_world(retrained).sets
    assert list(sets) == list(SETS)
    assert as_set(sets["forget"]) == as_set(partition.forget)
    assert as_set(sets["disjoint"]) == as_set(partition.disjoint)
    assert not np.isin(sets["test"][:, 1], partition.documents).any()


def test_large_sets_are_cut_to_whole_queries(open_world: Open, retrained: TableRanker, partition: Partition) -> None:
    context = open_world(retrained, replace(THOROUGHNESS, queries=7))
    for name, pairs in context.sets.items():
        assert len(np.unique(pairs[:, 0])) == 7, name
    queries = np.unique(context.sets["forget"][:, 0])
    assert as_set(context.sets["forget"]) == as_set(partition.forget[np.isin(partition.forget[:, 0], queries)])


def test_samples_follow_from_the_seed(world: Collection, partition: Partition, retrained: TableRanker) -> None:
    def sets(seed: int) -> list[set[tuple[int, int]]]:
        rankers: PerRanker[Ranker] = PerRanker(retrained, None, ())
        thoroughness = replace(THOROUGHNESS, queries=7)
        return [
            as_set(pairs)
            for pairs in open_context(rankers, world, partition, AuditOptions(thoroughness, seed, "cpu")).sets.values()
        ]

    assert sets(0) == sets(0)
    assert sets(0) != sets(1)


def test_a_list_is_scored_once(open_world: Open, world: Collection, partition: Partition) -> None:
    ranker = TableRanker(np.random.default_rng(4).normal(size=(len(world.queries), len(world.documents))))
    subject = open_world(ranker).rankers.ranker
    subject.reciprocals(partition.forget)
    asked = len(ranker.asked)
    subject.reciprocals(partition.forget[:5])
    assert asked == len(ranker.asked) == len(set(ranker.asked))


def test_the_command_line_has_the_same_default() -> None:
    assert Thoroughness.queries == AUDITED


def test_an_unknown_keyword_is_refused(world: Collection, removal: Removal, retrained: TableRanker) -> None:
    with pytest.raises(UnknownName, match=r"unknown option of audit_ranker 'sede': did you mean 'seed'\?"):
        audit_ranker(retrained, world, removal, sede=1)


def test_nothing_cannot_be_looked_at() -> None:
    with pytest.raises(UnrankError, match="cannot use 0 queries"):
        Thoroughness(queries=0)
