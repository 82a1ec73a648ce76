"""CoCoL to places against retrained rankers that served for nothing else, query by query.

For each collection, ranker and kind of removal: an original, retrained judges, and a run to places. A line of JSON for
each run tells its distance to the judges beside the distance between them, what it kept, what comes back after an epoch
on kept data, and its time as a share of retraining's.

    python runs/places.py COLLECTION... --base ENCODER --rankers bi-encoder cross-encoder --out places.jsonl
        [--by documents queries] [--share 0.25] [--removal-seed 7 8 9] [--judges 2] [--proxy-epochs 2] [--keep FOLDER]
        [--rivals cocol cocol:released finetune:tuned ssd:tuned npo,beta=1 ...]
        [--settings-from tuned.json] [--epochs 12]
    python runs/places.py [--times] FILE.jsonl...

`--rivals` are methods, as a grid writes them, that go to destination 1: the mean forget MRR of the first judge.
`METHOD:tuned` has the settings that `--settings-from` froze, and `--epochs` limits each.

The same command goes on after the lines that its file holds. `--keep` keeps the trained rankers in a folder, so that a
cell which was stopped goes on with them; without it, or on another machine, such a cell is done again from its start,
because lines of other rankers cannot be compared. A cell that is whole is left alone.

Each line also has the rank of every forget query. The second form prints the tables of earlier runs, with intervals,
the run to places compared with each other one, and what was kept beside a margin; with `--times` the time of each run
to places, which means nothing if others used the machine too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from shared import LineFile, Made, earlier_lines, hash_of, made, markdown

import unrank
from unrank.bench.method_spec import read_method_spec, tuned_settings
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.evaluation.agreement import correlation, distance
from unrank.evaluation.bootstrap import BootstrapEstimate, interval, percentiles, resampled_means
from unrank.evaluation.measure import Floats, reciprocal_of
from unrank.evaluation.scorecard import Scorecard
from unrank.evaluation.significance import holm_adjusted, inferiority, two_sided
from unrank.forgetting.forget import Forgotten, forget_in
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.provenance import Reference
from unrank.forgetting.train import recover, train
from unrank.forgetting.workspace import Workspace
from unrank.methods.retrain import Retrain
from unrank.rankers import ranker_kind
from unrank.rankers.base import Ranker
from unrank.record import KEPT, MARGIN, Record
from unrank.report.estimates import estimates_of

Line = dict[str, Any]
SHARE = 0.25
JUDGED, UNTOUCHED = "judges", "the original"
MANY = 150
"""The least number of queries of a set whose share counts by itself."""
JUDGES = (101, 102, 103, 104)
"""The seeds of the judges. No proxy has one of them."""


class Cell:
    """One original, one removal, and the judges that never saw it."""

    def __init__(
        self,
        facts: Line,
        original: Ranker,
        workspace: Workspace,
        judges: Sequence[Ranker],
        seconds: float,
        record: Record | None = None,
    ) -> None:
        """Measure all of them. `seconds` is the time to train a judge, `record` that of the original if it has one."""
        self.facts = {**facts, "rankers": hash_of([original, *judges])}
        self.original, self.workspace, self.judges = original, workspace, judges
        self.seconds, self.record = seconds, record
        self.before = workspace.scorecard(original)
        self.cards = [workspace.scorecard(judge) for judge in judges]
        gains = [
            recover(judge, workspace, 0) - _forget(card).mean() for judge, card in zip(judges, self.cards, strict=True)
        ]
        self.gain = float(np.mean(gains))

    def noise(self) -> Line:
        """Return what two judges differ by."""
        pairs = [*combinations(map(_forget, self.cards), 2)]
        return {
            **self.facts,
            "run": JUDGED,
            "distance": _mean(distance(*pair) for pair in pairs),
            "correlation": _mean(correlation(*pair) for pair in pairs),
            "forget": _mean(_forget(card).mean() for card in self.cards),
            "gain": self.gain,
            "seconds": self.seconds,
            "queries": len(_forget(self.before)),
            "ranks": [_ranks(card) for card in self.cards],
            **{
                f"{name} of the original's": _mean(card.mrrs[name] / self.before.mrrs[name] for card in self.cards)
                for name in KEPT
            },
        }

    def measure(self, run: str, card: Scorecard, after_epoch: float | None, seconds: float = 0.0) -> Line:
        """Return what a ranker with this scorecard differs from the judges by."""
        own = _forget(card)
        return {
            **self.facts,
            "run": run,
            "distance": _mean(distance(own, _forget(judge)) for judge in self.cards),
            "correlation": _mean(correlation(own, _forget(judge)) for judge in self.cards),
            "forget": float(own.mean()),
            "off": float(own.mean() - np.mean([_forget(judge).mean() for judge in self.cards])),
            "gain": None if after_epoch is None else after_epoch - float(own.mean()),
            "judges gain": self.gain,
            "time": seconds / self.seconds,
            **{f"{name} of the original's": card.mrrs[name] / self.before.mrrs[name] for name in KEPT},
            **{
                f"{name} of retrain's": _mean(card.mrrs[name] / judge.mrrs[name] for judge in self.cards)
                for name in KEPT
            },
            **{f"{name} queries": len(getattr(card, name).queries) for name in KEPT},
            "ranks": _ranks(card),
            "kept ranks": {name: _rank_of(getattr(card, name).reciprocal) for name in KEPT},
        }

    def run(self, name: str, options: ForgetOptions, reference: Reference | None = None) -> Line:
        done: Forgotten = forget_in(
            self.workspace,
            self.original,
            options,
            reference=reference,
            record=self.record,
            before=self.before,
        )
        after = recover(done.ranker, self.workspace, 0)
        found = self.measure(name, done.after, after, done.record.seconds)
        places = done.record.places
        return {
            **found,
            "timing": dict(done.record.timing),
            "state": str(done.state),
            "places": vars(places) if places else None,
        }


def _forget(card: Scorecard) -> Floats:
    assert card.forget is not None
    return card.forget.reciprocal


def _ranks(card: Scorecard) -> list[int]:
    """Return the rank of each forget query."""
    return _rank_of(_forget(card))


def _rank_of(reciprocal: Floats) -> list[int]:
    """Return the rank behind each reciprocal rank; 0 if it has none."""
    there = reciprocal > 0
    return [int(rank) for rank in np.rint(np.divide(1, reciprocal, out=np.zeros(len(reciprocal)), where=there))]


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def cells(arguments: argparse.Namespace) -> Iterable[tuple[Line, Callable[[], Cell]]]:
    """Yield the facts of each cell, and a function that trains its rankers or reads them again."""
    for folder in arguments.collections:
        collection = unrank.open_collection(folder)
        for kind, draw, by in product(arguments.rankers, arguments.removal_seed, arguments.by):
            facts = {"collection": Path(folder).name, "ranker": kind, "by": by, "removal_seed": draw}
            facts["share"] = arguments.share
            yield facts, partial(_cell, collection, facts, arguments)


def _cell(collection: Collection, facts: Line, arguments: argparse.Namespace) -> Cell:
    kind, by, name = facts["ranker"], facts["by"], f"{facts['collection']}-{facts['ranker']}"
    removal = unrank.Removal.sample(collection, by, arguments.share, facts["removal_seed"])

    def trained(name: str, *what: Removal, **how: Any) -> Made:
        do = partial(train, collection, kind, arguments.base, *what, device=arguments.device, **how)
        return made(arguments.keep, name, do)

    original = trained(f"{name}-original")
    draw = f"{name}-{by}-{arguments.share:g}-{facts['removal_seed']}"
    judges = [trained(f"{draw}-judge-{seed}", removal, seed=seed) for seed in JUDGES[: arguments.judges]]
    workspace = Workspace.for_removal(original.ranker, collection, removal, original.record, device=arguments.device)
    seconds = float(np.mean([judge.record.seconds for judge in judges]))
    return Cell(facts, original.ranker, workspace, [judge.ranker for judge in judges], seconds, original.record)


def finish(cell: Cell, work: Mapping[str, Callable[[], Line]], file: LineFile, began: float) -> None:
    """Do the runs of a cell that its file does not hold, in their order."""
    facts = {name: value for name, value in cell.facts.items() if name != "rankers"}
    there = {line["run"] for line in file.go_on(facts, cell.facts["rankers"])}
    for run, do in work.items():
        if run not in there:
            file.write({**do(), "at": round(perf_counter() - began)})


def cells_table(lines: Sequence[Line]) -> list[str]:
    """Return a table in Markdown, with a row for each run of each cell."""
    head = ["cell", "run", "distance (interval)", "correlation", "forget MRR", "off", "E, D, T of the original's"]
    rows = []
    for cell, found in by_cell(lines).items():
        for line in found[1:]:
            apart = distances(line, found[0])
            low, high = interval(apart)
            kept = ", ".join(_written(line[f"{name} of the original's"]) for name in KEPT)
            figures = [f"{apart.mean():.3f} ({low:.3f} to {high:.3f})", _written(line["correlation"])]
            gains = f"{_written(line['gain'])} ({_written(line['judges gain'])})"
            figures += [f"{line['forget']:.3f}", f"{line['off']:+.3f}", kept, gains, f"{line['time']:.2f}"]
            rows.append([", ".join(cell), str(line["run"]), *figures])
        noise = [_written(found[0][name]) for name in ("distance", "correlation", "forget")]
        judges = "one judge" if found[0]["distance"] is None else "two judges"
        rows.append([", ".join(cell), judges, *noise, "", "", "", "1"])
    return markdown([*head, "gain (judges')", "time"], rows)


def runs_table(lines: Sequence[Line]) -> list[str]:
    """Return a table in Markdown, with a row for each kind of run: means over cells, with intervals over queries."""
    head = ["run", "cells", "distance / noise", "correlation by documents; queries", "mean distance to the mean"]
    head += [*(f"{name[0].upper()} (least)" for name in KEPT), "gain less the judges' (most)", "time"]
    cells, rows = by_cell(lines), []
    for run in dict.fromkeys(str(line["run"]) for found in cells.values() for line in found[1:]):
        pairs = [(found[0], line) for found in cells.values() for line in found[1:] if line["run"] == run]
        some = [line for _, line in pairs]
        related = [_mean(line["correlation"] for line in some if line["by"] == by) for by in ("documents", "queries")]
        figures = [
            in_noise(pairs),
            "; ".join(map(_written, related)),
            f"{np.mean([abs(line['off']) for line in some]):.3f}",
        ]
        for name in KEPT:
            shares = [line[f"{name} of the original's"] for line in some]
            enough = [share for share, line in zip(shares, some, strict=True) if line[f"{name} queries"] >= MANY]
            figures.append(f"{np.mean(shares):.3f} ({_written(min(enough, default=None))})")
        gains = [line["gain"] - line["judges gain"] for line in some if line["gain"] is not None]
        figures += [f"{np.mean(gains):+.3f} ({max(gains):+.3f})" if gains else "–"]
        rows.append([run, str(len(some)), *figures, f"{np.mean([line['time'] for line in some]):.2f}"])
    return markdown(head, rows)


def in_noise(pairs: Sequence[tuple[Line, Line]]) -> str:
    """Write the mean distance to the judges as a multiple of what two judges differ by, if there were two."""
    if any(judges["distance"] is None for judges, _ in pairs):
        return "–"
    apart = np.mean([resampled_means(distances(line, judges)) for judges, line in pairs], axis=0)
    noise = float(np.mean([judges["distance"] for judges, _ in pairs]))
    low, high = percentiles(apart / noise)
    return f"{np.mean([line['distance'] for _, line in pairs]) / noise:.2f} ({low:.2f} to {high:.2f})"


def times_table(lines: Sequence[Line]) -> list[str]:
    """Return a table in Markdown of the time of each run to places, as a share of retraining's."""
    rows = []
    for cell, (judges, *others) in by_cell(lines).items():
        for line in others:
            if "timing" in line:
                seconds, parts = judges["seconds"], line["timing"]
                prepared = line["time"] - parts["proxies"] / seconds
                shown = ", ".join(f"{name} {took:.1f}" for name, took in parts.items())
                figures = [f"{seconds:.1f}", f"{line['time']:.2f}", f"{prepared:.2f}", shown]
                rows.append([", ".join(cell), str(line["run"]), *figures])
    head = [
        "cell",
        "run",
        "seconds of retraining",
        "time / retraining",
        "less the time of proxies",
        "seconds of the parts",
    ]
    return markdown(head, rows)


