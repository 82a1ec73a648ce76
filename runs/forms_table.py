"""What comes back of each method's forgetting when a ranker is rounded, averaged, trained on or taught again.

For each collection, ranker and kind of removal: an original, retrained judges, a further retrained ranker, CoCoL to
places, and methods that stop at the further one's mean forget MRR (destination 1). A line of JSON for each ranker and
form has the ranks of the forget queries before and after. The judges have the same forms: what comes back in them too
is no memory. Quick forms come first in every cell; a run that is out of time says what it leaves out.

The ranker `head` is a small one that stands in for an encoder (`heads.py`): the encoder's vectors are not rounded,
averaged or trained, only the head over them. Methods have the rates of `ground_truth.py` there.

    python runs/forms_table.py COLLECTION... --base ENCODER --rankers bi-encoder cross-encoder head --out forms.jsonl
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
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from ground_truth import FASTER
from heads import HeadRanker, HeadRecipe, Heads
from shared import earlier_lines, markdown
from torch import Tensor

import unrank
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditedRanker, Thoroughness, sampled_sets, whole_sets
from unrank.audit.other_forms import AVERAGED, TRAINED, Form, averaged, forms_of
from unrank.audit.relearning import Attempt, attempts_of, relearn, split_forget
from unrank.bench.method_spec import read_method_spec
from unrank.collection.partition import make_partition
from unrank.collection.removal import Kind
from unrank.engine.teacher import Teacher
from unrank.errors import UnrankError
from unrank.evaluation.bootstrap import percentiles, resampled_means
from unrank.evaluation.measure import Floats, reciprocal_of
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.forget import forget_in
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.provenance import Reference
from unrank.forgetting.train import train
from unrank.forgetting.workspace import Workspace
from unrank.methods import METHODS
from unrank.methods.base import Method
from unrank.methods.retrain import Retrain
from unrank.rankers.base import Ranker
from unrank.record import RETRAIN, Record

Line = dict[str, Any]
Arguments = argparse.Namespace
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
class Rankers:
    """How the rankers of a cell are made: encoders, or heads that stand in for them."""

    original: Ranker
    record: Record | None
    retrain: Callable[[int], Ranker]
    """Trains without what is removed, with this seed."""
    workspace: Workspace
    base: Mapping[str, Tensor] | None = None
    """What to average with; `None` for the weights of the encoder that rankers are trained from."""
    faster: float = 1.0
    """How much larger the rate of a method is than its own."""

    @classmethod
    def encoders(cls, folder: str, kind: str, by: Kind, original: Ranker, record: Record, given: Arguments) -> Rankers:
        collection = unrank.open_collection(folder)
        removed = unrank.Removal.sample(collection, by, given.share, given.removal_seed)

        def retrain(seed: int) -> Ranker:
            return train(collection, kind, given.base, removed, seed=seed, device=given.device).ranker

        workspace = Workspace.for_removal(original, collection, removed, record, device=given.device)
        return cls(original, record, retrain, workspace)

    @classmethod
    def heads(cls, heads: Heads, by: Kind, given: Arguments) -> Rankers:
        collection = heads.collection
        removed = unrank.Removal.sample(collection, by, given.share, given.removal_seed)
        partition = make_partition(collection, removed, reserve=True)
        seen = np.concatenate([partition.retain, partition.forget])
        original = heads.train(seen, given.seed).requires_grad_(True)
        workspace = replace(Workspace.open(original, collection, partition, given.device, None), removal=removed)

        def retrain(seed: int) -> HeadRanker:
            return heads.train(partition.retain, seed)

        first = {name: weight.detach() for name, weight in heads.new(given.seed).named_parameters()}
        return cls(original, None, retrain, workspace, first, FASTER)


@dataclass(frozen=True)
class Cell:
    """One original, one removal, and all rankers whose forms are measured."""

    facts: Mapping[str, object]
    context: AuditContext
    made: Rankers
    retrained: Ranker
    rankers: dict[str, AuditedRanker]
    before: list[Scorecard] = field(default_factory=list)
    """The original's figures, once a run has measured them."""

    @cached_property
    def attempts(self) -> list[Attempt]:
        return attempts_of(self.context)

    @cached_property
    def forms(self) -> dict[str, Form]:
        forms, base = forms_of(self.context), self.made.base
        return forms if base is None else {**forms, AVERAGED: lambda one: averaged(one.ranker, base)}

    @classmethod
    def make(cls, facts: Mapping[str, object], made: Rankers, given: Arguments) -> Cell:
        """Train the judges and a further retrained ranker."""
        retrained, workspace = made.retrain(RETRAINED), made.workspace
        rankers = {f"{JUDGE} {seed}": made.retrain(seed) for seed in JUDGES[: given.judges]}
        rankers |= {"the original": made.original, "retrained": retrained}
        opened = {name: _opened(ranker, workspace) for name, ranker in rankers.items()}
        whole = whole_sets(workspace)
        rate = HeadRecipe.learning_rate if isinstance(made.original, HeadRanker) else None
        effort = Thoroughness(
            queries=given.queries,
            full=True,
            relearning_rate=rate,
            relearning_rates=tuple(given.rates),
            relearning_steps=tuple(given.steps),
            relearning_seeds=given.seeds,
        )
        sets = sampled_sets(workspace.collection, whole, effort.queries, given.seed)
        alone = PerRanker(opened["the original"], None, ())
        collection, partition = workspace.collection, workspace.partition
        context = AuditContext(alone, collection, partition, whole, sets, effort, given.seed, given.base)
        return cls(facts, context, made, retrained, opened)

    @property
    def name(self) -> str:
        return ", ".join(str(self.facts[part]) for part in ("collection", "ranker", "by"))

    def forget(self, written: str, target: str, given: Arguments) -> None:
        """Add what a method makes of the original; the method is written as in a grid."""
        kind = self.made.original.kind
        spec = read_method_spec(written, kind, Retrain(), given.epochs)
        options = ForgetOptions(
            method=self._faster(spec.method),
            target=target,
            seed=given.seed,
            device=given.device,
            minutes=given.seconds / 60 if spec.steered and target != "places" else None,  # a proxy takes longer
            base=kind if kind == HeadRanker.kind and spec.method.needs_base else None,
        )
        reference = Reference(self.retrained, known=True) if self.made.record is None or target != "places" else None
        workspace, before = self.rankers["the original"].workspace, self.before[0] if self.before else None
        done = forget_in(
            workspace,
            self.made.original,
            options,
            reference=reference,
            record=self.made.record,
            before=before,
        )
        self.before.append(done.before)
        self.rankers[f"{spec.label} to {target.replace('-', ' ')}"] = _opened(done.ranker, workspace)

    def _faster(self, method: Method) -> Method:
        rate = getattr(method, "learning_rate", None)
        return method if rate is None else replace(method, learning_rate=self.made.faster * rate)

    def quick(self, run: str) -> Iterator[Line]:
        """Yield a line for each form that takes no training."""
        one, forget = self.rankers[run], self.context.sets["forget"]
        before = one.reciprocals(forget)
        for form, make in self.forms.items():
            if form not in SLOW:
                yield self._line(run, form, before, one.reciprocals(forget, one.workspace.scorer(make(one))))

    def slow(self, run: str, form: str) -> Line:
        """Return the line of a form that takes training."""
        one, forget = self.rankers[run], self.context.sets["forget"]
        if form == TRAINED:
            made = self.forms[TRAINED](one)
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


