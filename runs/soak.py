"""A soak test: one removal request after another on one ranker. Do forgotten pairs stay forgotten, and kept ones kept?

Documents with a share of the training pairs are removed in several requests, each from the ranker of the one before.
After each, every request so far is measured against its target, and the kept sets against the original. Prints a row a
request, and at the end a Markdown table and whether the limits were kept; writes a record a line, and draws the curve.

    python runs/soak.py COLLECTION --out FOLDER [--base MODEL] [--rankers bi-encoder] [--requests 50] [--share 0.1]
        [--method cocol] [--set NAME=VALUE] [--target unseen]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shared import Lines, base_of, keep, markdown, parser, show

import unrank
from unrank.collection.partition import make_partition
from unrank.engine.checkpoint import Cache
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.workspace import Workspace
from unrank.methods import read_settings
from unrank.rankers.base import Ranker
from unrank.record import KEPT, shares_kept
from unrank.report.charts import Curve, Target, curves, panels
from unrank.report.drawing import Drawing, Style
from unrank.report.run_figures import SET_STYLES
from unrank.report.write import write_figures

ABOVE = 0.05
"""The most that a request may be above its target."""
LEFT = 0.9
"""The least share of the original's MRR that each kept set must have left."""
MEASURED = 200
"""The number of queries of each kept set that a run measures; after it, all of them are measured here."""
HEAD = [
    "request",
    "pairs",
    "target",
    "forget MRR",
    "most above its target",
    "of request",
    "on average",
    "epochs",
    *KEPT,
]


@dataclass(frozen=True)
class Moment:
    """The measurements after a request."""

    pairs: int
    target: float
    above: list[float]
    """The distance of each request so far above its target."""
    forget: float
    epochs: float
    kept: dict[str, float]
    """The share of the original's MRR that each kept set has left."""

    @property
    def average(self) -> float:
        return sum(self.above) / len(self.above)

    def row(self, number: int) -> list[str]:
        worst = max(range(len(self.above)), key=self.above.__getitem__)
        figures = [f"{self.target:.3f}", f"{self.forget:.3f}", f"{self.above[worst]:+.3f}", str(worst + 1)]
        return [
            str(number),
            str(self.pairs),
            *figures,
            f"{self.average:+.3f}",
            f"{self.epochs:.3g}",
            *(f"{self.kept[name]:.3f}" for name in KEPT),
        ]


class Soak:
    """A collection, its requests, and the original that all kept sets are measured against."""

    def __init__(
        self, collection: unrank.Collection, original: Ranker, requests: Sequence[unrank.Removal], device: str
    ) -> None:
        whole = unrank.Removal(documents=[id for request in requests for id in request.documents])
        self._workspace = Workspace.open(original, collection, make_partition(collection, whole), device)  # type: ignore[arg-type]
        self._forgotten = [make_partition(collection, request).forget for request in requests]
        self._before = self._scorecard(original)

    def moment(self, result: unrank.Forgotten, so_far: list[float]) -> Moment:
        """Measure the ranker of a request; `so_far` are the targets of all requests until now."""
        scorer = self._workspace.scorer(result.ranker)
        each = self._workspace.evaluator.reciprocals_of_each(scorer, self._forgotten[: len(so_far)], forget=True)
        mrrs = [float(reciprocals.mean()) for reciprocals in each]
        after = self._scorecard(result.ranker)
        return Moment(
            pairs=len(self._forgotten[len(so_far) - 1]),
            target=so_far[-1],
            above=[mrr - target for mrr, target in zip(mrrs, so_far, strict=True)],
            forget=mrrs[-1],
            epochs=result.record.epochs,
            kept=shares_kept(self._before.mrrs, after.mrrs),
        )

    def _scorecard(self, ranker: Ranker) -> Scorecard:
        return self._workspace.evaluator.scorecard(self._workspace.scorer(ranker))


