"""`unrank forget --details` and `unrank report`, from a run to a page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Refused
from tests.report.made import record, write_bench, write_details, write_run
from unrank.cli.main import run
from unrank.cli.option import NOT_REACHED
from unrank.collection.collection import Collection, open_collection
from unrank.collection.removal import Removal
from unrank.forgetting import rankings as details_module

Forgot = Callable[[Removal], tuple[Path, Path]]
QUICK = ("--set", "epochs=1", "--set", "learning_rate=1e-3", "--target", "0.01", "--quiet", "--watch", "5")


@pytest.fixture(scope="module")
def forgot(ranker: Path, collection: Path, tmp_path_factory: pytest.TempPathFactory) -> Forgot:
    """Forget a removal, as far as one epoch goes: the ranker's folder and that of its details."""

    def forget(removal: Removal) -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp("forgot")
        removal.save(folder / "asked.json")
        out, details = folder / "after", folder / "details"
        given = ["--removal", folder / "asked.json", "--out", out, "--details", details, *QUICK]
        assert run(["forget", str(ranker), str(collection), *map(str, given)]) == NOT_REACHED
        return out, details

    return forget


@pytest.fixture(scope="module")
def without_documents(forgot: Forgot, collection: Path) -> tuple[Path, Path]:
    """A run that forgot documents, for tests that only read it."""
    return forgot(removal_of("documents", open_collection(collection)))


def removal_of(kind: str, collection: Collection) -> Removal:
    pairs = collection.pair_ids(collection.pairs)
    if kind == "documents":
        return Removal(documents=sorted({document for _, document in pairs})[:6])
    return Removal(queries=["query3", "query5"]) if kind == "queries" else Removal(pairs=pairs[::5])


def page_of(folder: Path, details: Path, out: Path, *options: str) -> bytes:
    assert run(["report", str(folder), "--details", str(details), "--out", str(out), *options]) == 0
    return out.read_bytes()


def data_of(page: bytes) -> dict[str, Any]:
    found = re.search(rb'id="queries-data">(.*?)</script>', page)
    assert found is not None
    value: dict[str, Any] = json.loads(found[1])
    return value


def holds(page: bytes, text: str) -> bool:
    return re.search(rb"\b" + re.escape(text.encode()) + rb"\b", page) is not None


@pytest.mark.parametrize("kind", ["documents", pytest.param("queries", marks=pytest.mark.slow)])
def test_without_texts_nothing_removed_is_in_the_page_nor_ever_in_the_record(
    kind: str, forgot: Forgot, without_documents: tuple[Path, Path], collection: Path, tmp_path: Path
) -> None:
    opened = open_collection(collection)
    removal = removal_of(kind, opened)
    texts = opened.documents if kind == "documents" else opened.queries
    ids = list(removal.documents or removal.queries)
    secrets = [*ids, *texts.texts(texts.rows(ids))]
    folder, details = without_documents if kind == "documents" else forgot(removal)
    page = page_of(folder, details, tmp_path / "whole.html")
    assert all(holds(page, secret) for secret in secrets)
    page = page_of(folder, details, tmp_path / "shared.html", "--no-texts")
    assert not [secret for secret in secrets if holds(page, secret)]
    kept = opened.queries.ids(opened.training_queries)
    assert all(holds(page, query) for query in kept if query not in removal.queries)
    assert b"removed" in page
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.suffix in (".json", ".jsonl", ".md"))
    assert not [id for id in ids if holds(written, id)]
    assert "Delete it" in (details / "README.txt").read_text()


