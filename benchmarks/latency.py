"""The latency of a small request: `unrank forget` of a few documents as a process, without kept state and with it.

    python benchmarks/latency.py FOLDER [--collection DIR] [--before SRC] [--device cuda --ranker cross-encoder]

FOLDER gets a collection (Python's documentation, if no other is given), a ranker, its proxies and the owner's state;
what is there already is used again. Then the same command runs with the prepared proxies alone, and with the kept state
that `unrank proxies` makes. With `--on-the-spot` the first run has no prepared proxies either, and makes one. The first
run is of the version of unrank whose `src` folder `--before` names, if it does. Prints for both the seconds of the
process, where they went, how near the pairs are to their places and what is kept of E, D and T. Packages are compiled
before they are timed, as pip does on a user's machine.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

BEGAN = "UNRANK_BENCHMARK_BEGAN"
"""The variable with the time at which a timed process was started."""
TRAINING = ("--train-layers", "1", "--set", "epochs=3", "--set", "learning_rate=5e-4", "--set", "batch=64")
"""How a ranker is trained on a CPU: the last layer alone, as in the demo."""
PYDOCS = ("--train-queries", "1000", "--test-queries", "200", "--candidates", "50")
STEPS: Sequence[tuple[str, str, str]] = (
    ("load rankers", "unrank.rankers", "load_ranker"),
    ("workspace", "unrank.forgetting.workspace", "Workspace.for_removal"),
    ("vocabulary", "unrank.forgetting.vocabulary", "find_clearing"),
    ("hashes of files", "unrank.disk", "sha256"),
    ("hashes of files", "unrank.disk", "sha256_once"),
    ("hashes of weights", "unrank.engine.checkpoint", "digest"),
    ("trials of models", "unrank.rankers.trial", "try_out"),
    ("read kept files", "unrank.engine.checkpoint", "Cache.load"),
    ("places", "unrank.forgetting.places", "find_places"),
    ("scorecards", "unrank.evaluation.scorecard", "Evaluator.scorecard"),
    ("anchors", "unrank.forgetting.forget", "update_anchors"),
    ("checks", "unrank.forgetting.mrr_estimator", "MrrEstimator.measure"),
    ("tokens", "unrank.engine.tokens", "_Side._places"),
    ("encode, score", "unrank.engine.scoring", "score_pairs"),
    ("steps", "unrank.engine.loop", "step"),
    ("keep", "unrank.engine.tokens", "TokenStore.save"),
    ("erase", "unrank.engine.kept", "KeptState.erase"),
    ("save", "unrank.forgetting.save", "save_ranker"),
)
"""Parts of a run: the function whose time each is, without that of the parts it calls."""


def main() -> None:
    if BEGAN in os.environ:
        timed_job(sys.argv[1:])
        return
    arguments = read_arguments()
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    collection = arguments.collection or folder / "collection"
    if not collection.exists():
        unrank(folder, "import", "pydocs", "--out", collection, *PYDOCS)
    prepare(arguments, collection)
    name, state = "before" if arguments.before else "without", "bare" if arguments.on_the_spot else "without"
    runs = {
        name: forget(arguments, collection, state, arguments.before),
        "kept": forget(arguments, collection, "kept", None),
    }
    show(runs)
    if arguments.out:
        arguments.out.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where everything is made")
    parser.add_argument("--collection", type=Path, help="a collection folder")
    parser.add_argument("--ranker", default="bi-encoder", help="the kind of ranker")
    parser.add_argument("--base", help="the encoder that it is trained from")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--documents", type=int, default=10, help="how many are forgotten")
    parser.add_argument("--proxies", type=int, default=2, help="how many are prepared")
    parser.add_argument("--proxy-epochs", type=int, default=2, help="how many each is trained for")
    parser.add_argument("--train", nargs="*", help="other options of the training, without their dashes")
    parser.add_argument("--forget", nargs="*", default=[], help="more options of the request, without their dashes")
    parser.add_argument("--before", type=Path, help="the src folder of the version that the first run is of")
    parser.add_argument("--on-the-spot", action="store_true", help="let the first run make its proxy itself")
    parser.add_argument("--repeat", type=int, default=1, help="how often each is run; the fastest counts")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the documents")
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    return parser.parse_args()


def unrank(folder: Path, *command: object, state: str = "state", source: Path | None = None) -> None:
    """Run one command in a process of its own, whose owner's state is in the folder."""
    process(["-m", "unrank", *map(str, command), "--quiet"], folder, folder / state, source)


