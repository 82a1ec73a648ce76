"""Measure what the journal of a run costs: the seconds spent on it as a share of the run, counted in the same run.

A tiny ranker makes the worst case: its steps take milliseconds. The run is a real one, with checks and followed lists.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from unrank.collection.build import import_collection
from unrank.collection.collection import open_collection
from unrank.collection.options import ImportOptions
from unrank.collection.removal import Removal
from unrank.disk import JOURNAL, beside
from unrank.engine.resume import resumable
from unrank.engine.runtime import Silence
from unrank.forgetting.forget import forget
from unrank.forgetting.train import train
from unrank.methods.cocol import Cocol
from unrank.methods.retrain import Retrain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collection", type=Path, help="a collection's folder; by default Python's documentation")
    parser.add_argument("--base", help="the encoder to train from; by default all-MiniLM-L6-v2")
    parser.add_argument("--queries", type=int, default=20, help="queries to forget (20)")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of training and of forgetting (3)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for job, (seconds, elapsed) in measure(given, Path(scratch)).items():
            print(f"{job}: {seconds:.3f} s of {elapsed:.1f} s for the journal, {seconds / elapsed:.2%}")


def measure(given: argparse.Namespace, scratch: Path) -> dict[str, tuple[float, float]]:
    """Return for a training and a run that forgets the seconds of its journal, and those of the whole."""
    folder = given.collection or scratch / "collection"
    if given.collection is None:
        import_collection("pydocs:", folder, ImportOptions(candidates=15, train_queries=300, test_queries=50))
    collection, found = open_collection(folder), {}
    with resumable(scratch / "ranker") as run:
        method = Retrain(epochs=given.epochs, enough=1.1, negatives=1)
        trained = train(collection, "bi-encoder", given.base, method=method, run=run, progress=Silence())
        found["train"] = spent(scratch / "ranker")
    removal = Removal(queries=collection.queries.ids(range(given.queries)))
    with resumable(scratch / "clean") as run:
        cocol = Cocol(epochs=given.epochs)
        forget(trained.ranker, collection, removal, method=cocol, target=0.01, run=run, progress=Silence())
        found["forget"] = spent(scratch / "clean")
    return found


def spent(out: Path) -> tuple[float, float]:
    """Return the seconds that a journal says it took, and those of its run."""
    end = json.loads((beside(out) / JOURNAL).read_text().splitlines()[-1])
    return end["seconds"], end["elapsed"]


if __name__ == "__main__":
    main()
