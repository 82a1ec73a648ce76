"""Proxies: rankers that never saw a request, trained cheaply, to find out where its pairs belong.

A proxy starts from the base of the original, and learns kept pairs for an epoch or two. Its own rankings are worse than
the original's. But it ranks what it never saw much as a retrained ranker does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unrank.collection.partition import Partition
from unrank.engine.loop import fit
from unrank.forgetting.train import recipe_of
from unrank.forgetting.workspace import Workspace
from unrank.methods.task import no_base
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker

PROXY_EPOCHS = 2
MOST_KEPT = 20_000
"""The most kept pairs that a proxy is trained on."""


@dataclass(frozen=True)
class Proxy:
    """A ranker that never saw some of the forget pairs."""

    ranker: Ranker
    never_saw: NDArray[np.bool_]
    """For each forget pair, in the order of the partition."""
    source: Literal["made", "prepared", "reference"]
    epochs: int
    """The number of epochs that it was trained for."""


def make_proxy(workspace: Workspace, ranker: Ranker, base: str | None, seed: int, epochs: int = PROXY_EPOCHS) -> Proxy:
    """Train a proxy of a ranker on kept pairs of the workspace, from the base that the ranker was trained from."""
    if base is None:
        no_base("initial")
    proxy = create_ranker(ranker.kind, base, seed, ranker.fast).to(workspace.runtime.device)
    recipe = replace(recipe_of(ranker.kind), epochs=epochs)
    task = replace(workspace.task(ranker), partition=sample_kept(workspace.partition, MOST_KEPT, seed))
    for _ in fit(proxy, recipe.plan(task), recipe.schedule(seed), workspace.store, workspace.runtime):
        pass
    return Proxy(proxy.requires_grad_(False), np.ones(len(workspace.partition.forget), bool), "made", epochs)


def sample_kept(partition: Partition, most: int, seed: int) -> Partition:
    """Return the partition with at most this many kept pairs: entangled ones first, then disjoint ones by seed."""
    entangled = _sample(partition.entangled, most, seed)
    return replace(partition, entangled=entangled, disjoint=_sample(partition.disjoint, most - len(entangled), seed))


def _sample(pairs: NDArray[np.int64], most: int, seed: int) -> NDArray[np.int64]:
    """Return at most this many pairs, in their order."""
    if len(pairs) <= most:
        return pairs
    return pairs[np.sort(np.random.default_rng(seed).permutation(len(pairs))[:most])]
