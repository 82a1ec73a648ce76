"""What was kept of the original's and of retrain's MRR, and how far each method agrees with retrain query by query.

Both tables have a row for doing nothing, the original itself: a method has to do better than that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar
from zlib import crc32

import numpy as np

from unrank.evaluation.agreement import ForgetFigures, correlation, mean_overlap, noise_between
from unrank.evaluation.bootstrap import BootstrapEstimate, resampled_columns
from unrank.evaluation.measure import Floats
from unrank.record import KEPT, Agreement
from unrank.report.cell import REMOVALS, Bench, Cell, Setting
from unrank.report.compare import mean, retrained_twice
from unrank.report.table import Table, Value, figure, words

NOTHING = "nothing (the original)"
TWICE = "retrain, two seeds"
INTERVAL = "95 %"
SHARES = {"original": "of original's", "retrain": "of retrain's"}
KEPT_NOTE = (
    "E, D, T: MRR on entangled, disjoint and test, as a share of the original's and of retrain's, on average over the "
    "cells of each row: compare rows over the same cells only. Intervals: 95 % bootstrap over queries; those of one "
    "collection are drawn alike for all its cells."
)
AGREEMENT_NOTE = (
    "Each forget query by itself, on average over the cells of each row. Distance: the mean of |RR − RR(retrain)|, RR "
    "being the reciprocal rank. / noise: as a multiple of the distance of two retrained rankers of different seeds, in "
    "the settings that have two. Correlation: Pearson's, of the reciprocal ranks. Overlap of lists: extrapolated "
    "rank-biased overlap (p .9) of the first 50 places of whole lists; empty if the cells keep no lists. "
    "|F − F(retrain)|: the difference of the two forget MRRs."
)

Key = TypeVar("Key", bound=Hashable)
Pair = tuple[ForgetFigures, ForgetFigures]


def estimates_of(values: Mapping[Key, tuple[str, Floats]]) -> dict[Key, BootstrapEstimate]:
    """Return the mean of one value for each query, with resamples. Each comes with the name of its collection.

    Values of one collection and number of queries are resampled alike, so that their differences are paired.
    """
    groups: dict[tuple[str, int], list[Key]] = defaultdict(list)
    for key, (collection, of) in values.items():
        groups[collection, len(of)].append(key)
    found = {}
    for (collection, number), keys in groups.items():
        columns = np.stack([values[key][1] for key in keys], axis=1)
        resampled = resampled_columns(columns, crc32(collection.encode()))
        for place, key in enumerate(keys):
            found[key] = BootstrapEstimate(float(columns[:, place].mean()), resampled[:, place], number)
    return found


@dataclass(frozen=True)
class KeptShares:
    """The MRR of each cell, its original and its retrained ranker on a set, with resamples."""

    bench: Bench
    name: str

    @cached_property
    def _estimates(self) -> dict[tuple[str, str], BootstrapEstimate]:
        values: dict[tuple[str, str], tuple[str, Floats]] = {}
        for cell in self.bench.cells:
            if self.name in cell.ranks:
                ranks, collection = cell.ranks[self.name], cell.setting.collection
                values[cell.name, "before"] = collection, ranks.reciprocal_before
                values[cell.name, "after"] = collection, ranks.reciprocal
        return estimates_of(values)

    def share(self, cells: Sequence[Cell], of: str, side: str = "after") -> BootstrapEstimate | None:
        """Return the mean share of the original's or of retrain's MRR; `side` before is the original itself."""
        found = []
        for cell in cells:
            whole = (cell.name, "before") if of == "original" else (cell.twin.name if cell.twin else "", "after")
            mine, theirs = self._estimates.get((cell.name, side)), self._estimates.get(whole)
            if mine and theirs and theirs.value:
                found.append(mine / theirs)
        return BootstrapEstimate.mean_of(found) if found else None


def kept_table(bench: Bench) -> Table:
    """Make one row for doing nothing and one per method: the shares of both, with intervals."""
    sets = dict(zip("EDT", (KeptShares(bench, name) for name in KEPT), strict=True))
    head = ["method", "cells"]
    head += [
        part for letter in sets for of in SHARES.values() for part in (f"{letter} {of}", f"{letter} {of}, {INTERVAL}")
    ]

    def row(label: str, cells: Sequence[Cell], side: str = "after") -> list[Value]:
        shares = [of.share(cells, whole, side) for of in sets.values() for whole in SHARES]
        return [words(label), figure(len(cells), "d"), *(part for share in shares for part in _with_interval(share))]

    rows = [row(NOTHING, _tried(bench), "before"), *(row(name, bench.of(name)) for name in bench.series)]
    return Table("kept", "What each method kept, beside doing nothing", head, rows, note=KEPT_NOTE)


def _tried(bench: Bench) -> list[Cell]:
    """Return one cell for each original that a method was tried on, that of retrain if there is one.

    If there is only retrain, return one for each original.
    """
    tried = {(cell.setting, cell.seed) for cell in bench.cells if not cell.is_retrained}
    retrained_last = sorted(bench.cells, key=lambda cell: cell.is_retrained)
    found = {(cell.setting, cell.seed): cell for cell in retrained_last}
    return [cell for key, cell in found.items() if key in tried or not tried]


def _with_interval(estimate: BootstrapEstimate | None) -> list[Value]:
    if estimate is None:
        return [figure(None), words("")]
    known = not np.isnan(estimate.resampled).any()
    return [figure(estimate.value), words(f"{estimate.low:.3f} to {estimate.high:.3f}" if known else "")]


def agreement_table(bench: Bench) -> Table | None:
    """Make rows for two retrained rankers, for doing nothing and for each method, by kind of removal.

    Return `None` if no cell has a retrained ranker.
    """
    noises = {
        setting: noise
        for setting, cells in retrained_twice(bench).items()
        if (noise := noise_between([cell.forget["after"] for cell in cells if cell.forget]))
    }
    rows = [row for removal in REMOVALS for row in _removal_rows(bench, removal, noises)]
    head = ["method", "removed", "cells", "distance", INTERVAL, "/ noise", "correlation", "overlap of lists"]
    head += ["|F\u00a0− F(retrain)|"]
    caption = "How far each method agrees with retrain on the forget set, query by query"
    return Table("agreement", caption, head, rows, 2, AGREEMENT_NOTE) if rows else None


def _removal_rows(bench: Bench, removal: str, noises: Mapping[Setting, Agreement]) -> list[list[Value]]:
    def pairs_of(cells: Sequence[Cell], pair: Callable[[Cell], Pair | None]) -> list[tuple[Setting, Pair]]:
        mine = [cell for cell in cells if cell.setting.removal == removal]
        return [(cell.setting, two) for cell in mine if (two := pair(cell)) is not None]

    shown = {NOTHING: pairs_of(_tried(bench), lambda cell: cell.original_beside_retrain)}
    shown |= {name: pairs_of(bench.of(name), lambda cell: cell.beside_retrain) for name in bench.series}
    rows = [_agreement_row(name, removal, pairs, noises) for name, pairs in shown.items() if pairs]
    here = [noise for setting, noise in noises.items() if setting.removal == removal]
    return [*([_noise_row(removal, here)] if here else []), *rows]


def _noise_row(removal: str, noises: Sequence[Agreement]) -> list[Value]:
    return [
        words(TWICE),
        words(removal),
        figure(len(noises), "d"),
        figure(mean(noise.distance for noise in noises)),
        words(""),
        figure(1.0, ".2f"),
        figure(mean(noise.correlation for noise in noises)),
        figure(mean(noise.rank_biased_overlap for noise in noises)),
        words(""),
    ]


def _agreement_row(
    name: str, removal: str, pairs: Sequence[tuple[Setting, Pair]], noises: Mapping[Setting, Agreement]
) -> list[Value]:
    apart = {
        place: (setting.collection, np.abs(one.reciprocal - other.reciprocal))
        for place, (setting, (one, other)) in enumerate(pairs)
    }
    estimates = estimates_of(apart)
    known = [place for place, (setting, _) in enumerate(pairs) if setting in noises]
    noise = mean(noises[pairs[place][0]].distance for place in known)
    distance = mean(estimates[place].value for place in known)
    return [
        words(name),
        words(removal),
        figure(len(pairs), "d"),
        *_with_interval(BootstrapEstimate.mean_of([*estimates.values()])),
        figure(distance / noise if distance is not None and noise else None, ".2f"),
        figure(mean(correlation(one.reciprocal, other.reciprocal) for _, (one, other) in pairs)),
        figure(mean(mean_overlap(one.orders, two.orders) for _, (one, two) in pairs if one.orders and two.orders)),
        figure(mean(abs(float(one.reciprocal.mean() - other.reciprocal.mean())) for _, (one, other) in pairs)),
    ]
