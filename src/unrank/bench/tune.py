"""Tuning: every method gets the same number of trials on development data, and the best settings are frozen in a file.

A trial is a cell of a bench: it is run once, it is resumed after a stop, and its record is kept. The objective is the
distance to retrain query by query, subject to what must be kept of the other sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean

from unrank.bench.cell import Cell
from unrank.bench.grid import Section
from unrank.bench.method_spec import TUNED, TunedSettings, read_tuned
from unrank.bench.plan import plan_cells
from unrank.bench.search_space import draw_trials, search_space
from unrank.bench.splits import frozen_splits
from unrank.bench.store import Store
from unrank.disk import replace_json
from unrank.errors import UnrankError
from unrank.methods import make_method, source_hash
from unrank.rankers import ranker_kind
from unrank.record import KEPT, MARGIN, RETRAIN, Record

OBJECTIVE = (
    "least mean distance to retrain, query by query, among the trials that keep at least 1 - margin of the original's "
    "MRR on entangled, disjoint and test each; if there is none, the trial that loses least beyond the margin"
)


@dataclass(frozen=True)
class TuneOptions:
    """What is tuned, and on what."""

    method: str
    collection: str
    ranker: str
    base: str | None = None
    trials: int = 20
    target: str | None = None
    """`None`: places if the method takes goals, else destination-1."""
    removals: tuple[str, ...] = ("documents", "queries")
    share: float = 0.25
    removal_seed: int = 0
    training: str = ""
    epochs: int | None = None
    margin: float = MARGIN
    seed: int = 0


@dataclass(frozen=True)
class Trial:
    """The outcome of one trial, as means over its cells."""

    settings: Mapping[str, str]
    distance: float
    kept: Mapping[str, float]
    seconds: float
    cells: Sequence[str] = field(default_factory=tuple)
    """The names of its cells."""

    def beyond(self, margin: float) -> float:
        """Return how much more than the margin it lost, over the kept sets."""
        return sum(max(0.0, 1 - margin - share) for share in self.kept.values())


@dataclass(frozen=True)
class Tuning:
    """The trials of a method, as cells of a bench."""

    options: TuneOptions
    space: Mapping[str, Sequence[object]]
    target: str
    settings: Sequence[Mapping[str, str]]
    cells: Sequence[Cell]
    """The retrained rankers first."""

    @classmethod
    def of(cls, options: TuneOptions) -> Tuning:
        """Draw the trials of a method, and plan their cells."""
        if options.trials < 1:
            raise UnrankError(f"--trials must be 1 or more, not {options.trials}")
        kind = ranker_kind(options.ranker)
        method = make_method(options.method, {}, kind)
        space = search_space(method)
        settings = list(draw_trials(method, space, options.trials, options.seed))
        target = options.target or ("places" if method.takes_goals else "destination-1")
        labels = [",".join([method.name, *(f"{name}={value}" for name, value in each.items())]) for each in settings]
        section = Section(
            (options.collection,), (kind,), options.removals, (options.share,), (RETRAIN, *labels), (target,),
            (options.seed,), (options.removal_seed,), options.base, options.base, options.training, options.epochs,
        )  # fmt: skip
        cells = plan_cells({"": section})
        _check_development(cells[0])
        return cls(options, space, target, settings, cells)

    @property
    def retrained(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.is_retrained]

    def outcomes(self, store: Store) -> list[Trial]:
        """Return the outcome of every trial, in order."""
        labels = list(dict.fromkeys(cell.label for cell in self.cells if not cell.is_retrained))
        cells = {label: [cell for cell in self.cells if cell.label == label] for label in labels}
        return [_outcome(each, cells[label], store) for each, label in zip(self.settings, labels, strict=True)]

    def best(self, trials: Sequence[Trial]) -> Trial:
        """Return the trial that the objective chooses."""
        margin = self.options.margin
        return min(trials, key=lambda trial: (round(trial.beyond(margin), 9), trial.distance))


def _check_development(cell: Cell) -> None:
    """Refuse a collection that results are reported on: its frozen splits are published."""
    if any(split.fingerprint == cell.original.fingerprint for split in frozen_splits().values()):
        raise UnrankError(
            f"results are reported on {cell.original.collection} (its splits are frozen): tune on development data"
        )


def _outcome(settings: Mapping[str, str], cells: Sequence[Cell], store: Store) -> Trial:
    records = [store.record_of(cell) for cell in cells]
    kept = {name: fmean(shares) for name in KEPT if (shares := _shares(records, name))}
    distances = [record.agreement.after.distance for record in records if record.agreement]
    if len(distances) < len(records):
        raise UnrankError("a trial was not compared with its retrained ranker: remove the folder of trials, and repeat")
    seconds = sum(record.seconds for record in records)
    return Trial(settings, fmean(distances), kept, seconds, tuple(cell.name for cell in cells))


def _shares(records: Sequence[Record], name: str) -> list[float]:
    there = [(record.after[name].mrr, record.before[name].mrr) for record in records if name in record.after]
    return [after / before for after, before in there if before]


def freeze(tuning: Tuning, trials: Sequence[Trial], out: Path) -> TunedSettings:
    """Write the settings of the best trial, with all trials, to a file; other methods in it stay."""
    options, best = tuning.options, tuning.best(trials)
    cell = tuning.cells[-1]
    frozen = TunedSettings(
        cell.method.name, cell.original.ranker, best.settings, cell.original.collection, cell.original.fingerprint,
        source_hash(type(cell.method)),
    )  # fmt: skip
    entry = {
        **asdict(frozen),
        "objective": OBJECTIVE,
        "margin": options.margin,
        "kept_enough": best.beyond(options.margin) == 0,
        "distance": best.distance,
        "kept": dict(best.kept),
        "target": tuning.target,
        "share": options.share,
        "removals": list(options.removals),
        "removal_seed": options.removal_seed,
        "seed": options.seed,
        "searched": {name: list(values) for name, values in tuning.space.items()},
        "trials": [asdict(trial) for trial in trials],
    }
    others = [each for each in check_budget(out, options.trials) if _key(each) != (frozen.method, frozen.ranker)]
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_json(out, {"format": TUNED, "tuned": [*others, entry]})
    return frozen


def check_budget(out: Path, trials: int) -> list[dict[str, object]]:
    """Return the entries of a file of frozen settings; refuse one whose methods had another number of trials."""
    entries = read_tuned(out) if out.exists() else []
    for entry in entries:
        had = entry.get("trials")
        if isinstance(had, list) and len(had) != trials:
            raise UnrankError(
                f"{out} holds {entry['method']} with {len(had)} trials, and every method gets the same number: "
                f"give --trials {len(had)}, or another --out"
            )
    return entries


def _key(entry: Mapping[str, object]) -> tuple[object, object]:
    return entry["method"], entry["ranker"]
