"""Made-up records, as `unrank forget` and `unrank bench` write them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SETS = ("forget", "entangled", "disjoint", "test")
Object = dict[str, Any]
LANDING: Object = {"share": 0.5, "forget": 0.6, "evaluations": 2}
NONE: Object = {"count": 0, "hashes": []}


def measure(mrr: float, queries: int) -> Object:
    return {"mrr": mrr, "low": mrr - 0.02, "high": mrr + 0.02, "ndcg@10": mrr, "queries": queries}


def card(mrrs: Sequence[float], queries: int = 40) -> Object:
    return {name: measure(mrr, queries) for name, mrr in zip((*SETS, "forget_full"), (*mrrs, mrrs[0]), strict=True)}


def record(method: str, after: Sequence[float], **given: Any) -> Object:
    """A record of a run from .95, .94, .96 and .60."""
    epochs, target = given.pop("epochs", 3), given.pop("target", 0.6)
    steps = [0.95 + (after[0] - 0.95) * (epoch + 1) / epochs for epoch in range(epochs)]
    watched = {"entangled": after[1], "disjoint": after[2], "test": after[3]}
    return {
        "record_version": 1, "ranker": "bi-encoder", "base": "tiny", "method": method,
        "settings": {"learning_rate": 5e-05, "epochs": 30}, "seed": 0,
        "collection": {"name": "trec-car-little", "fingerprint": "ab12"}, "epochs": epochs, "seconds": 12.5,
        "timing": {"teacher": 1.5, "steps": 9.0, "checks": 1.5, "landing": 0.5},
        "learning_epoch": {"seconds": 14.0, "how": "measured", "device": "cpu"}, "device": "cpu",
        "before": card((0.95, 0.94, 0.96, 0.6)), "after": card(after), "target": target, "target_name": "test-mrr",
        "reached": None if target is None else True, "landing": LANDING if target else None,
        "history": [{"epoch": n, "seconds": 3.0, "forget": mrr, **watched} for n, mrr in enumerate(steps, 1)],
        "removed": {"salt": "5a17", "queries": NONE, "documents": {"count": 120, "hashes": []}, "pairs": NONE},
        "removed_before": [], "recovery": None, "earlier": None, "index_valid": False,
        "normalised_epoch": 0.2, "total_time": 0.9, "versions": {"unrank": "0.1.0", "torch": "2.13.0"},
        "hashes": {"model.safetensors": "c0ffee"}, **given,
    }  # fmt: skip


def write_run(folder: Path, made: Object | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "unrank.json").write_text(json.dumps(made or record("cocol", (0.601, 0.93, 0.955, 0.595))))
    return folder


def write_details(
    folder: Path, queries: int, words: Sequence[str], per_list: int = 10, place: int | None = None
) -> Path:
    """Queries with lists of documents; in every third one the first document is forgotten and falls to rank 8.

    `place` is the rank of its place.
    """
    generator = random.Random(4)

    def text(length: int) -> str:
        return " ".join(generator.choice(words) for _ in range(length))

    documents = [
        {"id": f"doc{n}", "text": text(60), "removed": n % 40 == 0, "says_removed": n % 40 == 0}
        for n in range(queries * 4)
    ]
    kept = [document["id"] for document in documents if not document["removed"]]
    gone = [document["id"] for document in documents if document["removed"]]
    lines = []
    for number in range(queries):
        forgets = number % 3 == 0
        others = generator.sample(kept, per_list)
        first = generator.choice(gone) if forgets else others.pop()
        sides = [
            [first, *others[: per_list - 1]],
            [*others[:7], first, *others[7 : per_list - 1]] if forgets else [first, *others],
        ]
        entries = [
            [{"document": id, "score": 20 - place + generator.random(), "relevant": id == first,
              "forgotten": forgets and id == first} for place, id in enumerate(side)]
            for side in sides
        ]  # fmt: skip
        moves = [[1, 8 if forgets else 1]]
        lines.append(
            {"id": f"q{number}", "text": text(7), "removed": False, "says_removed": False,
             "sets": ["forget"] if forgets else ["test"],
             "before": entries[0], "after": entries[1],
             "forgotten": moves if forgets else [], "kept": [] if forgets else moves,
             **({} if place is None else {"places": [place] if forgets else []})}
        )  # fmt: skip
    bins = [0, 2, 5, 9, 4, 1]
    shifted = [3, 9, 6, 2, 1, 0]
    counts = {"forgotten": {"before": bins, "after": shifted}, "kept": {"before": bins, "after": bins}}
    counts["other"] = {"before": shifted, "after": shifted}
    numbers = {"forget": -(-queries // 3), "entangled": 0, "test": queries - -(-queries // 3), "disjoint": 0}
    header = {"details_version": 2, "run": "5a17", "queries": numbers, "measured": numbers}
    folder.mkdir(parents=True)
    (folder / "details.json").write_text(
        json.dumps(header | {"scores": {"edges": [0, 4, 8, 12, 16, 20, 24], **counts}})
    )
    for name, rows in (("queries", lines), ("documents", documents)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def write_bench(
    folder: Path,
    methods: Sequence[str] = ("cocol", "finetune", "retrain", "ssd"),
    collections: Sequence[str] = ("trec-car-little", "other"),
    rankers: Sequence[str] = ("bi-encoder", "cross-encoder"),
    shares: Sequence[float] = (0.05, 0.25),
    seeds: Sequence[int] = (0, 1),
) -> Path:
    """A whole grid of cells, each method with figures of its own."""
    generator = random.Random(6)
    grid = [
        (c, r, removal, share, method, seed)
        for c in collections for r in rankers for removal in ("documents", "queries") for share in shares
        for method in methods for seed in seeds
    ]  # fmt: skip
    for number, key in enumerate(grid):
        write_cell(folder / "cells" / f"{number:04x}", key, generator)
    return folder


def write_cell(folder: Path, key: tuple[str, str, str, float, str, int], generator: random.Random) -> None:
    collection, ranker, removal, share, method, seed = key
    steered = method not in ("retrain", "ssd")
    level = {"cocol": (0.605, 0.93, 0.95, 0.59), "retrain": (0.7, 0.94, 0.95, 0.6)}.get(method, (0.85, 0.8, 0.9, 0.5))
    ranks = {name: {"before": [1] * 40, "after": _ranks(mrr, generator)} for name, mrr in zip(SETS, level, strict=True)}
    after = [sum(1 / rank for rank in ranks[name]["after"]) / 40 for name in SETS]
    seconds = 100.0 if method == "retrain" else generator.uniform(5, 60)
    made = record(method, after, target=0.6 if steered else None, seconds=seconds)
    made["ranker"], made["seed"], made["collection"]["name"] = ranker, seed, collection
    if method == "retrain":
        made["history"] = [{"epoch": 1, "seconds": 9.0, "learned": 0.9, "losses": {}}]
    value = {
        "format": 1, "unrank": "0.1.0", "collection": collection, "fingerprint": f"{collection}-ab12", "ranker": ranker,
        "base": "tiny", "base_sha256": "53aa", "training": {"epochs": 3}, "removal": removal, "share": share,
        "removal_seed": 0, "method": method.partition(",")[0], "preset": None, "label": method, "settings": {},
        "target": "destination-2" if steered else None, "seed": seed, "took": 20.0,
    }  # fmt: skip
    write_run(folder, made)
    (folder / "cell.json").write_text(json.dumps(value))
    (folder / "ranks.json").write_text(json.dumps({**ranks, "forget_full": None}))


def _ranks(mrr: float, generator: random.Random) -> list[int]:
    """Ranks of 40 queries whose mean reciprocal is about this."""
    return [1 if generator.random() < (mrr - 0.2) / 0.8 else 5 for _ in range(40)]
