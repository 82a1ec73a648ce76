"""A large collection: a million documents and five million judgements, with random texts.

`python benchmarks/size.py` writes them as a BEIR folder and measures the peak memory of the import, then the time to
open the collection and to partition it for a removal of 5 % of the pairs by documents. Each step has a process of its
own. It prints a table and a line of JSON, and exits with 1 if a limit is exceeded. The limits are for the full size;
smaller sizes are options.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

GIBIBYTE = 1 << 30
TEST_EVERY = 100
"""Every hundredth query is a test query."""
SHARE = 0.05

Figures = dict[str, float]


@dataclass(frozen=True)
class Size:
    """The numbers of documents and queries, and of relevant documents for each query."""

    documents: int
    queries: int
    relevant: int


@dataclass(frozen=True)
class Bar:
    """A figure and its limit."""

    figure: str
    label: str
    unit: str
    limit: float


BARS = (
    Bar("import_gibibytes", "import, peak memory", "GiB", 2.0),
    Bar("open_seconds", "open", "s", 1.0),
    Bar("partition_seconds", "partition", "s", 10.0),
)
OTHERS = {
    "make_seconds": "write the BEIR folder, s",
    "beir_gibibytes": "BEIR folder, GiB",
    "import_seconds": "import, s",
    "open_gibibytes": "open to partition, peak memory, GiB",
    "sample_seconds": "sample the removal, s",
    "forget_pairs": "forget pairs",
    "entangled_pairs": "entangled pairs",
    "disjoint_pairs": "disjoint pairs",
}


def main() -> int:
    arguments = read_arguments()
    if arguments.step:
        print(json.dumps(STEPS[arguments.step](arguments.folder)))
        return 0
    size = Size(arguments.documents, arguments.queries, arguments.relevant)
    with tempfile.TemporaryDirectory(prefix="unrank-size-", dir=arguments.within) as folder:
        figures = measure(size, Path(folder))
    show(size, figures)
    missed = [bar for bar in BARS if not figures[bar.figure] < bar.limit]
    print(json.dumps({"size": vars(size), **figures, "passed": not missed}))
    return 1 if missed else 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure time and memory of a large collection.")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1_000_000)
    parser.add_argument("--relevant", type=int, default=5, help="relevant documents of each query")
    parser.add_argument("--within", type=Path, default=None, help="where to make the temporary folder")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(size: Size, folder: Path) -> Figures:
    started = perf_counter()
    make_beir(folder / "beir", size)
    made = perf_counter() - started
    written = sum(path.stat().st_size for path in (folder / "beir").rglob("*") if path.is_file())
    figures = {"make_seconds": made, "beir_gibibytes": written / GIBIBYTE}
    for step in STEPS:
        figures |= in_process(step, folder)
    return figures


def in_process(step: str, folder: Path) -> Figures:
    """Run one step in a process of its own, to measure its memory."""
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def step_import(folder: Path) -> Figures:
    from unrank import ImportOptions, import_collection

    started = perf_counter()
    import_collection(f"beir:{folder / 'beir'}", folder / "collection", ImportOptions(candidates=0))
    return {"import_seconds": perf_counter() - started, "import_gibibytes": peak_gibibytes()}


def step_use(folder: Path) -> Figures:
    from unrank import Removal, open_collection
    from unrank import partition as make_partition

    marks = [perf_counter()]
    collection = open_collection(folder / "collection")
    marks.append(perf_counter())
    removal = Removal.sample(collection, "documents", SHARE)
    marks.append(perf_counter())
    partition = make_partition(collection, removal)
    marks.append(perf_counter())
    opened, sampled, split = (later - sooner for sooner, later in pairwise(marks))
    return {
        "open_seconds": opened,
        "sample_seconds": sampled,
        "partition_seconds": split,
        "open_gibibytes": peak_gibibytes(),
        "forget_pairs": len(partition.forget),
        "entangled_pairs": len(partition.entangled),
        "disjoint_pairs": len(partition.disjoint),
    }


STEPS: dict[str, Callable[[Path], Figures]] = {"import": step_import, "use": step_use}


def peak_gibibytes() -> float:
    """Return the peak memory of this process."""
    return peak_of(resource.getrusage(resource.RUSAGE_SELF))


def peak_of(usage: resource.struct_rusage) -> float:
    """Return peak memory in GiB. Linux counts in KiB, macOS in bytes."""
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / GIBIBYTE


def make_beir(folder: Path, size: Size) -> None:
    """Write a BEIR folder with this many texts and judgements, as a stream."""
    generator = random.Random(0)
    (folder / "qrels").mkdir(parents=True)
    phrases = [" ".join(made_up_words(generator, 7)) for _ in range(20_000)]

    def texts(prefix: str, count: int, phrases_each: int) -> Iterator[dict[str, str]]:
        for number in range(count):
            yield {"_id": f"{prefix}{number}", "text": " ".join(generator.choices(phrases, k=phrases_each))}

    write_lines(folder / "corpus.jsonl", texts("d", size.documents, 8))
    write_lines(folder / "queries.jsonl", texts("q", size.queries, 1))
    with (folder / "qrels" / "train.tsv").open("w") as train, (folder / "qrels" / "test.tsv").open("w") as test:
        for file in (train, test):
            file.write("query-id\tcorpus-id\tscore\n")
        for query in range(size.queries):
            file = train if query % TEST_EVERY else test
            for document in distinct(generator, size.documents, size.relevant):
                file.write(f"q{query}\td{document}\t1\n")


def write_lines(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


def made_up_words(generator: random.Random, count: int) -> Iterator[str]:
    for _ in range(count):
        yield "".join(generator.choice("bcdfghjklmnprstvwz") + generator.choice("aeiou") for _ in range(3))


def distinct(generator: random.Random, size: int, count: int) -> Iterator[int]:
    """Yield `count` different numbers below `size`, faster than `random.sample`."""
    start, stride = generator.randrange(size), generator.randrange(1, max(2, size // count))
    return ((start + place * stride) % size for place in range(count))


def show(size: Size, figures: Figures) -> None:
    print(f"{size.documents:,} documents, {size.queries:,} queries, {size.queries * size.relevant:,} judgements\n")
    for bar in BARS:
        value = figures[bar.figure]
        verdict = "ok" if value < bar.limit else "MISSED"
        print(f"{bar.label:<36} {value:12,.2f} {bar.unit:<4} below {bar.limit:g}: {verdict}")
    for figure, label in OTHERS.items():
        print(f"{label:<36} {figures[figure]:12,.2f}")


if __name__ == "__main__":
    sys.exit(main())
