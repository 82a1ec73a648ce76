"""What comes back of each method's forgetting when a ranker is rounded, averaged, trained on or taught again.

For each collection, ranker and kind of removal: an original, retrained judges, a further retrained ranker, CoCoL to
places, and methods that stop at the further one's mean forget MRR (destination 1). A line of JSON for each ranker and
form has the ranks of the forget queries before and after. The judges have the same forms: what comes back in them too
is no memory. Quick forms come first in every cell; a run that is out of time says what it leaves out.

    python runs/forms_table.py COLLECTION... --base ENCODER --rankers bi-encoder cross-encoder --out forms.jsonl
        [--by documents queries] [--share 0.25] [--removal-seed 7] [--seed 0] [--judges 2] [--queries 1000]
        [--methods cocol cocol:released finetune ...] [--epochs 10] [--seconds 12]
        [--rates 0.3 1 3] [--steps 1 5 10 50] [--seeds 1] [--minutes 9]
    python runs/forms_table.py FILE.jsonl...

`--methods` are written as in a grid; by default all. One that cannot reach its target in time keeps its best model.
The second form prints the tables of earlier runs: each cell, and means over cells with intervals over queries.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from shared import earlier_lines, markdown

import unrank
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditedRanker, Thoroughness, sampled_sets, whole_sets
from unrank.audit.other_forms import TRAINED, forms_of
from unrank.audit.relearning import Attempt, attempts_of, relearn, split_forget
from unrank.bench.method_spec import read_method_spec
from unrank.engine.teacher import Teacher
from unrank.errors import UnrankError
from unrank.evaluation.bootstrap import percentiles, resampled_means
from unrank.evaluation.measure import Floats, reciprocal_of
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.forget import forget_in
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.provenance import Reference
from unrank.forgetting.train import Trained, train
from unrank.forgetting.workspace import Workspace
from unrank.methods import METHODS
from unrank.methods.retrain import Retrain
from unrank.rankers.base import Ranker
from unrank.record import RETRAIN

Line = dict[str, Any]
RELEARNED, JUDGE = "relearned", "judge"
SLOW = (RELEARNED, TRAINED)
RETRAINED, JUDGES = 100, (101, 102, 103, 104)
"""Seeds. The judges had no share in any run."""
RIVALS = tuple(name for name in METHODS if name not in ("cocol", RETRAIN, "curd"))
"""All other methods; `curd` needs substitutes."""


@dataclass
class Budget:
    """The time that is left, and how long a piece of each kind took last."""

    seconds: float
    began: float = field(default_factory=perf_counter)
    took: dict[str, float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def do(self, kind: str, name: str, work: Callable[[], None]) -> None:
        """Do a piece of work if it will probably be done in time; else note its name."""
        started = perf_counter()
        if started - self.began + self.took.get(kind, 0.0) > self.seconds:
            self.left_out.append(name)
            return
        work()
        self.took[kind] = perf_counter() - started


@dataclass(frozen=True)
class Cell:
    """One original, one removal, and all rankers whose forms are measured."""

    facts: Mapping[str, object]
    context: AuditContext
    original: Trained
    retrained: Trained
    rankers: dict[str, AuditedRanker]
    before: list[Scorecard] = field(default_factory=list)
    """The original's figures, once a run has measured them."""

    @cached_property
    def attempts(self) -> list[Attempt]:
        return attempts_of(self.context)

    @classmethod
    def make(
        cls, facts: Mapping[str, object], original: Trained, removed: unrank.Removal, arguments: argparse.Namespace
    ) -> Cell:
        """Train the judges and a further retrained ranker."""
        collection = unrank.open_collection(arguments.of[str(facts["collection"])])

        def retrain(seed: int) -> Trained:
            kind, base = original.ranker.kind, arguments.base
            return train(collection, kind, base, removed, seed=seed, device=arguments.device)

        workspace = Workspace.for_removal(
            original.ranker, collection, removed, original.record, device=arguments.device
        )
        retrained = retrain(RETRAINED)
        rankers = {f"{JUDGE} {seed}": retrain(seed).ranker for seed in JUDGES[: arguments.judges]}
        rankers |= {"the original": original.ranker, "retrained": retrained.ranker}
        opened = {name: _opened(ranker, workspace) for name, ranker in rankers.items()}
        whole = whole_sets(workspace)
        effort = Thoroughness(
            queries=arguments.queries,
            full=True,
            relearning_rates=tuple(arguments.rates),
            relearning_steps=tuple(arguments.steps),
            relearning_seeds=arguments.seeds,
        )
        sets = sampled_sets(collection, whole, effort.queries, arguments.seed)
        alone = PerRanker(opened["the original"], None, ())
        context = AuditContext(
            alone, collection, workspace.partition, whole, sets, effort, arguments.seed, arguments.base
        )
        return cls(facts, context, original, retrained, opened)

    @property
    def name(self) -> str:
        return ", ".join(str(self.facts[part]) for part in ("collection", "ranker", "by"))

    def forget(self, method: str, target: str, arguments: argparse.Namespace) -> None:
        """Add what a method makes of the original; the method is written as in a grid."""
        spec = read_method_spec(method, self.original.ranker.kind, Retrain(), arguments.epochs)
        name = f"{spec.label} to {target.replace('-', ' ')}"
        options = ForgetOptions(
            method=spec.method,
            target=target,
            seed=arguments.seed,
            device=arguments.device,
            minutes=arguments.seconds / 60 if spec.steered and target != "places" else None,  # a proxy takes longer
        )
        reference = Reference(self.retrained.ranker) if target != "places" else None
        workspace, before = self.rankers["the original"].workspace, self.before[0] if self.before else None
        done = forget_in(
            workspace,
            self.original.ranker,
            options,
            reference=reference,
            record=self.original.record,
            before=before,
        )
        self.before.append(done.before)
        self.rankers[name] = _opened(done.ranker, workspace)

    def quick(self, run: str) -> Iterator[Line]:
        """Yield a line for each form that takes no training."""
        one, forget = self.rankers[run], self.context.sets["forget"]
        before = one.reciprocals(forget)
        for form, make in forms_of(self.context).items():
            if form not in SLOW:
                yield self._line(run, form, before, one.reciprocals(forget, one.workspace.scorer(make(one))))

    def slow(self, run: str, form: str) -> Line:
        """Return the line of a form that takes training."""
        one, forget = self.rankers[run], self.context.sets["forget"]
        if form == TRAINED:
            made = forms_of(self.context)[TRAINED](one)
            return self._line(run, form, one.reciprocals(forget), one.reciprocals(forget, one.workspace.scorer(made)))
        found = relearn(self.context, one, self.attempts, split_forget(self.context)[1])
        after = max(found.curve[1:], key=np.mean)
        return {**self._line(run, form, found.curve[0], after), "attempt": found.attempt.to_json()}

    def _line(self, run: str, form: str, before: Floats, after: Floats) -> Line:
        figures = {"mrr before": float(before.mean()), "mrr after": float(after.mean())}
        return {**self.facts, "run": run, "form": form, **figures, "before": _ranks(before), "after": _ranks(after)}


