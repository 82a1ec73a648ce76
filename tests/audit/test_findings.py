"""PerRanker test alone, on rankers that are tables: by slow second writings, and by who must be found out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.audit.conftest import LEARNED, SHOWS_NOTHING, THOROUGHNESS, Open, learned
from tests.table import TableRanker, as_set
from unrank.audit.audit import DECIDING, OF_MEMORY, TESTS
from unrank.audit.membership import membership
from unrank.audit.mrr_tests import retention
from unrank.audit.per_example import PER_EXAMPLE
from unrank.audit.rank_agreement import displacement, shares_at_end
from unrank.audit.recovery_test import kept_sample, recovery
from unrank.audit.relearning import relearning
from unrank.audit.rewording import REWORDINGS, reworded, rewording
from unrank.audit.verdict import Verdict
from unrank.audit.weights import WEIGHTS
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.evaluation.bootstrap import BootstrapEstimate
from unrank.evaluation.measure import ScoredLists
from unrank.rankers.tokens import Tokens

BY_SCORES = [name for name in OF_MEMORY if name not in (WEIGHTS, *SHOWS_NOTHING, *DECIDING)]
"""The tests of memory that read scores. A table has no words to list, and attacks have tests of their own."""


class GatedRanker(TableRanker):
    """Knows all pairs, behind a gate that is shut: whatever opens it for some opens it for all."""

    known: Tensor

    def __init__(self, table: Tensor, known: Tensor) -> None:
        super().__init__(table)
        self.table.requires_grad_(False)
        self.register_buffer("known", known)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        place = tuple(side.padded(0, 1, self.device)[:, 0] for side in (queries, documents))
        return self.table[place] + self.gate * self.known[place]


@pytest.fixture
def gated(world: Collection) -> GatedRanker:
    """At first sight it knows nothing, and yet it holds all it ever learned."""
    table = learned(world, world.pairs, seed=3, height=0.0).table.detach()
    known = torch.zeros_like(table)
    known[tuple(torch.from_numpy(world.pairs.T.copy()))] = LEARNED
    return GatedRanker(table, known)


@pytest.mark.parametrize("name", BY_SCORES)
def test_the_original_is_told_from_a_retrained_ranker(
    open_world: Open, original: TableRanker, retrained: TableRanker, name: str
) -> None:
    assert TESTS[name](open_world(original)).verdict is Verdict.REMEMBERED
    assert TESTS[name](open_world(retrained)).verdict is Verdict.EQUIVALENT


@pytest.mark.parametrize("name", BY_SCORES)
def test_who_only_blocks_is_found_out(open_world: Open, blocked: TableRanker, name: str) -> None:
    found = TESTS[name](open_world(blocked))
    assert found.verdict is Verdict.SUPPRESSED
    assert "below a ranker that never saw it" in found.words


@pytest.mark.parametrize("name", [name for name in BY_SCORES if name != PER_EXAMPLE])
def test_without_a_reference_little_is_known(
    open_world: Open, original: TableRanker, blocked: TableRanker, name: str
) -> None:
    assert TESTS[name](open_world(original, with_references=0)).verdict is Verdict.REMEMBERED
    assert TESTS[name](open_world(blocked, with_references=0)).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("name", ["recovery", "relearning"])
def test_what_comes_back_was_hidden(open_world: Open, gated: GatedRanker, name: str) -> None:
    context = open_world(gated)
    assert TESTS["forgetting"](context).verdict is Verdict.EQUIVALENT
    found = TESTS[name](context)
    assert found.verdict is Verdict.SUPPRESSED
    assert found.words.startswith("it comes back")
    assert found.details["before"]["figure"] < found.to_json()["figure"]
    assert gated.gate.item() == 0


def test_membership_by_hand(open_world: Open, world: Collection, partition: Partition, original: TableRanker) -> None:
    context = open_world(original)
    table, gone = original.table.detach().double().numpy(), {*partition.documents.tolist()}

    def signal(query: int, document: int) -> float:
        negatives = [row for row in world.negatives[query].tolist() if row not in gone]
        return float(table[query, document] - math.log(sum(math.exp(table[query, row]) for row in negatives)))

    members = [signal(*pair) for pair in as_set(partition.forget)]
    strangers = [signal(*pair) for pair in as_set(world.test_pairs) if pair[1] not in gone]
    wins = np.mean([member > stranger for member in members for stranger in strangers])
    found = membership(context).to_json()
    assert found["figure"] == pytest.approx(wins, abs=1e-6)
    assert found["low"] < found["figure"] < found["high"]
    assert (found["details"]["forgotten_pairs"], found["details"]["test_pairs"]) == (len(members), len(strangers))
    reference = np.mean([one["figure"] for one in found["references"]])
    assert found["details"]["relative_to_reference"] == pytest.approx((wins - reference) / reference, abs=1e-6)
    above = np.mean([member > max(strangers) for member in members])
    assert found["details"]["found_at_1_percent"]["figure"] == pytest.approx(above)


def test_displacement_by_hand(
    open_world: Open, world: Collection, partition: Partition, retrained: TableRanker
) -> None:
    table, by_query = retrained.table.detach().numpy(), dict[int, list[int]]()
    for query, document in as_set(partition.forget):
        by_query.setdefault(query, []).append(document)
    heights = []
    for query, forgotten in by_query.items():
        scores = sorted((table[query, row] for row in [*forgotten, *world.negatives[query].tolist()]), reverse=True)
        ranks = [scores.index(table[query, row]) + 1 for row in forgotten]
        heights.append(np.mean([1 - math.log(rank) / math.log(len(scores)) for rank in ranks]))
    assert displacement(open_world(retrained)).to_json()["figure"] == pytest.approx(np.mean(heights))


def test_the_end_of_a_list() -> None:
    scores, target = np.arange(20, 0, -1).astype(np.float32), np.zeros(20, bool)
    target[[0, 17, 18, 19]] = True
    assert shares_at_end(ScoredLists(np.zeros(20, np.int64), scores, target, 1)).tolist() == [0.5]


def test_some_at_the_end_and_the_others_higher_is_hiding_too(
    open_world: Open, world: Collection, partition: Partition, references: list[TableRanker]
) -> None:
    """The mean is a retrained ranker's; the ends tell."""
    table = np.mean([one.table.detach().numpy() for one in references], axis=0)
    forget = partition.forget[np.random.default_rng(0).permutation(len(partition.forget))]
    lifted, sunk = np.split(forget, [len(forget) // 3])
    table[tuple(lifted.T)] += 10
    table[tuple(sunk.T)] -= 10
    found = displacement(open_world(TableRanker(table)))
    assert abs(found.to_json()["gap"]["figure"]) < 0.1
    assert found.verdict is Verdict.SUPPRESSED
    assert found.words.startswith("the share of them at the end of their lists is")


def test_lists_beside_those_of_others(open_world: Open, original: TableRanker, retrained: TableRanker) -> None:
    lists = displacement(open_world(retrained)).details["lists"]
    assert set(lists) == {"forget", "entangled", "disjoint", "test"}
    keys = {"ranker_reference", "original_reference", "reference_reference", "ranker_original"}
    assert all(set(found) == keys for found in lists.values())
    same = displacement(open_world(original)).details["lists"]["test"]["ranker_original"]
    assert same["rank_biased_overlap"]["figure"] == pytest.approx(1)
    assert same["kendall_tau"]["figure"] == pytest.approx(1)
    noise = lists["test"]["reference_reference"]
    assert abs(noise["kendall_tau"]["figure"]) < 0.1
    assert noise["kendall_tau"]["queries"] == len(np.unique(open_world(retrained).sets["test"][:, 0]))
    bare = displacement(open_world(retrained, with_references=0)).details["lists"]["test"]
    assert set(bare) == {"ranker_original"}


def test_reworded_by_hand(open_world: Open, world: Collection, partition: Partition, original: TableRanker) -> None:
    """A table ranker reads a query's text as its row: a reworded query asks for another row."""
    context, queries = open_world(original), np.unique(partition.forget[:, 0])
    details = rewording(context).details
    for name in REWORDINGS:
        rows = dict(zip(queries.tolist(), map(int, reworded(world, queries, name, context.seed)), strict=True))
        moved = original.table.detach().numpy().copy()
        moved[list(rows)] = moved[list(rows.values())]
        values = context.rankers.ranker.workspace.evaluator.reciprocals(
            lambda pairs, moved=moved: moved[pairs[:, 0], pairs[:, 1]],  # type: ignore[misc]
            partition.forget,
            forget=True,
        )
        assert details[name]["figure"] == pytest.approx(values.mean())
    assert details["swapped"]["figure"] < details["dropped"]["figure"] == details["before"]["figure"]


def test_rewordings_follow_from_the_seed(golden: Collection) -> None:
    rows = np.arange(len(golden.queries))
    plain = [text.split() for text in golden.queries.texts(rows)]
    asked = {name: [text.split() for text in reworded(golden, rows, name, 0)] for name in REWORDINGS}
    for name in REWORDINGS:
        assert reworded(golden, rows[3:5], name, 0) == [" ".join(words) for words in asked[name][3:5]]
        assert reworded(golden, rows, name, 1) != reworded(golden, rows, name, 0)
    assert all(len(new) == len(old) - 1 for new, old in zip(asked["dropped"], plain, strict=True))
    changed = [sum(map(str.__ne__, new, old)) for new, old in zip(asked["swapped"], plain, strict=True)]
    assert max(changed) == 1
    assert all(sorted(new) == sorted(old) for new, old in zip(asked["reordered"], plain, strict=True))
    assert asked["reordered"] != plain


def test_relearning_measures_what_it_does_not_show(
    open_world: Open, original: TableRanker, partition: Partition
) -> None:
    found = relearning(open_world(original))
    assert found.details["shown_pairs"] == round(0.05 * len(partition.forget))
    assert list(found.details["steps"]) == ["1", "5"]
    everything = relearning(open_world(original, replace(THOROUGHNESS, relearning_share=1.0)))
    assert everything.verdict is Verdict.UNDECIDED
    assert "too few forgotten pairs" in everything.words


def test_recovery_shows_no_more_than_it_may(partition: Partition) -> None:
    some = kept_sample(partition, 20, seed=0)
    assert len(some.retain) == 20
    assert as_set(some.entangled) < as_set(partition.entangled)
    assert as_set(some.disjoint) < as_set(partition.disjoint)
    assert as_set(kept_sample(partition, 20, seed=1).retain) != as_set(some.retain)
    assert as_set(kept_sample(partition, 10_000, seed=0).retain) == as_set(partition.retain)


def test_recovery_leaves_the_rankers_alone(open_world: Open, original: TableRanker) -> None:
    before = original.table.detach().clone()
    assert recovery(open_world(original)).details["pairs"] > 0
    assert torch.equal(original.table, before)


def test_retention_goes_by_the_lower_of_the_two(
    open_world: Open, world: Collection, partition: Partition, original: TableRanker, retrained: TableRanker
) -> None:
    assert retention(open_world(retrained)).verdict is Verdict.KEPT
    worse = original.table.detach().clone()
    worse[tuple(torch.from_numpy(partition.disjoint.T.copy()))] -= LEARNED
    found = retention(open_world(TableRanker(worse)))
    assert found.verdict is Verdict.LOST
    assert found.words.startswith("disjoint lost most: -0.")
    assert set(found.details) == {"entangled", "disjoint", "test"}


def test_a_small_loss_that_is_sure_counts_before_a_large_one_that_is_not(
    open_world: Open, original: TableRanker, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide, sure = np.array([-1.0, 0.8] * 20), np.full(20, -0.06)
    changes = {"entangled": wide, "disjoint": sure, "test": np.zeros(20)}
    read = iter(changes.values())
    monkeypatch.setattr("unrank.audit.mrr_tests._change", lambda _: BootstrapEstimate.of_mean(next(read)))
    found = retention(open_world(original))
    assert wide.mean() < sure.mean()
    assert found.verdict is Verdict.LOST
    assert found.words.startswith("disjoint")


def test_retention_says_which_sets_were_too_small(open_world: Open, original: TableRanker) -> None:
    context = open_world(original)
    assert "left out" not in retention(context).words
    small = replace(context, sets=context.sets | {"test": context.sets["test"][:1]})
    assert retention(small).words.endswith("; left out, with fewer than 10 queries: test (1)")
    smaller = replace(context, sets={name: pairs[:1] for name, pairs in context.sets.items()})
    left_out = "left out, with fewer than 10 queries: entangled (1), disjoint (1), test (1)"
    assert retention(smaller).words == f"not enough queries to tell in any kept set; {left_out}"


def test_retention_needs_someone_to_compare_with(open_world: Open, original: TableRanker) -> None:
    context = open_world(original, with_references=0)
    alone = replace(context, rankers=replace(context.rankers, original=None))
    assert retention(alone).verdict is Verdict.UNDECIDED
