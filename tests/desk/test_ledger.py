"""The ledger: many at once, nothing lost, nothing changed unseen."""

from __future__ import annotations

import hmac
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import astuple, replace
from datetime import date, timedelta
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from tests.desk.conftest import DAY, DOCUMENT, PAIR, QUERY, take_in
from unrank.cli.main import run
from unrank.desk import ledger as ledger_module
from unrank.desk.closing import close
from unrank.desk.history_index import START, BrokenChain, Entry, check_chain, hash_of_rows
from unrank.desk.key import Key, key_file, make_key, read_key
from unrank.desk.ledger import Ledger
from unrank.desk.ledger_file import APPLICATION, tidy
from unrank.desk.request import SETTLED, Basis, Item, State, month_after
from unrank.desk.schema import MIGRATIONS, VERSION
from unrank.errors import BadFile, UnrankError

ADDER = """
import sys
from datetime import date
from pathlib import Path
from unrank.desk.request import Item
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger

path, name = Path(sys.argv[1]), sys.argv[2]
with Ledger.open(path, make_with=key_file(path)) as ledger:
    key = ledger.key(key_file(path))
    for number in range(50):
        item = Item(document=f"{name}-{number}", document_text="t")
        ledger.add([item], date(2026, 1, 1), date(2026, 2, 1), "other", key)
"""


def changed(path: Path, *statements: str) -> None:
    """Change a ledger behind its back."""
    with sqlite3.connect(path) as connection:
        connection.executescript("DROP TRIGGER history_is_not_changed; DROP TRIGGER history_is_not_deleted;")
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_request_comes_back_as_it_was_added(ledger: Ledger, key: Key) -> None:
    request = take_in(ledger, key, QUERY, DOCUMENT, PAIR)
    assert ledger.request(request.id) == request
    assert ledger.items(request.id) == [QUERY, DOCUMENT, PAIR]
    assert ledger.counts()[State.OPEN] == 1
    [entry] = ledger.history(request.id)
    assert entry.event == "added" and entry.values["names"] == {"query": 1, "document": 1, "pair": 1}
    assert ledger.verify() == entry.hash


def test_what_is_due_first_stands_first_and_what_is_done_last(ledger: Ledger, key: Key) -> None:
    late, soon, done = (take_in(ledger, key, due=date(2026, month, 1)) for month in (6, 4, 3))
    with ledger.transaction():
        ledger.move(done.id, State.FORGOTTEN)
    assert [request.id for request in ledger.requests(list(State))] == [soon.id, late.id, done.id]
    assert [request.id for request in ledger.requests(list(State), most=1)] == [soon.id]
    assert soon.is_overdue(date(2026, 4, 2)) and not soon.is_overdue(date(2026, 4, 1))
    assert not ledger.request(done.id).is_overdue(date(2027, 1, 1))


@pytest.mark.parametrize(
    ("day", "due"), [("2026-01-31", "2026-02-28"), ("2026-12-05", "2027-01-05"), ("2028-01-30", "2028-02-29")]
)
def test_a_month_later(day: str, due: str) -> None:
    assert month_after(date.fromisoformat(day)).isoformat() == due


def test_a_closed_request_keeps_its_outcome(ledger: Ledger, key: Key) -> None:
    ids = [take_in(ledger, key, due=DAY + timedelta(days=number)).id for number in range(len(SETTLED))]
    for id, state in zip(ids, SETTLED, strict=True):
        with ledger.transaction():
            ledger.move(id, State.NOT_FORGOTTEN)
            ledger.move(id, state)
        assert ledger.request(id).outcome is None
        close(ledger, id)
    assert [request.outcome for request in ledger.requests([State.CLOSED])] == [*SETTLED]
    assert ledger.request(ids[0]).words == "closed (forgotten, not verifiable)"
    assert ledger.request(ids[-1]).words == "closed (fulfilled by an earlier version)"
    ledger.verify()


