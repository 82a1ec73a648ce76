"""Rankers of which it is known what they remember, audited without saying so: how often is the verdict right?

For one collection and one removal, twenty rankers of each kind: originals, which remember everything; rankers that are
pushed to the bottom of the lists; retrained ones, which never saw the removed pairs; and rankers that were trained on
one removed pair in ten. Small rankers stand in for encoders (`heads.py`). All are compared with one original and with
some retrained references that are none of them. The audit runs those of its tests that train nothing and reword
nothing. Prints a Markdown table, writes one audit a line.

    python runs/ground_truth.py COLLECTION --out FOLDER [--base MODEL] [--rankers 20] [--retrained 100]
        [--references 5] [--removal documents] [--share 0.05] [--device cpu]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from heads import HeadRanker, HeadRecipe, Heads
from safetensors.torch import load_file, save_file
from shared import answer, markdown

import unrank
from unrank.audit.audit import DECIDING, OF_MEMORY, TESTS
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditedRanker, AuditOptions, open_context
from unrank.audit.equivalence import say_margins
from unrank.audit.verdict import Finding, Verdict, corrected, overall
from unrank.collection.partition import Partition, make_partition
from unrank.errors import count
from unrank.rankers.base import Ranker

NOT_RUN = ("recovery", "relearning", "rewording", "weights", "paraphrase", "probe", "forms")
"""Tests that train, reword or read a vocabulary, which heads do not have."""
RUN = tuple(name for name in OF_MEMORY if name not in NOT_RUN)
KINDS = ("original", "bottom", "retrained", "tenth")


def made(heads: Heads, partition: Partition, folder: Path, kind: str, seed: int) -> HeadRanker:
    """Train a ranker of a kind."""
    kept, forget = partition.retain, partition.forget
    if kind == "bottom":
        original = trained(heads, partition, folder, "original", seed)
        return heads.push_down(original, kept, forget, seed)
    share = {"original": 1.0, "tenth": 0.1, "retrained": 0.0}[kind]
    left = np.random.default_rng(seed).permutation(len(forget))[: round(share * len(forget))]
    return heads.train(np.concatenate([kept, forget[np.sort(left)]]), seed)


def trained(heads: Heads, partition: Partition, folder: Path, kind: str, seed: int) -> HeadRanker:
    """Train a ranker of a kind, unless it is in the folder."""
    path = folder / f"{kind}-{seed}.safetensors"
    if not path.exists():
        head = made(heads, partition, folder, kind, seed)
        save_file({name: value.cpu() for name, value in head.state_dict().items()}, path)
        print(f"{kind} {seed}", flush=True)
    head = heads.new(seed)
    head.load_state_dict(load_file(path))
    return head.requires_grad_(False)


def audit(context: AuditContext, ranker: Ranker) -> tuple[Verdict, str, dict[str, Finding]]:
    """Audit a ranker by the tests that can be run; scores of the others are kept from one audit to the next."""
    opened = AuditedRanker.open(ranker, context.collection, context.partition, "cpu", None)
    here = replace(context, rankers=replace(context.rankers, ranker=opened))
    findings = corrected({name: TESTS[name](here) for name in RUN})
    return *overall(findings, [name for name in DECIDING if name in RUN]), findings


def run(arguments: argparse.Namespace) -> int:
    torch.set_num_threads(arguments.threads)
    collection = unrank.open_collection(arguments.collection)
    removal = unrank.Removal.sample(collection, arguments.removal, arguments.share)
    partition = make_partition(collection, removal, reserve=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    vectors = arguments.out / "vectors.safetensors"
    heads = Heads.open(collection, arguments.base, vectors, arguments.device, HeadRecipe(epochs=arguments.epochs))
    get = partial(trained, heads, partition, arguments.out)
    wanted = dict.fromkeys(arguments.kinds, arguments.rankers)
    if "retrained" in wanted:
        wanted["retrained"] = arguments.retrained
    references = [get("retrained", 1_000 + seed) for seed in range(arguments.references)]
    original: Ranker = get("original", 1_000)
    rankers = PerRanker(original, original, tuple[Ranker, ...](references))
    context = open_context(rankers, collection, partition, AuditOptions(device="cpu"))
    context = replace(context, said=say_margins(context))
    print(f"{count(len(partition.forget), 'pair')} to forget; {context.said}", flush=True)
    lines = report(context, wanted, get, arguments.out / "audits.jsonl", arguments.rankers)
    (arguments.out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


def report(
    context: AuditContext, wanted: Mapping[str, int], get: Callable[[str, int], HeadRanker], out: Path, rankers: int
) -> list[str]:
    """Audit all rankers, write one audit a line, and return a table of verdicts."""
    rows = []
    with out.open("w", encoding="utf-8") as file:
        for kind, number in wanted.items():
            verdicts = []
            for seed in range(number):
                verdict, words, findings = audit(context, get(kind, seed))
                verdicts.append(verdict)
                tests = {name: found.to_json() for name, found in findings.items()}
                file.write(json.dumps({"kind": kind, "seed": seed, "verdict": verdict, "words": words} | tests) + "\n")
                print(f"{kind} {seed}: {verdict}; {words}", flush=True)
            rows += [_row(kind, verdicts[:rankers])]
            rows += [_row(kind, verdicts)] if number > rankers else []
    return markdown(["kind", "rankers", *MEMORY], rows)


MEMORY = (Verdict.REMEMBERED, Verdict.SUPPRESSED, Verdict.UNDECIDED, Verdict.EQUIVALENT)


def _row(kind: str, verdicts: list[Verdict]) -> list[str]:
    counts = Counter(verdicts)
    return [kind, str(len(verdicts)), *(str(counts[verdict]) for verdict in MEMORY)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("collection", type=Path)
    options.add_argument("--out", type=Path, required=True, help="the folder for rankers, audits and the table")
    options.add_argument("--base", help="the encoder that gives the vectors")
    options.add_argument("--removal", default="documents", choices=("documents", "queries"))
    options.add_argument("--share", type=float, default=0.05)
    options.add_argument("--rankers", type=int, default=20, help="the number of rankers of each kind")
    options.add_argument("--retrained", type=int, default=100, help="the number of retrained rankers")
    options.add_argument("--references", type=int, default=5)
    options.add_argument("--epochs", type=int, default=HeadRecipe.epochs)
    options.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--device", default="cpu", help="where heads are trained; audits run on the CPU")
    arguments = options.parse_args()
    answer(lambda: run(arguments))


if __name__ == "__main__":
    main()
