"""Requests in a row on one ranker: is what is kept still the first original's, and do earlier requests stay in place?

Each request removes a few documents, and every fourth one a query. It starts from the ranker of the one before, and
pulls each pair to its place. Two proxies that saw none of all requests serve them all. After each request a line of
JSON has what E, D and T are of the first original's, and for each request so far its mean reciprocal rank less that of
its places. The last lines compare the end with rankers that were trained without any of the requests (`--judges`), and
with a run from the first original on the union of all requests, all measured on all queries.

    python runs/row_of_requests.py COLLECTION --base ENCODER --ranker bi-encoder --requests 50 --documents 3 --seed 1
        --out row.jsonl [--keep FOLDER] [--without-anchors] [--measure 300] [--proxy-epochs 4] [--judges 2]
    python runs/row_of_requests.py FILE.jsonl...  # prints the table of earlier runs

The state folder of the run is a temporary one. `--without-anchors` writes no anchor file there. `--keep` keeps rankers
and state in a folder: the same command then goes on after the last request of its file.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from shared import Line, LineFile, Made, earlier_lines, hash_of, made, markdown

import unrank
from unrank.bench.splits import split_hash
from unrank.collection.collection import Collection
from unrank.collection.partition import named, of_reserved
from unrank.collection.removal import Removal
from unrank.collection.texts import hashed_order
from unrank.engine.runtime import Silence
from unrank.forgetting.forget import Forgotten, forget_in
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.proxies import LONGER, Proxy, proxy_recipe
from unrank.forgetting.train import TrainOptions, train
from unrank.forgetting.workspace import Workspace
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker
from unrank.record import KEPT, Record

QUERY_EVERY = 4
"""Every fourth request removes a query."""
NEAR = 0.03
"""The most that a request may be off its places to count as near."""
PROXY_SEEDS = (1_000, 1_001)
JUDGES = 2_000
"""The first seed of the rankers that are trained without any of the requests."""
JUDGE = "judge "


def draw_requests(collection: Collection, number: int, documents: int, seed: int) -> list[Removal]:
    """Draw requests that name different queries and documents, of those that training has seen."""
    pairs = collection.pairs[~of_reserved(collection)[0]]
    queries, texts = (side.ids(np.unique(rows)) for side, rows in zip(_sides(collection), pairs.T, strict=True))
    next_query, next_document = (
        iter([ids[place] for place in hashed_order(ids, f"requests {seed}")]) for ids in (queries, texts)
    )
    return [
        Removal(queries=[next(next_query)])
        if place % QUERY_EVERY == 0
        else Removal(documents=[next(next_document) for _ in range(documents)])
        for place in range(1, number + 1)
    ]


def _sides(collection: Collection) -> tuple[unrank.collection.texts.Texts, ...]:
    return collection.queries, collection.documents


class Row:
    """One original, its proxies, and the requests in their order."""

    def __init__(
        self,
        original: Made,
        collection: Collection,
        requests: Sequence[Removal],
        options: ForgetOptions,
        keep: Path | None = None,
        judges: int = 0,
    ):
        self.original, self.collection, self.requests, self.options = original, collection, requests, options
        self._keep, self._judges = keep, judges
        self._union = union = Removal.union(requests)
        recipe = proxy_recipe(original.ranker.kind, epochs=options.proxy_epochs or LONGER).method
        self.proxies = []
        for seed in PROXY_SEEDS:
            given = TrainOptions(method=recipe, seed=seed, device=options.device)
            what = (collection, original.ranker.kind, options.base, union)
            proxy = made(keep, f"proxy-{seed}", partial(train, *what, options=given, progress=Silence()))
            self.proxies.append(proxy.ranker)
        whole = self._open(original.ranker, union, original.record, 0)
        self.whole = whole.with_teacher(original.ranker)
        for ranker in self.proxies:
            self.whole = self.whole.with_teacher(ranker)
        self.pairs = [collection.pairs[named(collection, request)[0]] for request in requests]
        self.places: list[float | None] = []
        """The mean reciprocal rank of the places of each request so far; `None` if there was nothing to forget."""

    def _open(self, ranker: Ranker, removal: Removal, record: Record, measure: int | None) -> Workspace:
        return Workspace.for_removal(
            ranker, self.collection, removal, record, device=self.options.device, progress=Silence(), measure=measure
        )

    def _asking(self, workspace: Workspace, ranker: Ranker) -> Workspace:
        """Return a workspace with the tokens of all, and with one teacher for each ranker that several steps ask.

        Of a ranker with vectors of its own for documents, one pass scores all lists.
        """
        asking = replace(workspace, store=self.whole.store, teachers=self.whole.teachers)
        if ranker is not self.original.ranker:
            asking = asking.with_teacher(ranker)
        if ranker.separable:
            asking.scorer(ranker)(self.collection.list_pairs(np.arange(len(self.collection.queries))))
        return asking

    def run(self, with_anchors: bool, there: Sequence[Line] = ()) -> Iterator[Line]:
        """Yield a line for the first original, one for each request, one for the end, and one for their union.

        `there` are the lines that a call before yielded.
        """
        done_before = [line for line in there if isinstance(line["run"], int)]
        (ranker, record), whole = self.original, self.whole
        asked = self._asking(whole, ranker)
        if not there:
            yield {"run": "first original", **asked.scorecard(ranker).mrrs}
        if self._keep is not None:
            self._go_back(len(done_before))
        if done_before:
            self.places = [line["place"] for line in done_before]
            ranker, record = self._last(len(done_before))
            asked = self._asking(whole, ranker)
        for number, request in enumerate(self.requests[len(done_before) :], len(done_before) + 1):
            began = perf_counter()
            opened = self._open(ranker, request, record, self.options.measure)
            workspace = replace(opened, store=asked.store, teachers=asked.teachers)
            done = self._forget(workspace, ranker, record)
            if with_anchors:
                done.write_anchors()
            ranker, record = done.ranker, done.record
            found, asked = record.places, self._asking(workspace, ranker)
            self.places.append(found.mrr if found is not None and record.changed else None)
            line = self._line(asked, done, number)
            took = round(perf_counter() - began, 2)
            if self._keep is not None:
                self._save(done, number)
            yield {**line, "place": self.places[-1], "took": took}
        named_there = {line["run"] for line in there}
        if "in a row" not in named_there:
            yield {"run": "in a row", **self._measured(self._asking(self.whole, ranker), ranker)}
        for seed in range(JUDGES, JUDGES + self._judges):
            if f"{JUDGE}{seed}" not in named_there:
                judge = self._judge(seed)
                yield {"run": f"{JUDGE}{seed}", **self._measured(self._asking(self.whole, judge), judge)}
        if "union" in named_there:
            return
        union = self._forget(self.whole, self.original.ranker, self.original.record)
        yield {"run": "union", **self._measured(self.whole, union.ranker), "timing": _rounded(union.record.timing)}

    def _judge(self, seed: int) -> Ranker:
        """Train a ranker that never saw any of the requests."""
        given = TrainOptions(seed=seed, device=self.options.device)
        what = (self.collection, self.original.ranker.kind, self.options.base, self._union)
        return made(self._keep, f"judge-{seed}", partial(train, *what, options=given, progress=Silence())).ranker

    def _save(self, done: Forgotten, number: int) -> None:
        """Keep the ranker and the state after a request, and those after the one before until its line is written."""
        assert self._keep is not None
        place = self._keep / f"after-{number}"
        shutil.rmtree(place, ignore_errors=True)  # of a call that was stopped before its line
        done.save(place)
        self._snapshot(number)
        for old in (f"after-{number - 2}", f"state-{number - 2}"):
            shutil.rmtree(self._keep / old, ignore_errors=True)

    def _snapshot(self, number: int) -> None:
        """Keep the owner's state as it is after a request; 0 for before the first."""
        assert self._keep is not None
        place, part = self._keep / f"state-{number}", self._keep / "state.part"
        for old in (place, part):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(self._keep / "state", part)
        part.rename(place)

    def _go_back(self, number: int) -> None:
        """Take back what a call that was stopped did to the owner's state after this request."""
        assert self._keep is not None
        if (self._keep / f"state-{number}").exists():
            shutil.rmtree(self._keep / "state")
            shutil.copytree(self._keep / f"state-{number}", self._keep / "state")
        else:
            self._snapshot(number)

    def _last(self, number: int) -> Made:
        assert self._keep is not None
        record = Record.read(self._keep / f"after-{number}")
        assert record is not None
        return Made(load_ranker(self._keep / f"after-{number}"), record)

    def _forget(self, workspace: Workspace, ranker: Ranker, record: Record) -> Forgotten:
        never_saw = np.ones(len(workspace.partition.forget), bool)
        proxies = [Proxy(proxy, never_saw, "prepared", LONGER) for proxy in self.proxies]
        return forget_in(workspace, ranker, self.options, proxies=proxies, record=record)

    def _line(self, workspace: Workspace, done: Forgotten, number: int) -> dict[str, object]:
        return {
            "run": number,
            "pairs": len(workspace.partition.forget),
            "state": str(done.state),
            "changed": done.record.changed,
            "epochs": done.record.epochs,
            **self._measured(workspace, done.ranker, done.after.mrrs),
            "timing": _rounded(done.record.timing),
        }

    def _measured(
        self, workspace: Workspace, ranker: Ranker, mrrs: Mapping[str, float] | None = None
    ) -> dict[str, object]:
        """Return E, D and T as shares of the first original's, and how far requests so far are from their places."""
        evaluator, score, every = workspace.evaluator, workspace.scorer(ranker), len(self.collection.queries)
        first = workspace.scorer(self.original.ranker)
        before, after = evaluator.watch(first, every), mrrs or evaluator.watch(score, every)
        each = evaluator.reciprocals_of_each(score, self.pairs[: len(self.places)], forget=True)
        off = [
            None if place is None else round(float(ranks.mean()) - place, 4)
            for ranks, place in zip(each, self.places, strict=True)
        ]
        known = [distance for distance in off if distance is not None]
        spread = {"highest": max(known), "lowest": min(known), "mean": float(np.mean(known))} if known else {}
        return {**{name: after[name] / mrr for name, mrr in before.items() if mrr}, **spread, "off": off}


