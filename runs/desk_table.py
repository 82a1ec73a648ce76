"""Twenty requests in some batches, by command line as a desk does it, each batch audited against a retrained ranker.

For one collection × some rankers: train the original; then for each batch add the requests, retrain without all
requests so far (the reference), and let the desk forget the batch. Ask for a certificate of every request, verify those
that are written, and close their requests. Prints a Markdown table of the batches, and one of every request: its own
pairs, its state and its worst pair (`requests.md`; every rank is in `requests.json`).

    python runs/desk_table.py COLLECTION --out FOLDER [--base MODEL] [--rankers cross-encoder bi-encoder]
        [--batches 7 7 6] [--share 0.002] [--target TARGET] [--keep-at-least 0.95]

`--batches 20` sends all in one batch; `--single` makes each a request for one document or one query.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from time import perf_counter
from typing import Any

from shared import base_of, markdown, parser, show

import unrank
from unrank.cli.main import run
from unrank.cli.option import NOT_REACHED, NOT_VERIFIABLE
from unrank.record import KEPT, read_run

HEAD = [
    "ranker", "batch", "requests", "pairs", "forget before", "forget after", "target", "entangled kept",
    "disjoint kept", "test kept", "forgotten before", "audit", "states", "forgetting took", "retraining took",
]  # fmt: skip
REQUESTS = ["ranker", "request", "pairs", "queries", "state", "worst pair", "changed", "unmoved", "MRR", "signed"]
WRONG_INPUT = 2


def requests(collection: unrank.Collection, count: int, share: float, single: bool) -> Iterator[unrank.Removal]:
    """Return requests for documents and for queries by turns, each with about this share of the pairs, or for one."""
    of_documents, of_queries = (count + 1) // 2, count // 2
    documents = unrank.Removal.sample(collection, "documents", of_documents * share).documents
    queries = unrank.Removal.sample(collection, "queries", of_queries * share).queries
    for number in range(count):
        if number % 2:
            yield unrank.Removal(queries=queries[number // 2 :: of_queries][: 1 if single else None])
        else:
            yield unrank.Removal(documents=documents[number // 2 :: of_documents][: 1 if single else None])


def command(*words: object, statuses: tuple[int, ...] = (0,)) -> int:
    print("unrank", *words, flush=True)
    status = run([str(word) for word in words])
    assert status in statuses, status
    return status


def answer(*words: object, statuses: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Return what a command with `--json` prints."""
    with redirect_stdout(StringIO()) as said:
        command(*words, "--json", statuses=statuses)
    found: dict[str, Any] = json.loads(said.getvalue().splitlines()[-1])
    return found


def rows_of(
    collection: unrank.Collection, kind: str, arguments: argparse.Namespace, each: list[dict[str, Any]]
) -> Iterator[list[str]]:
    """Run the batches, and return a row for each; add what came of every request to `each`."""
    out = arguments.out / kind
    out.mkdir(parents=True)
    base = base_of(kind, arguments)
    common = ["--device", arguments.device, "--seed", arguments.seed, *(["--base", base] if base else [])]
    ledger = ["--ledger", out / "desk.ledger"]
    ranker, asked = out / "ranker", unrank.Removal()
    command("train", collection.folder, "--ranker", kind, "--out", ranker, "--quiet", *common)
    coming, first = requests(collection, sum(arguments.batches), arguments.share, arguments.single), 1
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
        statuses = (0, NOT_REACHED, NOT_VERIFIABLE)
        found = answer("desk", "run", ranker, collection.folder, *given, statuses=statuses)
        for one in found["requests"]:
            each.append({"ranker": kind, **one, "certified": certified(one["request"], out, ledger)})
        yield row(kind, number, size, new, found, retraining)
        if not found["usable"] or not any(one["certified"] for one in each[-size:]):
            return
        ranker, first = new, first + size


def certified(request: int, out: Path, ledger: list[object]) -> bool:
    """Ask for a certificate; verify it and close the request if there is one."""
    paper = out / f"certificate{request}"
    if command("desk", "certificate", request, "--out", paper, "--quiet", *ledger, statuses=(0, WRONG_INPUT)):
        return False
    command("desk", "verify", paper, *ledger)
    command("desk", "close", request, "--leave", "other", "--quiet", *ledger)
    return True


def row(kind: str, batch: int, size: int, out: Path, found: dict[str, Any], retraining: float) -> list[str]:
    record = read_run(out)
    audit = json.loads((out.with_name(f"{out.name}-audit") / "audit.json").read_text())
    shares = record.kept
    kept = [f"{shares[name]:.3f}" if name in shares else "none" for name in KEPT]
    states = [one["state"] for one in found["requests"]]
    counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    return [
        kind, str(batch), str(size), str(audit["sets"]["forget"]["pairs"]), f"{record.before['forget'].mrr:.3f}",
        f"{record.after['forget'].mrr:.3f}", f"{record.target:.3f}", *kept,
        f"{record.earlier.before:.3f} → {record.earlier.after:.3f}" if record.earlier else "",
        "; ".join(f"{name} {test['verdict'].partition(' from ')[0]}" for name, test in audit["tests"].items()),
        "; ".join(counts) if found["usable"] else "the ranker is not for use",
        f"{record.seconds:.0f} s", f"{retraining:.0f} s",
    ]  # fmt: skip


def request_row(one: dict[str, Any]) -> list[str]:
    worst = one["worst"]
    return [
        one["ranker"], str(one["request"]), str(one["pairs"]), str(one["queries"]), one["state"],
        f"{worst['before']} → {worst['after']} of {worst['entries']}" if worst else "none",
        str(one["changed"]), str(one["unmoved"]), f"{one['mrr_before']:.3f} → {one['mrr_after']:.3f}",
        ("statement" if one["state"] == "nothing to forget" else "certificate") if one["certified"] else "none",
    ]  # fmt: skip


def main() -> None:
    options = parser(__doc__, ["cross-encoder", "bi-encoder"])
    options.add_argument("--batches", nargs="+", type=int, default=[7, 7, 6], help="the number of requests of each")
    options.add_argument("--share", type=float, default=0.002, help="the share of the pairs that a request names")
    options.add_argument("--single", action="store_true", help="each request names one document or one query")
    options.add_argument("--target", help="by default places, by the retrained ranker")
    options.add_argument("--keep-at-least", type=float, default=0.95)
    arguments = options.parse_args()
    collection = unrank.open_collection(arguments.collection)
    rows: list[list[str]] = []
    each: list[dict[str, Any]] = []
    for kind in arguments.rankers:
        for line in rows_of(collection, kind, arguments, each):
            rows.append(line)
            table = markdown(REQUESTS, [request_row(one) for one in each])
            (arguments.out / "requests.md").write_text("\n".join(table) + "\n", encoding="utf-8")
            (arguments.out / "requests.json").write_text(json.dumps(each, indent=1), encoding="utf-8")
            print("\n".join(table), flush=True)
            show(markdown(HEAD, rows), arguments.out)


if __name__ == "__main__":
    main()
