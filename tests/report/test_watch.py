"""The state of a run or a bench: running, died, stopped, failed, done or not begun, in JSON, in words and as a page."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import pytest

from tests.tiny import made_record
from unrank.collection.collection import Collection
from unrank.disk import CHECKPOINT, JOURNAL, beside
from unrank.errors import UnrankError
from unrank.journal import Journal, Process
from unrank.record import Check
from unrank.report.watch import BenchView, RunView, look
from unrank.report.watch_page import watch_fragment, watch_page
from unrank.serve.watch import watch_events

CHECKS = [
    Check(epoch, 10.0, forget=0.9 - 0.1 * epoch, losses={"forget": 2.0 / epoch}, distance=0.4 / epoch, steps=20)
    for epoch in (1, 2)
]


def write_run(folder: Path, dense: Collection, process: Process | None = None) -> Journal:
    """The journal of a run at its third epoch."""
    folder.mkdir(parents=True)
    journal = Journal(folder / JOURNAL)
    named = {"method": "cocol", "ranker": "bi-encoder"}
    named |= {"collection": str(dense.folder), "fingerprint": dense.fingerprint}
    journal.write("start", process=vars(process or Process.this()), kind="forget", **named)
    before = {"mrrs": {"forget": 0.9, "test": 0.5}, "target": 0.6, "places": True, "distance": 0.4}
    journal.write("before", before=before)
    journal.write("plan", epochs=4, exact=True)
    lists = [{"query": 1, "part": "forget", "entries": 9, "first": [4, 5], "ranks": {"5": 2}}]
    for check in CHECKS:
        journal.write("lists", lists=lists)
        journal.write("check", check=check.to_json())
        lists = [{**lists[0], "first": [5, 4], "ranks": {"5": 1, "7": 8}}]
    journal.write("steps", what="epoch 3: forget", done=7, of=20, taken=47)
    journal.write("say", line="<b>a line</b>")
    return journal


def damage(folder: Path, content: bytes) -> None:
    """Write a journal that names no run."""
    folder.mkdir(parents=True)
    (folder / JOURNAL).write_bytes(content)


def gone() -> Process:
    """A process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return replace(Process.this(), pid=ended.pid, born=None)


def see(out: Path, texts: bool = True) -> RunView:
    found = look(out, texts)
    assert isinstance(found, RunView)
    return found


def test_a_run_at_work(tmp_path: Path, dense: Collection) -> None:
    out = tmp_path / "out"
    write_run(beside(out), dense)
    view = see(out)
    assert (view.state, view.words, view.what) == ("running", "It is running.", "epoch 3: forget")
    assert view.now == {"forget": pytest.approx(0.7), "test": 0.5} and view.target == 0.6
    assert view.steps_a_second == 2 and view.seconds_left is not None and not view.at_most
    [shown] = view.lists
    assert shown.query == dense.queries.text(1) and (shown.before, shown.now) == ((2,), (1, 8))
    assert [(each.rank, each.text, each.marked) for each in shown.first] == [
        (1, dense.documents.text(5), True),
        (2, dense.documents.text(4), False),
    ]
    assert see(beside(out)).checks == tuple(CHECKS), "the folder of its checkpoints names it as well"
    hidden = json.dumps(see(out, texts=False).to_json())
    assert "query in row 1" in hidden and dense.queries.text(1) not in hidden


def test_a_run_that_is_not_at_work_says_why(tmp_path: Path, dense: Collection) -> None:
    write_run(beside(tmp_path / "dead"), dense, gone())
    assert see(tmp_path / "dead").words.startswith("It has died: its process is gone")
    assert see(tmp_path / "dead").words.endswith("the same command begins anew.")
    (beside(tmp_path / "dead") / CHECKPOINT).touch()
    assert see(tmp_path / "dead").words.endswith("the same command goes on from its last checkpoint.")
    assert see(tmp_path / "dead").seconds_left is None
    write_run(beside(tmp_path / "far"), dense, Process(1, "another-machine"))
    assert see(tmp_path / "far").state == "elsewhere" and "another-machine" in see(tmp_path / "far").words
    write_run(beside(tmp_path / "bad"), dense).write("end", how="failed", why="no memory")
    assert see(tmp_path / "bad").words == "It failed: no memory; the same command begins anew."
    write_run(beside(tmp_path / "end"), dense).write("end", how="done")
    assert see(tmp_path / "end").words == "Its ranker is being written."
    nothing = see(tmp_path / "none")
    assert nothing.state == "not begun" and "has not begun" in nothing.words
    with pytest.raises(UnrankError, match="holds no run and no bench"):
        look(tmp_path)


@pytest.mark.parametrize("content", [b"garbage\xff\n", b"", b"[]\n", b'{"a":1}\n'])
def test_a_journal_that_cannot_be_read_is_not_called_missing(tmp_path: Path, content: bytes) -> None:
    damage(beside(tmp_path / "run"), content)
    damage(tmp_path / "bench", content)
    for name, journal in (("run", beside(tmp_path / "run") / JOURNAL), ("bench", tmp_path / "bench" / JOURNAL)):
        view = see(tmp_path / name)
        assert view.state == "unknown" and f"no start of it can be read in {journal}. It may be just" in view.words
    made_record().write(tmp_path / "bench", hashes={})
    assert see(tmp_path / "bench").state == "done", "the record tells"


