"""One collection × some rankers: the MRR of each after training by its recipe, beside BM25 on the same lists.

Prints a Markdown table and writes one record a line.

    python runs/rankers_table.py COLLECTION --out FOLDER [--rankers duet parade] [--base MODEL] [--words VECTORS]
"""

from __future__ import annotations

from shared import Lines, base_of, keep, markdown, parser, show

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


def main() -> None:
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
