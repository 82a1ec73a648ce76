"""Rankers that never saw something: queries that training leaves out, and proxies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook

from tests.forgetting.conftest import QUICK
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition, make_partition, reserved_documents, reserved_queries, whole_partition
from unrank.collection.removal import Removal
from unrank.errors import UnrankError
from unrank.forgetting.evaluate import evaluate
from unrank.forgetting.forget import forget
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.previous_requests import was_trained_on
from unrank.forgetting.proxies import find_proxies, make_proxy, proxy_recipe, sample_kept, train_proxy, usual_epochs
from unrank.forgetting.train import Recipe, Trained, recipe_of, train
from unrank.forgetting.workspace import Workspace
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker


def weights(ranker: Ranker) -> list[torch.Tensor]:
    return list(ranker.state_dict().values())


def alike(one: Ranker, other: Ranker) -> bool:
    return all(torch.equal(*both) for both in zip(weights(one), weights(other), strict=True))


def test_the_rate_of_a_proxy_falls() -> None:
    recipe = proxy_recipe("bi-encoder", epochs=2).method
    rates = [recipe.schedule(0).rate(step, 50) for step in (1, 10, 50, 100)]
    full = 2 * recipe_of("bi-encoder").learning_rate
    assert rates == pytest.approx([full * 0.099, full * 0.9, full * 0.5, full * 0.1])
    assert not recipe_of("bi-encoder").schedule(0).falls


def test_training_never_sees_what_is_reserved(large: Collection, learned: Trained, encoder: Path) -> None:
    left_out = large.queries.ids(reserved_queries(large))
    documents = large.documents.ids(reserved_documents(large))
    assert learned.record.reserved == len(left_out) == 30
    assert len(documents) == 3
    opened = Workspace.open(learned.ranker, large, whole_partition(large, reserve=True), "cpu")
    drawn = QUICK.plan(opened.task(learned.ranker))[0].draw(np.random.default_rng(0), 1)
    used = drawn.pairs[drawn.present]
    assert not np.isin(used[:, 0], reserved_queries(large)).any()
    assert not np.isin(used[:, 1], reserved_documents(large)).any(), "they are no negatives either"
    on_all = train(large, "bi-encoder", str(encoder), method=QUICK, device="cpu", reserve=False)
    assert on_all.record.reserved == 0
    assert not alike(learned.ranker, on_all.ranker)
    for removal in (Removal(left_out[:3]), Removal(documents=documents), Removal(left_out[:1], documents[:1])):
        assert was_trained_on(large, learned.record, removal) is False
        assert was_trained_on(large, on_all.record, removal)


def test_a_workspace_reserves_what_the_training_of_its_ranker_left_out(large: Collection, learned: Trained) -> None:
    removal = Removal(documents=["doc1"])
    opened = Workspace.for_removal(learned.ranker, large, removal, learned.record, device="cpu")
    of_query = np.isin(opened.partition.reserved[:, 0], reserved_queries(large))
    of_document = np.isin(opened.partition.reserved[:, 1], reserved_documents(large))
    assert (of_query | of_document).all()
    assert of_query.any() and of_document.any()
    assert len(opened.partition.reserved) > 50
    assert not len(Workspace.for_removal(learned.ranker, large, removal, device="cpu").partition.reserved)
    measured = evaluate(learned.ranker, large, record=learned.record, device="cpu")
    assert measured.summary == learned.after.summary
    assert measured.disjoint is not None and len(measured.disjoint.queries) == 120


def test_a_proxy_follows_from_its_seed_and_never_sees_the_request(
    large: Collection, learned: Trained, encoder: Path
) -> None:
    removal = Removal(documents=[f"doc{i}" for i in range(50)])  # few pairs are kept, so it is quick
    workspace = Workspace.for_removal(learned.ranker, large, removal, learned.record, device="cpu")
    before, state = [weight.clone() for weight in weights(learned.ranker)], torch.get_rng_state()
    proxy = make_proxy(workspace, learned.ranker, str(encoder), seed=3, epochs=1)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(*both) for both in zip(before, weights(learned.ranker), strict=True))
    assert proxy.source == "made" and proxy.never_saw.all() and len(proxy.never_saw) == len(workspace.partition.forget)
    assert alike(proxy.ranker, make_proxy(workspace, learned.ranker, str(encoder), seed=3, epochs=1).ranker)
    assert not alike(proxy.ranker, make_proxy(workspace, learned.ranker, str(encoder), seed=4, epochs=1).ranker)
    with pytest.raises(UnrankError, match="name it with --base"):
        make_proxy(workspace, learned.ranker, None, seed=3)


def test_a_base_that_is_the_ranker_itself_is_refused(large: Collection, encoder: Path) -> None:
    ranker, removal = create_ranker("bi-encoder", str(encoder), 0), Removal(documents=["doc1"])
    workspace = Workspace.for_removal(ranker, large, removal, device="cpu")
    with pytest.raises(UnrankError, match="is the ranker itself: name the model that it was trained from with --base"):
        make_proxy(workspace, ranker, str(encoder), seed=0, epochs=1)


def test_a_small_request_has_a_proxy_of_more_epochs(large: Collection) -> None:
    epochs = {
        number: usual_epochs(make_partition(large, Removal(documents=[f"doc{i}" for i in range(number)])))
        for number in (1, 40)
    }
    assert epochs == {1: 4, 40: 2}


def test_a_ranker_that_was_retrained_without_a_request_serves_as_its_proxy(
    large: Collection, learned: Trained, encoder: Path, tmp_path: Path
) -> None:
    removal, other = (Removal(documents=[f"doc{i}" for i in some]) for some in (range(50), range(50, 53)))
    retrained = train(large, "bi-encoder", str(encoder), removal, method=QUICK, device="cpu")
    retrained.save(tmp_path / "proxies" / "one")
    for asked, proxies in ((removal, 1), (other, 0)):
        workspace = Workspace.for_removal(learned.ranker, large, asked, learned.record, device="cpu")
        found = find_proxies(workspace, learned.ranker, learned.record.base_digest, tmp_path / "proxies")
        assert len(found) == proxies
        assert all(proxy.never_saw.all() for proxy in found)
    learned.save(tmp_path / "others" / "one")
    with pytest.raises(UnrankError, match="not a proxy: its record does not say what it never saw"):
        find_proxies(workspace, learned.ranker, learned.record.base_digest, tmp_path / "others")


def test_the_limit_of_time_holds_for_a_proxy_too(
    large: Collection, learned: Trained, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRANK_STATE", str(tmp_path))  # no prepared proxy is remembered there
    options = ForgetOptions(base=str(encoder), device="cpu", minutes=1e-5)
    with pytest.raises(UnrankError, match=r"time was up when \d+% of the proxy was trained, so nothing was forgotten"):
        forget(learned.ranker, large, Removal(documents=["doc1"]), options=options, record=learned.record)


def test_a_proxy_that_is_done_in_time_is_used(large: Collection, learned: Trained, encoder: Path) -> None:
    workspace = Workspace.for_removal(learned.ranker, large, Removal(documents=["doc1"]), device="cpu")
    few = replace(workspace.partition, disjoint=workspace.partition.disjoint[:4])
    asked: list[float] = []

    def out_of_time(seconds: float) -> bool:
        asked.append(seconds)
        return False

    proxy = create_ranker("bi-encoder", str(encoder), 0)
    recipe = proxy_recipe("bi-encoder", None, 2)
    assert [check.epoch for check in train_proxy(proxy, workspace, few, 0, recipe, out_of_time)] == [1, 2]
    assert asked


def test_a_ranker_and_its_proxy_train_the_same_layers(
    large: Collection, learned: Trained, encoder: Path, tmp_path: Path
) -> None:
    """The other layers are the base's, bit by bit, and are computed once for each text."""
    base = create_ranker("bi-encoder", str(encoder), 0)
    with counting_passes() as passes:
        last = train(large, "bi-encoder", str(encoder), method=QUICK, device="cpu", train_layers=1)
    assert passes["texts of layer.0"] < passes["texts of layer.1"] / 2
    assert last.record.settings["train_layers"] == 1
    assert all(weight.requires_grad for weight in last.ranker.parameters()) and not last.ranker.keeps_states
    workspace = Workspace.for_removal(last.ranker, large, Removal(documents=["doc1"]), last.record, device="cpu")
    proxy = make_proxy(workspace, last.ranker, str(encoder), seed=3, epochs=1, record=last.record)
    for ranker in (last.ranker, proxy.ranker):
        moved = {
            name
            for name, weight in ranker.named_parameters()
            if not torch.equal(weight, dict(base.named_parameters())[name])
        }
        assert any("layer.1." in name for name in moved)
        assert not any("layer.0." in name or "embedding" in name for name in moved)
    assert not alike(last.ranker, proxy.ranker)