def _opened(ranker: Ranker, workspace: Workspace) -> AuditedRanker:
    """Return a ranker with a workspace that all rankers of a cell share: they tokenise alike."""
    ranker.to(workspace.runtime.device)
    return AuditedRanker(
        ranker, workspace, Teacher(ranker, workspace.collection, workspace.store, workspace.runtime).scores
    )


def _ranks(reciprocal: Floats) -> list[int]:
    """Return the rank of each query; 0 if nothing that counts is in its list."""
    return [int(rank) for rank in np.round(reciprocal_of(reciprocal))]


def measure(arguments: argparse.Namespace, write: Callable[[Line], None]) -> list[str]:
    """Measure all cells, and return what was left out for lack of time."""
    budget, cells = Budget(60 * arguments.minutes), []
    runs = [("cocol", "places"), *((method, "destination-1") for method in arguments.methods)]

    def quick(cell: Cell, run: str) -> None:
        for line in cell.quick(run):
            write(line)

    def forget(cell: Cell, method: str, target: str) -> None:
        cell.forget(method, target, arguments)
        quick(cell, [*cell.rankers][-1])

    for cell in made_cells(arguments):
        cells.append(cell)
        for run in [*cell.rankers]:
            budget.do("quick", f"{cell.name}: {run}", lambda cell=cell, run=run: quick(cell, run))  # type: ignore[misc]
        for method, target in runs:
            name = f"{cell.name}: {method} to {target}"
            try:
                budget.do("forget", name, lambda cell=cell, run=(method, target): forget(cell, *run))  # type: ignore[misc]
            except UnrankError as error:
                budget.left_out.append(f"{name}: {error}")
    for form in SLOW:
        for cell in cells:
            for run in cell.rankers:
                name = f"{cell.name}: {run}, {form}"
                budget.do(form, name, lambda cell=cell, run=run, form=form: write(cell.slow(run, form)))  # type: ignore[misc]
    return budget.left_out


def made_cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    for collection in arguments.of:
        for kind in arguments.rankers:
            opened = unrank.open_collection(arguments.of[collection])
            original = train(opened, kind, arguments.base, seed=arguments.seed, device=arguments.device)
            for by in arguments.by:
                removed = unrank.Removal.sample(opened, by, arguments.share, arguments.removal_seed)
                facts = {"collection": collection, "ranker": kind, "by": by, "seed": arguments.seed}
                yield Cell.make(facts, original, removed, arguments)


