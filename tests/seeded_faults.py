"""Thirty faults that the quick tests must catch, and the runner that tries them.

`make faults` copies the tree, puts one fault at a time into the copy, and runs the tests named with it. A fault is
caught if one of them fails. `python tests/seeded_faults.py NAME ...` tries some of them, `--list` lists them. The exit
status is 1 if a fault is missed, if its snippet is not found exactly once, or if the tests fail without a fault.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = ("src", "tests", "benchmarks", "examples", "runs", "grids", "docs", "README.md", "pyproject.toml")
FAILED = 1
"""The exit status of pytest if a test failed. Others say that no test was run."""


@dataclass(frozen=True)
class Fault:
    """A change of one snippet of the code, found by its text: the file may move within its package."""

    name: str
    package: str
    old: str
    new: str
    tests: tuple[str, ...]

    def place(self, root: Path) -> Path:
        """Return the only file of the package that holds the snippet, once."""
        source = root / "src" / "unrank" / self.package
        paths = [source.with_suffix(".py")] if not source.is_dir() else sorted(source.rglob("*.py"))
        found = [path for path in paths for _ in range(path.read_text(encoding="utf-8").count(self.old))]
        if len(found) != 1:
            raise LookupError(f"{self.name}: the snippet is in {self.package} {len(found)} times, not once: {self.old}")
        return found[0]


FAULTS = [
    Fault(
        "a pair that shares only a document is not entangled",
        "collection",
        "np.isin(pairs[:, 0], gone[:, 0]) | np.isin(pairs[:, 1], gone[:, 1])",
        "np.isin(pairs[:, 0], gone[:, 0])",
        ("tests/collection/test_partition.py",),
    ),
    Fault(
        "a sampled removal stops one item early",
        "collection",
        "taken = int(np.argmin(np.abs(covered - share * len(pairs)))) + 1 if",
        "taken = int(np.argmin(np.abs(covered - share * len(pairs)))) if",
        ("tests/collection/test_removal.py",),
    ),
    Fault(
        "the seed does not reach the order of a sample",
        "collection",
        'f"{salt}:{ids[i]}"',
        'f"{ids[i]}"',
        ("tests/collection/test_removal.py",),
    ),
    Fault(
        "equal BM25 scores come in reverse order",
        "collection",
        "np.lexsort((rows, -scores[rows]))",
        "np.lexsort((-rows, -scores[rows]))",
        ("tests/collection/test_bm25.py",),
    ),
    Fault(
        "a relevant document is its query's negative",
        "collection",
        "    return rows[~np.isin(rows, relevant)]",
        "    return rows",
        ("tests/collection/test_lists.py",),
    ),
    Fault(
        "query and document of a BEIR judgement are swapped",
        "collection",
        "yield Judgement(columns[0], columns[1], read_grade(path, number, columns[2]))",
        "yield Judgement(columns[1], columns[0], read_grade(path, number, columns[2]))",
        ("tests/collection/sources/test_beir.py",),
    ),
    Fault(
        "a tie counts for the ranker",
        "evaluation",
        "tie = -self.gains if ties_first else self.gains",
        "tie = self.gains if ties_first else -self.gains",
        ("tests/evaluation/test_measure.py",),
    ),
    Fault(
        "nDCG is cut at nine",
        "evaluation",
        "np.where(place <= CUT,",
        "np.where(place < CUT,",
        ("tests/evaluation/test_measure.py",),
    ),
    Fault(
        "removed documents stay in the lists of kept sets",
        "evaluation",
        "            keep &= ~np.isin(listed[:, 1], self.partition.documents)",
        "            keep &= True",
        ("tests/evaluation/test_scorecard.py",),
    ),
    Fault(
        "a 95 % interval is a 90 % one",
        "evaluation",
        "[(1 - LEVEL) / 2, (1 + LEVEL) / 2]",
        "[1 - LEVEL, LEVEL]",
        ("tests/evaluation", "src/unrank/evaluation"),
    ),
    Fault(
        "the margin loss has the wrong sign",
        "engine",
        "torch.relu(margin - positive + negative)",
        "torch.relu(margin + positive - negative)",
        ("tests/engine/test_losses.py",),
    ),
    Fault(
        "a resumed run begins with a fresh optimiser",
        "engine",
        '        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": moments})\n',
        "",
        ("tests/forgetting/test_resume.py",),
    ),
    Fault(
        "a damaged checkpoint is read",
        "engine",
        'if header.get("sha256") != digest(tensors, header.get("facts", "")):',
        'if "sha256" not in header:',
        ("tests/engine/test_checkpoint.py",),
    ),
    Fault(
        "scores are cached without the collection's fingerprint",
        "engine",
        'f"scores-{self._collection.fingerprint[:16]}-{made_by[:16]}"',
        'f"scores-{made_by[:16]}"',
        ("tests/forgetting/test_cache.py",),
    ),
    Fault(
        "the lowest score of a list is its highest",
        "engine",
        "np.minimum.at(low, place, scores)",
        "np.maximum.at(low, place, scores)",
        ("tests/engine/test_teacher.py",),
    ),
    Fault(
        "a padding token is read",
        "rankers",
        "torch.arange(width, device=device) < to_device(lengths, device).unsqueeze(1)",
        "torch.arange(width, device=device) <= to_device(lengths, device).unsqueeze(1)",
        ("tests/rankers/test_contract.py",),
    ),
    Fault(
        "the shorter side of a pair is cut first",
        "rankers",
        "first_is_short = first <= second",
        "first_is_short = first > second",
        ("tests/rankers/test_cross_encoder.py",),
    ),
    Fault(
        "CoCoL pushes forgotten pairs up",
        "methods",
        '(gap if move == "may fall" else -gap).relu()',
        '(gap if move == "may rise" else -gap).relu()',
        ("tests/methods/test_cocol.py",),
    ),
    Fault(
        "Amnesiac learns the forgotten pairs",
        "methods",
        "generator, swapped=True)",
        "generator, swapped=False)",
        ("tests/methods/test_ranking_methods.py",),
    ),
    Fault(
        "NegGrad descends",
        "methods",
        "return -(soft_ranking_loss(scored)",
        "return (soft_ranking_loss(scored)",
        ("tests/methods/test_ranking_methods.py",),
    ),
    Fault(
        "a removed document is still drawn as a negative",
        "methods",
        "~self._removed[documents])",
        "self._removed[documents] | True)",
        ("tests/methods/test_task.py",),
    ),
    Fault(
        "a landing takes the highest point above the target",
        "forgetting",
        "if near or (forget <= self._target and",
        "if near or (forget >= self._target and",
        ("tests/forgetting/test_landing.py",),
    ),
    Fault(
        "half-unseen is the whole of unseen",
        "forgetting",
        '"half-unseen": 0.5',
        '"half-unseen": 1.0',
        ("tests/forgetting/test_target.py",),
    ),
    Fault(
        "tests together come to the best verdict, not the worst",
        "audit",
        "return min(verdicts, key=list(Verdict).index)",
        "return max(verdicts, key=list(Verdict).index)",
        ("tests/audit/test_verdict.py",),
    ),
    Fault(
        "a cell does not wait for the retrained ranker that sets its target",
        "bench",
        "return [self.original.name, *([self.reference.name] if self.reference else [])]",
        "return [self.original.name]",
        ("tests/bench/test_job_queue.py",),
    ),
    Fault(
        "the links of the ledger's chain are not checked",
        "desk",
        "if before not in (None, entry.before) or not entry.holds:",
        "if not entry.holds:",
        ("tests/desk/test_ledger.py",),
    ),
    Fault(
        "hashes of removed items do not depend on the key",
        "desk",
        'padded = self.hashing.ljust(BLOCK_BYTES, b"\\0")',
        'padded = b"".ljust(BLOCK_BYTES, b"\\0")',
        ("tests/desk/test_ledger.py",),
    ),
    Fault(
        "a judgement of a removed text passes the filter under another id",
        "desk",
        "            side.caught.add(text.id)\n",
        "",
        ("tests/desk/test_filter.py",),
    ),
    Fault(
        "the audit's gate always passes",
        "desk",
        'return Gate("audit", audit.verdict != Verdict.REMEMBERED, ',
        'return Gate("audit", True, ',
        ("tests/desk/test_run.py",),
    ),
    Fault(
        "a formula is written to a CSV table",
        "report",
        """return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\\t", "\\r") else text""",
        "return text",
        ("tests/report/test_table.py", "src/unrank/report"),
    ),
]