def test_a_proxy_is_trained_as_the_record_says_but_never_at_a_higher_cost(learned: Trained) -> None:
    own, record = recipe_of("bi-encoder"), learned.record
    faster = replace(QUICK, epochs=2, learning_rate=2 * QUICK.learning_rate, falls=True, enough=1.0)
    assert proxy_recipe("bi-encoder", record, 2) == Recipe(faster)
    assert Recipe.of("bi-encoder", None) == Recipe.of("cross-encoder", record) == Recipe(own)
    assert Recipe.of("bi-encoder", replace(record, method="cocol")) == Recipe(own)
    costly = replace(record, settings={"batch": 10**9, "negatives": 10**9, "together": 10**9, "train_layers": "head"})
    assert Recipe.of("bi-encoder", costly) == Recipe(own, "head")
    for unknown in ({"pace": 3}, {"negatives": -1}, {"train_layers": "some"}):
        assert Recipe.of("bi-encoder", replace(record, settings=unknown)) == Recipe(own)


def test_layers_that_do_not_exist_are_refused(large: Collection, encoder: Path) -> None:
    with pytest.raises(UnrankError, match="the encoder has 2 layers, so 3 of them cannot be trained"):
        train(large, "bi-encoder", str(encoder), method=QUICK, device="cpu", train_layers=3)


