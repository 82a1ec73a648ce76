"""Rankers that never saw something: queries that training leaves out, and proxies."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tiny import text_of
from unrank.collection.build import build_collection
from unrank.collection.collection import Collection
from unrank.collection.options import ImportOptions
from unrank.collection.partition import Partition, make_partition, reserved_queries
from unrank.collection.removal import Removal
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.errors import UnrankError
from unrank.forgetting.evaluate import evaluate
from unrank.forgetting.previous_requests import was_trained_on
from unrank.forgetting.proxies import make_proxy, sample_kept
from unrank.forgetting.train import Trained, train
from unrank.forgetting.workspace import Workspace
from unrank.methods.retrain import Retrain
from unrank.rankers.base import Ranker

QUERIES, DOCUMENTS = 150, 60
QUICK = Retrain(epochs=1, negatives=1, together=1, batch=64)


def make_large(out: Path, left_out: Iterable[str] = ()) -> Collection:
    """A collection just large enough to reserve queries, without the queries that are left out."""
    generator = random.Random(9)
    documents = [Text(f"doc{i}", text_of(generator, 8)) for i in range(DOCUMENTS)]
    queries = [Text(f"query{i}", text_of(generator, 4)) for i in range(QUERIES + 8)]
    answers = {query.id: [f"doc{i}" for i in generator.sample(range(DOCUMENTS), 2)] for query in queries}
    kept = [query for query in queries if query.id not in {*left_out}]
    train, test = ([q for q in kept if q in part] for part in (queries[:QUERIES], queries[QUERIES:]))

    def judged(some: list[Text]) -> list[Judgement]:
        return [Judgement(query.id, document, 1) for query in some for document in answers[query.id]]

    splits = {"train": lambda: judged(train), "test": lambda: judged(test)}
    return build_collection(Raw("large", lambda: kept, lambda: documents, splits), out, ImportOptions(candidates=6))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return make_large(tmp_path_factory.mktemp("large") / "large")


@pytest.fixture(scope="module")
def original(large: Collection, encoder: Path) -> Trained:
    return train(large, "bi-encoder", str(encoder), method=QUICK, device="cpu")


def weights(ranker: Ranker) -> list[torch.Tensor]:
    return list(ranker.state_dict().values())


def alike(one: Ranker, other: Ranker) -> bool:
    return all(torch.equal(*both) for both in zip(weights(one), weights(other), strict=True))


def test_training_never_sees_reserved_queries(
    large: Collection, original: Trained, encoder: Path, tmp_path: Path
) -> None:
    left_out = large.queries.ids(reserved_queries(large))
    assert original.record.reserved == len(left_out) == 30
    without = make_large(tmp_path / "without", left_out)
    assert alike(original.ranker, train(without, "bi-encoder", str(encoder), method=QUICK, device="cpu").ranker)
    on_all = train(large, "bi-encoder", str(encoder), method=QUICK, device="cpu", reserve=False)
    assert on_all.record.reserved == 0
    assert not alike(original.ranker, on_all.ranker)
    assert was_trained_on(large, original.record, Removal(queries=left_out[:3])) is False
    assert was_trained_on(large, on_all.record, Removal(queries=left_out[:3]))


def test_a_workspace_reserves_what_the_training_of_its_ranker_left_out(large: Collection, original: Trained) -> None:
    removal = Removal(documents=["doc1"])
    opened = Workspace.for_removal(original.ranker, large, removal, original.record, device="cpu")
    assert {*np.unique(opened.partition.reserved[:, 0])} <= {*reserved_queries(large).tolist()}
    assert len(opened.partition.reserved) > 50
    assert not len(Workspace.for_removal(original.ranker, large, removal, device="cpu").partition.reserved)
    measured = evaluate(original.ranker, large, record=original.record, device="cpu")
    assert measured.summary == original.after.summary
    assert measured.disjoint is not None and len(measured.disjoint.queries) == QUERIES - 30


def test_a_proxy_follows_from_its_seed_and_never_sees_the_request(
    large: Collection, original: Trained, encoder: Path
) -> None:
    removal = Removal(documents=[f"doc{i}" for i in range(50)])  # few pairs are kept, so it is quick
    workspace = Workspace.for_removal(original.ranker, large, removal, original.record, device="cpu")
    before, state = [weight.clone() for weight in weights(original.ranker)], torch.get_rng_state()
    proxy = make_proxy(workspace, original.ranker, str(encoder), seed=3, epochs=1)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(*both) for both in zip(before, weights(original.ranker), strict=True))
    assert proxy.source == "made" and proxy.never_saw.all() and len(proxy.never_saw) == len(workspace.partition.forget)
    assert alike(proxy.ranker, make_proxy(workspace, original.ranker, str(encoder), seed=3, epochs=1).ranker)
    assert not alike(proxy.ranker, make_proxy(workspace, original.ranker, str(encoder), seed=4, epochs=1).ranker)
    with pytest.raises(UnrankError, match="name it with --base"):
        make_proxy(workspace, original.ranker, None, seed=3)


def test_a_sample_of_kept_pairs_has_the_entangled_ones_first(large: Collection) -> None:
    partition = make_partition(large, Removal(documents=["doc1", "doc2"]), reserve=True)
    entangled, kept = len(partition.entangled), len(partition.retain)
    few, more, whole = (sample_kept(partition, most, 0) for most in (entangled - 1, entangled + 5, kept))
    assert (len(few.entangled), len(few.disjoint)) == (entangled - 1, 0)
    assert (len(more.entangled), len(more.disjoint)) == (entangled, 5)
    assert np.array_equal(whole.retain, partition.retain)
    assert all(np.array_equal(each.forget, partition.forget) for each in (few, more, whole))
    assert _is_part(more, partition)


def _is_part(one: Partition, whole: Partition) -> bool:
    return {*map(tuple, one.retain.tolist())} <= {*map(tuple, whole.retain.tolist())}
