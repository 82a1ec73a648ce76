"""Speed: the published procedure (`plain.py`) and unrank, on the same samples, in one process. For a splade,
and for a decoder, whose --base is a language model, the baseline is sentence-transformers in bfloat16 at its best size
of a batch (`library.py`).

    python benchmarks/speed.py COLLECTION [--rankers cross-encoder bi-encoder] [--what train cocol score]
        [--batch 256 1024] [--seconds 5] [--base FOLDER | distilbert | bert-base] [--out speed.json]

Measures samples per second of training (triples), of a CoCoL epoch (a quarter forget pairs with a partner, the rest
disjoint pairs with a negative) and of scoring lists (pairs), the ratio of the two, the peak memory, and the share of
the limit of the device's arithmetic (`arithmetic.py`). A first epoch, or a first list, is a warm-up and not counted;
tokens are made before. On a CPU the clock counts CPU time of this process, on a GPU wall time.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from contest import Contest, Figure
from encoders import RANDOM, encoder_folder
from library import LIBRARY
from plain import BATCH, DROPOUT, FAST_TOKENIZER, PAIRS_A_CALL, PLAIN, SCORING_BATCH, TENSOR_FLOAT

from unrank import import_collection, open_collection
from unrank.engine.runtime import Runtime
from unrank.errors import UnrankError

WHAT = ("train", "cocol", "score")
BATCHES = {"cpu": [64], "cuda": [256, 1024]}
HEAD = ("ranker", "what", "batch", "plain / s", "ours / s", "ratio", "plain GiB", "ours GiB", "limit / s", "share")


def main() -> int:
    arguments = read_arguments()
    try:
        figures = measure(arguments)
    except UnrankError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.out:
        arguments.out.write_text(json.dumps(described(arguments, figures), indent=1) + "\n", encoding="utf-8")
    return 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, nargs="?", help="a collection folder; without one pydocs is imported")
    parser.add_argument("--rankers", nargs="+", choices=[*PLAIN, *LIBRARY], default=list(PLAIN))
    parser.add_argument("--what", nargs="+", choices=WHAT, default=WHAT)
    parser.add_argument("--batch", nargs="+", type=int, help="samples in a step; by default 64, on a GPU 256 and 1024")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds for each figure, at least")
    parser.add_argument("--threads", type=int, help="threads of the CPU; by default those of torch")
    parser.add_argument("--samples", type=int, help="samples of an epoch; by default 64, on a GPU 8192")
    parser.add_argument("--lists", type=int, help="number of lists to score; by default all")
    parser.add_argument("--base", help=f"an encoder; or one with random weights: {' or '.join(RANDOM)}")
    parser.add_argument("--tokenizer", help="the encoder whose tokenizer one with random weights uses")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--out", type=Path, help="where to write all figures as JSON")
    return parser.parse_args()


def measure(arguments: argparse.Namespace) -> list[Figure]:
    figures: list[Figure] = []
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    print(row(*HEAD), flush=True)
    with tempfile.TemporaryDirectory(prefix="unrank-speed-") as within:
        folder = encoder_folder(arguments.base, arguments.tokenizer, Path(within))
        if arguments.collection is None:
            arguments.collection = Path(within) / "pydocs"
            import_collection("pydocs", arguments.collection)
        collection = open_collection(arguments.collection)
        batches = arguments.batch or BATCHES[Runtime.on(arguments.device).device.type]
        for kind in arguments.rankers:
            contest = Contest(
                kind, folder, collection, arguments.device, arguments.seconds, arguments.samples, arguments.lists
            )
            for what in arguments.what:
                for figure in contest.figures(what, batches):
                    print(row(*cells(figure)), flush=True)
                    figures.append(figure)
                    gc.collect()
    return figures


def cells(figure: Figure) -> tuple[str, ...]:
    return (
        figure.ranker,
        figure.what,
        f"{figure.batch or ''}",
        f"{figure.plain.a_second:,.1f}",
        f"{figure.ours.a_second:,.1f}",
        f"{figure.ratio:.1f}",
        *("" if rate.gibibytes is None else f"{rate.gibibytes:.2f}" for rate in (figure.plain, figure.ours)),
        "" if figure.limit is None else f"{figure.limit:,.0f}",
        "" if figure.share is None else f"{figure.share:.3f}",
    )


def row(*cells: str) -> str:
    widths = (14, 6, 6, 10, 12, 8, 10, 10, 12, 6)
    return " ".join(
        f"{cell:<{width}}" if place < 2 else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )


def described(arguments: argparse.Namespace, figures: list[Figure]) -> dict[str, Any]:
    """Return all figures, and the settings of the measurement."""
    device = Runtime.on(arguments.device).name
    plain = {
        "batch": BATCH,
        "scoring_batch": SCORING_BATCH,
        "fast_tokenizer": FAST_TOKENIZER,
        "pairs_a_call": PAIRS_A_CALL,
        "tensor_float": TENSOR_FLOAT,
        "dropout": DROPOUT,
    }
    settings = {
        "device": device,
        "torch": torch.__version__,
        "base": arguments.base and Path(arguments.base).name,
        "samples": arguments.samples,
    }
    rows = [{**asdict(figure), "ratio": figure.ratio, "share": figure.share} for figure in figures]
    return {**settings, "lists": arguments.lists, "plain": plain, "figures": rows}


if __name__ == "__main__":
    sys.exit(main())
