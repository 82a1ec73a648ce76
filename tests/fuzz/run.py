"""All trials: `python -m tests.fuzz.run [--cases 20000] [--damaged 500] [--seed 0]`. Exit 1 at a fault."""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from tests.fuzz.specimen import Specimen, make_specimens
from tests.fuzz.trial import SECONDS, Outcome, try_out


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", type=int, default=20_000)
    options.add_argument("--damaged", type=int, default=500)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default="", help="specimens whose names begin so")
    given = options.parse_args()
    torch.set_num_threads(1)
    faulthandler.enable()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        specimens = [each for each in make_specimens(Path(folder) / "specimens") if each.name.startswith(given.only)]
        outcomes = fuzz(specimens, given.cases, given.seed) + damage(specimens, given.damaged, given.seed)
    faults = [outcome.fault for outcome in outcomes if outcome.fault]
    print(*faults[:50], sep="\n")
    print(f"{len(outcomes):,} trials: {sum(outcome.refused for outcome in outcomes):,} refused, {len(faults):,} faults")
    print(f"slowest {max(outcome.seconds for outcome in outcomes):.2f} s; largest {_memory():.0f} MiB")
    return 1 if faults else 0


def fuzz(specimens: list[Specimen], cases: int, seed: int) -> list[Outcome]:
    """So many cases, the quicker a reader the more of them."""
    whole = sum(1 / specimen.cost for specimen in specimens)
    outcomes: list[Outcome] = []
    for specimen in specimens:
        share = max(1, round(cases / specimen.cost / whole))
        outcomes += _tried(specimen, [f"{seed}:{number}" for number in range(share)], damaged=False)
    return outcomes


def damage(specimens: list[Specimen], files: int, seed: int) -> list[Outcome]:
    """So many damaged files, of which every change must be noticed or make no difference."""
    hashed = [specimen for specimen in specimens if specimen.hashed]
    outcomes: list[Outcome] = []
    for place, specimen in enumerate(hashed):
        mine = [f"damaged:{seed}:{number}" for number in range(place, files, len(hashed))]
        outcomes += _tried(specimen, mine, damaged=True)
    return outcomes


def _tried(specimen: Specimen, seeds: list[str], damaged: bool) -> list[Outcome]:
    right = specimen.read(specimen.folder)
    started = perf_counter()
    outcomes = []
    for seed in seeds:
        faulthandler.dump_traceback_later(3 * SECONDS, exit=True)
        outcomes.append(try_out(specimen, seed, right if damaged else None, damaged))
    faulthandler.cancel_dump_traceback_later()
    what = "damaged" if damaged else "fuzzed"
    counts = Counter("faulty" if each.fault else "refused" if each.refused else "read" for each in outcomes)
    told = ", ".join(f"{number:,} {fate}" for fate, number in sorted(counts.items()))
    print(f"{specimen.name:<32}{what}: {told}; {perf_counter() - started:.1f} s", flush=True)
    return outcomes


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
