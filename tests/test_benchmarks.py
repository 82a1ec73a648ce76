"""The benchmarks: the plain loop ranks as ours does, so that it is a fair baseline, and each of them runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Literal

import numpy as np
import plain
import pytest
import torch
from plain import PLAIN, PlainColbert, PlainLoop
from step import main as time_steps
from synthetic import Size, make_collection

from tests.index import qdrant_server
from tests.index.server import programs, running
from tests.tiny import WORDS, make_large_collection
from unrank.collection.collection import Collection, open_collection
from unrank.engine.runtime import Runtime
from unrank.engine.scoring import scores_of
from unrank.engine.tokens import TokenStore
from unrank.evaluation.scorecard import Evaluator
from unrank.rankers import create_ranker
from unrank.rankers.colbert import ColbertRanker

BENCHMARKS = Path(plain.__file__).parent
CPU = torch.device("cpu")


def run(script: str, *arguments: object, may_fail: bool = False) -> str:
    """What a benchmark prints, from a process of its own. It fails with 1 if a limit is exceeded."""
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=os.environ)
    assert done.returncode in ((0, 1) if may_fail else (0,)), done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["cross-encoder", "bi-encoder", "colbert"])
def test_plain_and_ours_give_the_same_scores(kind: str, encoder: Path, dense: Collection, tmp_path: Path) -> None:
    ranker = create_ranker(kind, str(encoder), 0)
    ranker.save(tmp_path / "ranker")
    folder = tmp_path / "ranker" if kind == "cross-encoder" else encoder
    loop = PlainLoop(kind, folder, CPU)
    if isinstance(loop.student, PlainColbert):
        assert isinstance(ranker, ColbertRanker)
        loop.student.narrow.weight = ranker.model[1].linear.weight
    store, runtime = TokenStore(ranker, dense), Runtime.on("cpu")

    def plainly(pairs: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        texts = zip(dense.queries.texts(pairs[:, 0]), dense.documents.texts(pairs[:, 1]), strict=True)
        return loop.score(list(texts)).numpy()

    pairs = dense.list_pairs(np.arange(6))
    assert np.allclose(plainly(pairs), scores_of(ranker, store, pairs, runtime), rtol=1e-5, atol=1e-5)
    fixed = dense.pairs[:30]
    evaluator = Evaluator(dense, None)
    ours = evaluator.mrr(lambda pairs: scores_of(ranker, store, pairs, runtime), fixed)
    assert evaluator.mrr(plainly, fixed) == pytest.approx(ours, abs=0.005)


@pytest.mark.parametrize("kind", PLAIN)
def test_the_plain_loop_moves_its_student_and_not_its_teacher(kind: str, encoder: Path) -> None:
    torch.manual_seed(0)  # dropout may bring a margin about, and then nothing would have to move
    loop = PlainLoop(kind, encoder, CPU)
    before = [weight.detach().clone() for weight in loop.student.parameters()]
    pairs, others = [("ba be", "ba be bi"), ("to", "so fu")], [("ba be", "ku"), ("to", "re")]
    steps: list[Callable[[], None]] = [
        lambda: loop.train(pairs, others),
        lambda: loop.forget(pairs, [-1.0, -1.0], others),
        lambda: loop.hold(pairs, others),
    ]
    for step in steps:
        was = [weight.detach().clone() for weight in loop.student.parameters()]
        step()
        assert any(not torch.equal(one, other) for one, other in zip(was, loop.student.parameters(), strict=True))
    assert all(torch.equal(one, other) for one, other in zip(before, loop.teacher.parameters(), strict=True))


@pytest.mark.slow
def test_speed_runs_and_writes_its_figures(encoder: Path, dense: Collection, tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    options = ["--base", encoder, "--device", "cpu", "--seconds", 0.01, "--samples", 12, "--batch", 4, "--out", out]
    run("speed.py", dense.folder, "--rankers", "cross-encoder", "bi-encoder", "splade", *options)
    figures = json.loads(out.read_text())["figures"]
    assert [(figure["ranker"], figure["what"]) for figure in figures] == [
        (ranker, what) for ranker in ("cross-encoder", "bi-encoder", "splade") for what in ("train", "cocol", "score")
    ]
    for figure in figures:
        assert figure["plain"]["a_second"] > 0
        assert figure["ratio"] == pytest.approx(figure["ours"]["a_second"] / figure["plain"]["a_second"])
        assert figure["share"] is None  # of a processor no peak is known


@pytest.mark.parametrize("told", [1, 2])
def test_a_made_collection_is_one(told: Literal[1, 2], tmp_path: Path) -> None:
    make_collection(tmp_path / "made", Size(400, 200), WORDS, told=told)
    collection = open_collection(tmp_path / "made")
    assert (len(collection.documents), len(collection.judged), len(collection.queries)) == (400, 200, 100)
    assert len(collection.test_queries) == 2
    begin_as_asked = 0
    for query in range(len(collection.queries)):
        listed = [*collection.relevant[query], *collection.negatives[query]]
        assert len(set(listed)) == len(listed) == 102
        asked = collection.queries.text(query).split()
        openings = [collection.documents.text(row).partition(". ")[0].split() for row in listed[:2]]
        assert [opening[0] for opening in openings] == asked[:1] * 2
        begin_as_asked += openings == [asked[:2], [asked[0], asked[2]]]
    assert begin_as_asked == 100 if told == 2 else begin_as_asked < 10


@pytest.mark.slow
def test_growth_and_a_small_request_run(encoder: Path, tmp_path: Path) -> None:
    run("growth.py", "--most", 1_000, "--out", tmp_path / "growth.json")
    assert len(json.loads((tmp_path / "growth.json").read_text())) == 2
    sizes = ["--documents", 2_000, "--learned", 400, "--removed", 20, "--training", "epochs=1", "learning_rate=1e-3"]
    settings = ["--set", "learning_rate=1e-3", "place_epochs=1"]
    printed = run(
        "million.py", "--base", encoder, "--ranker", "bi-encoder", "--device", "cpu", *sizes, *settings, may_fail=True
    )
    figures = json.loads(printed.splitlines()[-1])
    assert (figures["documents"], figures["pairs"]) == (2_000, 2_000)
    assert figures["after"]["forget"]["queries"] == 20
    assert figures["places"]["proxies"] == 1
    assert {*figures["passed"]} == {"seconds", "gibibytes", "reached", "kept"}
    assert {*figures["kept"]} == {"entangled", "disjoint", "test"}


@pytest.mark.slow
def test_a_small_request_is_timed_after_its_preparation(encoder: Path, tmp_path: Path) -> None:
    """What was kept is not made again; another collection than that is refused."""
    keep: list[object] = ["--base", encoder, "--ranker", "bi-encoder", "--device", "cpu", "--keep", tmp_path / "keep"]
    keep += ["--documents", 1_000, "--learned", 400, "--removed", 20, "--training", "epochs=1", "learning_rate=1e-3"]
    made = json.loads(run("million.py", *keep, "--prepare"))
    printed = run("million.py", *keep, "--proxy-epochs", 1, "--set", "place_epochs=1", may_fail=True)
    figures = json.loads(printed.splitlines()[-1])
    assert made == {name: figures[name] for name in ("make_seconds", "train_seconds")}
    assert figures["places"]["epochs"] == 1
    with pytest.raises(AssertionError, match="was prepared with"):
        run("million.py", *keep, "--told", 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["faiss", "pgvector", "qdrant"])
def test_an_update_of_an_index_is_killed_and_checked(kind: str, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few documents the time of an update is mostly not that of encoding, so it may be above its bar."""
    package = {"faiss": "faiss", "pgvector": "psycopg", "qdrant": "qdrant_client"}[kind]
    pytest.importorskip(package, reason=f"pip install 'unrank[{kind}]'")
    if kind == "pgvector" and programs() is None:
        pytest.skip("no PostgreSQL with pgvector here: install postgresql-NN-pgvector, or the package pgserver")
    servers = {"pgvector": running, "qdrant": qdrant_server.running}
    server: AbstractContextManager[dict[str, str]] = servers.get(kind, lambda: nullcontext({}))()
    with server as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        words = ["--base", encoder, "--documents", 2_000, "--kills", 3, "--store", kind]
        printed = run("index.py", *words, may_fail=True)
    figures = json.loads(printed.splitlines()[-1])
    assert figures["store"] == kind and figures["killed"] == 3
    assert figures["encoded"] == 20 and figures["equal_after_kills"]
    assert figures["found_stale"] and figures["found_removed"] and figures["found_other_model"]