def test_a_request_that_was_not_forgotten_is_listed_by_its_date_among_the_open_ones(ledger: Ledger, key: Key) -> None:
    late, soon = (take_in(ledger, key, due=date(2026, month, 1)) for month in (6, 4))
    with ledger.transaction():
        ledger.move(soon.id, State.NOT_FORGOTTEN)
    assert [request.id for request in ledger.requests(list(State))] == [soon.id, late.id]
    assert ledger.request(soon.id).is_overdue(date(2026, 5, 1)) and len(ledger.hashes("document")) == 2
    with pytest.raises(UnrankError, match="request 2 is not forgotten: run"):
        close(ledger, soon.id)
    assert close(ledger, soon.id, State.REFUSED) is State.REFUSED


def test_an_error_within_a_transaction_undoes_all_of_it(ledger: Ledger, key: Key) -> None:
    with pytest.raises(UnrankError), ledger.transaction():
        take_in(ledger, key)
        ledger.add([], date.today(), date.today(), Basis.other, key)
    assert ledger.counts()[State.OPEN] == 0 and ledger.head()[0] == 0


def test_history_is_only_added_to(ledger: Ledger, key: Key) -> None:
    take_in(ledger, key)
    for statement in ("UPDATE history SET at = ''", "DELETE FROM history"):
        with pytest.raises(BadFile, match="only added to"):
            ledger.ask(statement)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "UPDATE history SET at = '2020' WHERE number = 2",
            r"broken at entry 2 \(request 2, added, 2020\)",
        ),
        ("DELETE FROM history WHERE number = 2", "broken at entry 2, which is missing"),
        ("DELETE FROM history WHERE number = 3", "head of its history was not written with its key"),
        ("UPDATE request SET due = '2030-01-01' WHERE id = 2", "request 2 is not as its history says"),
        ("UPDATE request SET state = 'closed' WHERE id = 1", "request 1 is not as its history says"),
        ("UPDATE request SET run = 7 WHERE id = 1", "request 1 is not as its history says"),
        ("UPDATE named SET document = 'd' WHERE request = 2", r"request 2 .* in entry 2 \(request 2, added,"),
        ("UPDATE named SET document_text = 'x' WHERE request = 2", r"request 2 .* in entry 2 \(request 2, added,"),
        ("DELETE FROM named WHERE request = 2", r"request 2 .* in entry 2 \(request 2, added,"),
        ("INSERT INTO named VALUES (2, 'q', NULL, 'x', NULL, '')", r"request 2 .* in entry 2 \(request 2, added,"),
        ("UPDATE keyed_hash SET kind = 'in pair' WHERE request = 2", r"request 2 .* in entry 2 \(request 2, added,"),
        ("UPDATE keyed_hash SET hash = randomblob(16) WHERE request = 2", r"request 2 .* in entry 2 \("),
        ("DELETE FROM keyed_hash WHERE request = 2", r"request 2 .* in entry 2 \(request 2, added,"),
    ],
)
def test_a_broken_chain_says_where(ledger: Ledger, key: Key, path: Path, statement: str, said: str) -> None:
    for _ in range(3):
        take_in(ledger, key)
    ledger.verify()
    changed(path, statement)
    with pytest.raises(BrokenChain, match=said):
        ledger.verify()


def test_an_entry_that_was_rewritten_with_its_hash_breaks_the_next_link() -> None:
    first = Entry.after(0, START, 1, "2026-02-01", "added", {})
    second = Entry.after(1, first.hash, 1, "2026-02-02", "fulfilled", {})
    forged = Entry.after(0, START, 1, "2020-01-01", "added", {})
    assert check_chain([first, second], "ledger") == second.hash
    assert forged.holds
    with pytest.raises(BrokenChain, match="broken at entry 2"):
        check_chain([forged, second], "ledger")


def test_a_request_that_was_taken_out(ledger: Ledger, key: Key, path: Path) -> None:
    take_in(ledger, key)
    changed(path, "DELETE FROM named", "DELETE FROM keyed_hash", "DELETE FROM request")
    with pytest.raises(BrokenChain, match="request 1 is in the history and no longer"):
        ledger.verify()