def run_tests(root: Path, tests: Iterable[str], shown: bool = False) -> int:
    """Run quick tests of a tree, up to the first failure, and return pytest's exit status; print a failure if shown."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *dict.fromkeys(tests)]
    path = os.pathsep.join([str(root / "src"), str(root)])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode > FAILED or (done.returncode and shown):
        print(done.stdout[-2000:] + done.stderr[-2000:])
    return done.returncode


def is_caught(fault: Fault, root: Path) -> bool:
    path = fault.place(root)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    try:
        return run_tests(root, fault.tests) == FAILED
    finally:
        path.write_text(text, encoding="utf-8")


def copy_tree(root: Path, out: Path) -> Path:
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, out / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(root / name, out / name)
    return out


def try_faults(faults: Sequence[Fault], root: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        tree = copy_tree(root, Path(folder))
        for fault in faults:
            fault.place(tree)
        if status := run_tests(tree, [test for fault in faults for test in fault.tests], shown=True):
            print("the tests do not pass without a fault")
            return status
        missed = []
        for fault in faults:
            caught = is_caught(fault, tree)
            print(f"{'caught' if caught else 'MISSED'}  {fault.package}: {fault.name}", flush=True)
            if not caught:
                missed.append(fault)
    print(f"{len(faults) - len(missed)} of {len(faults)} caught")
    return int(bool(missed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="words of the faults to try; all by default")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree to copy")
    parser.add_argument("--list", action="store_true", help="list the faults, and check that each snippet is there")
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if not given.names or any(name in fault.name for name in given.names)]
    if given.list:
        for fault in chosen:
            print(f"{fault.place(given.tree).relative_to(given.tree)}: {fault.name}")
        return 0
    return try_faults(chosen, given.tree)


if __name__ == "__main__":
    sys.exit(main())
