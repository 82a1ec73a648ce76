"""What every method promises with every ranker: the original stays, seeds decide, weights are finite, folders load.

One epoch on a handful of pairs, so that all of them together take seconds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.tiny import make_collection
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.forgetting.forget import Forgotten, forget
from unrank.methods import METHODS as ALL
from unrank.rankers import RANKERS, create_ranker, load_ranker
from unrank.rankers.base import Ranker

METHODS = {name: entry for name, entry in ALL.items() if name != "curd"}
"""All but the one that needs substitutes; it has tests of its own."""
PAIRS = [("q1", "d1"), ("q1", "d2"), ("q1", "d3"), ("q2", "d1"), ("q2", "d4"), ("q3", "d5"), ("q4", "d6"), ("q4", "d4")]
TESTS = [("t1", "d2"), ("t2", "d6")]
SOME = Removal(documents=["d1", "d2"], pairs=[("q4", "d4")])
UNREACHABLE = 1e-6

Run = Callable[..., Forgotten]
Ran = dict[tuple[str, str], Forgotten]

ODD = {
    "a query of two forgotten pairs": Removal(documents=["d1", "d2"]),
    "an only positive": Removal(documents=["d5"]),
    "nothing entangled": Removal(queries=["q3"]),
    "nothing disjoint": Removal(documents=["d1", "d4", "d5"]),
    "a single pair": Removal(pairs=[("q1", "d2")]),
    "a mix": Removal(queries=["q3"], documents=["d2"], pairs=[("q2", "d4")]),
}
ODDEST = ("an only positive", "nothing disjoint")
"""Partitions that lack a set. The quick tests try the others with one method."""
ODD_KINDS = ("bi-encoder", "match-pyramid")
"""A dual encoder and a ranker that reads pairs: the two ways in which pairs are scored. The odd ones take turns."""

CROSS = [(method, "bi-encoder") for method in METHODS] + [("cocol", kind) for kind in RANKERS if kind != "bi-encoder"]
"""Every method with one ranker, and every ranker with one method."""
QUICK = [("cocol", "bi-encoder"), ("cocol", "cross-encoder"), ("cocol", "match-pyramid"), ("retrain", "bi-encoder")]
"""A steered method and one that trains anew, and a ranker of each way to score."""

OF_EACH_KIND = ("cocol", "retrain", "ssd", "salun", "task-negation")
"""A method of each way to run one: steps, a training, an edit, masked weights, weights that are not those trained."""


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return make_collection(tmp_path_factory.mktemp("little") / "little", PAIRS, TESTS, documents=4, candidates=4)


@pytest.fixture(scope="module")
def ran() -> Ran:
    """The results of runs on SOME with seed 0, by method and ranker, for the tests that only look at one."""
    return {}


@pytest.fixture(scope="module")
def run(little: Collection, rankers: dict[str, Ranker], bases: dict[str, str]) -> Run:
    """One epoch of a method, towards a target out of reach."""

    def once(method: str, kind: str, removal: Removal, seed: int = 0, ranker: Ranker | None = None) -> Forgotten:
        settings = replace(METHODS[method].method(), epochs=1, learning_rate=1e-3)
        base = bases[kind] if settings.needs_base else None
        return forget(
            ranker or rankers[kind], little, removal, method=settings, target=UNREACHABLE, base=base, seed=seed
        )

    return once


def weights(ranker: Ranker) -> dict[str, Tensor]:
    return {name: weight.clone() for name, weight in ranker.state_dict().items()}


def moved(first: dict[str, Tensor], second: dict[str, Tensor]) -> set[str]:
    assert first.keys() == second.keys()
    return {name for name in first if not torch.equal(first[name], second[name])}


def all_finite(ranker: Ranker) -> bool:
    return all(bool(torch.isfinite(weight).all()) for weight in ranker.state_dict().values())


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        pytest.param(method, kind, marks=[] if (method, kind) in CROSS else [pytest.mark.slow])
        for method, kind in product(METHODS, RANKERS)
    ],
)
def test_every_method_with_every_ranker(method: str, kind: str, run: Run, ran: Ran, rankers: dict[str, Ranker]) -> None:
    original = rankers[kind]
    before, modes = weights(original), [module.training for module in original.modules()]
    gradients = [weight.requires_grad for weight in original.parameters()]
    result = ran[method, kind] = run(method, kind, SOME)

    assert moved(weights(original), before) == set()
    assert [module.training for module in original.modules()] == modes
    assert [weight.requires_grad for weight in original.parameters()] == gradients
    assert all(weight.grad is None for weight in original.parameters())

    assert moved(weights(result.ranker), before) != set()
    assert all_finite(result.ranker)


@pytest.mark.parametrize(
    ("method", "kind"),
    [pytest.param(*each, marks=[] if each in QUICK else [pytest.mark.slow]) for each in CROSS],
)
def test_the_seed_decides_and_the_folder_loads(method: str, kind: str, run: Run, ran: Ran, tmp_path: Path) -> None:
    result, again = ran.get((method, kind)) or run(method, kind, SOME), run(method, kind, SOME)
    assert moved(weights(result.ranker), weights(again.ranker)) == set()
    assert result.after.to_json() == again.after.to_json()

    queries, documents = ["ba be", "fo fu fir", "gan"], ["ba be bi bo", "fir fel", "gan gos"]
    result.ranker.save(tmp_path / "saved")
    loaded = load_ranker(tmp_path / "saved")
    assert loaded.kind == kind
    scores = result.ranker.score_texts(queries, documents)
    assert loaded.score_texts(queries, documents) == pytest.approx(scores, abs=1e-6)


@pytest.mark.parametrize(
    ("method", "odd", "kind"),
    [
        pytest.param(method, odd, kind, marks=[] if method == "cocol" or odd in ODDEST else [pytest.mark.slow])
        for method, (odd, kind) in product(METHODS, zip(ODD, cycle(ODD_KINDS)))
    ],
)
def test_odd_partitions(method: str, odd: str, kind: str, run: Run) -> None:
    result = run(method, kind, ODD[odd])
    steered = METHODS[method].method.run_kind == "steered"
    assert all_finite(result.ranker)
    assert result.after.forget is not None
    assert (result.after.entangled is None) == (odd in ("an only positive", "nothing entangled"))
    assert (result.after.disjoint is None) == (odd == "nothing disjoint")
    assert result.record.reached is (False if steered else None)
    assert result.record.epochs == 1


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[] if name in ("cocol", "retrain") else [pytest.mark.slow]) for name in METHODS]
)
def test_another_seed_gives_other_weights(method: str, run: Run, ran: Ran) -> None:
    """A fresh start aside, what differs is the negatives and the order."""
    one = ran.get((method, "bi-encoder")) or run(method, "bi-encoder", SOME)
    other = run(method, "bi-encoder", SOME, seed=1)
    assert moved(weights(one.ranker), weights(other.ranker)) != set()


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[] if name in OF_EACH_KIND else [pytest.mark.slow]) for name in METHODS]
)
def test_frozen_layers_stay_with_every_method(
    method: str, rankers: dict[str, Ranker], bases: dict[str, str], little: Collection
) -> None:
    settings = replace(METHODS[method].method(), epochs=1, learning_rate=1e-3)
    result = forget(
        rankers["cross-encoder"],
        little,
        Removal(documents=["d1"]),
        method=settings,
        target=UNREACHABLE,
        base=bases["cross-encoder"],
        train_layers=1,
    )
    begun_with = (
        rankers["cross-encoder"]
        if settings.start == "original"
        else create_ranker("cross-encoder", bases["cross-encoder"], 0)
    )
    changed = moved(weights(result.ranker), weights(begun_with))
    assert changed
    assert not any("layer.0." in name or "embeddings" in name for name in changed)
    assert all_finite(result.ranker)


def test_a_target_that_is_met_already_leaves_nothing_to_do(
    run: Run, little: Collection, rankers: dict[str, Ranker]
) -> None:
    """Whatever the method, unless it has no target: then it works on regardless."""
    removal = Removal(documents=["d1"])
    for name in OF_EACH_KIND:
        method = METHODS[name].method(epochs=1)
        if method.needs_base:
            continue
        result = forget(rankers["bi-encoder"], little, removal, method=method, target=1.0)
        same = not moved(weights(result.ranker), weights(rankers["bi-encoder"]))
        assert same == (method.run_kind != "edit"), name
        assert result.reached


def test_the_tests_would_see_a_change(rankers: dict[str, Ranker]) -> None:
    other = copy.deepcopy(rankers["bi-encoder"])
    with torch.no_grad():
        next(other.parameters()).view(-1)[0] += 1e-6
    assert len(moved(weights(rankers["bi-encoder"]), weights(other))) == 1
