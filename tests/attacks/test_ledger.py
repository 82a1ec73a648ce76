"""Attacks on the ledger: on its history, its readers, its clock, and what is left in its bytes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest

from tests.attacks.test_certificate import make_desk
from tests.desk.conftest import DOCUMENT, PAIR, QUERY, take_in
from tests.desk.made import made_result, made_run, ranks
from unrank.cli.main import run
from unrank.desk import ledger as ledger_module
from unrank.desk import ledger_file
from unrank.desk.certificate import write_certificate
from unrank.desk.closing import close
from unrank.desk.counter import Counter
from unrank.desk.history_index import START, BrokenChain, Entry
from unrank.desk.key import Key, key_file, signing_file
from unrank.desk.ledger import Ledger
from unrank.desk.request import Item, State
from unrank.errors import BadFile
from unrank.forgetting.outcome import ForgetState, Judgement

Said = pytest.CaptureFixture[str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with three open requests, and data that holds what they name."""
    path = tmp_path / "desk.ledger"
    with Ledger.open(path, make_with=key_file(path)) as ledger:
        key = ledger.key(key_file(path))
        for item in (QUERY, DOCUMENT, PAIR):
            take_in(ledger, key, item)
    text = f'{{"query": "a question", "positive": "{DOCUMENT.document_text}", "negative": "something else"}}\n'
    (tmp_path / "new.jsonl").write_text(text)
    return path


@pytest.fixture
def key(path: Path) -> Key:
    with Ledger.open(path) as ledger:
        return ledger.key(key_file(path))


def filtered(path: Path) -> int:
    """Filter new data that holds a removed text, as the owner does every month."""
    words = ["filter", f"triples:{path.parent / 'new.jsonl'}", "--out", str(path.parent / "filtered.jsonl")]
    return run([*words, "--ledger", str(path)])


