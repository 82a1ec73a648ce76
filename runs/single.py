"""One document, one query, ten documents: is a forgotten pair where retrained rankers that never saw it put it?

For each collection and ranker there is one original, and each draw is forgotten from it alone. Five judges and two
proxies of four epochs, as prepared ones are, are trained without the union of all draws of all kinds, so they serve
every draw. A judge of one draw would miss less; so the union has at most 15 % of the training pairs, and there are
fewer draws if need be, of ten documents first. With `--proxies 0` each run makes its own, without its draw alone.

The measure is the spread of four judges: from the lowest to the highest reciprocal rank that they give a pair among
its query's negatives. A line of JSON for each draw holds the ranks of its pairs. A line for each kind tells how many
pairs are within the spread, on average over the five choices of four judges, for the forgotten ranker and for the judge
that is left out. Reserved pairs, which the original never saw, do not count. Intervals are over draws.

    python runs/single.py COLLECTION... --base ENCODER --rankers bi-encoder --out single.jsonl [--draws 20]
        [--kinds document query ten-documents] [--removal-seed 7] [--proxies 2] [--measure 3000] [--set NAME=VALUE]
        [--keep FOLDER]
    python runs/single.py single.jsonl...  # prints the table of earlier runs

The same command goes on after the draws that its file holds, with the rankers that `--keep` kept in a folder; without
them a cell that is not whole is done again, because draws of other rankers cannot be compared.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from shared import LineFile, Made, earlier_lines, hash_of, made, markdown

import unrank
from unrank.bench.splits import split_hash
from unrank.collection.collection import Collection
from unrank.collection.partition import named, of_reserved, reserved_documents, reserved_queries
from unrank.collection.removal import Removal
from unrank.collection.texts import hashed_order
from unrank.evaluation.agreement import order_of, rank_biased_overlap
from unrank.evaluation.bootstrap import percentiles, resampled_columns
from unrank.evaluation.measure import Floats
from unrank.forgetting.forget import Forgotten, forget_in
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.outcome import pair_ranks
from unrank.forgetting.proxies import LONGER, Proxy, proxy_recipe
from unrank.forgetting.train import train
from unrank.forgetting.workspace import Workspace
from unrank.rankers import ranker_kind
from unrank.rankers.base import Ranker
from unrank.record import KEPT

SIZES = {"document": 1, "query": 1, "ten-documents": 10}
JUDGES = (101, 102, 103, 104, 105)
"""The seeds of the judges. No proxy has one of them."""
MOST_REMOVED = 0.15
"""The largest share of the training pairs that the judges are trained without."""
MOST_LISTS = 200
"""The most test lists whose order is compared with the original's."""
ROUNDING = 1e-9
JUDGE, FORGOTTEN, ORIGINAL, PLACE = "a fifth judge", "forgotten", "original", "place"
MEASURES = ("within", "above", "below", "off", "distance")
Line = dict[str, Any]


def choose_draws(collection: Collection, kinds: Sequence[str], number: int, seed: int) -> dict[str, list[Removal]]:
    """Return the draws of each kind. Those of one kind share nothing, and all together are not too much."""
    chosen = {kind: draw(collection, kind, number, seed) for kind in kinds}
    while named(collection, everything(chosen))[0].mean() > MOST_REMOVED and sum(map(len, chosen.values())) > 1:
        chosen[max(chosen, key=lambda kind: SIZES[kind] * len(chosen[kind]))].pop()
    return {kind: removals for kind, removals in chosen.items() if removals}