def by_cell(lines: Sequence[Line]) -> dict[tuple[str, ...], list[Line]]:
    """Return the lines of each cell. The first is that of the judges."""
    found: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        share = f" {line['share']:.0%}" if line.get("share", SHARE) != SHARE else ""
        cell = (line["collection"], line["ranker"], f"{line['by']}{share}", f"draw {draw_of(line)}")
        found.setdefault(cell, []).append(line)
    return found


def draw_of(line: Line) -> int:
    """Return the seed of what was removed; lines of the first runs do not name theirs, which was 7."""
    return int(line.get("removal_seed", 7))


Estimates = dict[str, dict[tuple[str, ...], BootstrapEstimate]]
"""For each run the estimate of each setting: collection, ranker and kind of removal."""


def estimates(lines: Sequence[Line], values: Callable[[Line, Sequence[Line]], Floats | None]) -> Estimates:
    """Return the mean of one value for each query, over the draws of each setting of each run."""
    nested: dict[tuple[str, tuple[str, ...]], dict[tuple[int, int], Floats]] = {}
    for cell, found in by_cell(lines).items():
        for line in found[1:]:
            if (of := values(line, found)) is not None:
                nested.setdefault((str(line["run"]), cell[:3]), {})[0, draw_of(line)] = of
    made: Estimates = {}
    for (run, setting), estimate in estimates_of({key: (key[1][0], of) for key, of in nested.items()}).items():
        made.setdefault(run, {})[setting] = estimate
    return made


