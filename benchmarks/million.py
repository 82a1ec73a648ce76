"""A small request to a large collection: `unrank forget` of a hundred documents out of a million.

    python benchmarks/million.py [--base FOLDER] [--device cuda] [--within FOLDER] [--documents N] [--set NAME=VALUE]
        [--told 1] [--proxy-epochs N] [--keep FOLDER [--prepare]]

Makes the collection (`synthetic.py`) and a small one with the same first documents, trains a ranker on the small one,
then measures time and peak memory of `unrank forget` on the large one, proxy included, and what it keeps. Prints a line
of JSON, and exits with 1 if a limit is exceeded, if pairs do not come to their places, or if there was nothing to
forget. `--keep` keeps collections and ranker, and with `--prepare` no more than that is done: the part that is timed
can then run alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from size import peak_of
from synthetic import RELEVANT, Size, make_collection

from unrank import Removal, open_collection
from unrank.cli.option import NOT_REACHED, NOT_VERIFIABLE
from unrank.rankers.encoder import find_encoder
from unrank.record import KEPT

LEAST_LETTERS = 3
NAMED = ("target", "reached", "epochs", "timing", "before", "after", "places", "set_queries", "device")
MOST_SECONDS, MOST_GIBIBYTES, LEAST_KEPT = 120.0, 4.0, 0.99


def main() -> int:
    arguments = read_arguments()
    with tempfile.TemporaryDirectory(prefix="unrank-million-", dir=arguments.within) as within:
        figures = prepare(arguments.keep or Path(within), arguments)
        if arguments.prepare:
            print(json.dumps(figures))
            return 0
        figures |= measure(arguments.keep or Path(within), Path(within), arguments)
    kept = {name: figures["after"][name]["mrr"] / figures["before"][name]["mrr"] for name in KEPT}
    passed = {
        "seconds": figures["seconds"] < MOST_SECONDS,
        "gibibytes": figures["gibibytes"] < MOST_GIBIBYTES,
        "reached": bool(figures["reached"] and figures["epochs"]),
        "kept": min(kept.values()) >= LEAST_KEPT,
    }
    print(json.dumps({**figures, "kept": kept, "passed": passed}))
    return 0 if all(passed.values()) else 1


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000, help="number of documents, and of pairs")
    parser.add_argument("--learned", type=int, default=4_000, help="documents that the ranker is trained on")
    parser.add_argument("--removed", type=int, default=100)
    parser.add_argument("--ranker", default="cross-encoder")
    parser.add_argument("--base", help="an encoder's folder; by default the default encoder")
    parser.add_argument("--target", default="places")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of the method")
    parser.add_argument("--training", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--told", type=int, choices=(1, 2), default=1, help="words of a query in its documents")
    parser.add_argument("--proxy-epochs", type=int)
    parser.add_argument("--within", type=Path, help="where to make the temporary folder")
    parser.add_argument(
        "--keep", type=Path, help="a folder for collections and ranker; what is there is not made again"
    )
    parser.add_argument("--prepare", action="store_true", help="with --keep, make them and do no more")
    arguments = parser.parse_args()
    if arguments.prepare and not arguments.keep:
        parser.error("--prepare needs --keep")
    return arguments


def prepare(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Make the collections and the ranker, if a call before did not; return what was made in how many seconds."""
    base = find_encoder(arguments.base)
    names = ("documents", "learned", "removed", "ranker", "told", "training")
    asked = {name: getattr(arguments, name) for name in names} | {"base": str(base)}
    note = folder / "prepared.json"
    if note.exists():
        found: dict[str, Any] = json.loads(note.read_text())
        if found["asked"] != asked:
            raise SystemExit(f"{folder} was prepared with {found['asked']}")
        return found["made"]  # type: ignore[no-any-return]
    started = perf_counter()
    for name, documents in (("large", arguments.documents), ("small", arguments.learned)):
        make_collection(folder / name, Size(documents, documents), words_of(base), told=arguments.told)
    made = perf_counter() - started
    Removal(documents=[f"d{RELEVANT * number}" for number in range(arguments.removed)]).save(folder / "removal.json")
    train = ["train", folder / "small", "--ranker", arguments.ranker, "--base", base, "--out", folder / "ranker"]
    trained, _ = run([*train, *given(arguments.training), "--device", arguments.device, "--quiet"])
    figures = {"make_seconds": made, "train_seconds": trained}
    note.write_text(json.dumps({"asked": asked, "made": figures}))
    return figures


def measure(prepared: Path, within: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Forget, and return what that took and what it changed."""
    large, ranker, removal, out = prepared / "large", prepared / "ranker", prepared / "removal.json", within / "out"
    forget = ["forget", ranker, large, "--removal", removal, "--target", arguments.target, "--out", out]
    if arguments.proxy_epochs:
        forget += ["--proxy-epochs", arguments.proxy_epochs]
    base = ["--base", find_encoder(arguments.base)] if arguments.keep else []
    seconds, gibibytes = run([*forget, *base, *given(arguments.set), "--device", arguments.device, "--quiet"])
    record = json.loads((out / "unrank.json").read_text())
    collection = open_collection(large)
    return {
        "documents": len(collection.documents),
        "pairs": len(collection.judged),
        "told": arguments.told,
        "seconds": seconds,
        "gibibytes": gibibytes,
        **{name: record[name] for name in NAMED},
    }


def given(settings: list[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def words_of(base: Path) -> list[str]:
    """Return words that are one token of the encoder's tokenizer."""
    from transformers import AutoTokenizer

    known = AutoTokenizer.from_pretrained(str(base), local_files_only=True).get_vocab()
    return sorted(word for word in known if word.isascii() and word.isalpha() and len(word) >= LEAST_LETTERS)


def run(command: Sequence[object]) -> tuple[float, float]:
    """Run `unrank` in a process of its own, and return its seconds and its peak memory in GiB."""
    started = perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "unrank", *map(str, command)], stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, NOT_REACHED, NOT_VERIFIABLE):
        raise SystemExit(f"unrank {command[0]} failed")
    return perf_counter() - started, peak_of(usage)


if __name__ == "__main__":
    sys.exit(main())