def process(command: Sequence[str], folder: Path, state: Path, source: Path | None) -> str:
    """Run Python in a process of its own, which keeps what it compiles; return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"UNRANK_STATE": str(state), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment |= {"PYTHONPATH": str(source)} if source is not None else {}
    run = [sys.executable, *command]
    done = subprocess.run(run, check=False, env=environment | {BEGAN: str(time.time())}, capture_output=True, text=True)
    if done.returncode not in (0, 3, 4):
        raise SystemExit(f"{' '.join(run)}\n{done.stderr}")
    return done.stdout


def prepare(arguments: argparse.Namespace, collection: Path) -> None:
    """Make the ranker, the proxies, the removal, and a copy of the owner's state that keeps nothing yet."""
    folder, on = arguments.folder, ("--device", arguments.device)
    base = ("--base", arguments.base) if arguments.base else ()
    training: Sequence[str] = TRAINING if arguments.device == "cpu" else ()
    training = [f"--{option}" for option in arguments.train] if arguments.train is not None else training
    if not (folder / "ranker").exists():
        kind = ("--ranker", arguments.ranker, "--out", folder / "ranker")
        unrank(folder, "train", collection, *kind, *base, *training, *on)
    if not (folder / "removal.json").exists():
        write_removal(collection, arguments.documents, arguments.seed, folder / "removal.json")
    if not (folder / "state.without").exists():
        shutil.copytree(folder / "state", folder / "state.bare")
        proxies = ("--out", folder / "proxies", "--count", arguments.proxies, "--epochs", arguments.proxy_epochs)
        unrank(folder, "proxies", folder / "ranker", collection, *proxies, *base, *on)
        shutil.copytree(folder / "state", folder / "state.kept")
        shutil.copytree(folder / "state", folder / "state.without", ignore=shutil.ignore_patterns("kept"))


def write_removal(collection: Path, documents: int, seed: int, out: Path) -> None:
    """Write a removal of some documents that training queries name."""
    from unrank import Removal, open_collection
    from unrank.collection.partition import whole_partition
    from unrank.collection.texts import hashed_order

    opened = open_collection(collection)
    rows = sorted({*whole_partition(opened, reserve=True).retain[:, 1].tolist()})
    ids = opened.documents.ids(rows)
    removal = Removal(documents=[ids[number] for number in hashed_order(ids, f"latency {seed}")[:documents]])
    out.write_text(json.dumps({"documents": [*removal.documents]}), encoding="utf-8")


def forget(arguments: argparse.Namespace, collection: Path, name: str, source: Path | None) -> dict[str, Any]:
    """Time the request; return the figures of the fastest run, and the seconds of all."""
    process([__file__], arguments.folder, arguments.folder / "state.now", source)
    runs = [forget_once(arguments, collection, name, source) for _ in range(arguments.repeat)]
    walls = [float(run["wall"]) for run in runs]
    return {**runs[walls.index(min(walls))], "walls": walls}


def forget_once(arguments: argparse.Namespace, collection: Path, name: str, source: Path | None) -> dict[str, Any]:
    """Run the request as a process, from a copy of the owner's state."""
    folder = arguments.folder
    out, state = folder / f"forgotten.{name}", folder / "state.now"
    for left in (out, state):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(folder / f"state.{name}", state)
    command = ["forget", folder / "ranker", collection, "--removal", folder / "removal.json", "--out", out]
    command += ["--device", arguments.device, "--quiet", "--no-resume", *(f"--{option}" for option in arguments.forget)]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    printed = process([__file__, *map(str, command)], folder, state, source)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": seconds, "cpu": cpu, "steps": json.loads(printed.splitlines()[-1]), **quality(out)}


