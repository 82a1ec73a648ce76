"""The rankers of today on one GPU: a decoder with an adapter, SPLADE, mpnet, and other forms of an adapter.

Each part is a process of its own and writes a line of JSON for each thing that it did, as soon as it is done:

    python runs/modern.py decoder COLLECTION --base SMOLLM2 --out decoder.jsonl
    python runs/modern.py splade COLLECTION --base MINILM --development PYDOCS HELD_OUT --out splade.jsonl
    python runs/modern.py mpnet COLLECTION --base MPNET --out mpnet.jsonl
    python runs/modern.py forms COLLECTION --base MINILM --out forms.jsonl
        [--by documents queries] [--share 0.25] [--removal-seed 7] [--seed 0] [--device cuda] [--minutes 4]
        [--set NAME=VALUE ...] [--forget NAME=VALUE ...] [--proxy-epochs 1] [--keep FOLDER]
    python runs/modern.py FILE.jsonl...

`decoder` trains a language model as a reranker, then forgets a share of the documents and of the queries, to places and
to the mean of a retrained ranker (destination 1), with an adapter and with all weights. It also writes the size of the
adapter, and whether scores without it are the original's to the bit.
`splade` trains by several recipes on the development collections and takes the one with the best mean of their test
MRRs. On the last of them it forgets at several learning rates and takes the one that keeps most. Then it trains and
forgets on COLLECTION; nothing is chosen by its test queries.
`mpnet` forgets documents to places with a bi-encoder and a cross-encoder, beside a retrained judge. `forms` compares
what comes back of an adapter and of all weights, after an epoch on kept data and after rounding to 4 bits.

By default a decoder is trained for 3 epochs with 4 negatives, and its proxy for one. It reads every pair, so it takes a
collection that `smaller.py` made.

`--set` are settings of the training, `--forget` those of the method. After `--minutes` no further run is begun, and the
rest is named. The same command goes on after the lines that its file holds, if `--keep` kept the rankers; without it
the lines of other rankers are dropped. The last form prints the tables of earlier runs.
"""

from __future__ import annotations

import argparse
import copy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import torch
from shared import Line, LineFile, Lines, Made, earlier_lines, hash_of, made, markdown

import unrank
from unrank.audit.other_forms import rounded
from unrank.collection.collection import Collection
from unrank.collection.removal import Kind, Removal
from unrank.engine.checkpoint import digest
from unrank.engine.runtime import Device, Runtime
from unrank.errors import UnrankError
from unrank.evaluation.agreement import distance
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.forget import Forgotten, forget_in
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.provenance import Reference
from unrank.forgetting.proxies import Proxy, make_proxy
from unrank.forgetting.train import recipe_of, recover, train
from unrank.forgetting.workspace import Workspace
from unrank.methods import read_settings
from unrank.methods.retrain import Retrain
from unrank.rankers import create_ranker
from unrank.rankers.adapter_folder import adapted_model, write_adapter
from unrank.rankers.base import Ranker
from unrank.record import KEPT

PLACES, FIRST = "places", "destination-1"
JUDGE = 101
"""The seed of retrained rankers. No proxy has it."""
COMPARED = 64
"""Pairs whose scores without the adapter are compared with the original's."""
TRAINING: dict[str, dict[str, str]] = {
    "decoder": {"epochs": "3", "negatives": "4", "batch": "128", "learning_rate": "1e-4", "falls": "true"},
    "mpnet": {"epochs": "4", "negatives": "4", "falls": "true"},
}
"""The settings of a part's training that differ from the recipe of its ranker."""
RECIPES: dict[str, dict[str, str]] = {
    f"{rate}, {epochs} epochs": {"learning_rate": rate, "epochs": epochs, "negatives": "4", "falls": "true"}
    for rate, epochs in (("1e-5", "4"), ("2e-5", "4"))
}
"""The settings that are tried on the development collections to train a SPLADE."""
RATES = ("8.5e-5", "3e-5")
"""The learning rates that are tried to forget with a SPLADE; the first is the method's own."""