def test_a_folder_is_found_by_a_dot(tmp_path: Path, dense: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(beside(tmp_path / "out"), dense)
    monkeypatch.chdir(beside(tmp_path / "out"))
    view = see(Path())
    assert (view.name, view.state, view.checks) == ("out", "running", tuple(CHECKS))


def test_a_run_that_is_done_is_read_from_its_record(tmp_path: Path) -> None:
    record = replace(made_record(), history=tuple(CHECKS), target=0.6)
    record.write(tmp_path, hashes={})
    view = see(tmp_path)
    assert view.state == "done" and view.words.startswith("It is done: ")
    assert view.checks == tuple(CHECKS) and view.now is not None and view.now["test"] == record.after["test"].mrr
    assert "not measured since" not in watch_fragment(view)


def test_a_bench_and_its_jobs(tmp_path: Path, dense: Collection) -> None:
    (tmp_path / "cells" / "abc").mkdir(parents=True)
    (tmp_path / "cells" / "abc" / "cell.json").write_text("{}")
    assert look(tmp_path).words == "1 cell is done; it has no journal, so nobody can tell if it is running."
    assert look(tmp_path).to_json()["state"] == "unknown"
    damage(tmp_path / "unfinished" / "abcdefghij", b"")
    (tmp_path / JOURNAL).write_bytes(b"garbage")
    view = look(tmp_path)
    assert isinstance(view, BenchView) and [(job.name, job.state) for job in view.jobs] == [("abcdefgh", "unknown")]
    assert view.state == "unknown" and "no start of it can be read in its journal, so nobody can tell" in view.words
    for damaged in (tmp_path / "unfinished" / "abcdefghij" / JOURNAL, tmp_path / JOURNAL):
        damaged.unlink()
    journal = Journal(tmp_path / JOURNAL)
    journal.write("start", process=vars(Process.this()), kind="bench")
    journal.write("steps", what="bench", done=1, of=3, taken=1)
    journal.write("left", seconds=120.0)
    write_run(tmp_path / "unfinished" / "0123456789", dense)
    view = look(tmp_path)
    assert isinstance(view, BenchView) and view.words == "It is running: 1 cell is done."
    assert (view.jobs_done, view.jobs_of, view.seconds_left) == (1, 3, 120.0)
    assert [(job.name, job.state) for job in view.jobs] == [("01234567", "running")]
    assert json.loads(json.dumps(view.to_json()))["jobs"][0]["what"] == "epoch 3: forget"
    assert "2 min 0 s" in watch_page(view)
    journal.write("end", how="done")
    assert look(tmp_path).words == "It is over: 1 cell is done."


def test_the_page_loads_nothing_escapes_all_and_rests_when_the_run_is_over(tmp_path: Path, dense: Collection) -> None:
    write_run(beside(tmp_path / "out"), dense)
    page = watch_page(see(tmp_path / "out"), refresh=5)
    assert "&lt;b&gt;a line&lt;/b&gt;" in page and "<b>a line" not in page
    assert 'http-equiv="refresh" content="5"' in page and "<script" not in page
    assert not any(outside in page for outside in ("src=", "http://", "https://"))
    live = watch_page(see(tmp_path / "out"), live=True)
    assert "This page shows texts that are to be forgotten." in page
    assert "No text of the collection" in watch_page(see(tmp_path / "out", texts=False), texts=False)
    bare = replace(see(tmp_path / "out"), lists=())
    assert "may come to show texts" in watch_page(bare, live=True) and "No text of the collection" in watch_page(bare)
    assert "connect-src 'self'" in live and "EventSource" in live and "refresh" not in live.replace("auto-refresh", "")
    write_run(beside(tmp_path / "dead"), dense, gone())
    assert "refresh" not in watch_page(see(tmp_path / "dead"), refresh=5)


def test_events_follow_the_run_to_its_end(tmp_path: Path, dense: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    starlette = pytest.importorskip("starlette.concurrency")

    async def at_once(function: Callable[..., Any], *given: Any) -> Any:
        return function(*given)

    monkeypatch.setattr(starlette, "run_in_threadpool", at_once)
    journal = write_run(beside(tmp_path / "out"), dense)

    async def follow() -> list[dict[str, Any]]:
        found = []
        async for event in watch_events(tmp_path / "out", every=0.01):
            found.append(json.loads(event.removeprefix("data: ")))
            if len(found) == 1:
                journal.write("end", how="stopped")
        return found

    began = time()
    events = asyncio.run(follow())
    assert [event["over"] for event in events[:1] + events[-1:]] == [False, True] and time() - began < 5
    assert "It was stopped" in events[-1]["html"]
