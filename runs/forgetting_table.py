"""One collection × some rankers × both removals: the original, the retrained ranker, and what forgetting makes of it.

The target is the retrained ranker's test MRR, as in the paper's tables. Prints a Markdown table and writes one record
a line.

    python runs/forgetting_table.py COLLECTION --out FOLDER [--base MODEL] [--rankers cross-encoder bi-encoder]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from shared import Lines, keep, markdown, show

import unrank
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.record import Record
from unrank.forgetting.run import Pace
from unrank.forgetting.train import Trained

SETS = ("entangled", "disjoint", "test")


@dataclass(frozen=True)
class Row:
    """One cell of the table."""

    ranker: str
    removal: str
    method: str
    target: float
    original: Scorecard
    retrained: Trained
    after: Scorecard
    record: Record

    def cells(self) -> list[str]:
        assert self.after.forget is not None and self.retrained.after.forget is not None
        kept = [f"{self.kept(name):.3f}" for name in SETS]
        time = self.record.seconds / self.retrained.record.seconds
        return [
            self.ranker,
            self.removal,
            self.method,
            f"{self.target:.3f}",
            f"{self.after.forget.mean:.3f}",
            *kept,
            f"{self.record.epochs:g}",
            f"{self.record.seconds:.1f}",
            f"{time:.2f}",
            f"{self.retrained.after.forget.mean:.3f}",
        ]

    def kept(self, name: str) -> float:
        """The share that is left of the lower of the original's and the retrained ranker's."""
        after, original = getattr(self.after, name), getattr(self.original, name)
        lower = min(original.mean, getattr(self.retrained.after, name).mean)
        return float(after.mean / lower)


HEAD = ["ranker", "removed", "method", "δ", "F", "E", "D", "T", "epochs", "seconds", "time / retrain", "F retrain"]


def rows_of(collection: unrank.Collection, kind: str, share: float, arguments: argparse.Namespace) -> list[Row]:
    """Train the original, and for both removals retrain and forget."""
    listener = Lines()
    print(f"{kind}: original", flush=True)
    original = unrank.train(collection, kind, arguments.base, device=arguments.device, progress=listener)
    keep(arguments.out, original.record)
    rows = []
    for removal in arguments.removals:
        removed = unrank.Removal.sample(collection, removal, share)
        print(f"{kind}, {removal}: retrain", flush=True)
        retrained = unrank.train(collection, kind, arguments.base, removed, device=arguments.device, progress=listener)
        assert retrained.after.test is not None
        target = retrained.after.test.mean
        for method in arguments.methods:
            print(f"{kind}, {removal}: {method}, target {target:.3f}", flush=True)
            name, *settings = method.split(",")
            chosen = unrank.make_method(name, dict(setting.split("=") for setting in settings))
            result = unrank.forget(
                original.ranker,
                collection,
                removed,
                method=chosen,
                target=target,
                known=original.record.to_json({}),
                pace=Pace(watch=0),
                device=arguments.device,
                progress=listener,
            )
            rows.append(Row(kind, removal, method, target, result.before, retrained, result.after, result.record))
            print(f"  {' | '.join(rows[-1].cells())}", flush=True)
            keep(arguments.out, result.record, *([retrained.record] if method == arguments.methods[0] else []))
    return rows


def summary(rows: list[Row]) -> list[str]:
    lines = markdown(HEAD, [row.cells() for row in rows])
    for method in dict.fromkeys(row.method for row in rows):
        cells = [row for row in rows if row.method == method]
        means = " ".join(f"{name} {sum(row.kept(name) for row in cells) / len(cells):.3f}" for name in SETS)
        gaps = [abs(row.after.forget.mean - row.target) for row in cells if row.after.forget is not None]
        lines.append(f"\n{method}: mean |F − δ| {sum(gaps) / len(gaps):.4f}, worst {max(gaps):.4f}; kept {means}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base")
    parser.add_argument("--rankers", nargs="+", default=["cross-encoder", "bi-encoder"])
    parser.add_argument("--removals", nargs="+", default=["documents", "queries"])
    parser.add_argument("--methods", nargs="+", default=["cocol"], help="a method, or method,setting=value,…")
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    collection = unrank.open_collection(arguments.collection)
    print(collection, flush=True)
    rows: list[Row] = []
    for kind in arguments.rankers:
        rows += rows_of(collection, kind, arguments.share, arguments)
        show(summary(rows), arguments.out)


if __name__ == "__main__":
    main()