@dataclass(eq=False)
class Study:
    """One kind of ranker on one collection: an original, and what is forgotten of it."""

    arguments: argparse.Namespace
    collection: Collection
    kind: str
    settings: Mapping[str, str]
    file: LineFile
    began: float
    facts: Line = field(init=False)

    def __post_init__(self) -> None:
        self.facts = {
            "part": self.arguments.part,
            "collection": self.collection.named.name,
            "ranker": self.kind,
            "base": Path(self.arguments.base).name if self.arguments.base else None,
        }

    @property
    def method(self) -> Retrain:
        return recipe_of(self.kind, self.settings)

    def run(self, what: Line, work: Callable[[], Line]) -> None:
        """Do a piece of work and write its line, unless it is there already or time is up. A failure is a line too."""
        facts = {**self.facts, **what}
        if self.file.of(facts):
            return
        named = " ".join(str(value) for value in what.values())
        if perf_counter() - self.began > 60 * self.arguments.minutes:
            print(f"{self.kind}: no time is left for {named}", flush=True)
            return
        with peak_memory(self.arguments.device) as memory:
            started = perf_counter()
            try:
                found = work()
            except Exception as error:  # the runs after this one may still succeed
                traceback.print_exc()
                found = {"failed": f"{type(error).__name__}: {error}"[:500]}
            wall = perf_counter() - started
        line = {**facts, **found, **memory, "wall": round(wall, 2), "at": round(perf_counter() - self.began, 1)}
        self.file.write(line)
        shown = {name: value for name, value in found.items() if name in SHOWN}
        print(f"{self.kind}, {named}: {shown} {wall:.1f} s", flush=True)

    def trained(self, name: str, removal: Removal | None = None, seed: int = 0) -> Made:
        def do() -> Any:
            how = {"method": self.method, "seed": seed, "device": self.arguments.device, "progress": Lines()}
            return train(self.collection, self.kind, self.arguments.base, removal, **how)

        return made(self.arguments.keep, f"{self.kind}-{name}", do)

    @cache  # noqa: B019  a study lives as long as its process
    def original(self) -> Made:
        """Train the original, and write its line."""
        found = self.trained("original", seed=self.arguments.seed)
        self.file.go_on(self.facts, hash_of([found.ranker]))
        self.facts["rankers"] = hash_of([found.ranker])
        return found

    def write_original(self) -> None:
        """Write how well the original does beside BM25 and the untrained ranker."""

        def work() -> Line:
            found = self.original()
            after = {name: vars(summary) for name, summary in found.record.after.items()}
            known = {"seconds": found.record.seconds, "epochs": found.record.epochs, "after": after}
            test = {"test": found.record.after["test"].mrr, "bm25": bm25_mrr(self.collection)}
            settings = {"settings": dict(found.record.settings)}
            return {**known, **test, **settings, "entries": entries_of(found.record.entries)}

        self.original()  # before the facts are read: they name its hash
        self.run({"run": "trained"}, work)

    def untrained(self) -> Line:
        """Measure the ranker before its training."""
        ranker = create_ranker(self.kind, self.arguments.base, self.arguments.seed)
        card, entries = measured(ranker, self.collection, self.arguments.device)
        return {"mrr": card.mrrs, "test": card.mrrs["test"], "entries": entries}


