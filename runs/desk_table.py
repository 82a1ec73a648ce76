"""Twenty requests in three batches, by command line as a desk does it, each batch audited against a retrained ranker.

For one collection × some rankers: train the original; then for each batch add the requests, retrain without all
requests so far (the reference), let the desk forget the batch, close it and certify it. Prints a Markdown table.

    python runs/desk_table.py COLLECTION --out FOLDER [--base MODEL] [--rankers cross-encoder bi-encoder]
        [--batches 7 7 6] [--share 0.002] [--target TARGET] [--keep-at-least 0.95]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from shared import base_of, markdown, parser, show

import unrank
from unrank.cli.main import run
from unrank.cli.option import NOT_REACHED
from unrank.record import KEPT, read_run

HEAD = [
    "ranker", "batch", "requests", "pairs", "forget before", "forget after", "target", "entangled kept",
    "disjoint kept", "test kept", "forgotten before", "audit", "gates", "forgetting took", "retraining took",
]  # fmt: skip


def requests(collection: unrank.Collection, count: int, share: float) -> Iterator[unrank.Removal]:
    """Return requests for documents and for queries by turns, each with about this share of the pairs."""
    of_documents, of_queries = (count + 1) // 2, count // 2
    documents = unrank.Removal.sample(collection, "documents", of_documents * share).documents
    queries = unrank.Removal.sample(collection, "queries", of_queries * share).queries
    for number in range(count):
        if number % 2:
            yield unrank.Removal(queries=queries[number // 2 :: of_queries])
        else:
            yield unrank.Removal(documents=documents[number // 2 :: of_documents])


def command(*words: object, statuses: tuple[int, ...] = (0,)) -> int:
    print("unrank", *words, flush=True)
    status = run([str(word) for word in words])
    assert status in statuses, status
    return status


def rows_of(collection: unrank.Collection, kind: str, arguments: argparse.Namespace) -> Iterator[list[str]]:
    """Run the batches, and return a row for each."""
    out = arguments.out / kind
    out.mkdir(parents=True)
    base = base_of(kind, arguments)
    common = ["--device", arguments.device, "--seed", arguments.seed, *(["--base", base] if base else [])]
    ledger = ["--ledger", out / "desk.ledger"]
    ranker, asked = out / "ranker", unrank.Removal()
    command("train", collection.folder, "--ranker", kind, "--out", ranker, "--quiet", *common)
    coming, first = requests(collection, sum(arguments.batches), arguments.share), 1
    for number, size in enumerate(arguments.batches, 1):
        for place in range(first, first + size):
            removal = next(coming)
            asked |= removal
            removal.save(out / f"request{place}.json")
            command("desk", "add", collection.folder, "--removal", out / f"request{place}.json", *ledger)
        asked.save(out / f"asked{number}.json")
        reference, began = out / f"retrained{number}", perf_counter()
        without = ["--removal", out / f"asked{number}.json", "--out", reference, "--quiet"]
        command("train", collection.folder, "--ranker", kind, *without, *common)
        retraining = perf_counter() - began
        new = out / f"batch{number}"
        gates = ["--keep-at-least", arguments.keep_at_least, "--reference", reference]
        gates += ["--target", arguments.target] if arguments.target else []
        given = ["--yes", "--out", new, "--quiet", *gates, *common, *ledger]
        status = command("desk", "run", ranker, collection.folder, *given, statuses=(0, NOT_REACHED))
        yield row(kind, number, size, new, status, retraining)
        if status == NOT_REACHED:
            return
        for place in range(first, first + size):
            command("desk", "close", place, "--leave", "other-purpose", *ledger)
            command("desk", "certificate", place, "--out", out / f"certificate{place}", *ledger)
            command("desk", "verify", out / f"certificate{place}", *ledger)
        ranker, first = new, first + size


def row(kind: str, batch: int, size: int, out: Path, status: int, retraining: float) -> list[str]:
    record = read_run(out)
    audit = json.loads((out.with_name(f"{out.name}-audit") / "audit.json").read_text())
    shares = record.kept
    kept = [f"{shares[name]:.3f}" if name in shares else "none" for name in KEPT]
    return [
        kind, str(batch), str(size), str(audit["sets"]["forget"]["pairs"]), f"{record.before['forget'].mrr:.3f}",
        f"{record.after['forget'].mrr:.3f}", f"{record.target:.3f}", *kept,
        f"{record.earlier.before:.3f} → {record.earlier.after:.3f}" if record.earlier else "",
        "; ".join(f"{name} {found['verdict'].partition(' from ')[0]}" for name, found in audit["tests"].items()),
        "passed" if status == 0 else "not passed", f"{record.seconds:.0f} s", f"{retraining:.0f} s",
    ]  # fmt: skip


def main() -> None:
    options = parser(__doc__, ["cross-encoder", "bi-encoder"])
    options.add_argument("--batches", nargs="+", type=int, default=[7, 7, 6], help="the number of requests of each")
    options.add_argument("--share", type=float, default=0.002, help="the share of the pairs that a request names")
    options.add_argument("--target", help="by default the forget MRR of the retrained ranker")
    options.add_argument("--keep-at-least", type=float, default=0.95)
    arguments = options.parse_args()
    collection = unrank.open_collection(arguments.collection)
    rows: list[list[str]] = []
    for kind in arguments.rankers:
        for line in rows_of(collection, kind, arguments):
            rows.append(line)
            show(markdown(HEAD, rows), arguments.out)


if __name__ == "__main__":
    main()