def test_what_is_left_after_the_end_is_covered_too(ledger: Ledger, key: Key, path: Path) -> None:
    closed, withdrawn = take_in(ledger, key, QUERY), take_in(ledger, key, DOCUMENT)
    with ledger.transaction():
        ledger.move(closed.id, State.FORGOTTEN)
    close(ledger, closed.id)
    close(ledger, withdrawn.id, State.WITHDRAWN)
    ledger.verify()
    for statement, said in (
        ("DELETE FROM keyed_hash", r"request 1 .* in entry 4 \(request 1, closed,"),
        ("INSERT INTO keyed_hash VALUES (x'00', 2, 'query')", r"request 2 .* in entry 5 \(request 2, withdrawn,"),
    ):
        with pytest.raises(BrokenChain, match=said), ledger.transaction():
            ledger.ask(statement)
            ledger.verify()
    ledger.verify()


@pytest.mark.parametrize("statement", ["UPDATE run SET {} = 'x'", "UPDATE run SET state = 'passed'", "DELETE FROM run"])
@pytest.mark.parametrize("column", ["asked", "out", "result"])
def test_runs_are_covered(ledger: Ledger, statement: str, column: str) -> None:
    with ledger.transaction():
        ledger.ask("INSERT INTO run (id, state, out, asked) VALUES (1, 'begun', 'out', '{}')")
        ledger.write_of_run("begun", 1)
    ledger.verify()
    ledger.ask(statement.format(column))
    with pytest.raises(
        BrokenChain, match=r"run 1 is not as its history says in entry 1 \(run begun|run 1 is in the hist"
    ):
        ledger.verify()