class Request:
    """What is to be forgotten of a study's original: the workspace, the figures before, a retrained ranker, a proxy."""

    def __init__(self, study: Study, by: Kind) -> None:
        self.study, self.by = study, by
        given, found = study.arguments, study.original()
        self.original, self.record = found.ranker, found.record
        self.removal = Removal.sample(study.collection, by, given.share, given.removal_seed)
        self.workspace = Workspace.for_removal(
            self.original, study.collection, self.removal, self.record, device=given.device, progress=Lines()
        )
        self.before = self.workspace.scorecard(self.original)
        self._retrained: Made | None = None
        self._card: Scorecard | None = None
        self._proxy: Proxy | None = None

    def retrained(self) -> Made:
        if self._retrained is None:
            self._retrained = self.study.trained(f"retrained-{self.by}", self.removal, JUDGE)
        return self._retrained

    def card(self) -> Scorecard:
        """Return the figures of the retrained ranker."""
        if self._card is None:
            self._card = self.workspace.scorecard(self.retrained().ranker)
        return self._card

    def write_retrained(self) -> None:
        def work() -> Line:
            found, card = self.retrained(), self.card()
            return {"seconds": found.record.seconds, "epochs": found.record.epochs, **self.kept(card)}

        self.study.run({"by": self.by, "run": "retrained"}, work)

    def proxy(self) -> Proxy:
        if self._proxy is None:
            given = self.study.arguments
            how = (given.base, given.seed, given.proxy_epochs, None, self.record)
            self._proxy = make_proxy(self.workspace, self.original, *how)
        return self._proxy

    def write_proxy(self) -> None:
        def work() -> Line:
            return {**self.kept(self.workspace.scorecard(self.proxy().ranker)), "epochs": self.proxy().epochs}

        self.study.run({"by": self.by, "run": "proxy"}, work)

    def kept(self, card: Scorecard) -> Line:
        """Return the forget MRR of a ranker, what it kept of the original's, and its distance to the retrained one."""
        shares = {name: card.mrrs[name] / self.before.mrrs[name] for name in KEPT if self.before.mrrs.get(name)}
        assert card.forget is not None and self.before.forget is not None
        found: Line = {"forget": card.forget.mean, "forget before": self.before.forget.mean, "kept": shares}
        if self._card is not None and self._card.forget is not None:
            found["retrained"] = self._card.forget.mean
            found["distance"] = distance(card.forget.reciprocal, self._card.forget.reciprocal)
        return {**found, "mrr": card.mrrs, "queries": {name: len(getattr(card, name).queries) for name in card.mrrs}}

    def forget(
        self, target: str, adapt: str | None, more: Callable[[Forgotten], Line] | None = None, named: str | None = None
    ) -> None:
        """Forget with an adapter or with all weights, and write the line."""

        def work() -> Line:
            given = self.study.arguments
            settings = read_settings(given.forget)
            options = ForgetOptions(
                target=target, adapt=adapt, base=given.base, settings=settings, device=given.device, seed=given.seed
            )
            known = self.retrained() if target == FIRST else None
            if target == FIRST:
                self.card()
            reference = Reference(known.ranker, known=True, record=known.record) if known else None
            proxies = [self.proxy()] if target == PLACES else []
            done = forget_in(
                self.workspace,
                self.original,
                options,
                reference=reference,
                record=self.record,
                before=self.before,
                proxies=proxies,
            )
            record = done.record
            figures = {
                "state": str(done.state),
                "reached": done.reached,
                "goal": done.target,
                "epochs": record.epochs,
                "seconds": record.seconds,
                "timing": dict(record.timing),
                "entries": entries_of(record.entries),
                "places": vars(record.places) if record.places else None,
            }
            return {**figures, **self.kept(done.after), **(more(done) if more else {})}

        named = named or f"{target}, {'adapter' if adapt else 'all weights'}"
        self.study.run({"by": self.by, "run": named}, work)


def entries_of(entries: Any) -> Line | None:
    return None if entries is None else vars(entries)


def measured(ranker: Ranker, collection: Collection, device: Device) -> tuple[Scorecard, float | None]:
    """Return the figures of a ranker on a whole collection, and the entries of its documents."""
    workspace = Workspace.open(ranker, collection, None, device)
    return workspace.scorecard(ranker), workspace.entries(ranker)


