"""Evidence: margins of single pairs, and who saw them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.audit.conftest import THOROUGHNESS, Open
from tests.table import TableRanker
from unrank.audit.context import Judge
from unrank.audit.evidence import gather_evidence
from unrank.collection.collection import Pairs
from unrank.collection.partition import Partition
from unrank.engine.teacher import Scores


def all_zero(pairs: Pairs) -> Scores:
    return np.zeros(len(pairs), np.float32)


def test_margins_are_those_of_the_lists(open_world: Open, retrained: TableRanker, original: TableRanker) -> None:
    context = open_world(retrained)
    found = gather_evidence(context).forget
    negatives = context.collection.negatives
    for row, (query, document) in enumerate(found.pairs):
        listed = negatives[query][~np.isin(negatives[query], context.partition.documents)]
        for ranker, margin in ((retrained, found.ranker), (original, found.original)):
            assert margin is not None
            others = ranker.table[query, listed].detach().numpy()
            own = ranker.table[query, document].item()
            assert np.isclose(margin[row], (own - others.max()) / (others.max() - others.min()))


def test_references_never_saw_what_is_removed_and_saw_what_is_kept(open_world: Open, retrained: TableRanker) -> None:
    found = gather_evidence(open_world(retrained))
    assert found.source == "test" and found.forget.never_saw.all() and found.unseen.never_saw.all()
    assert found.forget.judges.shape == (2, len(found.forget))
    assert not found.kept.never_saw.any()
    assert np.isnan(found.kept.unseen_by).all() and not np.isnan(found.kept.seen_by).any()
    assert found.forget.seen_by.shape[0] == 3 and np.isnan(found.forget.seen_by[1:]).all()


def test_a_proxy_says_which_pairs_it_never_saw(open_world: Open, retrained: TableRanker, partition: Partition) -> None:
    even = Judge(all_zero, lambda pairs: pairs[:, 0] % 2 == 0)
    found = gather_evidence(replace(open_world(retrained, with_references=0), proxies=(even,)))
    for margins in (found.forget, found.kept):
        assert np.array_equal(margins.never_saw[0], margins.pairs[:, 0] % 2 == 0)
        assert np.array_equal(np.isnan(margins.unseen_by), ~margins.never_saw)
    assert len(found.kept) == min(THOROUGHNESS.judged_pairs, len(partition.retain))


def test_reserved_pairs_are_taken_unless_a_judge_saw_them(open_world: Open, retrained: TableRanker) -> None:
    context = open_world(retrained)
    reserved = context.collection.pairs[:25]
    context = replace(context, partition=replace(context.partition, reserved=reserved))
    assert gather_evidence(context).source == "reserved"

    saw_it = Judge(all_zero, lambda pairs: np.ones(len(pairs), bool), reserves=False)
    assert gather_evidence(replace(context, proxies=(saw_it,))).source == "test"
