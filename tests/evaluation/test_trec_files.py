"""TREC files: trec_eval's order and measures of them are ours."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.table import Listed, collection_of, forgetting, random_lists

from unrank.collection.collection import Collection, Pairs
from unrank.errors import UnrankError
from unrank.evaluation.scorecard import Evaluator, MeasuredLists, Scorecard
from unrank.evaluation.trec_files import count_escaped, escaped, qrels_files, run_files, write_trec

PYTHON = os.environ.get("TREC_EVAL_PYTHON", sys.executable)
"""A Python that has pytrec_eval (`pip install pytrec_eval-terrier`) or ranx, for the slow tests."""
Measures = dict[str, dict[str, float]]


def exported(
    lists: list[Listed], table: list[list[int]], folder: Path
) -> tuple[Collection, Scorecard, dict[str, MeasuredLists]]:
    """Measure a table of scores with query 0 forgotten, and write the files of all sets."""
    collection = collection_of(lists, len(table[0]))

    def score(pairs: Pairs) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        return np.array(table, np.float32)[pairs[:, 0], pairs[:, 1]]

    card, measured = Evaluator(collection, forgetting(collection, queries=[0])).scorecard_and_lists(score)
    write_trec(folder, {**run_files(measured, collection), **qrels_files(measured, collection)})
    return collection, card, measured


def by_trec_eval_rules(folder: Path, name: str) -> dict[str, float]:
    """Compute recip_rank and ndcg_cut_10 as trec_eval does: sorted by score, then by document id, both falling."""
    grades: dict[str, dict[str, int]] = {}
    for line in (folder / f"{name}.qrels").read_text().splitlines():
        query, _, document, grade = line.split()
        grades.setdefault(query, {})[document] = int(grade)
    run: dict[str, list[tuple[np.float32, str]]] = {}
    for line in (folder / f"{name}.run").read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        run.setdefault(query, []).append((np.float32(score), document))
    found = []
    for query, entries in run.items():
        gains = [grades[query].get(document, 0) for _, document in sorted(entries, reverse=True)]
        rank = next((place for place, gain in enumerate(gains, 1) if gain), None)
        sums = [
            sum(gain / math.log2(place + 1) for place, gain in enumerate(order[:10], 1))
            for order in (gains, sorted(grades[query].values(), reverse=True))
        ]
        found.append((1 / rank if rank else 0.0, sums[0] / sums[1]))
    assert run.keys() == grades.keys()
    return dict(zip(("recip_rank", "ndcg_cut_10"), np.mean(found, axis=0).tolist(), strict=True))


def ours(card: Scorecard) -> Measures:
    return {name: {"recip_rank": each.mrr, "ndcg_cut_10": each.ndcg or 0.0} for name, each in card.summary.items()}


def test_a_small_case_by_hand(tmp_path: Path) -> None:
    """One forget query whose document ties with two others, and one test query with grades 1 and 3."""
    lists = [Listed([0], [1, 2, 3]), Listed([4], [5]), Listed([0, 1], [2, 3], test=True, grades=[1, 3])]
    table = [[5, 5, 7, 5, 0, 0], [0, 0, 0, 0, 2, 1], [4, 1, 3, 1, 0, 0]]
    _, card, _ = exported(lists, table, tmp_path / "trec")
    assert (tmp_path / "trec" / "forget.run").read_text().split("\n")[:4] == [
        "q0 Q0 d2 1 7 unrank",
        "q0 Q0 d0 2 5 unrank",  # the forget pair comes first among equals
        "q0 Q0 d1 3 4.99999952 unrank",
        "q0 Q0 d3 4 4.99999905 unrank",
    ]
    assert (tmp_path / "trec" / "test.qrels").read_text() == "q2 0 d0 1\nq2 0 d1 3\n"
    assert (tmp_path / "trec" / "forget.qrels").read_text() == "q0 0 d0 1\n"
    expected = {
        "forget": {"recip_rank": 1 / 2, "ndcg_cut_10": 1 / math.log2(3)},
        # the document of grade 3 ties with a negative, and comes last among equals: places 1 and 4
        "test": {"recip_rank": 1.0, "ndcg_cut_10": (1 + 3 / math.log2(5)) / (3 + 1 / math.log2(3))},
        "disjoint": {"recip_rank": 1.0, "ndcg_cut_10": 1.0},
    }
    for name, figures in expected.items():
        assert by_trec_eval_rules(tmp_path / "trec", name) == pytest.approx(figures, abs=1e-9)
        assert ours(card)[name] == pytest.approx(figures, abs=1e-9)


def random_case(seed: int, folder: Path) -> Scorecard:
    """Graded lists with many ties."""
    generator = np.random.default_rng(seed)
    lists = [
        Listed(each.relevant, each.negatives, each.test, generator.integers(1, 4, len(each.relevant)).tolist())
        for each in random_lists(seed)
    ]
    return exported(lists, generator.integers(0, 4, (len(lists), 14)).tolist(), folder)[1]


@pytest.mark.parametrize("seed", range(4))
def test_by_the_rules_of_trec_eval(seed: int, tmp_path: Path) -> None:
    card = random_case(seed, tmp_path / "trec")
    assert {path.stem for path in (tmp_path / "trec").glob("*.run")} == card.summary.keys() >= {"forget", "test"}
    for name, figures in ours(card).items():
        assert by_trec_eval_rules(tmp_path / "trec", name) == pytest.approx(figures, abs=1e-9)


WITH_PYTREC_EVAL = """
import json, pytrec_eval, sys
found = {}
for name in sys.argv[1:]:
    run, qrels = (open(f"{name}.{kind}") for kind in ("run", "qrels"))
    judge = pytrec_eval.RelevanceEvaluator(pytrec_eval.parse_qrel(qrels), {"recip_rank", "ndcg_cut_10"})
    each = judge.evaluate(pytrec_eval.parse_run(run)).values()
    found[name] = {key: sum(q[key] for q in each) / len(each) for key in ("recip_rank", "ndcg_cut_10")}