def by_run(lines: Iterable[Line]) -> dict[tuple[str, ...], dict[str, dict[str, Line]]]:
    """Return the lines by cell, run and form."""
    found: dict[tuple[str, ...], dict[str, dict[str, Line]]] = {}
    for line in lines:
        cell = line["collection"], line["ranker"], line["by"]
        found.setdefault(cell, {}).setdefault(line["run"], {})[line["form"]] = line
    return found


def rises(line: Line) -> Floats:
    """Return how much the reciprocal rank of each query rose."""
    after, before = (reciprocal_of(np.array(line[when], float)) for when in ("after", "before"))
    return np.asarray(after - before)


def more_than_judges(runs: Mapping[str, Mapping[str, Line]], run: str, form: str) -> Floats | None:
    """Return how much more each query rose than in the judges; `None` if one was not measured."""
    judges = [lines[form] for name, lines in runs.items() if name.startswith(JUDGE) and form in lines]
    if not judges or form not in runs.get(run, {}):
        return None
    return np.asarray(rises(runs[run][form]) - np.mean([rises(judge) for judge in judges], axis=0))


def cells_table(lines: Sequence[Line]) -> list[str]:
    """Return a table in Markdown: for each ranker of each cell, the forget MRR of each form and its rise."""
    forms, rows = list(dict.fromkeys(line["form"] for line in lines)), []
    for cell, runs in by_run(lines).items():
        for run, found in runs.items():
            before = next(iter(found.values()))["mrr before"]
            figures = [
                f"{found[form]['mrr after']:.3f} ({rises(found[form]).mean():+.3f})" if form in found else "–"
                for form in forms
            ]
            rows.append([", ".join(cell), run, f"{before:.3f}", *figures])
    return markdown(["cell", "ranker", "forget MRR", *(f"{form} (rise)" for form in forms)], rows)


def runs_table(lines: Sequence[Line]) -> list[str]:
    """Return a table in Markdown: for each method, how much more each form brings back than in the judges.

    Means over cells with intervals over queries, then the largest cell.
    """
    forms, cells = list(dict.fromkeys(line["form"] for line in lines)), by_run(lines)
    names = [run for run in dict.fromkeys(line["run"] for line in lines) if not run.startswith(JUDGE)]

    def figure(run: str, form: str) -> str:
        found = [more for runs in cells.values() if (more := more_than_judges(runs, run, form)) is not None]
        if not found:
            return "–"
        low, high = percentiles(np.mean([resampled_means(more) for more in found], axis=0))
        means = [float(more.mean()) for more in found]
        return f"{np.mean(means):+.3f} ({low:+.3f} to {high:+.3f}); {max(means):+.3f}"

    return markdown(["ranker", *forms], [[run, *(figure(run, form) for form in forms)] for run in names])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("collections", nargs="+")
    options.add_argument("--base")
    options.add_argument("--rankers", nargs="+", default=["bi-encoder"])
    options.add_argument("--by", nargs="+", default=["documents"])
    options.add_argument("--share", type=float, default=0.25)
    options.add_argument("--removal-seed", type=int, default=7)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--judges", type=int, default=2)
    options.add_argument("--queries", type=int, default=1_000, help="the most forget queries")
    every = ["cocol", "cocol:released", *RIVALS]
    options.add_argument("--methods", nargs="*", default=every, help="the methods that go to destination 1")
    options.add_argument("--epochs", type=int, default=10, help="the most epochs of a method")
    options.add_argument("--seconds", type=float, default=12.0, help="the longest time of a method")
    options.add_argument("--rates", nargs="+", type=float, default=[0.3, 1.0, 3.0], help="multiples of the usual rate")
    options.add_argument(
        "--steps", nargs="+", type=int, default=[1, 5, 10, 50], help="the steps after which to measure"
    )
    options.add_argument("--seeds", type=int, default=1, help="the seeds of each attempt to teach again")
    options.add_argument("--minutes", type=float, default=9.0, help="the time after which nothing more is begun")
    options.add_argument("--device", default="auto")
    options.add_argument("--out", type=Path)
    arguments = options.parse_args()
    if lines := earlier_lines(arguments.collections):
        print("\n".join([*cells_table(lines), "", *runs_table(lines)]))
        return
    if arguments.out is None:
        options.error("--out is needed")
    arguments.of = {Path(folder).name: folder for folder in arguments.collections}
    began = perf_counter()
    with arguments.out.open("w") as file:

        def write(line: Line) -> None:
            file.write(json.dumps({**line, "at": round(perf_counter() - began)}) + "\n")
            file.flush()

        for name in measure(arguments, write):
            print(f"left out: {name}")


if __name__ == "__main__":
    main()
