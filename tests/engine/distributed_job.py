"""A job that test_distributed.py runs in one process and in two: train, score all lists, forget, write it down."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import unrank
from unrank.disk import follows
from unrank.forgetting.workspace import Workspace
from unrank.methods.cocol import Cocol
from unrank.methods.retrain import Retrain
from unrank.rankers import create_ranker


def results(kind: str, collection: unrank.Collection, encoder: str) -> dict[str, NDArray[np.float64]]:
    workspace = Workspace.open(create_ranker(kind, encoder, 0), collection, None, "cpu")
    pairs = collection.list_pairs(collection.training_queries)
    scores = workspace.scorer(create_ranker(kind, encoder, 0))(pairs)
    training = Retrain(learning_rate=1e-3, epochs=1, batch=48, negatives=4)
    trained = unrank.train(collection, kind, encoder, method=training, device="cpu")
    removal = unrank.Removal.sample(collection, "documents", 0.2)
    method = Cocol(learning_rate=1e-3, batch=16, epochs=1)
    after = unrank.forget(trained.ranker, collection, removal, method=method, target="70%", device="cpu").after
    mrrs = [card.mean for card in (after.forget, after.entangled, after.disjoint, after.test) if card]
    found = {
        "processes": workspace.runtime.processes.size,
        "scores": scores,
        "trained": workspace.scorer(trained.ranker)(pairs),
        "mrrs": mrrs,
    }
    return {f"{kind} {name}": np.asarray(value, np.float64) for name, value in found.items()}


def main(folder: str, encoder: str, out: str, *kinds: str) -> None:
    collection = unrank.open_collection(folder)
    found = [results(kind, collection, encoder) for kind in kinds]
    if not follows():
        np.savez(Path(out), **{name: value for each in found for name, value in each.items()})  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*sys.argv[1:])
