"""The time of one training step and, on a GPU, of its kernels.

    python benchmarks/step.py COLLECTION [--rankers cross-encoder bi-encoder] [--batch 64 256 1024] [--steps 20]
        [--base FOLDER] [--device cuda] [--kernels 20]

A positive has 8 negatives, 4 of them in the same step. The first steps, in which kernels are compiled and CUDA graphs
recorded, are not timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain, islice, repeat
from pathlib import Path

import numpy as np
from stopwatch import seconds
from torch.profiler import ProfilerActivity, profile

from unrank import Collection, open_collection
from unrank.engine.loop import batches_of, make_optimizer, step
from unrank.engine.runtime import Device
from unrank.forgetting.workspace import Workspace
from unrank.methods.retrain import Retrain
from unrank.rankers import create_ranker

WARM_UP = 8
PROFILED = 5


class Steps:
    """The training of one ranker, step by step."""

    def __init__(self, kind: str, base: str | None, collection: Collection, device: Device) -> None:
        self.kind, self.ranker = kind, create_ranker(kind, base, 0)
        self.workspace = Workspace.open(self.ranker, collection, None, device)
        (self._phase,) = Retrain().plan(self.workspace.task(self.ranker))
        self._drawn = self._phase.draw(np.random.default_rng(0), 1)
        self._order = np.concatenate(batches_of(self._phase, len(self._drawn), np.random.default_rng(0)))
        pairs = self._drawn.pairs.reshape(-1, 2)
        self.workspace.store.read(pairs)
        self._optimizer = make_optimizer(self.ranker, 5e-5, self.workspace.runtime)

    def run(self, batch: int) -> Iterator[None]:
        """Take steps, over all samples again and again."""
        starts = range(0, max(1, len(self._order) - batch + 1), batch)
        for start in chain.from_iterable(repeat(starts)):
            samples = self._drawn.take(self._order[start : start + batch])
            step(self.ranker, self._phase, samples, self._optimizer, self.workspace.store, self.workspace.runtime)
            yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--rankers", nargs="+", default=["cross-encoder", "bi-encoder", "colbert", "parade"])
    parser.add_argument("--batch", nargs="+", type=int, default=[64, 256, 1024], help="triples in a step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--base")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--kernels", type=int, default=20, help="number of the slowest kernels to show")
    arguments = parser.parse_args()
    collection = open_collection(arguments.collection)
    for kind in arguments.rankers:
        steps = Steps(kind, arguments.base, collection, arguments.device)
        with steps.ranker.repeated_steps():
            for batch in arguments.batch:
                show(steps, batch, arguments.steps, arguments.kernels)


def show(steps: Steps, batch: int, count: int, kernels: int) -> None:
    device, run = steps.workspace.runtime.device, steps.run(batch)
    _do(run, WARM_UP)
    started = seconds(device)
    _do(run, count)
    each = (seconds(device) - started) / count
    print(f"{steps.kind}, {batch} triples: {1e3 * each:.1f} ms a step, {batch / each:,.0f} triples / s", flush=True)
    if device.type == "cuda":
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            _do(run, PROFILED)
            steps.workspace.runtime.wait()
        events = [event for event in profiled.key_averages() if event.self_device_time_total > 0]
        events.sort(key=lambda event: -event.self_device_time_total)
        busy, launched = sum(event.self_device_time_total for event in events), sum(event.count for event in events)
        print(f"  of it {busy / PROFILED / 1e3:.1f} ms in {launched / PROFILED:.0f} kernels", flush=True)
        for event in events[:kernels]:
            took, times = event.self_device_time_total / PROFILED / 1e3, event.count / PROFILED
            print(f"  {took:7.3f} ms {times:6.1f} times {event.key[:80]}", flush=True)


def _do(run: Iterator[None], count: int) -> None:
    for _ in islice(run, count):
        pass


if __name__ == "__main__":
    main()
