"""Score ranges: the scores of relevant and other documents before a ranker is trained, and afterwards.

They show why an untrained teacher misleads: its scores lie elsewhere, and those of two rankers cannot be compared.

    python runs/score_ranges.py COLLECTION --out ranges [--rankers bi-encoder colbert] [--base MODEL] [--bench DIR]

DIR is a bench on the same collection, whose trained rankers are used; others are trained here. The paper's:

    marco="irds:msmarco-passage/train/judged --test-split msmarco-passage/dev/small --candidates 2000"
    unrank import $marco --keep queries-with-several-documents --train-queries 2782 --out marco-documents
    python runs/score_ranges.py marco-documents --out ranges
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from shared import Lines, answer, base_of, check_out, parser, write

import unrank
from unrank.disk import write_json
from unrank.forgetting.workspace import Workspace
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.base import Ranker
from unrank.record import read_record
from unrank.report.charts import histograms, panels
from unrank.report.drawing import DASHES, MUTED, Drawing, Style
from unrank.report.table import Table, figure, words

Histograms = dict[str, Any]
"""The `edges` of the bins, and the `counts` of each moment and kind of documents."""
STYLES = {"relevant": Style.of(1), "other": Style(MUTED, "o", DASHES[2])}
PERCENTILES = {"least": 0, "5 %": 5, "middle": 50, "95 %": 95, "most": 100}


def scores_of(ranker: Ranker, collection: unrank.Collection, device: Any) -> dict[str, Any]:
    """Return the scores of relevant and of other documents in the lists of a thousand training queries."""
    workspace = Workspace.open(ranker, collection, None, device, Lines())
    queries = np.unique(workspace.fixed_pairs()[:, 0])
    pairs = collection.list_pairs(queries)
    relevant = np.isin(collection.pair_keys(pairs), collection.pair_keys(collection.relevant.pairs(queries)))
    scores = workspace.scorer(ranker)(pairs)
    return {"relevant": scores[relevant], "other": scores[~relevant]}


def trained_rankers(bench: Path, collection: unrank.Collection) -> dict[str, Path]:
    """Return the folders of a bench's original rankers on this collection, by kind."""
    records = {folder: read_record(folder) for folder in sorted(bench.glob("rankers/[!.]*"))}
    originals = {folder: record for folder, record in records.items() if record and record.removed is None}
    mine = collection.fingerprint
    return {record.ranker: at for at, record in originals.items() if record.collection.fingerprint == mine}


def run(arguments: argparse.Namespace) -> int:
    check_out(arguments.out)
    collection, device = unrank.open_collection(arguments.collection), arguments.device
    found = trained_rankers(arguments.bench, collection) if arguments.bench else {}
    found_scores: dict[str, Histograms] = {}
    rows = []
    for kind in arguments.rankers:
        print(kind, flush=True)
        start: dict[str, Any] = {"base": base_of(kind, arguments), "seed": arguments.seed}
        moments = {"initial": scores_of(create_ranker(kind, **start), collection, device)}
        found_ranker = load_ranker(found[kind]) if kind in found else None
        trained = found_ranker or unrank.train(collection, kind, **start, device=device, progress=Lines()).ranker
        moments["trained"] = scores_of(trained, collection, device)
        edges = np.histogram_bin_edges(np.concatenate([s for of in moments.values() for s in of.values()]), 40)
        counts = {w: {name: np.histogram(s, edges)[0].tolist() for name, s in of.items()} for w, of in moments.items()}
        found_scores[kind] = {"edges": edges.tolist(), "counts": counts}
        for when, name, scores in ((when, *item) for when, of in moments.items() for item in of.items()):
            places = np.percentile(scores, list(PERCENTILES.values())).tolist()
            rows.append([*map(words, (kind, when, name)), *map(figure, places)])
    head = ["ranker", "moment", "documents", *PERCENTILES]
    table = Table("score-ranges", "Scores of relevant and other documents", head, rows, 3)
    write(([drawing(found_scores)], [table]), arguments.out)
    write_json(arguments.out / "score-ranges.json", found_scores)
    return 0


def drawing(scores: Mapping[str, Histograms]) -> Drawing:
    """Draw the scores of each ranker before and after training."""
    drawn = [
        histograms(f"scores-{kind}", kind, found["edges"], found["counts"], STYLES) for kind, found in scores.items()
    ]
    made = panels("score-ranges", "Scores before and after training", drawn)
    assert made is not None
    return made


if __name__ == "__main__":
    options = parser(__doc__, ["cross-encoder", "bi-encoder", "colbert", "parade"])
    options.add_argument("--bench", type=Path, help="a bench whose trained rankers are used")
    answer(lambda: run(options.parse_args()))