def test_who_adds_meanwhile_breaks_no_chain(
    ledger: Ledger, key: Key, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in(ledger, key)
    whole = check_chain

    def checked(entries: Iterable[Entry], name: str) -> str:
        head = whole(entries, name)
        with Ledger.open(path) as other:
            other.key(key_file(path))
            take_in(other, key)
        return head

    monkeypatch.setattr(ledger_module, "check_chain", checked)
    ledger.verify()


def test_who_looks_is_told_of_what_is_shown(ledger: Ledger, key: Key, path: Path) -> None:
    for _ in range(2):
        take_in(ledger, key)
    changed(path, "UPDATE named SET document = 'd' WHERE request = 1", "UPDATE history SET at = '' WHERE number = 1")
    ledger.check([2])
    with pytest.raises(BrokenChain, match="broken at entry 1"):
        ledger.check([1, 2])
    ledger.ask("UPDATE request SET due = 'soon' WHERE id = 2")
    with pytest.raises(BrokenChain, match="request 2 is not as its history says in entry 2"):
        ledger.check([2])
    with pytest.raises(UnrankError, match="request 2 was changed outside its history"):
        ledger.request(2)


def test_a_number_that_no_request_has(ledger: Ledger, key: Key, path: Path) -> None:
    take_in(ledger, key)
    with pytest.raises(UnrankError, match="there is no request 9999999999999999999999"):
        ledger.request(9999999999999999999999)
    assert len(ledger.requests(list(State), most=9999999999999999999999)) == 1


def test_a_ledger_of_a_later_version_is_left_alone(ledger: Ledger, path: Path) -> None:
    ledger.ask(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(BadFile, match=f"version {VERSION + 1}; this unrank knows"):
        Ledger.open(path)


@pytest.mark.parametrize("version", range(1, VERSION))
def test_an_older_ledger_is_brought_up_to_date(path: Path, version: int) -> None:
    key = make_key(key_file(path))
    connection = sqlite3.connect(path)
    connection.executescript("".join(MIGRATIONS[:version]))
    connection.executescript(f"PRAGMA user_version = {version}; PRAGMA application_id = {APPLICATION};")
    entry = Entry.after(0, START, 1, "2026", "added", {"received": "2026-01-01", "due": "2026-02-01", "basis": "other"})
    connection.executescript(f"""
        INSERT INTO about VALUES ('key', '{key.fingerprint}'), ('public_key', '{key.public}'), ('unscrubbed', '0');
        INSERT INTO request VALUES (1, '2026-01-01', '2026-02-01', 'other', 'open', NULL);
        INSERT INTO named (request, document, document_text) VALUES (1, 'd1', 'a text');
    """)
    connection.execute("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(entry))
    connection.commit()
    connection.close()
    with Ledger.open(path) as ledger:
        assert ledger.ask("PRAGMA user_version") == [(VERSION,)]
        assert ("request_by_state",) in ledger.ask("SELECT name FROM sqlite_master WHERE type = 'index'")
        assert ledger.verify() == entry.hash and ledger.items(1) == [Item(document="d1", document_text="a text")]
        ledger.check([1])
        ledger.key(key_file(path))
        assert (
            "entries 1 to 1 are of an earlier version" in ledger.notes[-2] and "new to this machine" in ledger.notes[-1]
        )
        take_in(ledger, key)
        assert close(ledger, 1, State.WITHDRAWN) is State.WITHDRAWN
        ledger.verify()


@pytest.mark.parametrize("name", ["key", "public_key"])
def test_a_key_that_was_exchanged_is_seen(ledger: Ledger, key: Key, name: str) -> None:
    take_in(ledger, key)
    ledger.verify()
    ledger.ask("UPDATE about SET value = 'another' WHERE name = ?", [name])
    with pytest.raises(UnrankError, match=f"its {name} is not the one in entry 1 of the history"):
        ledger.verify()
    ledger.ask("DELETE FROM about")
    with pytest.raises(UnrankError, match=f"its {name} is missing" if name == "key" else "is missing"):
        ledger.verify()


def test_a_lost_ledger_is_not_begun_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrank.desk.ledger.MAKING", 0.1)
    Ledger.open(path, make_with=key_file(path)).__exit__(None, None, None)
    path.unlink()
    with pytest.raises(BadFile, match=r"no such ledger, but its key .* is there: restore the ledger from a backup"):
        Ledger.open(path, make_with=key_file(path))
    assert not path.exists()
    with pytest.raises(BadFile, match="a folder, not a ledger"):
        Ledger.open(path.parent)
    with pytest.raises(BadFile, match=r"there is no folder .*nowhere: make it first"):
        Ledger.open(path.parent / "nowhere" / "l", make_with=path.parent / "nowhere" / "l.key")


def test_what_is_no_ledger(path: Path, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="no such ledger"):
        Ledger.open(path)
    path.write_text("a diary, and a long one " * 100)
    with pytest.raises(BadFile, match="not a database"):
        Ledger.open(path)
    sqlite3.connect(tmp_path / "other").execute("CREATE TABLE something (x)").connection.close()
    with pytest.raises(BadFile, match="not a ledger"):
        Ledger.open(tmp_path / "other")


def test_a_log_that_another_process_deletes_meanwhile_is_no_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda self, **_: True)  # as it was a moment ago
    tidy(path)
    assert not path.with_name(f"{path.name}-wal").is_file()


@pytest.mark.parametrize("opened", [Ledger.open, Ledger.read])
def test_a_damaged_name_of_a_table(path: Path, opened: Callable[[Path], Ledger]) -> None:
    """SQLite's message quotes a byte that is not UTF-8, and Python cannot decode it."""
    Ledger.open(path, make_with=key_file(path)).__exit__(None, None, None)
    whole = path.read_bytes()
    assert whole.count(b"tablerequestrequest") == 1
    path.write_bytes(whole.replace(b"tablerequestrequest", b"table\xffequestrequest"))
    with pytest.raises(BadFile, match="the ledger cannot be used: it is damaged; restore the ledger from a backup"):
        opened(path)


def test_the_key_is_for_its_owner_alone(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    place = key_file(path)
    assert place.stat().st_mode & 0o777 == 0o600 and path.stat().st_mode & 0o777 == 0o600
    assert make_key(place) == read_key(place), "a key that is there is kept"
    make_key(tmp_path / "other.key")
    with pytest.raises(BadFile, match="not the key of"):
        ledger.key(tmp_path / "other.key")
    place.chmod(0o640)
    with pytest.raises(BadFile, match="others may read the key"):
        ledger.key(place)
    place.write_text("zz")
    with pytest.raises(BadFile, match="not a ledger's key"):
        ledger.key(place)
    place.unlink()
    with pytest.raises(BadFile, match="key is not there"):
        ledger.key(place)


def test_hashes_are_those_of_the_standard_library(key: Key) -> None:
    message = b"document id:" + "Zürich".encode()
    assert key.document_id("Zürich") == hmac.digest(key.hashing, message, "sha256")[:16]


def test_a_pair_is_known_by_any_mix_of_ids_and_texts(key: Key) -> None:
    hashes = [hashed for kind, hashed in key.hashes(PAIR) if kind == "pair"]
    assert len(set(hashes)) == 4
    assert key.pair(key.query_text("LEFT  handed spanners"), key.document_id("document-right")) in hashes
    assert key.pair(key.document_id("document-right"), key.query_id("query-left")) not in hashes


def test_four_processes_adding_at_once_lose_nothing(path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", ADDER, str(path), f"process{number}"], stderr=subprocess.PIPE)
        for number in range(4)
    ]
    for process in processes:
        assert process.wait(60) == 0, process.communicate()[1]
    with Ledger.open(path) as ledger:
        ledger.verify()
        assert ledger.counts()[State.OPEN] == 200
        names = {item.document for number in range(1, 201) for item in ledger.items(number)}
        assert names == {f"process{process}-{number}" for process in range(4) for number in range(50)}
        assert ledger.head()[0] == 200
    assert not [*path.parent.glob(".*")]


def fill(ledger: Ledger, key: Key, requests: int) -> None:
    """Many requests at once, as `add` would have taken them in, but for their keyed hashes."""
    keys = {name: ledger.about(name) for name in ("key", "public_key")}
    taken: dict[str, list[tuple[Any, ...]]] = {"request": [], "named": [], "history": []}
    before = START
    for id in range(1, requests + 1):
        due = (date(2026, 1, 1) + timedelta(days=id % 1_000)).isoformat()
        request = (id, "2026-01-01", due, "other", "open", None)
        named = (id, None, f"d{id}", None, f"the text {id}", "salt")
        told = {
            "received": "2026-01-01",
            "due": due,
            "basis": "other",
            "covers": hash_of_rows([request, named]),
            **keys,
        }
        entry = Entry.after(id - 1, before, id, "2026-01-01", "added", told)
        before = entry.hash
        for table, row in zip(taken, (request, named, (*vars(entry).values(),)), strict=True):
            taken[table].append(row)
    with ledger.transaction():
        for table, rows in taken.items():
            marks = ", ".join("?" * len(rows[0]))
            ledger._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        ledger._head.write(key)


@pytest.mark.parametrize("requests", [8_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_requests(ledger: Ledger, key: Key, path: Path, requests: int, capsys: pytest.CaptureFixture[str]) -> None:
    fill(ledger, key, requests)
    for command in (["list"], ["list", "--all", "--most", "100"], ["show", "7777"]):
        began = process_time()
        assert run(["desk", *command, "--ledger", str(path)]) == 0
        assert process_time() - began < 0.5, command
    said = capsys.readouterr()
    assert (
        "document d7777: the text 7777" in said.out
        and f"{requests - 100:,} more than shown" in said.out
        and not said.err
    )


def test_withdrawn_leaves_no_hash(ledger: Ledger, key: Key) -> None:
    one, other = take_in(ledger, key, DOCUMENT), take_in(ledger, key, QUERY)
    assert close(ledger, one.id, State.WITHDRAWN) is State.WITHDRAWN
    assert ledger.hashes("document") == set() and len(ledger.hashes("query")) == 2
    with pytest.raises(UnrankError, match="request 1 is withdrawn already"):
        close(ledger, one.id)
    with pytest.raises(UnrankError, match="request 2 is open: run"):
        close(ledger, other.id)
    ledger.verify()


def test_entries_say_who_wrote_them_and_those_without_a_name_still_verify(ledger: Ledger, key: Key, path: Path) -> None:
    nameless = take_in(ledger, key, DOCUMENT).id
    with Ledger.open(path, by="anna.k") as other:
        named = take_in(other, other.key(key_file(path)), PAIR).id
        close(other, named, State.WITHDRAWN)
        other.verify()
    assert [entry.by for entry in ledger.history(nameless)] == [None]
    assert [entry.by for entry in ledger.history(named)] == ["anna.k"] * 2
    entry = ledger.history(named)[0]
    assert entry.holds and not replace(entry, details=entry.details.replace("anna.k", "bob")).holds


@pytest.mark.parametrize("name", ["", "a b", "a" * 41, "<b>", "-x", "a\n"])
def test_a_name_that_could_be_a_text_is_refused(ledger: Ledger, path: Path, name: str) -> None:
    with pytest.raises(UnrankError, match="up to 40 letters"):
        Ledger.open(path, by=name)