@pytest.mark.slow
def test_shards_of_which_one_is_killed_write_the_vectors_of_one_process() -> None:
    """With few documents most of the memory is not theirs, so only its growth would tell."""
    printed = run("encode.py", "--documents", 40_000, "--smaller", 20_000, "--shards", 2, may_fail=True)
    figures = json.loads(printed.splitlines()[-1])
    assert figures["equal"] and figures["rows"] == 40_000
    assert len(figures["shards"]) == 3, "two shards, one of them twice"


def test_steps_are_timed(
    encoder: Path, dense: Collection, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["step.py", dense.folder, "--base", encoder, "--rankers", "bi-encoder", "--batch", 8, 16, "--steps", 2]
    monkeypatch.setattr(sys, "argv", [*map(str, words), "--device", "cpu"])
    time_steps()
    told = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in told[::2]] == ["bi-encoder, 8 triples", "bi-encoder, 16 triples"]
    assert all(" ms a step, " in line for line in told[::2]) and all(" tokens / s, " in line for line in told[1::2])


@pytest.mark.slow
def test_several_processes_score_as_one(dense: Collection, encoder: Path) -> None:
    said = run("processes.py", dense.folder, "--base", encoder, "--lists", "4", "--rankers", "bi-encoder")
    assert "scores are bit-equal" in said


@pytest.mark.slow
def test_the_audit_of_a_few_pairs_is_timed(encoder: Path, dense: Collection) -> None:
    said = run("audit.py", dense.folder, "--base", encoder, "--pairs", "4", "--folds", "3")
    names = [line.split()[0] for line in said.splitlines()[1:]]
    assert names == ["per_example", "three_sample", "weights", "together"]
    assert all("s of processor time" in line for line in said.splitlines()[1:])


@pytest.mark.slow
def test_a_request_is_timed_without_and_with_kept_state(encoder: Path, tmp_path: Path) -> None:
    collection = make_large_collection(tmp_path / "large")
    given = (tmp_path / "work", "--collection", collection.folder, "--base", encoder, "--ranker", "cross-encoder")
    quick = ("--documents", 2, "--proxy-epochs", 1, "--train", "set=epochs=1", "--out", tmp_path / "figures.json")
    printed = run("latency.py", *given, *quick)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert list(figures) == ["without", "kept"] and "of the CPU's" in printed
    for each in figures.values():
        assert each["steps"]["start, imports"] > 0 and abs(sum(each["steps"].values()) - each["wall"]) < 5
        assert each["distance"][0] is not None and 0 < each["D"] <= 1.5