@pytest.mark.slow
def test_without_texts_another_that_says_the_same_says_nothing(
    forgot: Forgot, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though what was removed stands in no list: as many words of it as of the rest."""
    opened = open_collection(collection)
    removal = removal_of("documents", opened)
    kept = sorted(set(opened.documents.ids(np.unique(opened.pairs[:, 1]))) - set(removal.documents))[0]
    said = opened.documents.text(int(opened.documents.rows([kept])[0]))
    usual = details_module.removed_texts
    monkeypatch.setattr(details_module, "removed_texts", lambda *given: usual(*given) | {said})
    folder, details = forgot(removal)
    assert holds(page_of(folder, details, tmp_path / "whole.html"), said)
    assert not holds(page_of(folder, details, tmp_path / "shared.html", "--no-texts"), said)


@pytest.mark.slow
def test_without_texts_a_removed_pair_is_not_told(forgot: Forgot, collection: Path, tmp_path: Path) -> None:
    removal = removal_of("pairs", open_collection(collection))
    folder, details = forgot(removal)

    def told(name: str, *options: str) -> set[tuple[str, str]]:
        data = data_of(page_of(folder, details, tmp_path / name, *options))
        return {
            (query[0], data["documents"][number][0])
            for query in data["queries"]
            for side in query[4:]
            for number in side[::3]
            if number >= 0
        }

    pairs, whole, shared = set(removal.pairs), told("whole.html"), told("shared.html", "--no-texts")
    assert len(whole & pairs) > len(pairs) / 2
    assert shared == whole - pairs


@pytest.mark.usefixtures("undrawn")
def test_a_page_says_what_came_of_a_run(without_documents: tuple[Path, Path], tmp_path: Path) -> None:
    folder, details = without_documents
    page = page_of(folder, details, tmp_path / "page.html").decode()
    told = json.loads((folder / "unrank.json").read_text())
    assert "Not forgotten: the forget MRR went from " in page and f" to {told['after']['forget']['mrr']:.3f};" in page
    for name in ("forget", "entangled", "disjoint", "test"):
        assert f"{told['before'][name]['mrr']:.3f}" in page
    assert told["collection"]["fingerprint"] in page
    assert told["removed"]["salt"] not in page
    queries = data_of(page.encode())["queries"]
    assert len(queries) == len({query[0] for query in queries}) == 18 + told["after"]["test"]["queries"]


@pytest.mark.slow
def test_figures_and_tables_become_files(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    given = ["--out", tmp_path / "page.html", "--figures", tmp_path / "figures", "--tables", tmp_path / "tables"]
    assert run(["report", str(folder), *map(str, given)]) == 0
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    drawn = ("intervals", "radar", "tradeoff", "curves", "time")
    assert names == {f"{name}.{ending}" for name in drawn for ending in ("svg", "pdf", "png")}
    assert (tmp_path / "figures" / "radar.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {"change.md", "change.csv", "change.tex"}


@pytest.mark.usefixtures("undrawn")
def test_a_quiet_report_prints_its_verdict_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "run")
    said = []
    for page, *options in (("loud.html",), ("quiet.html", "--quiet")):
        assert run(["report", str(folder), "--out", str(tmp_path / page), *options]) == 0
        said.append(capsys.readouterr().out.splitlines())
    assert said[0][:-1] == said[1]
    assert said[0][-1] == f"written to {tmp_path / 'loud.html'}"


def test_what_cannot_be_reported_is_refused(tmp_path: Path, refused: Refused) -> None:
    good, out = write_run(tmp_path / "good"), ("--out", tmp_path / "page.html")
    details = write_details(tmp_path / "details", 6, ["word"])
    write_run(tmp_path / "newer", record("cocol", (0.6, 0.9, 0.9, 0.6), record_version=3))
    write_run(tmp_path / "training", record("retrain", (0.6, 0.9, 0.9, 0.6), before=None))
    write_run(tmp_path / "damaged", record("cocol", (0.6, 0.9, 0.9, 0.6), timing=3))
    write_run(tmp_path / "other", record("cocol", (0.6, 0.9, 0.9, 0.6), removed={
        "salt": "else", **{kind: {"count": 1, "hashes": []} for kind in ("queries", "documents", "pairs")}
    }))  # fmt: skip
    (tmp_path / "empty").mkdir()
    (tmp_path / "none" / "cells").mkdir(parents=True)
    assert "neither what 'unrank forget' wrote" in refused("report", tmp_path / "empty", *out)
    assert "record version 3" in refused("report", tmp_path / "newer", *out)
    assert "a record of training" in refused("report", tmp_path / "training", *out)
    assert "damaged record" in refused("report", tmp_path / "damaged", *out)
    assert "of another run" in refused("report", tmp_path / "other", "--details", details, *out)
    assert "no such file" in refused("report", good, "--details", tmp_path / "empty", *out)
    short = write_details(tmp_path / "short", 6, ["word"])
    (short / "documents.jsonl").write_text("")
    assert "cut short" in refused("report", good, "--details", short, *out)
    (short / "queries.jsonl").write_text("[1]\n")
    assert "queries.jsonl, line 1: not a line of details" in refused("report", good, "--details", short, *out)
    assert "holds no finished cell" in refused("report", tmp_path / "none", *out)
    assert "exists already" in refused("report", good, "--out", details)


def test_cells_that_cannot_be_read_are_refused(tmp_path: Path, refused: Refused) -> None:
    bench = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0])
    out = ("--out", tmp_path / "page.html")
    assert "a bench has none" in refused("report", bench, "--details", bench, *out)
    cell = next(iter((bench / "cells").iterdir()))
    told = json.loads((cell / "cell.json").read_text())
    (cell / "cell.json").write_text(json.dumps(told | {"format": 7}))
    assert "format 7, this unrank reads 1" in refused("report", bench, *out)
    for key, value in {"share": "much", "target": ["unseen"], "seed": float("inf"), "jobs": None}.items():
        (cell / "cell.json").write_text(json.dumps(told | {key: value}))
        assert "damaged cell" in refused("report", bench, *out)
    (cell / "cell.json").write_text(json.dumps(told))
    ranks = json.loads((cell / "ranks.json").read_text())
    (cell / "ranks.json").write_text(json.dumps(ranks | {"forget": {"before": [1] * 40, "after": [-1] * 40}}))
    assert "ranks that are no places in a list" in refused("report", bench, *out)


def test_details_stay_out_of_the_ranker(
    ranker: Path, collection: Path, removal: Path, tmp_path: Path, refused: Refused
) -> None:
    given = ("forget", ranker, collection, "--removal", removal, "--out", tmp_path / "out", "--quiet")
    assert "is inside --out" in refused(*given, "--details", tmp_path / "out" / "details")
    assert "is inside --out" in refused(*given, "--cache", tmp_path / "out" / "cache")
    assert "is not a folder" in refused(*given, "--cache", removal)
    assert "cannot be made: Not a directory" in refused(*given, "--cache", removal / "cache")
    (tmp_path / "there").mkdir()
    assert "exists already" in refused(*given, "--details", tmp_path / "there")
