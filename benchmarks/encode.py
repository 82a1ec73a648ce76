"""`unrank encode` by shards, one of which is killed: the same bits as one process writes, in little memory.

    python benchmarks/encode.py [--documents N] [--smaller N] [--shards N] [--base static|FOLDER] [--within FOLDER]

Makes a collection (`synthetic.py`) and a smaller one with the same first documents. One process encodes each of them.
Then shards encode the large one, one after the other: one of them is killed (SIGKILL) once it has written a piece, and
is run again at the end. All vectors must be equal bit by bit. Memory is what a process has of its own (`RssAnon`, read
ten times a second), because the pages of mapped files can be taken back at any time; the largest that was ever
resident, such pages included, is printed too. It prints a line of JSON, and exits with 1 if a bit differs or if memory
grows with the collection. By default the ranker has static embeddings of random numbers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import pyarrow as pa
from million import words_of
from size import GIBIBYTE
from synthetic import Size, make_collection

from unrank.disk import sha256
from unrank.rankers import create_ranker

MOST_GROWTH = 1.25
"""The memory of the large collection must be below this many times that of the smaller one."""
TICK = 0.1
WORDS = [f"{first}{second}{third}" for first in "bdfgklmnprst" for second in "aeiou" for third in "bdfgklmnprst"]


@dataclass(frozen=True)
class Run:
    """One process of `unrank encode`."""

    seconds: float
    own_gibibytes: float
    resident_gibibytes: float


def main() -> int:
    arguments = read_arguments()
    with tempfile.TemporaryDirectory(prefix="unrank-encode-", dir=arguments.within) as within:
        figures = measure(Path(within), arguments)
    smaller, one = figures["smaller"], figures["one"]
    largest = max(run["own_gibibytes"] for run in (one, *figures["shards"]))
    passed = {"equal": figures["equal"], "memory": largest < MOST_GROWTH * smaller["own_gibibytes"]}
    print(json.dumps({**figures, "passed": passed}))
    return 0 if all(passed.values()) else 1


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=9_000_000)
    parser.add_argument("--smaller", type=int, default=1_000_000, help="documents of the smaller collection")
    parser.add_argument("--sentences", type=int, default=1, help="sentences of twelve words in a document")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--base", default="static", help="'static', or an encoder's folder")
    parser.add_argument("--width", type=int, default=32, help="numbers in a static vector")
    parser.add_argument("--within", type=Path, help="where to make the temporary folder")
    return parser.parse_args()


def measure(within: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    large, small, ranker, one, shards = (within / name for name in ("large", "small", "ranker", "one", "shards"))
    if arguments.base == "static":
        words = WORDS
        make_static(ranker, words, arguments.width)
    else:
        words = words_of(Path(arguments.base))
        create_ranker("bi-encoder", arguments.base, 0).save(ranker)
    for folder, documents in ((large, arguments.documents), (small, arguments.smaller)):
        make_collection(folder, Size(documents, 200), words, arguments.sentences)
    smaller = encode(ranker, small, within / "smaller")
    whole = encode(ranker, large, one)
    killed = arguments.shards // 2 or 1
    runs = [encode(ranker, large, shards, f"{killed}/{arguments.shards}", kill=True)]
    others = [number for number in range(1, arguments.shards + 1) if number != killed]
    for number in (*others, killed):
        assert not (shards / "vectors.arrow").exists(), "joined before all shards had ended"
        runs.append(encode(ranker, large, shards, f"{number}/{arguments.shards}"))
    with pa.memory_map(str(shards / "vectors.arrow")) as file:
        rows = sum(len(batch) for batch in batches_of(file))
    return {
        "documents": arguments.documents,
        "rows": rows,
        "collection_gibibytes": size_of(large / "documents.arrow"),
        "vectors_gibibytes": size_of(shards / "vectors.arrow"),
        "equal": rows == arguments.documents and sha256(one / "vectors.arrow") == sha256(shards / "vectors.arrow"),
        "smaller": {"documents": arguments.smaller, **asdict(smaller)},
        "one": asdict(whole),
        "shards": [asdict(run) for run in runs],
    }


def batches_of(file: Any) -> list[pa.RecordBatch]:
    reader = pa.ipc.open_file(file)
    return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def size_of(path: Path) -> float:
    return path.stat().st_size / GIBIBYTE


def make_static(folder: Path, words: Sequence[str], width: int) -> None:
    """Write a bi-encoder with a random vector for each word."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    rows = {word: row for row, word in enumerate(["[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(rows, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vectors = torch.randn(len(rows), width, generator=torch.Generator().manual_seed(0))
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)], device="cpu").save(str(folder))


def encode(ranker: Path, collection: Path, out: Path, shard: str = "1/1", kill: bool = False) -> Run:
    """Run `unrank encode` in a process of its own; with `kill`, until it has written a piece."""
    started, own, resident = perf_counter(), 0.0, 0.0
    command = ["encode", ranker, collection, "--out", out, "--shard", shard, "--device", "cpu", "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "unrank", *map(str, command)])
    while process.poll() is None:
        found = memory_of(process.pid)
        own, resident = max(own, found.get("RssAnon", 0.0)), max(resident, found.get("VmHWM", 0.0))
        if kill and [*(out / "pieces-vectors").glob("[!.]*")]:
            process.kill()
        sleep(TICK)
    assert process.returncode == (-9 if kill else 0), f"unrank encode ended with {process.returncode}"
    return Run(perf_counter() - started, own, resident)


def memory_of(pid: int) -> dict[str, float]:
    """Return the memory of a process in GiB, by Linux's names; nothing if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    words = [line.split() for line in lines if line.endswith("kB")]
    return {name.rstrip(":"): int(number) * 1024 / GIBIBYTE for name, number, _ in words}


if __name__ == "__main__":
    sys.exit(main())
