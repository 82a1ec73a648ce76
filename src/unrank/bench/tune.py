"""Tuning: every method gets the same number of trials on development data, and the best settings are frozen in a file.

A trial is a cell of a bench: it is run once, it is resumed after a stop, and its record is kept. The objective is the
distance to retrain query by query, subject to what must be kept of the other sets. A method that has fewer different
settings to try than it has trials gets as many trials as it has settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from unrank.bench.cell import Cell
from unrank.bench.grid import Section
from unrank.bench.method_spec import TUNED, read_tuned
from unrank.bench.plan import plan_cells
from unrank.bench.search_space import Space, draw_trials, search_space
from unrank.bench.splits import frozen_splits
from unrank.bench.store import Store
from unrank.disk import replace_json
from unrank.errors import UnrankError
from unrank.methods import make_method, source_hash
from unrank.rankers import ranker_kind
from unrank.record import KEPT, MARGIN, RETRAIN, Record

OBJECTIVE = (
    "least mean distance to retrain, query by query, among the trials that keep at least 1 - margin of the original's "
    "MRR on entangled, disjoint and test each, after every removal (a set without queries does not count); if there is "
    "none, the trial that loses least beyond the margin"
)
USUAL_TARGET = {True: "places", False: "destination-1"}
"""Where a method stops if nothing else is asked for, by whether it takes goals."""
ALIKE = {
    "fingerprint": "collection", "budget": "--trials", "target": "--target", "share": "--share",
    "removal_seed": "--removal-seed", "epochs": "--epochs", "margin": "--margin", "seed": "--seed",
}  # fmt: skip
"""What is alike for all methods in a file, by its key there."""
BY_RANKER = {"base_sha256": "--base"}
"""What is alike for all methods of one kind of ranker."""
Entry = Mapping[str, Any]
"""A method in a file of frozen settings."""


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
    """The outcome of one trial."""

    settings: Mapping[str, str]
    distance: float
    """The mean over its cells."""
    kept: Mapping[str, float]
    """The least share over its cells, of each set that was measured."""
    seconds: float
    cells: Sequence[str] = field(default_factory=tuple)
    """The names of its cells."""

    def beyond(self, margin: float) -> float:
        """Return how much more than the margin it lost, over the kept sets."""
        return round(sum(max(0.0, 1 - margin - share) for share in self.kept.values()), 9)


@dataclass(frozen=True)
class Tuning:
    """The trials of a method, as cells of a bench."""

    options: TuneOptions
    space: Space
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
        if options.epochs is not None and "epochs" in space:
            raise UnrankError(f"{method.name} searches its epochs, so --epochs cannot limit them: leave it out")
        settings = list(draw_trials(method, space, options.trials, options.seed, kind))
        target = options.target or USUAL_TARGET[method.takes_goals]
        labels = [",".join([method.name, *(f"{name}={value}" for name, value in each.items())]) for each in settings]
        section = Section(
            (options.collection,), (kind,), options.removals, (options.share,), (RETRAIN, *labels), (target,),
            (options.seed,), (options.removal_seed,), options.base, options.base, options.training, options.epochs,
            margin=options.margin,
        )  # fmt: skip
        cells = plan_cells({"": section})
        _check_development(cells[0])
        return cls(options, space, section.destinations[0], settings, cells)

    @property
    def retrained(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.is_retrained]

    @property
    def terms(self) -> Entry:
        """Return what is searched and how, as the file records it."""
        options, cell = self.options, self.cells[-1]
        return {
            "method": cell.method.name,
            "method_source": source_hash(type(cell.method)),
            "ranker": cell.original.ranker,
            "collection": cell.original.collection,
            "fingerprint": cell.original.fingerprint,
            "base": cell.original.base_name,
            "base_sha256": cell.original.base_sha256,
            "training": asdict(cell.original.training),
            "epochs": options.epochs,
            "target": self.target,
            "usual_target": self.target == USUAL_TARGET[cell.method.takes_goals],
            "removals": list(options.removals),
            "share": options.share,
            "removal_seed": options.removal_seed,
            "seed": options.seed,
            "margin": options.margin,
            "budget": options.trials,
            "searched": {name: list(values) for name, values in self.space.items()},
        }

    def outcomes(self, store: Store) -> list[Trial]:
        """Return the outcome of every trial, in order."""
        labels = list(dict.fromkeys(cell.label for cell in self.cells if not cell.is_retrained))
        cells = {label: [cell for cell in self.cells if cell.label == label] for label in labels}
        return [_outcome(each, cells[label], store) for each, label in zip(self.settings, labels, strict=True)]

    def best(self, trials: Sequence[Trial]) -> Trial:
        """Return the trial that the objective chooses."""
        margin = self.options.margin
        return min(trials, key=lambda trial: (trial.beyond(margin), trial.distance))


def _check_development(cell: Cell) -> None:
    """Refuse a collection that results are reported on: its frozen splits are published."""
    if any(split.fingerprint == cell.original.fingerprint for split in frozen_splits().values()):
        raise UnrankError(
            f"results are reported on {cell.original.collection} (its splits are frozen): tune on development data"
        )


def _outcome(settings: Mapping[str, str], cells: Sequence[Cell], store: Store) -> Trial:
    records = [store.record_of(cell) for cell in cells]
    kept = {name: min(shares) for name in KEPT if (shares := _shares(records, name))}
    distances = [record.agreement.after.distance for record in records if record.agreement]
    if len(distances) < len(records):
        raise UnrankError("a trial was not compared with its retrained ranker: remove the folder of trials, and repeat")
    seconds = sum(record.seconds for record in records)
    return Trial(settings, fmean(distances), kept, seconds, tuple(cell.name for cell in cells))


def _shares(records: Sequence[Record], name: str) -> list[float]:
    there = [(record.after[name].mrr, record.before[name].mrr) for record in records if name in record.after]
    return [after / before for after, before in there if before]


def freeze(tuning: Tuning, trials: Sequence[Trial], out: Path) -> None:
    """Write the settings of the best trial, with all trials, to a file; other methods in it stay."""
    best, terms = tuning.best(trials), tuning.terms
    entry = {
        **terms,
        "settings": dict(best.settings),
        "objective": OBJECTIVE,
        "kept_enough": best.beyond(tuning.options.margin) == 0,
        "distance": best.distance,
        "kept": dict(best.kept),
        "trials": [asdict(trial) for trial in trials],
    }
    others = [each for each in check_alike(out, terms) if _key(each) != _key(entry)]
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_json(out, {"format": TUNED, "tuned": [*others, entry]})


def check_alike(out: Path, terms: Entry) -> list[Entry]:
    """Return the entries of a file of frozen settings; refuse one whose methods were not tuned on these terms."""
    entries: list[Entry] = [*read_tuned(out)] if out.exists() else []
    for entry in entries:
        theirs, ours = (_compared(each, by_ranker=entry["ranker"] == terms["ranker"]) for each in (entry, terms))
        names = [name for name in theirs if name in ours and theirs[name] != ours[name]]
        if names:
            shown = theirs | {"collection": entry.get("collection"), "--base": entry.get("base")}
            others = ", ".join(f"another {name} ({'none' if shown[name] is None else shown[name]})" for name in names)
            raise UnrankError(
                f"{out} holds {entry['method']} for {entry['ranker']}, tuned with {others}: all methods in one file "
                "are tuned alike, so give the same, or another --out"
            )
    return entries


def _compared(entry: Entry, by_ranker: bool) -> dict[str, object]:
    """Return what is alike in one file, by its option. Entries of older versions lack some of it.

    `by_ranker` adds what need only be alike for methods of one kind of ranker.
    """
    found = {option: entry[key] for key, option in (ALIKE | (BY_RANKER if by_ranker else {})).items() if key in entry}
    trials, training, removals = (entry.get(key) for key in ("trials", "training", "removals"))
    if isinstance(trials, list):  # an older entry; a small space has fewer trials than were asked for
        found.setdefault("--trials", len(trials))
    if isinstance(removals, list):
        found["--remove"] = ", ".join(sorted(map(str, removals)))
    if entry.get("usual_target", entry.get("target") in USUAL_TARGET.values()):
        found["--target"] = "the usual one"
    if by_ranker and isinstance(training, dict):
        found |= {f"--training {name}": value for name, value in training.items()}
    return found


def _key(entry: Entry) -> tuple[object, object]:
    return entry["method"], entry["ranker"]
