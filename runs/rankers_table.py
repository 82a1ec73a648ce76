"""One collection × some rankers: the MRR of each after training by its recipe, beside BM25 on the same lists.

Prints a Markdown table and writes one record a line.

    python runs/rankers_table.py COLLECTION --out FOLDER [--rankers duet parade] [--base MODEL] [--words VECTORS]
    python runs/rankers_table.py FILE.jsonl...  # prints the table of earlier records, which do not hold BM25's
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from shared import Lines, base_of, earlier_lines, keep, markdown, parser, show

import unrank
from unrank.evaluation.scorecard import Scorecard, SetMetrics
from unrank.forgetting.evaluate import evaluate_bm25
from unrank.rankers import RANKERS
from unrank.record import Record

HEAD = ["ranker", "training queries", "test queries", "share of BM25", "epochs", "seconds"]


def row(name: str, card: Scorecard, bm25: Scorecard, record: Record | None = None) -> list[str]:
    assert card.test is not None and bm25.test is not None and card.disjoint is not None
    took = [str(record.epochs), f"{record.seconds:.0f}"] if record else ["", ""]
    return [name, shown(card.disjoint), shown(card.test), f"{card.test.mean / bm25.test.mean:.2f}", *took]


def shown(measured: SetMetrics) -> str:
    return f"{measured.mean:.3f} ({measured.low:.3f}–{measured.high:.3f})"


def records_table(records: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table in Markdown of the records that earlier runs kept."""
    rows = [
        [record["collection"]["name"], record["ranker"]]
        + ["{mrr:.3f} ({low:.3f}–{high:.3f})".format(**record["after"][name]) for name in ("disjoint", "test")]
        + [str(record["epochs"])]
        for record in records
    ]
    return markdown(["collection", "ranker", "training queries", "test queries", "epochs"], rows)


def main() -> None:
    if records := earlier_lines(sys.argv[1:]):
        print("\n".join(records_table(records)))
        return
    arguments = parser(__doc__, list(RANKERS)).parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    collection = unrank.open_collection(arguments.collection)
    print(collection, flush=True)
    bm25, _ = evaluate_bm25(collection)
    rows = [row("BM25", bm25, bm25)]
    for kind in arguments.rankers:
        print(kind, flush=True)
        base = base_of(kind, arguments)
        trained = unrank.train(collection, kind, base, seed=arguments.seed, device=arguments.device, progress=Lines())
        keep(arguments.out, trained.record)
        rows.append(row(kind, trained.after, bm25, trained.record))
        show(markdown(HEAD, rows), arguments.out)


if __name__ == "__main__":
    main()