def bm25_mrr(collection: Collection) -> float | None:
    """Return BM25's test MRR on the same lists; `None` without its package."""
    try:
        from unrank.forgetting.evaluate import evaluate_bm25

        return evaluate_bm25(collection)[0].mrrs["test"]
    except ImportError:
        return None


@contextmanager
def peak_memory(device: Device) -> Iterator[Line]:
    """Yield a line that has the most memory of a block when it is over, and that at its beginning; empty on a CPU."""
    found: Line = {}
    on_gpu = Runtime.on(device).device.type == "cuda"
    if on_gpu:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats()
        found["GiB before"] = round(torch.cuda.memory_allocated() / 2**30, 2)
    yield found
    if on_gpu:
        found["GiB"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)


def adapter_off(request: Request, done: Forgotten) -> Line:
    """Return the size of an adapter, and whether scores without it are the original's.

    The library puts the adapter's files on a copy of the original, switches it on and off, and takes it away again. On
    a CPU scores of equal weights may differ in the last bit by where the weights are in memory; `before` tells that.
    """
    from peft import PeftModel

    collection, original = request.study.collection, request.original
    assert done.adapter is not None
    rows = np.random.default_rng(0).permutation(request.workspace.partition.forget)[:COMPARED]
    texts = collection.queries.texts(rows[:, 0]), collection.documents.texts(rows[:, 1])
    fast, other = original.score_texts(*texts), copy.deepcopy(original)
    before = other.library_scores(*texts)
    with TemporaryDirectory() as folder:
        write_adapter(Path(folder), original, done.adapter, "original")
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        put = PeftModel.from_pretrained(adapted_model(other), folder).eval()
        on = other.library_scores(*texts)
        with put.disable_adapter():
            off = other.library_scores(*texts)
        put.unload()
    bare, same = other.library_scores(*texts), digest(other.state_dict()) == digest(original.state_dict())
    assert before is not None and on is not None and off is not None
    theirs = done.ranker.library_scores(*texts)
    return {
        "bytes": size,
        "rank": done.adapter.rank,
        "off equals original": off == bare and same,
        "off differs from before": float(np.abs(np.subtract(off, before)).max()),
        "on differs from original": float(np.abs(np.subtract(on, before)).mean()),
        "on differs from merged": float(np.abs(np.subtract(on, theirs or on)).max()),
        "range": float(np.ptp(before)),
        "original scores again": original.score_texts(*texts) == fast,
        "original's weights": digest(original.state_dict())[:16],
    }


def decoder(study: Study) -> None:
    study.write_original()
    requests = [Request(study, by) for by in study.arguments.by]
    for request in requests:
        request.write_retrained()
        for target in (PLACES, FIRST):
            request.forget(target, "lora", partial(adapter_off, request))
    for request in requests:
        for target in (PLACES, FIRST):
            request.forget(target, None)
    study.run({"run": "untrained"}, study.untrained)


def splade(study: Study) -> None:
    given = study.arguments
    if given.development:
        study.settings = {**choose_recipe(study), **study.settings}
        given.forget = [f"learning_rate={choose_rate(study)}", *given.forget]
    study.write_original()
    study.run({"run": "untrained"}, study.untrained)
    for by in given.by:
        request = Request(study, by)
        request.write_retrained()
        request.forget(FIRST, None)


