"""Rankers of which it is known what they remember, audited without saying so: how often is the verdict right?

For one collection and one removal, twenty rankers of each kind: originals, which remember everything; rankers that are
pushed to the bottom of the lists; retrained ones, which never saw the removed pairs; and rankers that were trained on
one removed pair in ten. Small rankers stand in for encoders (`heads.py`). All are compared with one original and with
some retrained references that are none of them. The audit runs those of its tests that train nothing and reword
nothing. Prints a Markdown table, writes one audit a line. What was trained and audited before is not done again.

`--kinds` may also name methods. Each forgets the removed pairs in an original: CoCoL to the places of a retrained
ranker that does not judge, others to its forget MRR. These are counts: nobody knows what such a ranker remembers.
Methods keep their settings, except that rates are larger, because heads learn at a hundred times an encoder's rate.

    python runs/ground_truth.py COLLECTION --out FOLDER [--base MODEL] [--rankers 20] [--retrained 100]
        [--references 5] [--removal documents] [--share 0.05] [--removal-seed 0] [--kinds original ... cocol ...]
        [--part 0/4] [--device cpu]
    python runs/ground_truth.py FILE.jsonl...
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from heads import HeadRanker, HeadRecipe, Heads
from safetensors.torch import load_file, save_file
from shared import answer, earlier_lines, markdown

import unrank
from unrank.audit.audit import DECIDING, OF_MEMORY, TESTS
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditedRanker, AuditOptions, open_context
from unrank.audit.equivalence import say_margins
from unrank.audit.verdict import Finding, Verdict, corrected, overall
from unrank.collection.partition import Partition, make_partition
from unrank.engine.runtime import Device
from unrank.errors import count
from unrank.forgetting.forget import forget_in
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.provenance import Reference
from unrank.forgetting.workspace import Workspace
from unrank.methods import METHODS, make_method
from unrank.rankers.base import Ranker
from unrank.record import RETRAIN

NOT_RUN = ("recovery", "relearning", "rewording", "paraphrases", "other_forms", "weights", "probe")
"""Tests that train, reword or read a vocabulary, which heads do not have."""
RUN = tuple(name for name in OF_MEMORY if name not in NOT_RUN)
KINDS = ("original", "bottom", "retrained", "tenth")
FORGETTING = tuple(name for name in METHODS if name not in (RETRAIN, "curd"))
"""Methods that need no substitutes."""
FASTER, EPOCHS = 20, 10
"""How much larger the rate of a method is for heads, and its most epochs."""
MEMORY = (Verdict.REMEMBERED, Verdict.SUPPRESSED, Verdict.UNDECIDED, Verdict.EQUIVALENT)
OTHERS, STEERS = 1_000, 2_000
"""The first seed of the original and of the references, and the seed of the ranker that steers methods."""


@dataclass(frozen=True)
class Rankers:
    """The rankers of one removal, each trained once and kept in a folder."""

    heads: Heads
    partition: Partition
    removal: unrank.Removal
    folder: Path

    def get(self, kind: str, seed: int) -> HeadRanker:
        """Return a ranker of a kind; train it, unless it is in the folder."""
        path = self.folder / f"{kind}-{seed}.safetensors"
        if not path.exists():
            head = self.forget(kind, seed) if kind in FORGETTING else self.train(kind, seed)
            apart = path.with_name(f".{path.name}.{os.getpid()}")  # another part of the run may train the same one
            save_file({name: value.cpu() for name, value in head.state_dict().items()}, apart)
            apart.replace(path)
        head = self.heads.new(seed)
        head.load_state_dict(load_file(path))
        return head.requires_grad_(False)

    def train(self, kind: str, seed: int) -> HeadRanker:
        kept, forget = self.partition.retain, self.partition.forget
        if kind == "bottom":
            return self.heads.push_down(self.get("original", seed), kept, forget, seed)
        share = {"original": 1.0, "tenth": 0.1, "retrained": 0.0}[kind]
        left = np.random.default_rng(seed).permutation(len(forget))[: round(share * len(forget))]
        return self.heads.train(np.concatenate([kept, forget[np.sort(left)]]), seed)

    def forget(self, name: str, seed: int) -> Ranker:
        """Return what a method makes of an original."""
        original = self.get("original", seed).requires_grad_(True)
        device: Device = "cuda" if self.heads.vectors["query"].is_cuda else "cpu"
        workspace = Workspace.open(original, self.heads.collection, self.partition, device, None)
        method = make_method(name)
        if method.run_kind == "steered":
            method = make_method(name, {"learning_rate": str(FASTER * method.learning_rate), "epochs": str(EPOCHS)})
        options = ForgetOptions(
            method=method,
            target="places" if name == "cocol" else "destination-1",
            seed=seed,
            device=device,
            base=HeadRanker.kind if method.needs_base else None,
        )
        steers = Reference(self.get("retrained", STEERS), known=True)
        return forget_in(replace(workspace, removal=self.removal), original, options, reference=steers).ranker


def audit(context: AuditContext, ranker: Ranker, device: Device) -> tuple[Verdict, str, dict[str, Finding]]:
    """Audit a ranker by the tests that can be run; scores of the others are kept from one audit to the next."""
    opened = AuditedRanker.open(ranker, context.collection, context.partition, device, None)
    here = replace(context, rankers=replace(context.rankers, ranker=opened))
    forget = replace(here, sets={"forget": here.sets["forget"]})  # how alike other lists are has no verdict
    findings = corrected({name: TESTS[name](forget if name == "displacement" else here) for name in RUN})
    return *overall(findings, [name for name in DECIDING if name in RUN]), findings


def run(arguments: argparse.Namespace) -> int:
    torch.set_num_threads(arguments.threads)
    collection = unrank.open_collection(arguments.collection[0])
    removal = unrank.Removal.sample(collection, arguments.removal, arguments.share, arguments.removal_seed)
    partition = make_partition(collection, removal, reserve=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    vectors = arguments.out / "vectors.safetensors"
    heads = Heads.open(collection, arguments.base, vectors, arguments.device, HeadRecipe(epochs=arguments.epochs))
    get = Rankers(heads, partition, removal, arguments.out).get
    references = [get("retrained", OTHERS + seed) for seed in range(arguments.references)]
    original: Ranker = get("original", OTHERS)
    rankers = PerRanker(original, original, tuple[Ranker, ...](references))
    context = open_context(rankers, collection, partition, AuditOptions(device=arguments.device))
    context = replace(context, said=say_margins(context))
    print(f"{count(len(partition.forget), 'pair')} to forget; {context.said}", flush=True)
    part, parts = map(int, arguments.part.split("/"))
    done = {(line["kind"], line["seed"]) for line in lines_of(arguments.out)}
    with (arguments.out / f"audits-{part}.jsonl").open("a", encoding="utf-8") as file:
        for number, (kind, seed) in enumerate(wanted(arguments)):
            if number % parts == part and (kind, seed) not in done:
                verdict, words, findings = audit(context, get(kind, seed), arguments.device)
                tests = {name: found.to_json() for name, found in findings.items()}
                line = {"kind": kind, "seed": seed, "verdict": verdict, "words": words, "tests": tests}
                file.write(json.dumps(line) + "\n")
                file.flush()
                print(f"{kind} {seed}: {verdict}; {words}", flush=True)
    table = table_of(lines_of(arguments.out), arguments.rankers)
    (arguments.out / "table.md").write_text("\n".join(table) + "\n")
    print("\n".join(table))
    return 0


def wanted(arguments: argparse.Namespace) -> list[tuple[str, int]]:
    """Return the kind and the seed of each ranker that is audited, by seed: a stopped run has some of each kind."""
    most = {kind: arguments.retrained if kind == "retrained" else arguments.rankers for kind in arguments.kinds}
    each = [(kind, seed) for kind, number in most.items() for seed in range(number)]
    return sorted(each, key=lambda one: one[1])


def lines_of(out: Path) -> list[dict[str, Any]]:
    """Return the audits that were made so far, by any part of the run."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(out.glob("audits-*.jsonl"))]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def table_of(lines: Sequence[Mapping[str, Any]], rankers: int) -> list[str]:
    """Count the verdicts of each kind: of the first rankers, and of all if there are more."""
    rows = []
    for kind in dict.fromkeys(line["kind"] for line in lines):
        verdicts = {line["seed"]: line["verdict"] for line in lines if line["kind"] == kind}
        first = [verdict for seed, verdict in verdicts.items() if seed < rankers]
        for these in [first] if len(first) == len(verdicts) else [first, [*verdicts.values()]]:
            counts = Counter(these)
            rows.append([kind, str(len(these)), *(str(counts[verdict]) for verdict in MEMORY)])
    return markdown(["kind", "rankers", *MEMORY], rows)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("collection", nargs="+", help="a collection; or files of earlier audits, to count them")
    options.add_argument("--out", type=Path, help="the folder for rankers, audits and the table")
    options.add_argument("--base", help="the encoder that gives the vectors")
    options.add_argument("--removal", default="documents", choices=("documents", "queries"))
    options.add_argument("--share", type=float, default=0.05)
    options.add_argument("--removal-seed", type=int, default=0)
    options.add_argument("--rankers", type=int, default=20, help="the number of rankers of each kind")
    options.add_argument("--retrained", type=int, default=100, help="the number of retrained rankers")
    options.add_argument("--references", type=int, default=5)
    options.add_argument("--epochs", type=int, default=HeadRecipe.epochs)
    options.add_argument("--kinds", nargs="+", default=list(KINDS), choices=(*KINDS, *FORGETTING))
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--part", default="0/1", help="1/4 audits every fourth ranker; parts may run side by side")
    options.add_argument("--device", default="cpu")
    arguments = options.parse_args()
    if lines := earlier_lines(arguments.collection):
        print("\n".join(table_of(lines, arguments.rankers)))
        return
    if arguments.out is None or len(arguments.collection) > 1:
        options.error("give one collection and --out")
    answer(lambda: run(arguments))


if __name__ == "__main__":
    main()