def measure(arguments: Arguments, write: Callable[[Line], None]) -> list[str]:
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


def made_cells(given: Arguments) -> Iterator[Cell]:
    for name, folder in given.of.items():
        for kind in given.rankers:
            for by, made in made_rankers(folder, kind, given):
                yield Cell.make({"collection": name, "ranker": kind, "by": by, "seed": given.seed}, made, given)


def made_rankers(folder: str, kind: str, given: Arguments) -> Iterator[tuple[Kind, Rankers]]:
    collection = unrank.open_collection(folder)
    if kind == HeadRanker.kind:
        vectors = given.out.with_name(f"vectors-{Path(folder).name}.safetensors")
        heads = Heads.open(collection, given.base, vectors, "cpu", HeadRecipe())
        yield from ((by, Rankers.heads(heads, by, given)) for by in given.by)
    else:
        trained = train(collection, kind, given.base, seed=given.seed, device=given.device)
        yield from ((by, Rankers.encoders(folder, kind, by, trained.ranker, trained.record, given)) for by in given.by)


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
    options.add_argument("--threads", type=int)
    options.add_argument("--device", default="auto")
    options.add_argument("--out", type=Path)
    arguments = options.parse_args()
    if lines := earlier_lines(arguments.collections):
        print("\n".join([*cells_table(lines), "", *runs_table(lines)]))
        return
    if arguments.out is None:
        options.error("--out is needed")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
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
