"""The journal of a run: what is added to it can be read, whatever happened to the process that wrote it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from unrank.journal import KEPT_LINES, Journal, Process, read_journal
from unrank.record import Check

HUGE = '{"event":"say","at":1' + "0" * 400 + "}"


def begun(path: Path, **about: str) -> Journal:
    journal = Journal(path)
    journal.write("start", process=vars(Process.this()), kind="forget", **about)
    return journal


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    assert read_journal(path) is None
    journal = begun(path, method="cocol")
    journal.write("before", before={"mrrs": {"forget": 0.9, "test": None}, "target": 0.4})
    journal.write("plan", epochs=6, exact=True)
    journal.write("check", check=Check(1, 2.0, forget=0.7, losses={"forget": 1.5}, distance=0.2, steps=8).to_json())
    for order in ([4, 5], [5, 4], [6, 4]):
        lists = [{"query": 3, "part": "forget", "entries": 9, "first": order, "ranks": {"4": 2}}]
        journal.write("lists", lists=lists)
    journal.write("say", line="a line")
    journal.write("end", how="stopped")
    found = read_journal(path)
    assert found is not None and found.start.method == "cocol" and found.before is not None
    assert found.before.mrrs == {"forget": 0.9} and (found.epochs, found.exact) == (6, True)
    assert found.checks == (Check(1, 2.0, forget=0.7, losses={"forget": 1.5}, distance=0.2, steps=8),)
    assert [lists[0].first for lists in found.lists] == [(4, 5), (6, 4)], "the first lists and the last ones"
    assert found.said == ("a line",) and found.ending == "stopped"
    assert path.stat().st_mode & 0o777 == 0o600
    assert 0 < journal.seconds < 1


def test_a_killed_run_leaves_half_a_line_and_its_successor_repeats_checks(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    first = begun(path)
    for epoch in (1, 2, 3):
        first.write("check", check=Check(epoch, forget=0.5).to_json())
    first.close()
    with path.open("a") as file:
        file.write('{"event":"check","at":1,"che')
    again = begun(path)
    again.write("check", check=Check(2, forget=0.4).to_json())
    found = read_journal(path)
    assert found is not None and [(check.epoch, check.forget) for check in found.checks] == [(1, 0.5), (2, 0.4)]


@pytest.mark.parametrize(
    "line", ["", "null", "[]", "{}", '{"event":"start"}', '{"event":"say","at":"x"}', "[" * 9_999, HUGE]
)
def test_lines_of_a_stranger_are_left_out(line: str, tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text(f"{line}\n")
    assert read_journal(path) is None
    begun(path).write("say", line="mine")
    found = read_journal(path)
    assert found is not None and found.said == ("mine",)


def test_steps_are_written_now_and_then_and_the_last_are_read(tmp_path: Path) -> None:
    journal = begun(tmp_path / "progress.jsonl")
    assert journal.is_due()
    for number in range(KEPT_LINES + 5):
        journal.write("steps", what="epoch 1: forget", done=number, of=9, taken=number)
    assert not journal.is_due(), "one was written just now"
    found = read_journal(tmp_path / "progress.jsonl")
    assert found is not None and len(found.steps) == KEPT_LINES and found.steps[-1].done == KEPT_LINES + 4


def test_a_process_that_is_gone_is_known_by_its_number_and_its_beginning() -> None:
    mine = Process.this()
    assert mine.is_here and mine.is_alive
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert not Process(gone.pid, mine.host).is_alive
    assert not replace(mine, pid=10**30).is_alive, "no process has such a number"
    assert not replace(mine, born="1").is_alive, "another process has its number now"


def test_a_full_disk_ends_the_journal_and_not_the_run(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "no such folder" / "progress.jsonl")
    journal.write("say", line="nobody reads this")
    assert not [*tmp_path.iterdir()]
    full = Journal(Path("/dev/full"))
    full.write("say", line="nor this")
    full.write("say", line=json.dumps("nor this"))
    full.close()