def soak(collection: unrank.Collection, kind: str, arguments: argparse.Namespace) -> Iterator[Moment]:
    tokens = Cache(arguments.out / "cache", scores=False)
    where = {"device": arguments.device, "progress": Lines(), "cache": tokens}
    trained = unrank.train(collection, kind, base_of(kind, arguments), seed=arguments.seed, **where)
    requests = in_parts(unrank.Removal.sample(collection, "documents", arguments.share), arguments.requests)
    watcher = Soak(collection, trained.ranker, requests, arguments.device)
    ranker, record, targets = trained.ranker, trained.record, list[float]()
    for request in requests:
        result = unrank.forget(
            ranker,
            collection,
            request,
            method=unrank.make_method(arguments.method, read_settings(arguments.set or ()), ranker=kind),
            target=arguments.target,
            record=record,
            measure=MEASURED,
            seed=arguments.seed,
            **where,
        )
        keep(arguments.out, result.record)
        ranker, record = result.ranker, result.record
        targets.append(result.target)
        yield watcher.moment(result, targets)


def in_parts(removal: unrank.Removal, parts: int) -> list[unrank.Removal]:
    """Split a removal into requests of about the same size."""
    return [unrank.Removal(documents=removal.documents[first::parts]) for first in range(parts)]


def verdict(moments: Sequence[Moment]) -> str:
    above = max(max(moment.above) for moment in moments)
    left = moments[-1].kept
    held = above <= ABOVE and min(left.values()) >= LEFT
    kept = ", ".join(f"{name} {share:.3f}" for name, share in left.items())
    return (
        f"the limits were {'kept' if held else 'NOT kept'}: at most {above:+.3f} above a target (limit {ABOVE:+.2f}); "
        f"left of the original at the end: {kept} (limit {LEFT})"
    )


def drawn(kind: str, moments: Sequence[Moment]) -> Drawing | None:
    """Draw the loss of the kept sets, and the requests so far above their targets."""

    def curve(name: str, style: Style, value: Callable[[Moment], float]) -> Curve:
        return Curve(name, style, [(number, value(moment)) for number, moment in enumerate(moments, 1)])

    kept = [curve(name, SET_STYLES[name], lambda moment, name=name: 1 - moment.kept[name]) for name in KEPT]  # type: ignore[misc]
    above = [
        curve("the highest", Style.of(0), lambda moment: max(moment.above)),
        curve("on average", Style.of(4), lambda moment: moment.average),
    ]
    lost, risen = Target(1 - LEFT, name="limit"), Target(ABOVE, name="limit")
    sides = [
        curves("lost", "Kept sets: lost of the original's MRR", kept, [lost], "request", "share"),
        curves("above", "Requests so far: above their targets", above, [risen], "request", "MRR"),
    ]
    return panels(f"soak-{kind}", f"Request after request, {kind}", sides)


def main() -> None:
    made = parser(__doc__, ["bi-encoder"])
    made.add_argument("--requests", type=int, default=50)
    made.add_argument("--share", type=float, default=0.1)
    made.add_argument("--method", default="cocol")
    made.add_argument("--set", action="append", metavar="NAME=VALUE", help="a setting of the method")
    made.add_argument("--target", default="unseen")
    arguments = made.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    collection = unrank.open_collection(arguments.collection)
    lines: list[str] = []
    for kind in arguments.rankers:
        moments, rows = list[Moment](), list[list[str]]()
        for number, moment in enumerate(soak(collection, kind, arguments), 1):
            moments.append(moment)
            rows.append(moment.row(number))
            print(*(f"{name} {figure}" for name, figure in zip(HEAD, rows[-1], strict=True)), sep=", ", flush=True)
        write_figures([made for made in [drawn(kind, moments)] if made], arguments.out / kind)
        lines += [f"{kind}: {verdict(moments)}", "", *markdown(HEAD, rows), ""]
    show(lines, arguments.out)


if __name__ == "__main__":
    main()
