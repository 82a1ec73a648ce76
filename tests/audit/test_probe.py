"""The probe of hidden states, on rankers whose states are planted and whose scores tell nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.audit.conftest import THOROUGHNESS
from tests.rankers.conftest import enliven
from tests.table import TableRanker
from unrank.audit.audit import OF_MEMORY
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditedRanker, AuditOptions, open_context
from unrank.audit.hidden_states import NARROW, hidden_states
from unrank.audit.probe import ProbedPairs, held_out_scores, logistic_regression, probe
from unrank.audit.verdict import Verdict
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition, make_partition
from unrank.collection.removal import Removal
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.cross_encoder import CrossEncoderRanker
from unrank.rankers.tokens import Tokens

WIDTH = 6


class StateRanker(TableRanker):
    """Looks hidden states up. Its score is one of their numbers, which is noise."""

    def __init__(self, world: Collection, seed: int, *planted: tuple[int, Pairs]) -> None:
        """`planted` are numbers of a state, and the pairs in which that number is larger."""
        super().__init__(np.zeros((1, 1)))
        states = np.random.default_rng(seed).normal(size=(len(world.queries), len(world.documents), WIDTH))
        for number, pairs in planted:
            states[pairs[:, 0], pairs[:, 1], number] += 2
        self.states = nn.Parameter(torch.from_numpy(states).float())
        self.head = nn.Linear(WIDTH, 1)
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(WIDTH)[:1])

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        query, document = (side.padded(0, 1, self.device)[:, 0] for side in (queries, documents))
        scores: Tensor = self.head(self.states[query, document])
        return scores[:, 0]


def audited(world: Collection, partition: Partition, ranker: TableRanker, references: int = 2) -> AuditContext:
    honest = tuple(StateRanker(world, seed, (1, partition.retain)) for seed in (1, 2))
    rankers: PerRanker[Ranker] = PerRanker(ranker, StateRanker(world, 0, (1, world.pairs)), honest[:references])
    return open_context(rankers, world, partition, AuditOptions(THOROUGHNESS, device="cpu"))


def test_states_that_look_like_those_of_kept_pairs_are_remembered(world: Collection, partition: Partition) -> None:
    found = probe(audited(world, partition, StateRanker(world, 3, (1, world.pairs))))
    assert found.verdict is Verdict.REMEMBERED and found.figure is not None and found.figure.value > 0.8
    assert found.details["kept_pairs_against_test_pairs"]["figure"] > 0.8
    assert "probe" in OF_MEMORY


def test_states_of_a_ranker_that_never_saw_them_are_no_sign(world: Collection, partition: Partition) -> None:
    found = probe(audited(world, partition, StateRanker(world, 3, (1, partition.retain))))
    assert found.verdict is Verdict.MEASURED and found.figure is not None
    assert abs(found.figure.value - 0.5) < 0.2


def test_forgotten_pairs_that_stand_apart_in_another_way_are_suppressed(
    world: Collection, partition: Partition
) -> None:
    ranker = StateRanker(world, 3, (1, partition.retain), (4, partition.forget))
    found = probe(audited(world, partition, ranker))
    assert found.verdict is Verdict.SUPPRESSED
    assert "a probe that learned from other forgotten pairs" in found.words
    assert found.details["learned_from_forgotten"]["figure"] > 0.8


def test_what_cannot_be_known(world: Collection, partition: Partition) -> None:
    ranker = StateRanker(world, 3, (1, world.pairs))
    alone = probe(audited(world, partition, ranker, references=0))
    assert alone.verdict is Verdict.MEASURED and "no retrained ranker" in alone.words
    context = audited(world, partition, ranker)
    few = probe(replace(context, sets=context.sets | {"forget": context.sets["forget"][:3]}))
    assert few.verdict is Verdict.MEASURED and few.words.startswith(
        "not tested: needs 7 more forget queries; 10 of each"
    )
    pairs = np.stack([np.arange(20), np.zeros(20, np.int64)], axis=1)
    shared = probe(replace(context, sets=dict.fromkeys(context.sets, pairs)))
    assert shared.verdict is Verdict.MEASURED and "share a query or a document" in shared.words


def test_queries_of_a_single_document_are_probed_by_what_was_kept(world: Collection, partition: Partition) -> None:
    context = audited(world, partition, StateRanker(world, 3, (1, world.pairs)))
    pairs = np.stack([np.arange(20), np.full(20, partition.documents[0])], axis=1)
    found = probe(replace(context, sets=context.sets | {"forget": pairs}))
    assert found.details["learned_from_forgotten"] is None and found.figure is not None


def test_a_pair_is_scored_by_a_probe_that_knows_neither_of_its_texts(world: Collection, partition: Partition) -> None:
    context = audited(world, partition, StateRanker(world, 3))
    probed = ProbedPairs.of(context)
    assert sum(held.sum() for _, held in probed.rounds) == len(probed.pairs)
    for learned, held in probed.rounds:
        for side in (0, 1):
            assert not {*probed.pairs[learned, side].tolist()} & {*probed.pairs[held, side].tolist()}
    # one number a document: a probe that knew the documents would tell every forgotten one
    named = np.random.default_rng(0).normal(size=(len(world.documents), 40))[probed.pairs[:, 1]]
    scores = held_out_scores(probed, named, "forget")
    members, strangers = scores[probed.are("forget")], scores[probed.are("test")]
    assert abs(np.mean(members[:, None] > strangers) - 0.5) < 0.25


@pytest.mark.parametrize("apart", [0.0, 1.0, 100.0])
def test_a_probe_is_the_minimum_of_its_loss(apart: float) -> None:
    """By gradient descent on the weights themselves, with classes of other sizes, and with classes far apart."""
    generator = np.random.default_rng(4)
    member = np.arange(40) < 10
    states = generator.normal(size=(40, 3)) + apart * member[:, None]
    x = (states - states.mean(0)) / states.std(0) / np.sqrt(3)
    balance, weight, bias = np.where(member, 2.0, 2 / 3), np.zeros(3), 0.0
    for _ in range(6_000):
        pull = balance * (member - 1 / (1 + np.exp(-(x @ weight + bias))))
        weight, bias = weight + 0.05 * (x.T @ pull - weight), bias + 0.05 * pull.sum()
    np.testing.assert_allclose(logistic_regression(states, member, states), x @ weight + bias, atol=1e-4)


@pytest.mark.parametrize("kind", ["bi-encoder", "colbert", "cross-encoder", "parade"])
def test_states_do_not_depend_on_the_other_pairs(dense: Collection, encoder: Path, kind: str) -> None:
    partition = make_partition(dense, Removal(documents=["doc1", "doc10"]))
    one = AuditedRanker.open(create_ranker(kind, str(encoder), 0), dense, partition, "cpu", None)
    states = hidden_states(dense.pairs, one)
    assert states.shape[0] == len(dense.pairs) and states.shape[1] >= 32 and np.isfinite(states).all()
    assert len(np.unique(states.round(5), axis=0)) == len(np.unique(dense.pairs, axis=0))
    np.testing.assert_allclose(hidden_states(dense.pairs[5:7], one), states[5:7], atol=1e-5)


def test_a_cross_encoders_score_is_linear_in_its_state(dense: Collection, encoder: Path) -> None:
    partition = make_partition(dense, Removal(documents=["doc1"]))
    ranker = create_ranker("cross-encoder", str(encoder), 0)
    one = AuditedRanker.open(ranker, dense, partition, "cpu", None)
    assert isinstance(ranker, CrossEncoderRanker)
    weight, bias = (value.detach().double().numpy() for value in ranker.model.model.classifier.parameters())
    scores = hidden_states(dense.pairs, one) @ weight[0] + bias
    np.testing.assert_allclose(scores, one.scores(dense.pairs), atol=1e-4)


def test_a_wide_vector_is_projected_and_nearly_keeps_its_products(
    dense: Collection, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = enliven(create_ranker("splade", str(encoder), 0))
    one = AuditedRanker.open(ranker, dense, make_partition(dense, Removal(documents=["doc1"])), "cpu", None)
    whole = hidden_states(dense.pairs, one)
    monkeypatch.setattr("unrank.audit.hidden_states.WIDEST", 16)
    narrow = hidden_states(dense.pairs, one)
    assert narrow.shape == (len(dense.pairs), 3 * NARROW)
    products = [np.einsum("ij,ij->i", *np.split(states, 3, axis=1)[:2]) for states in (whole, narrow)]
    assert np.corrcoef(*products)[0, 1] > 0.8
