"""One document with three queries, from the mail to the closing, in a service of two rankers, by command line alone."""

from __future__ import annotations

import json
import shutil
from datetime import date
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Refused
from unrank.audit.context import Thoroughness
from unrank.cli.main import run
from unrank.desk.history_index import Entry
from unrank.desk.ledger import Ledger
from unrank.desk.progress_file import RunProgress

THREE = "doc2"
"""A document that three training queries have, and that is ranked high for each."""
Said = pytest.CaptureFixture[str]
QUICK = ["--set", "learning_rate=3e-3", "--set", "epochs=4", "--queries", "5", "--quiet", "--json"]


@pytest.fixture
def place(collection: Path, ranker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the collection, and with two rankers that were trained on it."""
    shutil.copytree(collection, tmp_path / "collection")
    for name in ("retriever", "reranker"):
        shutil.copytree(ranker, tmp_path / name)
    monkeypatch.setattr(
        "unrank.desk.run_context.Thoroughness", partial(Thoroughness, relearning_steps=(1,))
    )  # it takes no time
    monkeypatch.chdir(tmp_path)
    return tmp_path


def history_of(place: Path) -> list[dict[str, str | None]]:
    with Ledger.read(place / "desk.ledger") as ledger:
        return [{"event": row.event, "by": row.by} for row in (Entry(*r) for r in ledger.ask("SELECT * FROM history"))]


def moved(request: dict[str, object]) -> bool:
    """Whether all pairs of a request fell, as the result of a run shows their ranks."""
    before, after = request["ranks_before"], request["ranks_after"]
    assert isinstance(before, list) and isinstance(after, list) and len(before) == len(after) == 3
    return all(now > then for then, now in zip(before, after, strict=True))


def test_three_queries_in_a_service_of_two(place: Path, capsys: Said, refused: Refused) -> None:
    def desk(*words: str, status: int = 0) -> str:
        capsys.readouterr()
        assert run(["desk", *words]) == status
        return capsys.readouterr().out

    desk("add", "collection", "--document", THREE)
    assert "retriever is in the service" in desk("service", "add", "retriever", "retriever", "collection")
    desk("service", "add", "reranker", "reranker", "collection", "--role", "reranker", "--since", "2026-01-02")
    listed = json.loads(desk("service", "list", "--json"))
    assert [(each["name"], each["role"], each["in_service_since"]) for each in listed] == [
        ("retriever", "retriever", None),
        ("reranker", "reranker", "2026-01-02"),
    ]
    assert "collection is not in the service" in refused("desk", "run", "collection", "collection", "--yes")
    said = refused("desk", "run", "--yes", "--out", "new")
    assert said == "--out is for one ranker, and the service has 2: give RANKER too"

    # the plan for programs, one line for each ranker
    plans = [json.loads(line) for line in desk("run", "--json").splitlines()]
    assert [each["service_ranker"] for each in plans] == ["retriever", "reranker"]
    assert plans[0]["requests"][0]["request"] == 1 and plans[0]["requests"][0]["lacks"]
    assert plans[0]["pairs"]["forget"] == 3 and plans[0]["seconds"]["cocol"][1] > plans[0]["audit_seconds"][0] > 0

    # one ranker forgets: the request is still open in the service
    asked = ("run", "retriever", "--yes", *QUICK, "--by", "eva", "--progress", "progress.json")
    first = json.loads(desk(*asked, status=4))
    assert RunProgress.read(place / "progress.json").share == 1.0
    assert {entry["by"] for entry in history_of(place) if entry["event"] == "run passed"} == {"eva"}
    assert first["requests"][0]["state"] == "forgotten, not verifiable" and moved(first["requests"][0])
    assert first["requests"][0]["state_in_all"] == "open"
    shown = desk("show", "1").splitlines()
    assert shown[:3] == [
        "request 1: open",
        "in retriever: forgotten, not verifiable (run 1)",
        "in reranker: open",
    ]
    assert "request 1 is open" in refused("desk", "close", "1")

    # then the other: each ranker is run that has something open
    both = [json.loads(line) for line in desk("run", "--yes", *QUICK, status=4).splitlines()]
    assert [each["service_ranker"] for each in both] == ["retriever", "reranker"] and both[0]["run"] is None
    assert moved(both[1]["requests"][0]) and both[1]["requests"][0]["state_in_all"] == "forgotten, not verifiable"
    [row] = json.loads(desk("list", "--json"))
    assert row["state"] == "forgotten, not verifiable" and [*row["service"]] == ["retriever", "reranker"]
    assert "in service since" in desk("service", "deploy", "retriever", "--since", str(date.today()))

    # what still remembers is listed, and must go or be left for a reason
    kept = json.loads(desk("close", "1", "--json", status=3))
    assert {(each["kind"], Path(each["path"]).name) for each in kept["there"]} == {
        ("ranker", "retriever"),
        ("ranker", "reranker"),
        ("collection", "collection"),
    }
    for name in ("retriever", "reranker"):
        shutil.rmtree(name)
    assert "1 place may still remember it" in desk("close", "1", status=3)
    closed = json.loads(desk("close", "1", "--leave", "other-purpose", "--json"))
    assert closed["state"] == "closed" and closed["outcome"] == "forgotten, not verifiable"
    entry = json.loads(desk("show", "1", "--json"))["history"][-1]
    assert json.loads(entry["details"]) | {"covers": ""} == {
        "covers": "",
        "deleted": {"ranker": 2},
        "left": {"collection": 1},
        "not_checked": {},
        "reason": "other-purpose",
    }
    desk("certificate", "1", "--out", "certificate")
    page = (place / "certificate" / "certificate.html").read_text()
    first_sentence = page[page.index("<h1") :].split(".")[0]
    assert "not verifiable" in first_sentence or "cannot be verified" in first_sentence


@pytest.mark.slow
def test_a_run_is_undone(place: Path, capsys: Said, refused: Refused) -> None:
    assert run(["desk", "add", "collection", "--document", THREE]) == 0
    status = run(["desk", "run", "retriever", "collection", "--yes", *QUICK])
    assert status == 4
    assert run(["desk", "certificate", "1", "--out", "certificate"]) == 0
    capsys.readouterr()
    assert run(["desk", "undo", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "run 1 is undone: request 1 open again" and "1 certificate revoked" in said[1]
    assert f"use {place / 'retriever'} again; {place / 'retriever-run1'} is not for use any more" in said[2]
    assert "settled no request" in refused("desk", "undo", "1")


@pytest.mark.slow
def test_a_target_that_moves_nothing_is_no_forgetting(place: Path, capsys: Said, refused: Refused) -> None:
    assert run(["desk", "add", "collection", "--document", THREE]) == 0
    capsys.readouterr()
    assert run(["desk", "run", "retriever", "collection", "--yes", "--target", "1.0", *QUICK]) == 3
    [request] = json.loads(capsys.readouterr().out)["requests"]
    assert request["state"] == "not forgotten" and not moved(request)
    assert "request 1 is not forgotten" in refused("desk", "certificate", "1", "--out", "certificate")
    assert "request 1 is not forgotten: run" in refused("desk", "close", "1")


def test_an_entry_that_cannot_be_used_is_named(
    collection: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every plan and run of the service stops at it, so the line says how to take it out."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken").mkdir()
    assert "no model is in it" in refused("desk", "service", "add", "main", "broken", collection)
    (tmp_path / "broken" / "modules.json").write_text("{}")
    assert run(["desk", "add", str(collection), "--document", THREE]) == 0
    assert run(["desk", "service", "add", "main", "broken", str(collection)]) == 0
    out = "it is in the service as main: mend it, or take it out with 'unrank desk service remove main'"
    for words in (["plan"], ["run"], ["run", "--yes"]):
        assert refused("desk", *words).endswith(out)
    shutil.rmtree(tmp_path / "broken")
    assert refused("desk", "plan").endswith(out)
    assert "no such folder" in refused("desk", "plan", "elsewhere/in/no/service", collection)
