"""Evidence: margins of single pairs, and who saw them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.audit.conftest import THOROUGHNESS, Open
from tests.table import TableRanker
from unrank.audit.context import Judge
from unrank.audit.evidence import DOCUMENT, QUERY, gather_evidence, kinds_of
from unrank.collection.collection import Pairs
from unrank.collection.partition import Partition
from unrank.engine.teacher import Scores


def all_zero(pairs: Pairs) -> Scores:
    return np.zeros(len(pairs), np.float32)


def test_margins_are_those_of_the_lists(open_world: Open, retrained: TableRanker, original: TableRanker) -> None:
    context = open_world(retrained)
    found = gather_evidence(context).forget
    negatives = context.collection.negatives
    for ranker, margins in ((retrained, found.ranker), (original, found.original)):
        assert margins is not None
        above, soft = [], []
        for query, document in found.pairs:
            listed = negatives[query][~np.isin(negatives[query], context.partition.documents)]
            others, own = ranker.table[query, listed].detach().numpy(), ranker.table[query, document].item()
            above.append(own - others.max())
            soft.append(own - found.unit / 8 * np.log(np.exp(8 / found.unit * others).sum()))
        assert np.corrcoef(margins, above)[0, 1] > 0.9
        if ranker is retrained:
            assert np.allclose(margins, np.array(soft) / found.unit)


def test_references_never_saw_what_is_removed_and_saw_what_is_kept(open_world: Open, retrained: TableRanker) -> None:
    found = gather_evidence(open_world(retrained))
    assert found.source == "test" and found.forget.never_saw.all() and found.unseen.never_saw.all()
    assert found.forget.judges.shape == (2, len(found.forget))
    assert not found.kept.never_saw.any()
    assert np.isnan(found.kept.judges).all() and found.kept.original is not None  # the original is asked in their place


def test_a_proxy_says_which_pairs_it_never_saw(open_world: Open, retrained: TableRanker, partition: Partition) -> None:
    even = Judge(all_zero, lambda pairs: pairs[:, 0] % 2 == 0)
    context = replace(open_world(retrained, with_references=0), proxies=(even,))
    found = gather_evidence(context)
    for margins in (found.forget, found.kept):
        assert np.array_equal(margins.never_saw[0], margins.pairs[:, 0] % 2 == 0)
        assert np.array_equal(np.isnan(margins.unseen_by), ~margins.never_saw | np.isnan(margins.judges))
    assert found.kept.never_saw.all() and not np.isnan(found.kept.judges).any()  # only such pairs are of use
    assert len(found.kept) <= min(THOROUGHNESS.judged_pairs, len(partition.retain))

    alone = gather_evidence(replace(context, rankers=replace(context.rankers, original=None)))
    assert np.array_equal(np.isnan(alone.forget.judges), ~alone.forget.never_saw)  # those that saw a pair tell no ease


def test_a_judge_is_asked_only_what_decides(open_world: Open, retrained: TableRanker) -> None:
    """It scores the forget pairs that it never saw, and an unseen pair only in place of such a forget pair."""
    asked: list[Pairs] = []

    def scores(pairs: Pairs) -> Scores:
        asked.append(pairs)
        return all_zero(pairs)

    judges = (Judge(scores, lambda pairs: pairs[:, 0] % 2 == 0), Judge(scores, lambda pairs: pairs[:, 0] < 0))
    found = gather_evidence(replace(open_world(retrained, with_references=0), proxies=judges))
    assert len(asked) == 1  # one call, so that each text is read once; the second judge saw all forget pairs
    assert np.array_equal(np.isfinite(found.forget.judges[0]), found.forget.pairs[:, 0] % 2 == 0)
    share = np.isfinite(found.unseen.judges[0]).mean()
    assert 0.2 < share < 0.8 and np.isnan(found.unseen.judges[1]).all()


def test_the_kind_of_a_pair_says_what_a_ranker_knows_of_its_texts(open_world: Open, retrained: TableRanker) -> None:
    context = open_world(retrained)
    kept, forget = context.partition.retain, context.partition.forget
    assert not (kinds_of(context, forget) & DOCUMENT).any()  # whole documents are removed
    for pair, kind in zip(kept, kinds_of(context, kept), strict=True):
        for side, bit in ((0, QUERY), (1, DOCUMENT)):
            assert bool(kind & bit) == (np.count_nonzero(kept[:, side] == pair[side]) > 1)


def test_reserved_pairs_are_taken_unless_a_judge_saw_them(open_world: Open, retrained: TableRanker) -> None:
    context = open_world(retrained)
    reserved = context.collection.pairs[:25]
    context = replace(context, partition=replace(context.partition, reserved=reserved))
    assert gather_evidence(context).source == "reserved"

    saw_it = Judge(all_zero, lambda pairs: np.ones(len(pairs), bool), reserves=False)
    assert gather_evidence(replace(context, proxies=(saw_it,))).source == "test"
