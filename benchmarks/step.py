"""The time of one training step, or of scoring lists, and on a GPU that of its kernels.

    python benchmarks/step.py COLLECTION [--rankers cross-encoder bi-encoder] [--batch 64 256 1024] [--steps 20]
        [--lists 400] [--base FOLDER | qwen2-1.5b] [--tokenizer FOLDER] [--lora 16] [--device cuda] [--kernels 20]

A positive has 8 negatives, 4 of them in the same step. The first steps, in which kernels are compiled and CUDA graphs
recorded, are not timed. `--lists` times scoring that many lists too. `--lora` trains an adapter of this rank alone. Of
each the share of the limit of the device's arithmetic is printed (`arithmetic.py`).
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from pathlib import Path

import numpy as np
from arithmetic import PEAK, WITH_ADAPTER, WITH_GRADIENTS, operations, texts_seen
from encoders import RANDOM, encoder_folder
from stopwatch import PeakMemory, seconds
from torch.profiler import ProfilerActivity, profile

from unrank import Collection, open_collection
from unrank.engine.loop import batches_of, make_optimizer, pairs_once, step
from unrank.engine.runtime import Device
from unrank.engine.scoring import scores_of
from unrank.forgetting.workspace import Workspace
from unrank.methods.retrain import Retrain
from unrank.rankers import create_ranker
from unrank.rankers.lora import add_adapter

WARM_UP = 8
PROFILED = 5
KINDS = {
    "attention": ("flash", "attend", "_attention", "fmha", "_query_gradient", "_key_value_gradient"),
    "products": ("gemm", "nvjet", "cutlass", "cublas", "sm90_xmma"),
    "copies to and from the GPU": ("Memcpy HtoD", "Memcpy DtoH"),
}
"""Words in the names of kernels, and what these do; the others are sums, norms, activations, copies and lookups."""


class Steps:
    """The training of one ranker, step by step."""

    def __init__(self, kind: str, base: str | None, collection: Collection, device: Device, rank: int | None) -> None:
        self.kind, self.ranker, self.adapted = kind, create_ranker(kind, base, 0), rank is not None
        self.workspace = Workspace.open(self.ranker, collection, None, device)
        if rank is not None:
            add_adapter(self.ranker, rank, 0)
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

    def operations(self, batch: int) -> tuple[float, int]:
        """Return the operations of a step on this many samples, by those of the first batches, and its tokens."""
        costs, tokens, store = [], [], self.workspace.store
        for start in range(0, min(len(self._order), PROFILED * batch), batch):
            pairs, _ = pairs_once(self._drawn.take(self._order[start : start + batch]))
            costs.append(operations(self.ranker, store, pairs))
            tokens.append(texts_seen(self.ranker, store, pairs).sum())
        return (WITH_ADAPTER if self.adapted else WITH_GRADIENTS) * float(np.mean(costs)), int(np.mean(tokens))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--rankers", nargs="+", default=["cross-encoder", "bi-encoder", "colbert", "parade"])
    parser.add_argument("--batch", nargs="+", type=int, default=[64, 256, 1024], help="triples in a step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lists", type=int, default=0, help="number of lists to score; by default none")
    parser.add_argument("--base", help=f"an encoder; or one with random weights: {', '.join(RANDOM)}")
    parser.add_argument("--tokenizer", help="the encoder whose tokenizer one with random weights uses")
    parser.add_argument("--lora", type=int, metavar="RANK", help="train an adapter of this rank alone")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--kernels", type=int, default=20, help="number of the slowest kernels to show")
    arguments = parser.parse_args()
    collection = open_collection(arguments.collection)
    with tempfile.TemporaryDirectory(prefix="unrank-step-") as within:
        base = arguments.base
        if base in RANDOM:
            base = str(encoder_folder(base, arguments.tokenizer, Path(within)))
        for kind in arguments.rankers:
            steps = Steps(kind, base, collection, arguments.device, arguments.lora)
            with steps.ranker.repeated_steps():
                for batch in arguments.batch:
                    show_steps(steps, batch, arguments.steps, arguments.kernels)
            if arguments.lists:
                show_lists(steps, collection, arguments.lists, arguments.kernels)


def show_steps(steps: Steps, batch: int, count: int, kernels: int) -> None:
    device, run = steps.workspace.runtime.device, steps.run(batch)
    _do(run, min(WARM_UP, count))
    peak, started = PeakMemory(device), seconds(device)
    _do(run, count)
    each = (seconds(device) - started) / count
    print(f"{steps.kind}, {batch} triples: {1e3 * each:.1f} ms a step, {batch / each:,.0f} triples / s", flush=True)
    needed, tokens = steps.operations(batch)
    show_share(steps, needed, tokens, each, peak)
    if device.type == "cuda":
        show_kernels(lambda: _do(run, PROFILED), PROFILED, each, kernels, steps.workspace.runtime.wait)


def show_lists(steps: Steps, collection: Collection, lists: int, kernels: int) -> None:
    """Time the scoring of lists: all of them at once."""
    workspace, ranker = steps.workspace, steps.ranker
    queries = np.sort(np.random.default_rng(0).permutation(len(collection.queries))[:lists])
    pairs = collection.list_pairs(queries)
    workspace.store.read(pairs)

    def score() -> None:
        scores_of(ranker, workspace.store, pairs, workspace.runtime)

    score()
    device = workspace.runtime.device
    peak, started = PeakMemory(device), seconds(device)
    score()
    each = seconds(device) - started
    print(
        f"{steps.kind}, {len(pairs):,} list pairs: {1e3 * each:.1f} ms, {len(pairs) / each:,.0f} pairs / s", flush=True
    )
    tokens = int(texts_seen(ranker, workspace.store, pairs).sum())
    show_share(steps, operations(ranker, workspace.store, pairs), tokens, each, peak)
    if device.type == "cuda":
        show_kernels(score, 1, each, kernels, workspace.runtime.wait)


def show_share(steps: Steps, needed: float, tokens: int, each: float, peak: PeakMemory) -> None:
    limit = PEAK.get(steps.workspace.runtime.name)
    share = "" if limit is None else f", {needed / each / limit:.3f} of the limit"
    memory = peak.gibibytes()
    print(
        f"  {tokens:,} tokens, {tokens / each:,.0f} tokens / s, {needed / each / 1e12:.2f} TFLOP/s{share}"
        + ("" if memory is None else f", {memory:.2f} GiB at most"),
        flush=True,
    )


def show_kernels(work: Callable[[], object], times: int, each: float, kernels: int, wait: Callable[[], None]) -> None:
    """Print the GPU's time by kernel, and what share of the time on the clock that is."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        work()
        wait()
    events = [event for event in profiled.key_averages() if event.self_device_time_total > 0]
    events.sort(key=lambda event: -event.self_device_time_total)
    busy, launched = sum(event.self_device_time_total for event in events), sum(event.count for event in events)
    busy_ms = busy / times / 1e3
    print(f"  GPU busy {busy_ms:.1f} ms ({busy_ms / 1e3 / each:.2f} of the clock), {launched / times:.0f} kernels")
    by_kind: Counter[str] = Counter()
    for event in events:
        by_kind[_kind_of(event.key)] += event.self_device_time_total
    print("  " + ", ".join(f"{kind} {took / busy:.2f}" for kind, took in by_kind.most_common()), flush=True)
    for event in events[:kernels]:
        took, count = event.self_device_time_total / times / 1e3, event.count / times
        print(f"  {took:7.3f} ms {count:6.1f} times {event.key[:80]}", flush=True)


def _kind_of(kernel: str) -> str:
    return next((kind for kind, words in KINDS.items() if any(word in kernel for word in words)), "others")


def _do(run: Iterator[None], count: int) -> None:
    for _ in islice(run, count):
        pass


if __name__ == "__main__":
    main()
