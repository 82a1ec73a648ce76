"""A run as its record tells it: `unrank.json`, read and checked, without a model and without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unrank.disk import fits, read_json
from unrank.errors import BadFile
from unrank.evaluation.scorecard import SETS, shares_kept
from unrank.formats import RECORD, RECORD_VERSION


def _is_line(value: Any) -> bool:
    """Of a history: whatever is measured in it is a number, at an epoch."""
    measured = [name for name in SETS if name in value] if isinstance(value, dict) else [""]
    return not measured or fits(value, dict.fromkeys(("epoch", *measured), float))


MEASURES = {name: ({"mrr": float, "low": float, "high": float, "queries": int}, None) for name in SETS}
FORM = {
    "method": str, "ranker": str, "collection": {"name": str}, "before": MEASURES, "after": MEASURES,
    "target": (float, None), "reached": (bool, None), "epochs": float, "seconds": float, "timing": dict,
    "learning_epoch": {"seconds": float, "how": str}, "history": [_is_line], "landing": (dict, None),
    "removed": {kind: {"count": int} for kind in ("queries", "documents", "pairs")}, "settings": dict,
}  # fmt: skip
MORE = {
    "removed_before": (list, None), "recovery": ({"before": float, "after": float}, None), "versions": (dict, None),
    "hashes": (dict, None),
}  # fmt: skip
"""What may be there besides."""


class OtherVersion(BadFile):
    """A record that is whole, and of another unrank."""


@dataclass(frozen=True)
class Measure:
    """A set's MRR with its 95 % interval."""

    mrr: float
    low: float
    high: float
    queries: int


@dataclass(frozen=True)
class Run:
    """What a run was and came to."""

    method: str
    ranker: str
    collection: str
    before: Mapping[str, Measure]
    """A set without a query is not there."""
    after: Mapping[str, Measure]
    target: float | None
    reached: bool | None
    epochs: float
    seconds: float
    timing: Mapping[str, float]
    epoch_seconds: float
    epoch_how: str
    history: list[dict[str, Any]]
    landed: bool
    removed: Mapping[str, int]
    settings: Mapping[str, Any]
    record: Mapping[str, Any]
    """All of it, as it stands in the file."""

    @property
    def gap(self) -> float | None:
        """How far the forget MRR is from the target."""
        return None if self.target is None else abs(self.after["forget"].mrr - self.target)

    @property
    def kept(self) -> dict[str, float]:
        """What the other sets have left of their MRR before."""
        before, after = ({name: of.mrr for name, of in side.items()} for side in (self.before, self.after))
        return shares_kept(before, after)

    @property
    def met(self) -> float | None:
        """The epoch after which the forget MRR was first found at the target or below."""
        return next(
            (epoch for epoch, mrr in self.path("forget") if self.target is not None and mrr <= self.target), None
        )

    @property
    def recovered(self) -> float | None:
        """The forget MRR after an epoch on the kept data alone, where that was tried."""
        found = self.record.get("recovery")
        return None if found is None else float(found["after"])

    def path(self, name: str) -> list[tuple[float, float]]:
        """A set's MRR at each check at which it was measured, by epochs."""
        return [(float(line["epoch"]), float(line[name])) for line in self.history if name in line]


def read_run(folder: Path) -> Run:
    path = folder / RECORD
    record = read_json(path)
    if not isinstance(record, dict) or "record_version" not in record:
        raise BadFile(path, "not a record of unrank's")
    if record["record_version"] != RECORD_VERSION:
        raise OtherVersion(path, f"record version {record['record_version']}, this unrank reads {RECORD_VERSION}")
    if record.get("before") is None or record.get("removed") is None:
        raise BadFile(path, "a record of training: nothing was forgotten in it; name what 'unrank forget' wrote")
    besides = all(fits(record.get(key), form) for key, form in MORE.items())
    if not fits(record, FORM) or not besides or not all(fits(time, float) for time in record["timing"].values()):
        raise BadFile(path, "damaged record: something in it is missing or of the wrong kind")
    try:
        return _run(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadFile(path, f"damaged record: {type(error).__name__} {error}") from error


def _run(record: dict[str, Any]) -> Run:
    run = Run(
        method=str(record["method"]),
        ranker=str(record["ranker"]),
        collection=str(record["collection"]["name"]),
        before=_measures(record["before"]),
        after=_measures(record["after"]),
        target=None if record["target"] is None else float(record["target"]),
        reached=record["reached"],
        epochs=float(record["epochs"]),
        seconds=float(record["seconds"]),
        timing={str(name): float(value) for name, value in record["timing"].items()},
        epoch_seconds=float(record["learning_epoch"]["seconds"]),
        epoch_how=str(record["learning_epoch"]["how"]),
        history=[dict(line) for line in record["history"]],
        landed=record["landing"] is not None,
        removed={kind: int(record["removed"][kind]["count"]) for kind in ("queries", "documents", "pairs")},
        settings=dict(record["settings"]),
        record=record,
    )
    if not run.epoch_seconds > 0:
        raise ValueError("an epoch of training takes no time")
    if "forget" not in run.before or set(run.before) != set(run.after):
        raise ValueError("before and after are not of the same sets")
    return run


def _measures(card: Mapping[str, Any]) -> dict[str, Measure]:
    return {
        name: Measure(float(value["mrr"]), float(value["low"]), float(value["high"]), int(value["queries"]))
        for name, value in card.items()
        if value is not None
    }
