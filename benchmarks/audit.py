"""The time of an audit of ten pairs by prepared proxies: the tests of single pairs, of three samples and of weights.

    python benchmarks/audit.py COLLECTION [--base ENCODER] [--pairs 10] [--folds 8] [--threads 2] [--seed 0]

Copies of the base with noise in their weights stand in for trained rankers: the audited one, the original, and a proxy
of each fold. The tests read as many texts and draw as many requests as with trained ones; their verdicts mean nothing.
Fails with 1 if the tests take longer than three minutes together.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from time import perf_counter, process_time

import numpy as np
import torch

from unrank.audit.audit import TESTS
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditOptions, Judge, Marks, open_context
from unrank.audit.time import texts_to_judge
from unrank.collection.collection import Collection, Pairs, open_collection
from unrank.collection.folds import held_rows
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.engine.teacher import Teacher
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.encoder import default_encoder
from unrank.record import HeldOut

TIMED, LIMIT = ("per_example", "three_sample", "weights"), 180.0
KIND, NOISE = "bi-encoder", 0.02


@torch.no_grad()
def stand_in(base: str, seed: int) -> Ranker:
    """Return a copy of the base with noise in its matrices."""
    ranker, generator = create_ranker(KIND, base, seed), torch.Generator().manual_seed(seed)
    for weight in ranker.parameters():
        if weight.dim() > 1:
            weight.add_(NOISE * weight.std() * torch.randn(weight.shape, generator=generator))
    return ranker.requires_grad_(False)


def open_tests(collection: Collection, base: str, pairs: int, folds: int, seed: int) -> AuditContext:
    """Open an audit of some pairs, with a proxy of each fold."""
    drawn = np.random.default_rng(seed).permutation(len(collection.pairs))[:pairs]
    removal = Removal(pairs=collection.pair_ids(collection.pairs[drawn]))
    partition = make_partition(collection, removal, reserve=True)
    audited, original = (stand_in(base, seed) for seed in (0, 1))
    rankers = PerRanker(audited, original, tuple[Ranker, ...]())
    context = open_context(rankers, collection, partition, AuditOptions(device="cpu", base=base))
    workspace = context.rankers.ranker.workspace

    def proxy(fold: int) -> Judge:
        held = HeldOut(folds, fold)
        gone = [
            held_rows(texts, np.unique(collection.pairs[:, side]), held)
            for side, texts in enumerate((collection.queries, collection.documents))
        ]

        def never_saw(some: Pairs) -> Marks:
            return np.isin(some[:, 0], gone[0]) | np.isin(some[:, 1], gone[1])

        return Judge(
            Teacher(stand_in(base, 1 + fold), collection, workspace.store, workspace.runtime).scores, never_saw
        )

    return replace(context, proxies=tuple(proxy(fold) for fold in range(1, folds + 1)))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("collection")
    options.add_argument("--base", help="the encoder; the one that is installed by default")
    options.add_argument("--pairs", type=int, default=10)
    options.add_argument("--folds", type=int, default=8)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--seed", type=int, default=0)
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    base = arguments.base or str(default_encoder())
    context = open_tests(open_collection(arguments.collection), base, arguments.pairs, arguments.folds, arguments.seed)
    print(f"{texts_to_judge(context):,} texts to read by all rankers", flush=True)
    began = perf_counter(), process_time()
    for name in TIMED:
        started = perf_counter(), process_time()
        TESTS[name](context)
        print(f"{name:<14}{spent(*started)}", flush=True)
    print(f"{'together':<14}{spent(*began)}")
    sys.exit(int(perf_counter() - began[0] > LIMIT))


def spent(wall: float, processor: float) -> str:
    return f"{perf_counter() - wall:7.1f} s, {process_time() - processor:7.1f} s of processor time"


if __name__ == "__main__":
    main()
