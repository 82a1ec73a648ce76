"""The cost of a small request as the collection grows: the time of each step, and the peak memory.

    python benchmarks/growth.py [--most 1000000] [--out growth.json] [--plot docs/growth.png]

A hundred documents are removed from collections of 10³ to 10⁶ documents and from collections of 10² to 10⁶ pairs
(`synthetic.py`), each in a process of its own. The ranker reads the first word only, so almost all of the cost is due
to the collection. Prints a table; the plot needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from size import made_up_words, peak_gibibytes
from synthetic import RELEVANT, Size, make_collection
from torch import Tensor, nn

from unrank import Removal, open_collection
from unrank import partition as make_partition
from unrank.engine.loop import Schedule, fit
from unrank.forgetting.train import estimate_learning_epoch
from unrank.forgetting.workspace import Workspace
from unrank.methods.cocol import Cocol
from unrank.rankers import RANKERS, RankerEntry
from unrank.rankers.base import Ranker, Role, Tokens

REMOVED = 100
STEPS = ("open", "partition", "workspace", "time an epoch", "teacher", "draw", "steps", "check", "scorecard")
DOCUMENTS_AT_LEAST, PAIRS_AT_LEAST = 1_000, 100


class FirstWord(Ranker):
    """Scores by whether query and document begin with the same word."""

    kind = "first-word"

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        return Tokens.of([[zlib.crc32(text.partition(" ")[0].encode()) & 0x7FFFFFFF] for text in texts])

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        alike = queries.ids.array[queries.starts] == documents.ids.array[documents.starts]
        return self.weight * torch.from_numpy(alike).float()


class Steps:
    """The seconds of each step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def on(self, step: str) -> Iterator[None]:
        started = perf_counter()
        yield
        self.seconds[step] = perf_counter() - started


def one_job(folder: Path) -> dict[str, Any]:
    """Time the steps of `forget`, with one epoch."""
    RANKERS[FirstWord.kind] = RankerEntry.of(FirstWord, "the first word")
    steps, ranker = Steps(), FirstWord()
    with steps.on("open"):
        collection = open_collection(folder)
    removed = min(REMOVED, len(collection.judged) // (2 * RELEVANT))
    with steps.on("partition"):
        partition = make_partition(
            collection, Removal(documents=[f"d{RELEVANT * number}" for number in range(removed)])
        )
    with steps.on("workspace"):
        workspace = Workspace.open(ranker, collection, partition, "cpu")
        task = workspace.task(ranker)
    with steps.on("time an epoch"):
        estimate_learning_epoch(ranker, workspace)
    with steps.on("teacher"):
        workspace.evaluator.scorecard(task.teacher.scores)
    plan = Cocol().plan(task)
    with steps.on("draw"):
        for phase in plan:
            phase.draw(np.random.default_rng(0), 1)
    with steps.on("steps"):
        next(fit(ranker, plan, Schedule(1, 1e-3), workspace.store, workspace.runtime))
    with steps.on("check"):
        workspace.evaluator.forget_mrr(workspace.scorer(ranker))
    with steps.on("scorecard"):
        workspace.evaluator.scorecard(workspace.scorer(ranker))
    return {"seconds": steps.seconds, "gibibytes": peak_gibibytes()}


def main() -> None:
    arguments = read_arguments()
    if arguments.folder:
        print(json.dumps(one_job(arguments.folder)))
        return
    rows = []
    print(" ".join(f"{name:>13}" for name in ("documents", "pairs", *STEPS, "total", "GiB")), flush=True)
    for size in sizes(arguments.most):
        rows.append({"documents": size.documents, "pairs": size.pairs, **measured(size, arguments.within)})
        seconds = rows[-1]["seconds"]
        shown = [f"{size.documents:,}", f"{size.pairs:,}", *(f"{seconds[step]:.2f}" for step in STEPS)]
        print(
            " ".join(
                f"{cell:>13}" for cell in [*shown, f"{sum(seconds.values()):.2f}", f"{rows[-1]['gibibytes']:.2f}"]
            ),
            flush=True,
        )
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if arguments.plot:
        plot(rows, arguments.plot)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000, help="largest number of documents, and of pairs")
    parser.add_argument("--within", type=Path, help="where to make the temporary folders")
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    parser.add_argument("--plot", type=Path, help="where to save the plot")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def sizes(most: int) -> list[Size]:
    """Return a growing number of documents with the fewest pairs, then a growing number of pairs."""
    documents = [10**power for power in range(3, 10) if DOCUMENTS_AT_LEAST <= 10**power <= most]
    pairs = [10**power for power in range(2, 10) if PAIRS_AT_LEAST <= 10**power <= most]
    fixed = [Size(count, DOCUMENTS_AT_LEAST) for count in documents]
    return list(dict.fromkeys([*fixed, *(Size(documents[-1], count) for count in pairs)]))


def measured(size: Size, within: Path | None) -> dict[str, Any]:
    words = list(made_up_words(random.Random(0), 20_000))
    with tempfile.TemporaryDirectory(prefix="unrank-growth-", dir=within) as folder:
        make_collection(Path(folder) / "collection", size, words)
        command = [sys.executable, __file__, "--folder", str(Path(folder) / "collection")]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot seconds and memory over documents, and over pairs."""
    from matplotlib import pyplot

    most = max(row["documents"] for row in rows)
    sweeps = {
        "documents": [row for row in rows if row["pairs"] == DOCUMENTS_AT_LEAST],
        "pairs": sorted((row for row in rows if row["documents"] == most), key=lambda row: row["pairs"]),
    }
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
    for axis, (name, sweep) in zip(axes, sweeps.items(), strict=True):
        across = [row[name] for row in sweep]
        for step in STEPS:
            axis.loglog(across, [max(row["seconds"][step], 1e-3) for row in sweep], marker="o", ms=3, lw=1, label=step)
        axis.loglog(across, [sum(row["seconds"].values()) for row in sweep], "k-", marker="o", ms=4, label="all, s")
        axis.loglog(across, [row["gibibytes"] for row in sweep], "k:", marker="s", ms=4, label="peak memory, GiB")
        axis.set_xlabel(f"{name} ({f'{DOCUMENTS_AT_LEAST:,} pairs' if name == 'documents' else f'{most:,} documents'})")
    axes[0].set_ylabel("seconds")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    figure.savefig(path)


if __name__ == "__main__":
    main()
