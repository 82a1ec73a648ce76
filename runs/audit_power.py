"""The power that the audit prints for a request of one, three or ten pairs, beside what simulated requests show.

Rankers of which it is known what they remember: originals, which saw every training pair, and honest ones, which never
saw an eighth of the documents. Requests are drawn out of the pairs of these documents, and each is audited by single
pairs in every ranker. The judges are proxies by folds, trained for two epochs, and an original that is none of the
audited ones. Small rankers stand in for encoders (`heads.py`). Prints a Markdown table, writes one audit a line.

    python runs/audit_power.py COLLECTION --out FOLDER [--base MODEL] [--requests 200] [--rankers 4] [--seeds 1]
        [--removal documents] [--part 0/4] [--device cpu]
    python runs/audit_power.py FILE.jsonl...
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from heads import HeadRanker, HeadRecipe, Heads
from shared import answer, earlier_lines, markdown

import unrank
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditedRanker, AuditOptions, Judge, Marks, open_context
from unrank.audit.evidence import LEAST, Evidence, gather_evidence
from unrank.audit.per_example import FALSE_SHARE, test_pairs
from unrank.collection.collection import Pairs
from unrank.collection.folds import fold_partition, held_rows
from unrank.collection.partition import Partition, make_partition
from unrank.collection.removal import Removal
from unrank.evaluation.measure import Floats
from unrank.forgetting.prepared_proxies import FOLDS
from unrank.forgetting.proxies import PROXY_EPOCHS
from unrank.rankers.base import Ranker
from unrank.record import HeldOut

SIZES = (1, 3, 10)
SHARE = 0.125
Line = dict[str, Any]


def make_judge(heads: Heads, partition: Partition, held: HeldOut, side: int) -> Judge:
    """Train the proxy of a fold, and return it with the pairs that it never saw: those of its documents, or queries."""
    collection, quick = heads.collection, replace(heads, recipe=replace(heads.recipe, epochs=PROXY_EPOCHS))
    proxy = quick.train(fold_partition(collection, held, Removal()).retain, 1_000 * (held.seed + 1) + held.fold)
    texts = collection.documents if side else collection.queries
    gone = held_rows(texts, np.unique(collection.pairs[:, side]), held)

    def never_saw(pairs: Pairs) -> Marks:
        return np.isin(pairs[:, side], gone)

    return Judge(AuditedRanker.open(proxy, collection, partition, "cpu", None).scores, never_saw)


def open_audits(heads: Heads, partition: Partition, arguments: argparse.Namespace) -> AuditContext:
    """Train the judges, and open what all audits have in common."""
    side = 1 if arguments.removal == "documents" else 0
    held = [HeldOut(FOLDS, fold, seed) for seed in range(arguments.seeds) for fold in range(1, FOLDS + 1)]
    original: Ranker = heads.train(all_pairs(partition), 999)
    rankers = PerRanker(original, original, tuple[Ranker, ...]())
    context = open_context(rankers, heads.collection, partition, AuditOptions(device="cpu"))
    return replace(context, proxies=tuple(make_judge(heads, partition, each, side) for each in held))


def all_pairs(partition: Partition) -> Pairs:
    return np.concatenate([partition.retain, partition.forget])


def gather(context: AuditContext, ranker: HeadRanker) -> Evidence:
    """Measure the margins of all pairs that requests are drawn from."""
    opened = AuditedRanker.open(ranker, context.collection, context.partition, "cpu", None)
    return gather_evidence(replace(context, rankers=replace(context.rankers, ranker=opened)))


def simulate(evidence: Evidence, size: int, requests: int) -> Iterator[Line]:
    """Audit requests of this many pairs, drawn at random: the same ones in every ranker."""
    generator, pairs = np.random.default_rng(size), evidence.forget
    for number in range(requests):
        drawn = np.isin(np.arange(len(pairs)), generator.choice(len(pairs), size, replace=False))
        forget = pairs.some(drawn)
        alike = np.isin(evidence.unseen.kinds, forget.kinds)
        unseen = evidence.unseen.some(alike) if alike.sum() >= LEAST else evidence.unseen
        test, lacks = test_pairs(replace(evidence, forget=forget, unseen=unseen), number)
        if test is None:
            raise unrank.UnrankError(f"the collection is too small: {lacks}")
        yield {
            "pairs": size,
            "request": number,
            "power": test.power,
            "p": test.p_remembered,
            "p_low": test.p_suppressed,
        }


def run(arguments: argparse.Namespace) -> int:
    torch.set_num_threads(arguments.threads)
    collection = unrank.open_collection(arguments.collection[0])
    removal = Removal.sample(collection, arguments.removal, SHARE)
    partition = make_partition(collection, removal, reserve=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    heads = Heads.open(
        collection, arguments.base, arguments.out / "vectors.safetensors", arguments.device, HeadRecipe()
    )
    context = open_audits(heads, partition, arguments)
    kinds: dict[str, Callable[[int], HeadRanker]] = {
        "original": lambda seed: heads.train(all_pairs(partition), seed),
        "honest": lambda seed: heads.train(partition.retain, seed),
    }
    part, parts = map(int, arguments.part.split("/"))
    each = [(kind, seed) for seed in range(arguments.rankers) for kind in kinds]
    with (arguments.out / f"audits-{part}.jsonl").open("w", encoding="utf-8") as file:
        for kind, seed in each[part::parts]:
            evidence = gather(context, kinds[kind](seed))
            for size in SIZES:
                for line in simulate(evidence, size, arguments.requests):
                    file.write(json.dumps({"kind": kind, "seed": seed, **line}) + "\n")
                    file.flush()
            print(f"{kind} {seed}", flush=True)
    lines = earlier_lines([str(path) for path in sorted(arguments.out.glob("audits-*.jsonl"))])
    made = table(lines)
    (arguments.out / "table.md").write_text("\n".join(made) + "\n", encoding="utf-8")
    print("\n".join(made))
    return 0


def table(lines: list[Line]) -> list[str]:
    """Return a table in Markdown, with a row for each size."""
    head = [
        "pairs",
        "audits of originals",
        "power printed",
        "found",
        "difference",
        "standard error",
        "honest accused",
        "honest suppressed",
    ]
    rows = []
    for size in SIZES:
        memory, honest = ([line for line in lines if line["kind"] == kind and line["pairs"] == size] for kind in KINDS)
        if not memory or not honest:  # another part of the run has them
            continue
        printed, found = float(np.mean([line["power"] for line in memory])), _share(memory, "p")
        figures = [_error(memory), *(_share(honest, name) for name in ("p", "p_low"))]
        rows.append(
            [str(size), str(len(memory)), f"{printed:.3f}", f"{found:.3f}", f"{printed - found:+.3f}"]
            + [f"{figure:.3f}" for figure in figures]
        )
    return markdown(head, rows)


KINDS = ("original", "honest")


def _share(lines: list[Line], name: str) -> float:
    return float(np.mean([line[name] < FALSE_SHARE for line in lines]))


def _error(lines: list[Line]) -> float:
    """Return the standard error of printed power less found, by requests and by rankers.

    All rankers are asked the same requests, so both are drawn. Judges and calibrating pairs are the same in all lines:
    what they add is not in it.
    """
    gaps = np.array([line["power"] - (line["p"] < FALSE_SHARE) for line in lines])
    parts = [_variance(gaps, [line[name] for line in lines]) for name in ("seed", "request")]
    return float(np.sqrt(max(*parts, sum(parts) - gaps.var() / len(gaps))))


def _variance(gaps: Floats, owner: list[int]) -> float:
    """Return the variance of the mean if gaps of one owner go together; 0 of a single owner."""
    _, member = np.unique(owner, return_inverse=True)
    means = np.bincount(member, gaps) / np.bincount(member)
    return float(means.var(ddof=1) / len(means)) if len(means) > 1 else 0.0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("collection", nargs="+", help="a collection; or files of earlier audits, to count them")
    options.add_argument("--out", type=Path, help="the folder for vectors, audits and the table")
    options.add_argument("--base", help="the encoder that gives the vectors")
    options.add_argument("--removal", default="documents", choices=("documents", "queries"))
    options.add_argument("--requests", type=int, default=200, help="the number of requests of each size")
    options.add_argument("--rankers", type=int, default=4, help="the number of rankers of each kind")
    options.add_argument("--seeds", type=int, default=1, help="the number of proxies that never saw a pair")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--part", default="0/1", help="1/4 audits every fourth ranker; parts may run side by side")
    options.add_argument("--device", default="cpu", help="where heads are trained; audits run on the CPU")
    arguments = options.parse_args()
    if lines := earlier_lines(arguments.collection):
        print("\n".join(table(lines)))
        return
    if arguments.out is None or len(arguments.collection) > 1:
        options.error("give one collection and --out")
    answer(lambda: run(arguments))


if __name__ == "__main__":
    main()
