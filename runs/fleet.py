"""All runs on a GPU that are left, in their order. Each call goes on where the one before was stopped.

    python runs/fleet.py --data FOLDER --base ENCODER --lines FOLDER [--weights FOLDER] [--from FOLDER] [--keep FOLDER]
        [--minutes 9] [--parts NAME...] [--beside 1]
    python runs/fleet.py --list

`--data` holds the collections `car`, `marco`, `pydocs`, `deep` and `small`, made as `--list` prints.
`--weights` holds the model `smollm2`; without it the parts that need it are left out. Each part writes
one file in `--lines`; `fleet.json` there says which are whole. A call copies what a part has written so far from
`--from`, the `--lines` of the call before, so that only files of its own parts come back from a machine that is lent.
`--keep` keeps trained rankers: a part that is begun again on the same machine goes on inside a cell. On another machine
a cell that is not whole is done again. After `--minutes` all processes end; what they had written stays.

Parts run one after another. With `--beside` several run side by side, except those whose times count; that gains
nothing on one GPU (docs/log.md), and a part that is stopped by the clock has to begin its cell again.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import monotonic, sleep

from unrank.cli.option import NOT_REACHED

ROOT = Path(__file__).parents[1]
DONE = "fleet.json"
PAUSE = 0.2
ENDING = 20.0
"""Seconds that a process has to end."""
COLLECTIONS = ("car", "marco", "pydocs", "deep", "small")
IMPORTS = (
    "unrank import beir:trec-car-test200 --out car",
    "unrank import beir:msmarco-passage-mini --test-split dev --test-queries 1000 --train-queries 3000 "
    "--keep queries-with-several-documents --keep queries-sharing-documents --out marco",
    "unrank import pydocs --relevant 25 --train-queries 1000 --test-queries 400 --out pydocs",
    "unrank import beir:msmarco-passage-mini --test-split dev --test-queries 1000 --train-queries 3000 "
    "--keep queries-with-several-documents --keep queries-sharing-documents --candidates 1000 --out deep",
    "python runs/smaller.py car --queries 600 --out small",
)
TUNED = "amnesiac bad-teacher finetune neggrad ssd neggrad-plus salun scrub simnpo task-negation undial"
"""The methods whose settings for a bi-encoder are frozen in results/tuned-bi-encoder.json."""
RIVALS = f"cocol cocol:paper cocol:released {' '.join(f'{name}:tuned' for name in TUNED.split())}"
UNTUNED = f"cocol cocol:paper cocol:released {TUNED}"
"""The same with the methods' own settings, for rankers that nothing was tuned for."""
FROZEN = "--settings-from results/tuned-bi-encoder.json --epochs 12"
MAIN = """'rankers=["bi-encoder", "cross-encoder"]'"""
PLACES = "runs/places.py {car} {marco} --base {base} --keep {keep} --out {out}"


@dataclass(frozen=True)
class Part:
    """A command that writes one file, and goes on after what the file holds."""

    name: str
    shows: str
    command: str
    alone: bool = False
    """Whether its times count."""
    makes: str = ""
    """The file or the bench in `--keep` that becomes its file when it has ended; empty if it writes that itself."""

    @property
    def file(self) -> str:
        if self.makes == "bench":
            return f"{self.name}.jsonl.gz"
        return f"{self.name}.json{'' if self.makes else 'l'}"

    def words(self, given: argparse.Namespace) -> list[str]:
        """Return the command line."""
        places = {name.replace("-", "_"): given.data / name for name in COLLECTIONS}
        filled = self.command.format(
            **places, base=given.base, weights=given.weights, keep=given.keep / self.name, out=given.lines / self.file
        )
        return [sys.executable, *shlex.split(filled)]

    def finish(self, status: int, given: argparse.Namespace) -> bool:
        """Return whether a part that ended with this status is whole; then put its file where it belongs."""
        there, out = given.keep / self.name / self.makes, given.lines / self.file
        if self.makes == "bench" and status in (0, NOT_REACHED):  # that a target was not reached is a result
            out.unlink(missing_ok=True)
            status = subprocess.run([sys.executable, "-m", "unrank", "pack", there, "--out", out], cwd=ROOT).returncode
        elif self.makes and status == 0:
            shutil.copy(there, out)
        return status == 0


