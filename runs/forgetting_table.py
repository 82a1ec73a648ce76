"""One collection × some rankers × both removals: the original, the retrained ranker, and what each method makes of it.

The targets are the paper's destinations, measured on the retrained ranker. Prints a Markdown table and writes one
record a line; a cell that fails is said so, and the others go on.

    python runs/forgetting_table.py COLLECTION --out FOLDER [--base MODEL] [--rankers cross-encoder bi-encoder]
        [--methods cocol cocol@destination-3 cocol:paper ssd] [--targets destination-2] [--recovery]
        [--freeze documents] [--train-layers 2]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

from shared import Lines, base_of, keep, markdown, parser, show

import unrank
from unrank.errors import UnrankError
from unrank.evaluation.scorecard import Measured, Scorecard
from unrank.forgetting.record import Record
from unrank.forgetting.run import Pace
from unrank.forgetting.target import destination
from unrank.forgetting.train import Trained
from unrank.methods.base import Method
from unrank.rankers.layers import read_layers

SETS = ("entangled", "disjoint", "test")
HEAD = [
    "ranker", "removed", "method", "target", "δ", "F", "E", "D", "T", "epochs", "seconds", "time / retrain",
    "recovered", "retrain recovered",
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One cell of the table."""

    ranker: str
    removal: str
    method: str
    original: Scorecard
    retrained: Trained
    after: Scorecard
    record: Record

    @property
    def gap(self) -> float:
        assert self.after.forget is not None and self.record.target is not None
        return abs(self.after.forget.mean - self.record.target)

    @property
    def time(self) -> float:
        return self.record.seconds / self.retrained.record.seconds

    def kept(self, name: str) -> float:
        """The share that is left of the lower of the original's and the retrained ranker's."""
        after, original, retrained = (
            _there(getattr(card, name)).mean for card in (self.after, self.original, self.retrained.after)
        )
        return after / min(original, retrained)

    def cells(self) -> list[str]:
        found = self.record.recovery or {}
        return [
            self.ranker,
            self.removal,
            self.method,
            str(self.record.target_name),
            f"{self.record.target:.3f}",
            f"{_there(self.after.forget).mean:.3f}",
            *(f"{self.kept(name):.3f}" for name in SETS),
            f"{self.record.epochs:g}",
            f"{self.record.seconds:.1f}",
            f"{self.time:.2f}",
            *(f"{found[name]:.3f}" if found.get(name) is not None else "" for name in ("after", "reference_after")),
        ]


def _there(measured: Measured | None) -> Measured:
    assert measured is not None
    return measured


def rows_of(collection: unrank.Collection, kind: str, arguments: argparse.Namespace) -> list[Row]:
    """Train the original, and for both removals retrain and forget."""
    common: dict[str, Any] = {"device": arguments.device, "seed": arguments.seed, "progress": Lines()}
    base = base_of(kind, arguments)
    print(f"{kind}: original", flush=True)
    original = unrank.train(collection, kind, base, **common)
    keep(arguments.out, original.record)
    rows: list[Row] = []
    for removal in arguments.removals:
        removed = unrank.Removal.sample(collection, removal, arguments.share)
        print(f"{kind}, {removal}: retrain", flush=True)
        retrained = unrank.train(collection, kind, base, removed, **common)
        keep(arguments.out, retrained.record)
        before: Scorecard | None = None
        for method, target in asked(arguments):
            print(f"{kind}, {removal}: {method} to {target}", flush=True)
            try:
                result = unrank.forget(
                    original.ranker,
                    collection,
                    removed,
                    method=method_of(method, kind),
                    target=destination(target, retrained.record.after),
                    base=base,
                    reference=retrained.ranker,
                    known=original.record.to_json({}),
                    before=before,
                    pace=Pace(watch=0, check_every=arguments.check_every),
                    check_recovery=arguments.recovery and target == arguments.targets[0],
                    freeze=arguments.freeze,
                    train_layers=read_layers(arguments.train_layers) if arguments.train_layers else None,
                    **common,
                )
            except UnrankError as error:
                print(f"  failed: {error}", flush=True)
                continue
            before, record = result.before, replace(result.record, target_name=target)
            rows.append(Row(kind, removal, method, before, retrained, result.after, record))
            print(f"  {' | '.join(rows[-1].cells())}", flush=True)
            keep(arguments.out, record)
    return rows


def asked(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """Each method with each target; one that names its own (`cocol@destination-3`) with that alone."""
    pairs = [(text.split("@"), target) for text in arguments.methods for target in arguments.targets]
    return list(dict.fromkeys((parts[0], (*parts[1:], target)[0]) for parts, target in pairs))


def method_of(text: str, kind: str) -> Method:
    """`cocol`, `cocol:paper` with a preset, `cocol,held=4` with settings."""
    name, *settings = text.split(",")
    name, _, preset = name.partition(":")
    return unrank.make_method(name, dict(setting.split("=") for setting in settings), kind, preset or None)


def summary(rows: list[Row]) -> list[str]:
    lines = markdown(HEAD, [row.cells() for row in rows])
    for method, target in dict.fromkeys((row.method, row.record.target_name) for row in rows):
        cells = [row for row in rows if (row.method, row.record.target_name) == (method, target)]
        means = ", ".join(f"{name} {sum(row.kept(name) for row in cells) / len(cells):.3f}" for name in SETS)
        lines.append(
            f"\n{method} to {target}, {len(cells)} cells: |F − δ| {sum(row.gap for row in cells) / len(cells):.4f}, "
            f"worst {max(row.gap for row in cells):.4f}; kept {means}, "
            f"least {min(row.kept(name) for row in cells for name in SETS):.3f}; "
            f"time / retrain {sum(row.time for row in cells) / len(cells):.2f}"
        )
    return lines


def main() -> None:
    told = parser(__doc__, ["cross-encoder", "bi-encoder"])
    told.add_argument("--removals", nargs="+", default=["documents", "queries"])
    told.add_argument(
        "--methods",
        nargs="+",
        default=["cocol"],
        help="NAME[:PRESET][,SETTING=VALUE…][@TARGET]",
    )
    told.add_argument("--targets", nargs="+", default=["destination-2"])
    told.add_argument("--recovery", action="store_true", help="at the first target")
    told.add_argument("--check-every", type=int)
    told.add_argument("--freeze", choices=["documents"])
    told.add_argument("--train-layers")
    told.add_argument("--share", type=float, default=0.25)
    arguments = told.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    collection = unrank.open_collection(arguments.collection)
    print(collection, flush=True)
    rows: list[Row] = []
    for kind in arguments.rankers:
        rows += rows_of(collection, kind, arguments)
        show(summary(rows), arguments.out)


if __name__ == "__main__":
    main()
