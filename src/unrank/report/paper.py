"""The paper's numbers, as data (`paper.json`), to show beside ours.

Its collections are larger than those of the same family here: compare the order of methods, not single numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from unrank.record import KEPT, RETRAIN, SETS
from unrank.report.cell import DESTINATION, Cell, Setting

FAMILIES = {"msmarco": ("msmarco-passage",), "trec-car": ("trec-car", "car/")}
"""The beginnings of the names of collections that were made from the paper's two."""


@dataclass(frozen=True)
class Paper:
    """The source of the numbers, and the four MRRs of each setting and method."""

    source: str
    rows: Mapping[tuple[Setting, str], Mapping[str, float]]

    def printed(self, cell: Cell) -> Mapping[str, float] | None:
        """Return what the paper printed for a cell's method, setting and destination; `None` if it printed nothing."""
        named = cell.label in (cell.record.method, f"{cell.record.method}:paper")
        return self._find(cell.setting, cell.record.method) if named and cell.target in (None, DESTINATION) else None

    def distance(self, cell: Cell) -> float | None:
        """Return the distance of its forget MRR from its retrained ranker's test MRR."""
        found, retrained = self.printed(cell), self._find(cell.setting, RETRAIN)
        return abs(found["forget"] - retrained["test"]) if found and retrained else None

    def kept(self, cell: Cell) -> dict[str, float]:
        """Return the share of the retrained ranker's MRR that each set kept; the paper prints no original's MRR."""
        found, retrained = self.printed(cell), self._find(cell.setting, RETRAIN)
        if not found or not retrained:
            return {}
        return {name: found[name] / retrained[name] for name in KEPT if retrained[name] > 0}

    def _find(self, setting: Setting, method: str) -> Mapping[str, float] | None:
        for family, names in FAMILIES.items():
            if setting.collection.startswith(names):
                return self.rows.get((replace(setting, collection=family), method))
        return None


@cache
def the_paper() -> Paper:
    value = json.loads(files("unrank.report").joinpath("paper.json").read_text(encoding="utf-8"))
    rows = {}
    for collection, ranker, share, removal, method, *mrrs in value["rows"]:
        rows[Setting(collection, ranker, removal, share), method] = dict(zip(SETS, mrrs, strict=True))
    source = value["source"]
    return Paper(f"{source['authors']}: {source['title']}, {source['tables']}", MappingProxyType(rows))