def cut_out(path: Path, request: int | None = None, last: int | None = None) -> None:
    """Take a request, or the end, out of a ledger, and rebuild the chain; the schema stays as it was."""
    with sqlite3.connect(path) as connection:
        triggers = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")]
        for name in ("history_is_not_changed", "history_is_not_deleted"):
            connection.execute(f"DROP TRIGGER {name}")
        entries = [Entry(*row) for row in connection.execute("SELECT * FROM history ORDER BY number")]
        connection.execute("DELETE FROM history")
        gone = {entry.request for entry in entries if entry.request == request or (last and entry.number > last)}
        for table, column in (("named", "request"), ("keyed_hash", "request"), ("request", "id")):
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(id,) for id in gone])
        before, number = START, 0
        for entry in (entry for entry in entries if entry.request not in gone):
            new = Entry.after(number, before, entry.request, entry.at, entry.event, entry.values)
            connection.execute("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(new))
            before, number = new.hash, new.number
        for sql in triggers:
            connection.execute(sql)
    connection.close()


def test_the_filter_drops_the_text_of_a_whole_ledger(path: Path, capsys: Said) -> None:
    assert filtered(path) == 0
    assert "1 dropped" in capsys.readouterr().out


@pytest.mark.attack(8)
@pytest.mark.parametrize("cut", [{"request": 2}, {"last": 1}, {"last": 2}])
@pytest.mark.parametrize("known", [True, False])
def test_a_request_cut_out_of_a_rebuilt_chain(
    path: Path, cut: dict[str, int], known: bool, capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Even on a machine that has never seen the ledger."""
    cut_out(path, **cut)
    if not known:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "new machine"))
    ledger = ["--ledger", str(path)]
    for words in ([], ["desk", "verify", *ledger], ["desk", "close", "1", "--as", "refused", *ledger]):
        assert (run(words) if words else filtered(path)) == 2
        assert "the head of its history was not written with its key" in capsys.readouterr().err
    assert not (tmp_path / "filtered.jsonl").exists()


@pytest.mark.attack(8)
@pytest.mark.parametrize("ended", [True, False])
def test_an_old_copy_put_back(path: Path, key: Key, capsys: Said, tmp_path: Path, ended: bool) -> None:
    shutil.copy(path, tmp_path / "old")
    with Ledger.open(path) as ledger:
        take_in(ledger, ledger.key(key_file(path)), DOCUMENT)
        if ended:
            close(ledger, 1, State.WITHDRAWN)
        number = ledger.head()[0]
    shutil.copy(tmp_path / "old", path)
    for words in ([], ["desk", "verify", "--ledger", str(path)]):
        assert (run(words) if words else filtered(path)) == 2
        said = capsys.readouterr().err
        assert f"its history ends at entry 3, but this machine has seen entry {number}" in said
        assert "an old copy was put back" in said and len(said.splitlines()) == 1
    # a copy that went its own way since is as long
    with Ledger.open(path) as ledger:
        ledger.accept(key_file(path))
        for _ in range(number):
            take_in(ledger, key, QUERY)
    shutil.copy(path, tmp_path / "other way")
    Counter(4, "another hash").replace(key.fingerprint)
    assert filtered(path) == 2
    assert "entry 4 of its history is not the one that this machine has seen" in capsys.readouterr().err


@pytest.mark.attack(8)
def test_a_restored_ledger_is_accepted_on_purpose_and_its_history_says_so(
    path: Path, capsys: Said, tmp_path: Path
) -> None:
    shutil.copy(path, tmp_path / "backup")
    with Ledger.open(path) as ledger:
        take_in(ledger, ledger.key(key_file(path)), DOCUMENT)
    assert run(["desk", "restored", "--ledger", str(path)]) == 0
    assert "accepted as it is" in capsys.readouterr().out
    shutil.copy(tmp_path / "backup", path)
    assert run(["desk", "restored", "--ledger", str(path)]) == 0
    assert "this machine had seen entry 4" in capsys.readouterr().out
    assert run(["desk", "verify", "--ledger", str(path)]) == 0
    with Ledger.read(path) as read:
        [(details,)] = read.ask("SELECT details FROM history WHERE event = 'restored'")
        assert '"seen": [4, ' in details


@pytest.mark.attack(8)
def test_a_process_killed_before_the_counter_is_no_rollback(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    with monkeypatch.context() as killed, Ledger.open(path) as ledger:
        key = ledger.key(key_file(path))
        killed.setattr(Counter, "keep", lambda *_: False)
        for _ in range(2):
            take_in(ledger, key, DOCUMENT)
    behind = Counter.read(key.fingerprint)
    assert behind is not None and behind.number == 3
    assert filtered(path) == 0 and not capsys.readouterr().err
    ahead = Counter.read(key.fingerprint)
    assert ahead is not None and ahead.number == 5


@pytest.mark.attack(8)
def test_a_ledger_on_a_new_machine_says_so_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Said
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "new machine"))
    assert run(["desk", "verify", "--ledger", str(path)]) == 0
    assert "unknown to this machine, so it cannot know whether this is an old copy" in capsys.readouterr().err
    assert filtered(path) == 0
    assert "new to this machine" in capsys.readouterr().err
    for _ in range(2):
        assert run(["desk", "verify", "--ledger", str(path)]) == 0
        assert not capsys.readouterr().err


@pytest.mark.attack(8)
def test_without_the_key_nothing_can_be_added_to_a_forged_chain(path: Path) -> None:
    cut_out(path, request=2)
    with Ledger.open(path) as ledger, pytest.raises(BrokenChain, match="was not written with its key"):
        ledger.key(key_file(path))


@pytest.mark.attack(10)
@pytest.mark.parametrize(
    "hostile",
    [
        "CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT * FROM n",
        """ALTER TABLE history RENAME TO entries;
        CREATE VIEW history AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
        SELECT i AS number, request, at, event, details, before, hash FROM n, entries""",
        "CREATE TRIGGER more AFTER INSERT ON history BEGIN DELETE FROM named; END",
        "DROP TRIGGER history_is_not_deleted",
        "CREATE TABLE more (x)",
        "CREATE INDEX more ON request (due)",
    ],
)
def test_a_ledger_with_a_schema_that_is_not_ours(path: Path, hostile: str, capsys: Said) -> None:
    with sqlite3.connect(path) as connection:
        connection.executescript(hostile)
    connection.close()
    began = monotonic()
    for words in (["verify"], ["list"], ["show", "1"], ["close", "1", "--as", "refused"]):
        assert run(["desk", *words, "--ledger", str(path)]) == 2
        assert "is missing, or not the one that unrank makes" in capsys.readouterr().err
    assert monotonic() - began < 5


@pytest.mark.attack(10)
def test_a_reader_has_no_write_access_and_a_limited_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    with Ledger.read(path) as ledger:
        assert ledger.ask("PRAGMA trusted_schema") == [(0,)]
        with pytest.raises(BadFile, match="cannot be written to"):
            ledger.ask("DELETE FROM named")
    assert path.read_bytes() == before and not [*path.parent.glob("desk.ledger-*")]
    monkeypatch.setattr(ledger_file, "READ_SECONDS", 0.2)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    with Ledger.read(path) as ledger, pytest.raises(BadFile, match="reading it takes too long"):
        ledger.ask(endless)


def set_clock(monkeypatch: pytest.MonkeyPatch, shift: timedelta) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + shift

    monkeypatch.setattr(ledger_module, "datetime", Clock)


@pytest.mark.attack(19)
def test_a_clock_set_back_dates_no_entry_before_another(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    set_clock(monkeypatch, -timedelta(days=60))
    assert run(["desk", "close", "1", "--as", "refused", "--ledger", str(path)]) == 0
    assert "the clock says" in capsys.readouterr().err
    with Ledger.read(path) as ledger:
        added, refused = ledger.history(1)
        assert refused.at >= added.at and refused.values["clock"] < added.at
    assert run(["desk", "verify", "--ledger", str(path)]) == 0
    assert not capsys.readouterr().err


@pytest.mark.attack(19)
def test_verify_says_where_dates_do_not_run_forward(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    """As an earlier version wrote them."""
    written = Entry.after

    def dated(number: int, before: str, request: int | None, at: str, event: str, details: dict[str, object]) -> Entry:
        return written(number, before, request, "2020-01-01T00:00:00+00:00", event, details)

    with monkeypatch.context() as former:
        former.setattr(Entry, "after", dated)
        assert run(["desk", "close", "1", "--as", "refused", "--ledger", str(path)]) == 0
    assert run(["desk", "verify", "--ledger", str(path)]) == 0
    said = capsys.readouterr().err
    assert "its dates do not run forward: entry 4 (request 1, refused, 2020-01-01T00:00:00+00:00) comes after" in said


@pytest.mark.attack(0)
def test_a_full_disk_is_called_a_full_disk(path: Path, key: Key) -> None:
    with Ledger.open(path) as ledger:
        ledger.key(key_file(path))
        [[pages]] = ledger.ask("PRAGMA page_count")
        ledger.ask(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(BadFile, match="the disk is full: free some space and try again"):
            for _ in range(500):
                take_in(ledger, key, DOCUMENT)
        ledger.verify()


@pytest.mark.attack(0)
def test_a_close_whose_rewriting_fails_says_that_it_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    plain = Ledger.ask

    def full(self: Ledger, query: str, values: object = ()) -> object:
        if query == "VACUUM":
            raise BadFile(path, "the ledger cannot be used: the disk is full: free some space and try again")
        return plain(self, query, values)  # type: ignore[arg-type]

    words = ["--as", "refused", "--ledger", str(path)]
    with monkeypatch.context() as disk:
        disk.setattr(Ledger, "ask", full)
        assert run(["desk", "close", "1", *words]) == 2
    said = capsys.readouterr().err
    assert "request 1 is refused, but it is not erased yet" in said and "the disk is full" in said
    assert "the next 'unrank desk add', 'run' or 'close' erases it" in said
    with Ledger.read(path) as ledger:
        assert ledger.request(1).state is State.REFUSED
    assert run(["desk", "close", "2", *words]) == 0
    assert b"zanzibar" not in path.read_bytes() and b"Quixote" not in path.read_bytes()


@pytest.mark.attack(9)
def test_a_ledger_with_its_key_beside_a_certificate_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    """The attacker gives away the secrets of a ledger of his own. The receiver's machine has never used it."""
    (tmp_path / "ranker").mkdir()
    (tmp_path / "ranker" / "model.safetensors").write_text("weights")
    make_desk(tmp_path / "bundle", tmp_path / "ranker")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "receiver"))
    monkeypatch.chdir(tmp_path / "bundle")
    for _ in range(2):
        assert run(["desk", "verify", "certificate", "--ranker", str(tmp_path / "ranker")]) == 4
        said = capsys.readouterr()
        assert said.out.startswith("the signer is unknown") and "unknown to this machine" in said.err