def pairs_table(lines: Sequence[Line]) -> list[str]:
    """Return a table in Markdown that compares the first run to places with each other run, with Holm's correction."""
    found = estimates(lines, lambda line, cell: distances(line, cell[0]))
    first = next((run for run in found if run.startswith("places")), None)
    others = {run: of for run, of in found.items() if run != first}
    shared = (
        {run: [setting for setting in found[first] if setting in of] for run, of in others.items()} if first else {}
    )
    changes = {
        run: BootstrapEstimate.mean_of([found[first][setting] - others[run][setting] for setting in settings])
        for run, settings in shared.items()
        if first and settings
    }
    adjusted = holm_adjusted({run: two_sided(change.resampled) for run, change in changes.items()})
    rows = [
        [str(first), run, str(len(shared[run])), f"{change.value:+.3f} ({change.low:+.3f} to {change.high:+.3f})",
         f"{adjusted[run]:.3f}"]
        for run, change in changes.items()
    ]  # fmt: skip
    return (
        markdown(["run", "against", "settings", "difference of the distances (95 %)", "p (Holm)"], rows) if rows else []
    )


def margin_table(lines: Sequence[Line], margin: float = MARGIN) -> list[str]:
    """Return a table in Markdown that tests what each run kept against the margin; no line if no ranks were written."""
    rows: dict[str, list[str]] = {}
    for name in KEPT:
        own = estimates(lines, partial(_kept_values, name))
        before = own.get(UNTOUCHED, {})
        for run, of in own.items():
            shares = [of[setting] / before[setting] for setting in of if setting in before and before[setting].value]
            change = BootstrapEstimate.mean_of(shares) - _ONE if shares else None
            said = f"{change.value:+.3f}, {inferiority(change, margin)}" if change else "–"
            rows.setdefault(run, []).append(said)
    head = ["run", *(f"{name} (margin {margin:g})" for name in KEPT)]
    return markdown(head, [[run, *said] for run, said in rows.items()]) if rows else []