def _rounded(timing: Mapping[str, float]) -> dict[str, float]:
    return {name: round(seconds, 2) for name, seconds in timing.items()}


def table(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table in Markdown: where each row of requests stood after the last one of which there is a line.

    A row belongs to one original: the same seed with another original is another row.
    """
    found: dict[tuple[str, str, int, str], list[Mapping[str, Any]]] = {}
    for line in lines:
        found.setdefault((line["collection"], line["ranker"], line["seed"], line.get("rankers", "")), []).append(line)
    rows = []
    for (collection, ranker, seed, _), every in found.items():
        requests = [line for line in every if isinstance(line["run"], int)]
        if not requests:
            continue
        pairs = sum(line["pairs"] for line in requests)
        [end] = [line for line in every if line["run"] == "in a row"] or requests[-1:]
        off = [distance for distance in end["off"] if distance is not None]
        kept, theirs = _kept([end]), _kept([line for line in every if str(line["run"]).startswith(JUDGE)])
        spread = f"{np.mean(off):+.3f} ({min(off):+.3f} to {max(off):+.3f})" if off else "–"
        far = f"{sum(abs(distance) > NEAR for distance in off)} of {len(off)}"
        seconds = f"{np.mean([line['took'] for line in requests]):.1f}"
        rows.append(
            [f"{collection}, {ranker}", str(seed), f"{len(requests)} ({pairs})", kept, theirs, spread, far, seconds]
        )
    head = ["collection, ranker", "seed", "requests (pairs)", "E, D, T of the first original's", "of judges"]
    return markdown([*head, "off the places (range)", f"farther than {NEAR:g}", "seconds a request"], rows)


def _kept(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the mean share of each kept set's MRR."""
    found = [[line[name] for line in lines if name in line] for name in KEPT]
    return ", ".join(f"{np.mean(shares):.3f}" if shares else "–" for shares in found)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("collection", nargs="+", help="a collection, or the files of earlier runs")
    options.add_argument("--base")
    options.add_argument("--ranker", default="bi-encoder")
    options.add_argument("--requests", type=int, default=50)
    options.add_argument("--documents", type=int, default=3)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--measure", type=int, default=300)
    options.add_argument("--proxy-epochs", type=int, default=LONGER)
    options.add_argument("--judges", type=int, default=0, help="rankers to train without any of the requests")
    options.add_argument("--without-anchors", action="store_true")
    options.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE")
    options.add_argument("--device", default="auto")
    options.add_argument("--out", type=Path)
    options.add_argument("--keep", type=Path, help="a folder for rankers and state, so that a stopped row goes on")
    arguments = options.parse_args()
    if lines := earlier_lines(arguments.collection):
        print("\n".join(table(lines)))
        return
    if arguments.out is None or len(arguments.collection) > 1:
        options.error("one collection and --out FILE are needed")
    run(arguments)


def run(arguments: argparse.Namespace) -> None:
    collection = unrank.open_collection(arguments.collection[0])
    facts = {"seed": arguments.seed, "collection": Path(arguments.collection[0]).name, "ranker": arguments.ranker}
    requests = draw_requests(collection, arguments.requests, arguments.documents, arguments.seed)
    chosen = ForgetOptions(
        settings=dict(each.split("=", 1) for each in arguments.set),
        base=arguments.base,
        proxy_epochs=arguments.proxy_epochs,
        measure=arguments.measure,
        watch=0,
        seed=arguments.seed,
        device=arguments.device,
    )
    file = LineFile(arguments.out)
    judges = [f"{JUDGE}{seed}" for seed in range(JUDGES, JUDGES + arguments.judges)]
    if all(file.of({**facts, "run": run}) for run in ("in a row", "union", *judges)):
        return
    name = f"{facts['collection']}-{arguments.ranker}-{arguments.seed}"
    keep = arguments.keep and arguments.keep / f"{name}-{split_hash(Removal.union(requests))[:16]}"
    with TemporaryDirectory() as scratch:
        os.environ["UNRANK_STATE"] = str(keep / "state") if keep else scratch
        what = (collection, arguments.ranker, arguments.base)
        original = made(keep, "original", partial(train, *what, device=arguments.device, progress=Silence()))
        row = Row(original, collection, requests, chosen, keep, arguments.judges)
        facts["rankers"] = hash_of([original.ranker, *row.proxies])
        there = file.go_on({name: facts[name] for name in facts if name != "rankers"}, facts["rankers"] if keep else "")
        for line in row.run(not arguments.without_anchors, there):
            file.write({**facts, **line})
            print({name: value for name, value in line.items() if name not in ("off", "timing")}, flush=True)


if __name__ == "__main__":
    main()