def draw(collection: Collection, kind: str, number: int, seed: int) -> list[Removal]:
    """Return this many removals of a kind, or as many as there are, of what the original was trained on."""
    seen = collection.pairs[~of_reserved(collection)[0]]
    texts, column = (collection.queries, 0) if kind == "query" else (collection.documents, 1)
    ids, size = texts.ids(np.unique(seen[:, column])), SIZES[kind]
    order = [ids[place] for place in hashed_order(ids, f"{seed}:{kind}")]
    groups = [order[start : start + size] for start in range(0, size * min(number, len(ids) // size), size)]
    return [Removal(queries=group) if kind == "query" else Removal(documents=group) for group in groups]


def everything(draws: Mapping[str, Sequence[Removal]]) -> Removal:
    return Removal.union(removal for removals in draws.values() for removal in removals)


def facts_of(collection: Collection, kind: str, arguments: argparse.Namespace) -> Line:
    """Return what names a cell."""
    return {"collection": collection.name, "ranker": kind, "removal_seed": arguments.removal_seed}


class Cell:
    """One original, the draws that are forgotten from it, and judges and a proxy that never saw any of them."""

    def __init__(self, collection: Collection, kind: str, arguments: argparse.Namespace) -> None:
        self.draws = choose_draws(collection, arguments.kinds, arguments.draws, arguments.removal_seed)
        self.union = everything(self.draws)
        numbers = [f"{len(self.draws.get(each, ()))} of {each}" for each in arguments.kinds]
        print(f"{collection.name}, {kind}: draws: {', '.join(numbers)}", file=sys.stderr, flush=True)
        self._collection, self._kind, self._arguments = collection, kind, arguments
        self.original = self._train("original")
        opened = Workspace.for_removal(
            self.original.ranker, collection, self.union, self.original.record, device=arguments.device
        ).with_teacher(self.original.ranker)
        opened.scorecard(self.original.ranker)  # its teacher then knows all that a run would ask it
        self.forget = opened.partition.forget
        self.reserved = reserved_queries(collection), reserved_documents(collection)
        trained = [self._train(f"judge-{seed}", self.union, seed=seed) for seed in JUDGES]
        self.judges = np.stack([pair_ranks(collection, self.forget, opened.scorer(each.ranker)) for each in trained])
        self.seconds = {"retraining": float(np.mean([each.record.seconds for each in trained]))}
        self.proxies, self.workspace = [self._proxy(seed) for seed in range(arguments.proxies)], opened
        for proxy in self.proxies:
            self.workspace = self.workspace.with_teacher(proxy)
        rankers = [self.original.ranker, *(each.ranker for each in trained), *self.proxies]
        self.facts = {**facts_of(collection, kind, arguments), "rankers": hash_of(rankers)}

    def _train(self, name: str, removal: Removal | None = None, **changes: Any) -> Made:
        arguments, whole = self._arguments, f"{self._collection.name}-{self._kind}-{name}"
        given = (self._collection, self._kind, arguments.base, removal)
        do = partial(train, *given, device=arguments.device, **changes)
        return made(arguments.keep, f"{whole}-{split_hash(removal)[:16]}" if removal else whole, do)

    def _proxy(self, seed: int) -> Ranker:
        recipe = proxy_recipe(ranker_kind(self._kind), epochs=LONGER)
        proxy = self._train(f"proxy-{seed}", self.union, method=recipe.method, seed=seed)
        self.seconds["proxy"] = proxy.record.seconds
        return proxy.ranker

    def lines(self, there: Sequence[Line]) -> Iterator[Line]:
        """Forget each draw that is not there yet. Yield a line for each, and one for each kind."""
        for kind, removals in self.draws.items():
            lines = [line for line in there if line["kind"] == kind and "draw" in line]
            done = {line["draw"] for line in lines}
            for number, removal in enumerate(removals):
                if number not in done:
                    lines.append({**self.facts, "kind": kind, "draw": number, **self._run(removal)})
                    yield lines[-1]
            if not any(line["kind"] == kind and "draw" not in line for line in there):
                removed = float(named(self._collection, self.union)[0].mean())
                whole = {**summary(lines), **self.seconds, "share removed from judges": removed}
                yield {**self.facts, "kind": kind, **whole}

    def _run(self, removal: Removal) -> Line:
        arguments, began = self._arguments, perf_counter()
        workspace = self.workspace.for_another(removal, self.original.record, arguments.measure)
        options = ForgetOptions(settings=arguments.settings, watch=0, device=arguments.device)
        record, never_saw = self.original.record, np.ones(len(workspace.partition.forget), bool)
        proxies = [Proxy(proxy, never_saw, "prepared", LONGER) for proxy in self.proxies]
        done = forget_in(workspace, self.original.ranker, options, record=record, proxies=proxies)
        ran = perf_counter() - began
        overlap = self._overlap(workspace, done)
        timing = {**done.record.timing, "rest": ran - done.record.seconds, "overlap": perf_counter() - began - ran}
        return {
            **self._ranks(workspace, done),
            "state": str(done.state),
            "kept": {name: done.kept.get(name) for name in KEPT},
            "overlap": overlap,
            "seconds": ran,
            "timing": timing,
            "epochs": done.record.epochs,
            "places": vars(done.record.places) if done.record.places else None,
        }

    def _ranks(self, workspace: Workspace, done: Forgotten) -> Line:
        """Return the ranks of a draw's pairs, and how they compare with the spread of four judges."""
        forget, keys = workspace.partition.forget, self._collection.pair_keys
        seen = ~(np.isin(forget[:, 0], self.reserved[0]) | np.isin(forget[:, 1], self.reserved[1]))
        order = np.argsort(keys(self.forget))
        judges = self.judges[:, order[np.searchsorted(keys(self.forget), keys(forget[seen]), sorter=order)]]
        assert done.before.pair_ranks is not None and done.after.pair_ranks is not None and done.places is not None
        ranks = {FORGOTTEN: done.after.pair_ranks, ORIGINAL: done.before.pair_ranks, PLACE: done.places.ranks}
        ranks = {name: each[seen] for name, each in ranks.items()}
        figures = {name: compare(1 / judges, 1 / each) for name, each in ranks.items()} | {JUDGE: compare(1 / judges)}
        listed = {name: each.tolist() for name, each in [*ranks.items(), ("judges", judges)]}
        return {"pairs": int(np.count_nonzero(seen)), "figures": figures, "ranks": listed}

    def _overlap(self, workspace: Workspace, done: Forgotten) -> float | None:
        """Return the mean rank-biased overlap with the original of test lists that hold no forget document."""
        collection, forget = self._collection, workspace.partition.forget
        tests = collection.test_queries
        pairs = collection.list_pairs(tests)
        tests = np.setdiff1d(tests, pairs[np.isin(pairs[:, 1], forget[:, 1]), 0])
        tests = np.sort(tests[hashed_order(collection.queries.ids(tests), "lists")[:MOST_LISTS]])
        if not len(tests):
            return None
        pairs = collection.list_pairs(tests)
        then, now = (workspace.scorer(ranker)(pairs) for ranker in (self.original.ranker, done.ranker))
        lists = [np.flatnonzero(pairs[:, 0] == query) for query in tests]
        return float(np.mean([rank_biased_overlap(order_of(then[here]), order_of(now[here])) for here in lists]))


def compare(judges: Floats, own: Floats | None = None) -> dict[str, float]:
    """Compare reciprocal ranks with those of four of five judges; without any, those of the fifth. [judges, pairs]

    Return sums over pairs, on average over the choices of four. `distance` is that to the mean of the four.
    """
    found = []
    for left_out, fifth in enumerate(judges):
        four, value = np.delete(judges, left_out, axis=0), fifth if own is None else own
        above, below = value > four.max(0) + ROUNDING, value < four.min(0) - ROUNDING
        off = value - four.mean(0)
        found.append([each.sum() for each in (~(above | below), above, below, off, np.abs(off))])
    return dict(zip(MEASURES, map(float, np.mean(found, axis=0)), strict=True))


def summary(lines: Sequence[Line]) -> Line:
    """Return the figures of all draws of one kind: means over pairs, with intervals over draws."""
    pairs = np.array([line["pairs"] for line in lines], float)
    within = {
        name: np.array([line["figures"][name]["within"] for line in lines])
        for name in (FORGOTTEN, JUDGE, ORIGINAL, PLACE)
    }
    columns = {**within, "less": within[FORGOTTEN] - within[JUDGE]}
    resampled = resampled_columns(np.stack([pairs, *columns.values()], axis=1))
    intervals = zip(columns, (resampled[:, 1:] / resampled[:, :1]).T, strict=True)
    kept = {name: [line["kept"][name] for line in lines if line["kept"][name] is not None] for name in KEPT}
    overlaps = [line["overlap"] for line in lines if line["overlap"] is not None]
    moved = [line["overlap"] for line in lines if line["overlap"] is not None and line["epochs"]]
    return {
        "draws": len(lines),
        "pairs": int(pairs.sum()),
        **{
            name: {measure: sum(line["figures"][name][measure] for line in lines) / pairs.sum() for measure in MEASURES}
            for name in within
        },
        "forgotten less a fifth judge": float(columns["less"].sum() / pairs.sum()),
        "intervals": {name: percentiles(values) for name, values in intervals},
        "states": Counter(line["state"] for line in lines),
        "kept": {name: {"mean": float(np.mean(some)), "least": min(some)} for name, some in kept.items() if some},
        "overlap": {"mean": float(np.mean(overlaps)), "least": min(overlaps)} if overlaps else None,
        "overlap where changed": float(np.mean(moved)) if moved else None,
        "seconds": float(np.mean([line["seconds"] for line in lines])),
        "timing": {
            name: float(np.mean([line["timing"].get(name, 0.0) for line in lines]))
            for name in dict.fromkeys(name for line in lines for name in line["timing"])
        },
    }


def summaries_of(lines: Sequence[Line]) -> list[Line]:
    """Return a summary of each kind of each cell, also of one that was stopped before its last draw."""
    found: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        if "draw" in line:
            found.setdefault((line["collection"], line["ranker"], line["kind"], str(line["removal_seed"])), []).append(
                line
            )
    names = ("collection", "ranker", "kind")
    return [{**dict(zip(names, cell, strict=False)), **summary(draws)} for cell, draws in found.items()]


def table(summaries: Sequence[Line]) -> list[str]:
    """Return a table in Markdown, with a row for each kind of each cell."""
    head = ["collection, ranker", "kind", "draws (pairs)", "within the spread", JUDGE, "less", ORIGINAL, PLACE]
    head += ["above, below", "off", "E, D, T (least)", "overlap (least)", "overlap where changed", "seconds", "states"]
    rows = []
    for line in summaries:
        own, between, changed = line[FORGOTTEN], line["intervals"], line["overlap where changed"]
        shares = [f"{line[name]['within']:.3f} ({_span(between[name])})" for name in (FORGOTTEN, JUDGE)]
        less = f"{line['forgotten less a fifth judge']:+.3f} ({_span(between['less'])})"
        kept = [_mean_and_least(line["kept"].get(name)) for name in KEPT]
        rows.append(
            [
                *(f"{line['collection']}, {line['ranker']}", line["kind"], f"{line['draws']} ({line['pairs']})"),
                *(*shares, less, *(f"{line[name]['within']:.3f}" for name in (ORIGINAL, PLACE))),
                *(f"{own['above']:.3f}, {own['below']:.3f}", f"{own['off']:+.3f}", ", ".join(kept)),
                _mean_and_least(line["overlap"]),
                *("–" if changed is None else f"{changed:.4f}", f"{line['seconds']:.1f}"),
                ", ".join(f"{number} {state}" for state, number in line["states"].items()),
            ]
        )
    return markdown(head, rows)


def _span(ends: Sequence[float]) -> str:
    return " to ".join(f"{end:.3f}" for end in ends)


def _mean_and_least(found: Mapping[str, float] | None) -> str:
    return f"{found['mean']:.4f} ({found['least']:.4f})" if found else "–"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("collections", nargs="+", help="collections, or the files of earlier runs")
    options.add_argument("--base")
    options.add_argument("--rankers", nargs="+", default=["bi-encoder"])
    options.add_argument("--kinds", nargs="+", default=list(SIZES), choices=list(SIZES))
    options.add_argument("--draws", type=int, default=20)
    options.add_argument("--removal-seed", type=int, default=7)
    options.add_argument("--proxies", type=int, default=2, help="0: each run makes its own")
    options.add_argument("--measure", type=int, help="queries of each kept set that are measured after a run")
    options.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE")
    options.add_argument("--device", default="auto")
    options.add_argument("--out", type=Path)
    options.add_argument("--keep", type=Path, help="a folder for the trained rankers, so that a stopped run goes on")
    arguments = options.parse_args()
    if lines := earlier_lines(arguments.collections):
        print("\n".join(table(summaries_of(lines))))
        return
    if arguments.out is None:
        options.error("--out FILE is needed: the lines of JSON are written there")
    arguments.settings = dict(each.split("=", 1) for each in arguments.set)
    began, file = perf_counter(), LineFile(arguments.out)
    for folder, kind in product(arguments.collections, arguments.rankers):
        collection = unrank.open_collection(folder)
        facts = facts_of(collection, kind, arguments)
        whole = {line["kind"] for line in file.of(facts) if "draws" in line}
        if not whole.issuperset(arguments.kinds):
            cell = Cell(collection, kind, arguments)
            for line in cell.lines(file.go_on(facts, cell.facts["rankers"])):
                file.write({**line, "at": round(perf_counter() - began)})
    print("\n".join(table(summaries_of(earlier_lines([str(arguments.out)])))))


if __name__ == "__main__":
    main()