@pytest.mark.attack(6)
@pytest.mark.parametrize("id", ["d5", "qx-7", "zz"])
def test_no_byte_names_a_closed_request(path: Path, key: Key, id: str, tmp_path: Path) -> None:
    """Neither a short id, nor a file that is named by the text, in the options and results of any run."""
    text = "the bassoon of umberto was stolen in perugia"
    places = [f"/srv/{id}.txt", f"/srv/{id}/notes", "/srv/Bassoon-of_umberto was.txt", "/srv/other.txt"]
    with Ledger.open(path) as ledger:
        ledger.key(key_file(path))
        closed = take_in(ledger, key, Item(document=id, document_text=text)).id
        other = take_in(ledger, key, Item(document="another", document_text="about something else")).id
        for request in (other, closed):  # the first run did not know of the request
            judged = {request: Judgement(ForgetState.FORGOTTEN, f"{id} of 2", ranks([1, 1], [4, 5]))}
            result = made_result(judged, copies=places) | {"notes": [id, text]}
            made_run(ledger, judged, result)
            ledger.ask("UPDATE run SET out = ? WHERE id = 1", [f"/srv/without {id}"])
            with ledger.transaction():
                ledger.write_of_run("moved", 1)
        ledger.verify()
        close(ledger, closed, left={"file": 1}, reason=f"/srv/{id}/index stays, and {id}")
        ledger.verify()
        named = re.compile(rf"(?<![0-9a-z])({id}|bassoon|umberto)(?![0-9a-z])", re.IGNORECASE)
        for table in ("run", "named", "history", "request", "keyed_hash", "about"):
            for row in ledger.ask(f"SELECT * FROM {table}"):
                values = " ".join(value for value in row if isinstance(value, str))
                assert not named.search(values)
        [[out, kept]] = ledger.ask("SELECT out, result FROM run WHERE id = 1")
        assert out == "/srv/…" and "/srv/other.txt" in kept and "4321 queries" in kept
        write_certificate(ledger, key, closed, tmp_path / "certificate")
        write_certificate(ledger, key, other, tmp_path / "other")
    bytes_left = b"".join(file.read_bytes() for file in sorted(path.parent.glob("desk.ledger*")))
    for word in (f"/{id}", f'"{id}"', f" {id}", "bassoon", "umberto", "perugia"):
        assert word.encode() not in bytes_left.lower()
    assert run(["desk", "verify", str(tmp_path / "certificate"), "--ledger", str(path)]) == 0