_ONE = BootstrapEstimate(1.0, np.ones(1), 0)


def _kept_values(name: str, line: Line, cell: Sequence[Line]) -> Floats | None:
    ranks = line.get("kept ranks", {}).get(name)
    return reciprocal_of(np.array(ranks, np.float64)) if ranks else None


def distances(line: Line, judges: Line) -> Floats:
    """Return the distance of each forget query's reciprocal rank from the judges', on average over the judges."""
    own = 1 / np.array(line["ranks"], float)
    apart = np.stack([np.abs(own - 1 / np.array(ranks, float)) for ranks in judges["ranks"]])
    return np.asarray(apart.mean(axis=0))


def _written(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("collections", nargs="+")
    options.add_argument("--base")
    options.add_argument("--rankers", nargs="+", default=["bi-encoder"])
    options.add_argument("--by", nargs="+", default=["documents", "queries"])
    options.add_argument("--share", type=float, default=SHARE)
    options.add_argument("--removal-seed", nargs="+", type=int, default=[7])
    options.add_argument("--judges", type=int, default=2)
    options.add_argument("--proxy-epochs", nargs="+", type=int, default=[2])
    options.add_argument("--rivals", nargs="*", default=[], metavar="METHOD")
    options.add_argument("--settings-from", type=Path, help="the file of frozen settings that 'unrank tune' wrote")
    options.add_argument("--epochs", type=int, help="the most epochs of a rival")
    options.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE")
    options.add_argument("--device", default="auto")
    options.add_argument("--out", type=Path)
    options.add_argument("--keep", type=Path, help="a folder for the trained rankers, so that a stopped cell goes on")
    options.add_argument("--times", action="store_true", help="print the times of earlier runs")
    arguments = options.parse_args()
    if lines := earlier_lines(arguments.collections):
        chosen_tables = [times_table] if arguments.times else [cells_table, runs_table, pairs_table, margin_table]
        tables = [made(lines) for made in chosen_tables]
        print("\n\n".join("\n".join(table) for table in tables if table))
        return
    if arguments.out is None:
        options.error("--out is needed")
    settings = dict(each.split("=", 1) for each in arguments.set)
    tuned = tuned_settings(arguments.settings_from) if arguments.settings_from else {}
    began, file = perf_counter(), LineFile(arguments.out)
    to_places = {f"places, proxy of {epochs}": epochs for epochs in arguments.proxy_epochs}
    for facts, make in cells(arguments):
        rivals = {
            f"{spec.label} to destination 1": spec.method
            for rival in arguments.rivals
            for spec in [read_method_spec(rival, ranker_kind(facts["ranker"]), Retrain(), arguments.epochs, tuned)]
        }
        wanted = {JUDGED, UNTOUCHED, *to_places, *rivals}
        if wanted <= {line["run"] for line in file.of(facts)}:
            continue
        cell = make()
        work: dict[str, Callable[[], Line]] = {JUDGED: cell.noise}
        work[UNTOUCHED] = partial(cell.measure, UNTOUCHED, cell.before, None)
        for run, epochs in to_places.items():
            chosen = ForgetOptions(settings=settings, proxy_epochs=epochs, device=arguments.device)
            work[run] = partial(cell.run, run, chosen)
        for run, method in rivals.items():
            mean = ForgetOptions(method=method, target="destination-1", device=arguments.device)
            work[run] = partial(cell.run, run, mean, Reference(cell.judges[0]))
        finish(cell, work, file, began)


if __name__ == "__main__":
    main()