print(json.dumps(found))
"""
WITH_RANX = """
import json, sys
from ranx import Qrels, Run, evaluate
found = {}
for name in sys.argv[1:]:
    qrels = Qrels.from_file(f"{name}.qrels", kind="trec")
    run = Run.from_file(f"{name}.run", kind="trec")
    values = evaluate(qrels, run, ["mrr", "ndcg@10"])
    found[name] = {"recip_rank": float(values["mrr"]), "ndcg_cut_10": float(values["ndcg@10"])}
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "script"), [("pytrec_eval", WITH_PYTREC_EVAL), ("ranx", WITH_RANX)], ids=["pytrec_eval", "ranx"]
)
def test_by_other_tools(package: str, script: str, tmp_path: Path) -> None:
    if subprocess.run([PYTHON, "-c", f"import {package}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{PYTHON} has no {package}: set TREC_EVAL_PYTHON to a Python that has it")
    expected: Measures = {}
    for seed in range(3):
        figures = ours(random_case(seed, tmp_path / str(seed)))
        expected |= {str(tmp_path / str(seed) / name): each for name, each in figures.items()}
    command = [PYTHON, "-c", script, *expected]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)  # ranx compiles first
    found: Measures = json.loads(done.stdout.splitlines()[-1])
    for name, figure in expected.items():
        assert found[name] == pytest.approx(figure, abs=1e-6), name


def test_ids_with_blanks_are_escaped_and_counted(tmp_path: Path) -> None:
    collection, _, measured = exported([Listed([0], [1]), Listed([1], [0])], [[1, 2], [1, 2]], tmp_path / "trec")
    assert count_escaped(measured, collection) == 0
    assert escaped("a\u00a0b%\t") == "a%C2%A0b%25%09"
    with pytest.raises(UnrankError, match="an id is empty"):
        escaped("")