PARTS = (
    Part(
        "decoder",
        "SmolLM2 as a reranker, with an adapter and with all weights",
        "runs/modern.py decoder {small} --base {weights}/smollm2 --forget place_rounds=1 --keep {keep} --out {out}",
    ),
    Part(
        "place-times",
        "time of runs to places, as a share of retraining's: proxies of one and of two epochs",
        f"{PLACES} --rankers bi-encoder cross-encoder --by documents --removal-seed 31 --judges 1 --proxy-epochs 1 2",
        alone=True,
    ),
    *(
        Part(
            f"row-{collection}-{seed}",
            f"fifty requests in a row, {collection}, seed {seed}",
            f"runs/row_of_requests.py {{{collection}}} --base {{base}} --requests 50 --documents 3 "
            f"--seed {seed} --judges 2 --keep {{keep}} --out {{out}}",
        )
        for collection, seed in product(("marco", "car"), (1, 2))
    ),
    Part(
        "tuned-npo",
        "frozen settings of npo, as for the other rivals",
        "-m unrank tune npo {pydocs} --base {base} --trials 12 --remove documents --removal-seed 7 --epochs 12 "
        "--out {keep}/tuned.json",
        makes="tuned.json",
    ),
    *(
        Part(
            f"rivals-bi-encoder-{draw}",
            f"all rivals tuned, a quarter removed, draw {draw}",
            f"{PLACES} --rankers bi-encoder --removal-seed {draw} --rivals {RIVALS} {FROZEN}",
        )
        for draw in (42, 43)
    ),
    *(
        Part(
            f"rivals-cross-encoder-{draw}",
            f"all rivals with their own settings, a quarter removed, draw {draw}",
            f"{PLACES} --rankers cross-encoder --removal-seed {draw} --rivals {UNTUNED} --epochs 12",
        )
        for draw in (41, 42, 43)
    ),
    Part(
        "rivals-others",
        "colbert and parade, one draw",
        f"{PLACES} --rankers colbert parade --removal-seed 41 --rivals {UNTUNED} --epochs 12",
    ),
    *(
        Part(
            f"share-{share:g}",
            f"a share of {share:.0%}, one draw: places and CoCoL to the retrained ranker's mean",
            f"{PLACES} --rankers bi-encoder cross-encoder --removal-seed 41 --share {share} --rivals cocol",
        )
        for share in (0.05, 0.15)
    ),
    Part(
        "deep",
        "lists of 1,000, as the paper's",
        "runs/places.py {deep} --base {base} --keep {keep} --out {out} --rankers bi-encoder cross-encoder "
        "--removal-seed 41 --rivals cocol cocol:released",
    ),
    Part(
        "destinations-marco",
        "three destinations on MS MARCO mini; a call on another machine begins it again",
        "-m unrank bench grids/destinations.toml --out {keep}/bench --set collections={marco} --set base={base} "
        f"--set removals=documents --set {MAIN}",
        makes="bench",
    ),
)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path)
    options.add_argument("--base")
    options.add_argument("--weights", type=Path, help="a folder with smollm2")
    options.add_argument("--lines", type=Path)
    options.add_argument("--from", type=Path, dest="before")
    options.add_argument("--keep", type=Path, default=ROOT / "build" / "fleet", help="by default build/fleet")
    options.add_argument("--minutes", type=float, default=9.0)
    options.add_argument("--parts", nargs="+", choices=[part.name for part in PARTS], metavar="NAME")
    options.add_argument("--beside", type=int, default=1, help="the most parts that run side by side")
    options.add_argument("--list", action="store_true")
    given = options.parse_args()
    if given.list:
        print("\n".join([*IMPORTS, *(f"{part.name}: {part.shows}: {part.command}" for part in PARTS)]))
        return 0
    if not (given.data and given.base and given.lines):
        options.error("--data, --base and --lines are needed")
    given.lines.mkdir(parents=True, exist_ok=True)
    chosen = [part for part in PARTS if part.name in (given.parts or [part.name])]
    return run([part for part in chosen if given.weights or "{weights}" not in part.command], given)


def run(parts: Sequence[Part], given: argparse.Namespace) -> int:
    """Run parts until they are whole or the time is up; return 0 if all are whole, 1 if one failed, else 3."""
    until, done, failed = monotonic() + 60 * given.minutes, _done(given), list[str]()
    left, at_work = [part for part in parts if part.name not in done], dict[Part, subprocess.Popen[bytes]]()
    try:
        while (left or at_work) and monotonic() < until:
            while left and _may_start(left[0], [*at_work], given.beside):
                at_work[left[0]] = _start(left[0], given)
                left.pop(0)
            sleep(PAUSE)
            for part, process in [*at_work.items()]:
                if process.poll() is not None:
                    del at_work[part]
                    whole = part.finish(process.returncode, given)
                    print(f"{part.name}: {'whole' if whole else f'ended with {process.returncode}'}", flush=True)
                    (done if whole else failed).append(part.name)
                    (given.lines / DONE).write_text(json.dumps({"whole": done}) + "\n")
    finally:
        _end([*at_work.values()])
    waiting = [part.name for part in (*at_work, *left)]
    shown = {"whole": done, "left": waiting, "failed": failed}
    print("; ".join(f"{name}: {', '.join(parts) or 'none'}" for name, parts in shown.items()), flush=True)
    return 1 if failed else 3 if waiting else 0


def _done(given: argparse.Namespace) -> list[str]:
    """Return the names of the parts that are whole."""
    for folder in (given.lines, given.before):
        if folder is not None and (folder / DONE).exists():
            whole: list[str] = json.loads((folder / DONE).read_text())["whole"]
            return whole
    return []


def _may_start(part: Part, at_work: Sequence[Part], beside: int) -> bool:
    return not at_work or (len(at_work) < beside and not part.alone and not any(each.alone for each in at_work))


def _start(part: Part, given: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start a part; its file of the call before comes first, and its errors go into a file beside it."""
    out = given.lines / part.file
    if given.before is not None and not out.exists() and (given.before / part.file).exists():
        shutil.copy(given.before / part.file, out)
    (given.keep / part.name).mkdir(parents=True, exist_ok=True)
    print(f"{part.name}: {part.shows}", flush=True)
    with (given.lines / "fleet.log").open("a") as log:
        return subprocess.Popen(part.words(given), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=log)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes: first with a signal that they can catch."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(ENDING)
        except subprocess.TimeoutExpired:
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
