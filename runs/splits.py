"""Draw the removals of published grids, and write them with hashes of their ids: the file of frozen splits.

    python runs/splits.py car marco nfcorpus --out splits.json

The file of the package, src/unrank/bench/splits.json, was made so. A bench checks its draws against it, and
`unrank leaderboard` those of the records that it is given.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import get_args

from shared import answer

from unrank.bench.splits import Split, split_hash, splits_to_json
from unrank.collection.collection import open_collection
from unrank.collection.removal import Kind, Removal
from unrank.disk import check_free, write_json
from unrank.errors import count


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("collections", nargs="+", type=Path)
    options.add_argument("--shares", nargs="+", type=float, default=[0.05, 0.15, 0.25])
    options.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    options.add_argument("--out", type=Path, required=True)
    given = options.parse_args()
    check_free(given.out)
    splits: list[Split] = []
    for collection in map(open_collection, given.collections):
        for kind, share, seed in product(get_args(Kind), given.shares, given.seeds):
            removal = Removal.sample(collection, kind, share, seed)
            draw = (collection.name, collection.fingerprint, kind, share, seed)
            splits.append(Split(*draw, removal.counts[kind], split_hash(removal)))
    write_json(given.out, splits_to_json(splits))
    print(f"{count(len(splits), 'split')} in {given.out}")
    return 0


if __name__ == "__main__":
    answer(main)