def quality(out: Path) -> dict[str, Any]:
    """Return what the record says: the distance to the places, and what is kept of the MRR of E, D and T."""
    record = json.loads((out / "unrank.json").read_text(encoding="utf-8"))
    kept = {
        name[0].upper(): record["after"][name]["mrr"] / record["before"][name]["mrr"]
        for name in ("entangled", "disjoint", "test")
        if record["before"].get(name) and record["before"][name]["mrr"]
    }
    places = record["places"] or {}
    distance = [places.get("distance_before"), places.get("distance_after")]
    return {
        "state": record["state"],
        "timing": record["timing"],
        "forget": record["after"]["forget"]["mrr"],
        "distance": distance,
        **kept,
    }


class Stopwatch:
    """Seconds of functions, each without those of others that it calls."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running: list[list[float]] = []

    def times(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*given: Any, **named: Any) -> Any:
            began = time.perf_counter()
            self._running.append([0.0])
            try:
                return function(*given, **named)
            finally:
                spent, [inner] = time.perf_counter() - began, self._running.pop()
                self.seconds[name] = self.seconds.get(name, 0.0) + spent - inner
                if self._running:
                    self._running[-1][0] += spent

        return timed


def timed_job(command: list[str]) -> None:
    """Run a command in this process, and print the seconds of its steps as JSON; without one, only import."""
    began, watch = float(os.environ.pop(BEGAN)), Stopwatch()
    with suppress(ImportError):  # an earlier version has none
        import_module("unrank.cli.late").import_libraries()
    import unrank.cli.main
    import unrank.forgetting.forget
    import unrank.forgetting.unlearn
    import unrank.rankers.bi_encoder
    import unrank.rankers.cross_encoder

    watch.seconds["start, imports"] = time.time() - began
    for name, module, path in STEPS:
        with suppress(ImportError, AttributeError, KeyError):  # an earlier version has none
            replace_everywhere(watch, name, module, path)
    if not command:
        return

    def tell() -> None:
        watch.seconds["others"] = time.time() - began - sum(watch.seconds.values())
        print(json.dumps(watch.seconds), flush=True)

    atexit.register(tell)
    sys.argv = ["unrank", *command]
    unrank.cli.main.main()


def replace_everywhere(watch: Stopwatch, name: str, module: str, path: str) -> None:
    """Time a function wherever a module of unrank has it under its name."""
    owner: Any = import_module(module)
    *classes, function = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    found = vars(owner)[function]
    if classes:
        made = classmethod(watch.times(name, found.__func__)) if isinstance(found, classmethod) else None
        setattr(owner, function, made or watch.times(name, found))
        return
    timed = watch.times(name, found)
    for known, loaded in list(sys.modules.items()):
        if known.startswith("unrank") and vars(loaded).get(function) is found:
            setattr(loaded, function, timed)


def show(runs: dict[str, dict[str, Any]]) -> None:
    """Print the figures of the runs side by side."""
    print(f"{'seconds':20}" + "".join(f"{name:>12}" for name in runs))
    for part in ("wall", "cpu"):
        print(f"{'process, ' + part:20}" + "".join(f"{run[part]:12.1f}" for run in runs.values()))
    steps = dict.fromkeys(step for run in runs.values() for step in run["steps"])
    for step in sorted(steps, key=lambda step: -max(run["steps"].get(step, 0.0) for run in runs.values())):
        print(f"{'  ' + step:20}" + "".join(f"{run['steps'].get(step, 0.0):12.2f}" for run in runs.values()))
    first, *_, last = runs.values()
    print(f"ratio: {last['wall'] / first['wall']:.3f} of the wall time, {last['cpu'] / first['cpu']:.3f} of the CPU's")
    for name, run in runs.items():
        near = " to ".join("-" if value is None else f"{value:.4f}" for value in run["distance"])
        kept = ", ".join(f"{part} {run[part]:.4f}" for part in "EDT" if part in run)
        print(f"{name}: walls {', '.join(f'{seconds:.2f}' for seconds in run['walls'])}; timing {run['timing']}")
        print(f"{name}: {run['state']}; forget MRR {run['forget']:.4f}; distance to places {near}; {kept}")


if __name__ == "__main__":
    main()
