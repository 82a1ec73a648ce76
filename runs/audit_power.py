"""The power that the audit prints for a request of one, three or ten pairs, beside what simulated requests show.

Everything is drawn anew several times: the removed documents, the calibrating pairs, an original that is given to the
audit, and proxies by folds, trained for two epochs. In each draw requests are drawn out of the removed pairs. Each is
audited by single pairs in another original, which saw every training pair, and in an honest ranker, which never saw
what is removed. A fit to one given original and one sample of calibrating pairs has an error that all its requests
share, so requests of one draw say little. Small rankers stand in for encoders (`heads.py`). Prints a Markdown table,
writes one audit a line. Draws that are in the folder are not made again.

    python runs/audit_power.py COLLECTION --out FOLDER [--base MODEL] [--requests 200] [--draws 40] [--seeds 1]
        [--first-draw 0] [--removal documents] [--part 0/4] [--device cpu]
    python runs/audit_power.py FILE.jsonl...
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
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
from unrank.forgetting.prepared_proxies import FOLDS
from unrank.forgetting.proxies import PROXY_EPOCHS
from unrank.rankers.base import Ranker
from unrank.record import HeldOut

SIZES = (1, 3, 10)
SHARE = 0.125
GIVEN = 10_000
"""The first seed of the originals that are given to the audit."""
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


def open_audits(heads: Heads, draw: int, arguments: argparse.Namespace) -> AuditContext:
    """Draw what is removed, train the judges, and open what all audits of a draw have in common."""
    removal = Removal.sample(heads.collection, arguments.removal, SHARE, draw)
    partition = make_partition(heads.collection, removal, reserve=True)
    side = 1 if arguments.removal == "documents" else 0
    seeds = range(draw * arguments.seeds, (draw + 1) * arguments.seeds)
    held = [HeldOut(FOLDS, fold, seed) for seed in seeds for fold in range(1, FOLDS + 1)]
    original: Ranker = heads.train(all_pairs(partition), GIVEN + draw)
    rankers = PerRanker(original, original, tuple[Ranker, ...]())
    context = open_context(rankers, heads.collection, partition, AuditOptions(seed=draw, device="cpu"))
    return replace(context, proxies=tuple(make_judge(heads, partition, each, side) for each in held))


def all_pairs(partition: Partition) -> Pairs:
    return np.concatenate([partition.retain, partition.forget])


def gather(context: AuditContext, ranker: HeadRanker) -> Evidence:
    """Measure the margins of all pairs that requests are drawn from."""
    opened = AuditedRanker.open(ranker, context.collection, context.partition, "cpu", None)
    return gather_evidence(replace(context, rankers=replace(context.rankers, ranker=opened)))


def simulate(evidence: Evidence, size: int, requests: int, draw: int) -> Iterator[Line]:
    """Audit requests of this many pairs, drawn at random: the same ones in both rankers of a draw."""
    generator, pairs = np.random.default_rng([size, draw]), evidence.forget
    for number in range(requests):
        drawn = np.isin(np.arange(len(pairs)), generator.choice(len(pairs), size, replace=False))
        forget = pairs.some(drawn)
        alike = np.isin(evidence.unseen.kinds, forget.kinds)
        unseen = evidence.unseen.some(alike) if alike.sum() >= LEAST else evidence.unseen
        test, lacks = test_pairs(replace(evidence, forget=forget, unseen=unseen), number)
        if test is None:
            raise unrank.UnrankError(f"the collection is too small: {lacks}")
        chances = {"power": test.power, "p": test.p_remembered, "p_low": test.p_suppressed}
        yield {"pairs": size, "request": number, **chances}


def run(arguments: argparse.Namespace) -> int:
    torch.set_num_threads(arguments.threads)
    collection = unrank.open_collection(arguments.collection[0])
    arguments.out.mkdir(parents=True, exist_ok=True)
    vectors = arguments.out / "vectors.safetensors"
    heads = Heads.open(collection, arguments.base, vectors, arguments.device, HeadRecipe())
    part, parts = map(int, arguments.part.split("/"))
    each = -(-arguments.requests // arguments.draws)
    for draw in range(arguments.first_draw, arguments.first_draw + arguments.draws)[part::parts]:
        path = arguments.out / f"audits-{draw}.jsonl"
        if not path.exists():
            lines = audits_of(heads, draw, each, arguments)
            apart = path.with_suffix(".part")
            apart.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            apart.replace(path)
            print(f"draw {draw}", flush=True)
    lines = earlier_lines([str(path) for path in sorted(arguments.out.glob("audits-*.jsonl"))])
    made = table(lines)
    (arguments.out / "table.md").write_text("\n".join(made) + "\n", encoding="utf-8")
    print("\n".join(made))
    return 0


def audits_of(heads: Heads, draw: int, requests: int, arguments: argparse.Namespace) -> list[Line]:
    """Return the audits of one draw."""
    context = open_audits(heads, draw, arguments)
    saw = {"original": all_pairs(context.partition), "honest": context.partition.retain}
    lines = []
    for kind in KINDS:
        evidence = gather(context, heads.train(saw[kind], draw))
        for size in SIZES:
            lines += [{"kind": kind, "draw": draw, **line} for line in simulate(evidence, size, requests, draw)]
    return lines


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
    """Return the standard error of printed power less found, by draws."""
    gaps = np.array([line["power"] - (line["p"] < FALSE_SHARE) for line in lines])
    _, member = np.unique([line["draw"] for line in lines], return_inverse=True)
    means = np.bincount(member, gaps) / np.bincount(member)
    return float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else 0.0


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("collection", nargs="+", help="a collection; or files of earlier audits, to count them")
    options.add_argument("--out", type=Path, help="the folder for vectors, audits and the table")
    options.add_argument("--base", help="the encoder that gives the vectors")
    options.add_argument("--removal", default="documents", choices=("documents", "queries"))
    options.add_argument("--requests", type=int, default=200, help="the number of requests of each size, in all draws")
    options.add_argument("--draws", type=int, default=40, help="how often everything is drawn anew")
    options.add_argument("--first-draw", type=int, default=0, help="the seed of the first draw")
    options.add_argument("--seeds", type=int, default=1, help="the number of proxies that never saw a pair")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--part", default="0/1", help="1/4 makes every fourth draw; parts may run side by side")
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