def test_a_sample_of_kept_pairs_has_the_entangled_ones_first(large: Collection) -> None:
    partition = make_partition(large, Removal(documents=["doc1", "doc2"]), reserve=True)
    entangled, kept = len(partition.entangled), len(partition.retain)
    few, more, whole = (sample_kept(partition, most, 0) for most in (entangled - 1, entangled + 5, kept))
    assert (len(few.entangled), len(few.disjoint)) == (entangled - 1, 0)
    assert (len(more.entangled), len(more.disjoint)) == (entangled, 5)
    assert np.array_equal(whole.retain, partition.retain)
    assert all(np.array_equal(each.forget, partition.forget) for each in (few, more, whole))
    assert _is_part(more, partition)


@contextmanager
def counting_passes() -> Iterator[Counter[str]]:
    """Count the texts that each layer reads."""
    passes: Counter[str] = Counter()

    def note(layer: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: object) -> None:
        if type(layer).__name__ == "BertLayer":
            passes[f"texts of layer.{numbers.setdefault(id(layer), len(numbers))}"] += len(inputs[0])

    numbers: dict[int, int] = {}
    hook = register_module_forward_hook(note)
    try:
        yield passes
    finally:
        hook.remove()


def _is_part(one: Partition, whole: Partition) -> bool:
    return {*map(tuple, one.retain.tolist())} <= {*map(tuple, whole.retain.tolist())}