def choose_recipe(study: Study) -> dict[str, str]:
    """Train on each development collection by each recipe; return the best."""
    given, tried = study.arguments, dict[str, list[Line]]()

    def work(collection: Collection, name: str) -> Line:
        settings = RECIPES[name]
        how = {"method": recipe_of(study.kind, settings), "device": given.device, "progress": Lines()}
        record = train(collection, study.kind, given.base, seed=given.seed, **how).record
        after = {name: summary.mrr for name, summary in record.after.items()}
        learned = [check.learned for check in record.history]
        figures = {"test": after["test"], "mrr": after, "learned": learned, "seconds": record.seconds}
        return {**figures, "entries": entries_of(record.entries), "settings": dict(settings)}

    for folder in given.development:
        developed = replace(study, collection=unrank.open_collection(folder))
        developed.facts["part"] = "development"
        developed.run({"run": "untrained"}, developed.untrained)
        for name in RECIPES:
            what = {**developed.facts, "run": name}
            developed.run({"run": name}, partial(work, developed.collection, name))
            tried.setdefault(name, []).extend(line for line in study.file.of(what) if "learned" in line)
    whole = {name: lines for name, lines in tried.items() if len(lines) == len(given.development)}
    if not whole:
        return {}
    best = max(whole, key=lambda name: np.mean([line["test"] for line in whole[name]]))
    print(f"splade: the recipe is {best}", flush=True)
    return RECIPES[best]


def choose_rate(study: Study) -> str:
    """Forget on the last development collection at each rate; return the one whose least share kept is the largest."""
    arguments = argparse.Namespace(**{**vars(study.arguments), "keep": None})
    developed = replace(study, arguments=arguments, collection=unrank.open_collection(arguments.development[-1]))
    developed.facts["part"] = "rates"
    request, least = Request(developed, "documents"), dict[str, float]()
    for rate in RATES:
        arguments.forget = [f"learning_rate={rate}", *study.arguments.forget]
        what = {"by": request.by, "run": f"{FIRST}, all weights at {rate}"}
        request.forget(FIRST, None, named=what["run"])
        for line in study.file.of({**developed.facts, **what}):
            least[rate] = min(line.get("kept", {"": 0.0}).values())
    best = max(least, key=lambda rate: least[rate])
    print(f"splade: it forgets at a rate of {best}: {least}", flush=True)
    return best


def mpnet(study: Study) -> None:
    study.write_original()
    request = Request(study, study.arguments.by[0])
    request.write_retrained()
    request.card()
    request.forget(PLACES, None)


def forms(study: Study) -> None:
    study.write_original()
    request = Request(study, study.arguments.by[0])
    request.write_retrained()
    request.card()
    rankers = {"original": lambda: request.original, "retrained": lambda: request.retrained().ranker}
    for name, ranker in rankers.items():
        what = {"by": request.by, "run": f"{name}, other forms"}
        study.run(what, lambda ranker=ranker: other_forms(request, ranker()))  # type: ignore[misc]
    for adapt in (None, "lora"):
        request.forget(PLACES, adapt, lambda done: other_forms(request, done.ranker))


def other_forms(request: Request, ranker: Ranker) -> Line:
    """Return the forget MRR of a ranker, after an epoch on kept data, and after rounding to 4 and to 8 bits."""
    workspace = request.workspace
    score = workspace.evaluator.forget_mrr
    found = {f"{bits} bits": score(workspace.scorer(rounded(ranker, bits))) for bits in (4, 8)}
    return {"as it is": score(workspace.scorer(ranker)), **found, "back": recover(ranker, workspace, 0)}


PARTS: dict[str, tuple[Callable[[Study], None], tuple[str, ...]]] = {
    "decoder": (decoder, ("decoder",)),
    "splade": (splade, ("splade",)),
    "mpnet": (mpnet, ("bi-encoder", "cross-encoder")),
    "forms": (forms, ("bi-encoder",)),
}
"""What each part does, and the kinds of rankers that it does it with."""
SHOWN = (
    "failed", "test", "bm25", "seconds", "epochs", "forget", "forget before", "goal", "kept", "retrained", "distance",
    "state", "bytes", "off equals original", "entries", "back", "4 bits",
)  # fmt: skip
"""The figures that are printed as they come."""


def tables(lines: Sequence[Line]) -> list[list[str]]:
    """Return the tables of earlier runs in Markdown: trainings, what was forgotten, and other forms."""
    return [table for table in (_trained(lines), _forgotten(lines), _forms(lines)) if len(table) > 2]


