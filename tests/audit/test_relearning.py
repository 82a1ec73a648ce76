"""Relearning in a full audit: many attempts, of which each ranker's best one counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.audit.conftest import LEARNED, THOROUGHNESS, Open, learned
from tests.audit.test_findings import GatedRanker
from tests.table import TableRanker, as_set
from unrank.audit.relearning import attempts_of, related_pairs, relearning, split_forget
from unrank.audit.verdict import DIFFERENT, Verdict
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition

FULL = replace(THOROUGHNESS, full=True, relearning_rates=(1.0, 3.0), relearning_seeds=1)


def gated_on(world: Collection, pairs: Pairs) -> GatedRanker:
    """A ranker that shows nothing of these pairs until its gate opens, and has learned nothing else."""
    table = learned(world, world.pairs, seed=3, height=0.0).table.detach()
    known = torch.zeros_like(table)
    known[tuple(torch.from_numpy(pairs.T.copy()))] = LEARNED
    return GatedRanker(table, known)


def test_there_is_an_attempt_for_each_kind_of_data_rate_and_seed(open_world: Open, original: TableRanker) -> None:
    context = open_world(original, replace(FULL, relearning_seeds=2))
    attempts, (shown, others) = attempts_of(context), split_forget(context)
    assert [(one.data, round(one.rate, 6), one.seed) for one in attempts] == [
        (data, rate, seed) for data in ("forgotten", "related", "both") for rate in (0.3, 0.9) for seed in (0, 1)
    ]
    assert not any(as_set(one.pairs) & as_set(others) for one in attempts)
    assert as_set(attempts[-1].pairs) == as_set(shown) | as_set(attempts[4].pairs)
    (alone,) = attempts_of(open_world(original))
    assert (alone.data, alone.rate, as_set(alone.pairs)) == ("forgotten", 0.3, as_set(shown))


def test_related_pairs_are_kept_and_share_words(open_world: Open, original: TableRanker, partition: Partition) -> None:
    """A text of a table is its row, so a kept pair shares a word if it shares the number of a query or a document."""
    context = open_world(original, FULL)
    related = related_pairs(context)
    assert as_set(related) <= as_set(partition.retain)
    words = {*partition.forget.ravel().tolist()}
    assert all(words & {*map(int, pair)} for pair in related)
    few = related_pairs(replace(context, thoroughness=replace(FULL, related_pairs=3)))
    assert len(few) == 3


def test_a_gate_that_only_a_higher_rate_opens_is_found(open_world: Open, world: Collection) -> None:
    slow = replace(FULL, relearning_rate=1e-4, relearning_rates=(1.0, 3e3))
    gated = gated_on(world, world.pairs)
    assert relearning(open_world(gated, replace(slow, full=False))).verdict not in DIFFERENT
    found = relearning(open_world(gated, slow))
    assert found.verdict is Verdict.SUPPRESSED
    assert found.details["best"]["rate"] == pytest.approx(0.3)
    assert found.words.endswith(" pairs, rate 0.3")
    assert gated.gate.item() == 0


def test_a_gate_that_only_related_data_opens_is_found(open_world: Open, world: Collection) -> None:
    context = open_world(gated_on(world, world.pairs), FULL)
    shown, _ = split_forget(context)
    known = np.array([pair for pair in world.pairs.tolist() if tuple(pair) not in as_set(shown)])
    gated = gated_on(world, known)
    assert relearning(open_world(gated)).verdict not in DIFFERENT
    found = relearning(open_world(gated, FULL))
    assert found.verdict is Verdict.SUPPRESSED
    assert found.details["best"]["data"] in ("related", "both")


def test_every_ranker_has_its_best_attempt_at_its_best_step(open_world: Open, retrained: TableRanker) -> None:
    found = relearning(open_world(retrained, replace(FULL, probed_queries=1_000)))
    assert found.verdict not in DIFFERENT
    tried, steps = found.details["attempts"], found.details["steps"].values()
    assert len(tried) == 6 and all(len(one["references"]) == 2 for one in tried)
    best = max(tried, key=lambda one: one["ranker"])
    assert found.details["best"] == {key: best[key] for key in ("data", "pairs", "rate", "seed")}
    assert found.to_json()["figure"] == pytest.approx(best["ranker"]) == max(step["figure"] for step in steps)
    for place, reference in enumerate(found.to_json()["references"]):
        assert reference["figure"] == pytest.approx(max(one["references"][place] for one in tried))


def test_of_a_single_pair_nothing_is_shown_but_related_data(open_world: Open, original: TableRanker) -> None:
    context = open_world(original, FULL)
    single = replace(context, sets=context.sets | {"forget": context.sets["forget"][:1]})
    assert {one.data for one in attempts_of(single)} == {"related"}
    found = relearning(single)
    assert found.verdict is Verdict.UNDECIDED and found.figure is not None
    assert "needs 9 more queries" in found.words
    once = replace(single, thoroughness=replace(FULL, relearning_rates=(1.0,)))
    assert [one["data"] for one in relearning(once).details["attempts"]] == ["related"]
    brief = relearning(replace(single, thoroughness=THOROUGHNESS))
    assert "too few forgotten pairs" in brief.words
    none = relearning(replace(single, thoroughness=replace(FULL, related_pairs=0)))
    assert "no kept pair is near" in none.words