@pytest.mark.attack(8)
def test_another_ledger_with_its_own_key_in_the_place_of_the_owners(path: Path, tmp_path: Path, capsys: Said) -> None:
    """It is whole and keyed, and forgets nothing."""
    other = tmp_path / "attacker" / "desk.ledger"
    other.parent.mkdir()
    with Ledger.open(other, make_with=key_file(other)) as ledger:
        take_in(ledger, ledger.key(key_file(other)), QUERY)
    for mine, his in ((path, other), (key_file(path), key_file(other)), (signing_file(key_file(path)), None)):
        mine.unlink()
        if his is not None:
            his.rename(mine)
    signing_file(key_file(other)).rename(signing_file(key_file(path)))
    for words in ([], ["desk", "verify", "--ledger", str(path)]):
        assert (run(words) if words else filtered(path)) == 2
        assert "another ledger, with another key, was here before" in capsys.readouterr().err
    assert run(["desk", "restored", "--ledger", str(path)]) == 0
    assert filtered(path) == 0


@pytest.mark.attack(10)
@pytest.mark.parametrize(("event", "details"), [("run begun", "{}"), ("signing key rotated", "[]"), ("added", "7")])
def test_a_stranger_s_history_that_cannot_be_read(path: Path, event: str, details: str, capsys: Said) -> None:
    with Ledger.read(path) as ledger:
        number, before = ledger.head()
    made = Entry.after(number, before, 1 if event == "added" else None, "2030", event, {})
    hashed = hashlib.sha256(json.dumps([number + 1, made.request, "2030", event, details, before]).encode()).hexdigest()
    with sqlite3.connect(path) as connection:
        row = (number + 1, made.request, "2030", event, details, before, hashed)
        connection.execute("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    connection.close()
    key_file(path).unlink()
    assert run(["desk", "verify", "--ledger", str(path)]) == 2
    assert "the details of entry 4" in capsys.readouterr().err


@pytest.mark.attack(15)
def test_a_pipe_in_the_place_of_a_key(path: Path, capsys: Said) -> None:
    for place in (signing_file(key_file(path)), key_file(path)):
        place.unlink()
        os.mkfifo(place, 0o600)
        assert run(["desk", "close", "1", "--as", "refused", "--ledger", str(path)]) == 2
        assert str(place) in capsys.readouterr().err