def _trained(lines: Sequence[Line]) -> list[str]:
    rows = []
    for line in lines:
        if "test" in line:
            learned = line.get("learned") or []
            entries = line.get("entries")
            entries = entries["after"] if isinstance(entries, dict) else entries
            figures = [_written(line["test"]), _written(line.get("bm25")), _written(learned[-1] if learned else None)]
            figures += [_written(entries, 0), _written(line.get("seconds"), 1), _written(line.get("GiB"), 1)]
            rows.append([line["collection"], line["ranker"], line["base"] or "", str(line["run"]), *figures])
    head = ["collection", "ranker", "base", "run", "test MRR", "BM25", "training MRR", "entries", "seconds", "GiB"]
    return markdown(head, rows)


def _forgotten(lines: Sequence[Line]) -> list[str]:
    rows = []
    for line in lines:
        if "kept" in line:
            shares = ", ".join(_written(line["kept"].get(name)) for name in KEPT)
            entries = line.get("entries") or {}
            figures = [
                _written(line.get(name)) for name in ("forget before", "forget", "goal", "retrained", "distance")
            ]
            figures += [shares, f"{_written(entries.get('before'), 0)} → {_written(entries.get('after'), 0)}"]
            figures += [_written(line.get("seconds"), 1), _written(line.get("GiB"), 1)]
            size = line.get("bytes")
            off = f"{size / 1e6:.2f} MB; off: {'equal' if line['off equals original'] else 'differs'}" if size else ""
            rows.append([line["ranker"], line["by"], str(line["run"]), *figures, off, str(line.get("state", ""))])
    head = ["ranker", "by", "run", "F before", "F", "goal", "retrained", "distance", "E, D, T of the original's"]
    return markdown([*head, "entries", "seconds", "GiB", "adapter", "state"], rows)


def _forms(lines: Sequence[Line]) -> list[str]:
    names = ("as it is", "back", "4 bits", "8 bits")
    rows = [
        [line["ranker"], line["by"], str(line["run"]), *(_written(line[name]) for name in names)]
        for line in lines
        if "back" in line
    ]
    return markdown(["ranker", "by", "run", *names], rows)


def _written(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("part", help="decoder, splade, mpnet or forms; or a file of lines")
    options.add_argument("more", nargs="*", help="the collection; or more files of lines")
    options.add_argument("--out", type=Path)
    options.add_argument("--base", help="the folder of the encoder or of the language model")
    options.add_argument("--rankers", nargs="+", help="the kinds of rankers, if not all of the part")
    options.add_argument("--development", nargs="+", help="the collections on which splade's recipe is chosen")
    options.add_argument("--by", nargs="+", choices=("documents", "queries"), default=["documents", "queries"])
    options.add_argument("--share", type=float, default=0.25)
    options.add_argument("--removal-seed", type=int, default=7)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--proxy-epochs", type=int, default=1)
    options.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the training")
    options.add_argument("--forget", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the method")
    options.add_argument("--minutes", type=float, default=60.0)
    options.add_argument("--device", default="auto")
    options.add_argument("--keep", type=Path, help="a folder for the trained rankers, so that a stopped part goes on")
    arguments = options.parse_args()
    if lines := earlier_lines([arguments.part, *arguments.more]):
        print("\n\n".join("\n".join(table) for table in tables(lines)))
        return
    if arguments.part not in PARTS or len(arguments.more) != 1 or arguments.out is None:
        options.error(f"a part is one of {', '.join(PARTS)}, with one collection and --out")
    collection = unrank.open_collection(arguments.more[0])
    began, file = perf_counter(), LineFile(arguments.out)
    work, kinds = PARTS[arguments.part]
    settings = {**TRAINING.get(arguments.part, {}), **read_settings(arguments.set)}
    for kind in arguments.rankers or kinds:
        try:
            work(Study(arguments, collection, kind, settings, file, began))
        except UnrankError as error:  # another kind may still be done
            print(f"{kind}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
