"""The ledger: many at once, nothing lost, nothing changed unseen."""

from __future__ import annotations

import hmac
import sqlite3
import subprocess
import sys
from datetime import date
from pathlib import Path
from time import process_time

import pytest

from tests.desk.conftest import DOCUMENT, PAIR, QUERY, take_in
from unrank.cli.main import run
from unrank.desk.chain import BrokenChain
from unrank.desk.closing import close
from unrank.desk.key import Key, key_file, make_key, read_key
from unrank.desk.ledger import Ledger
from unrank.desk.request import Basis, State, month_after
from unrank.desk.schema import APPLICATION, TABLES, VERSION
from unrank.errors import BadFile, UnrankError

ADDER = """
import sys
from datetime import date
from pathlib import Path
from unrank.desk.item import Item
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
    assert entry.event == "added" and entry.told["names"] == {"query": 1, "document": 1, "pair": 1}
    assert ledger.verify() == entry.hash


def test_what_is_due_first_stands_first_and_what_is_done_last(ledger: Ledger, key: Key) -> None:
    late, soon, done = (take_in(ledger, key, due=date(2026, month, 1)) for month in (6, 4, 3))
    with ledger.transaction():
        ledger.move(done.id, State.FULFILLED)
    assert [request.id for request in ledger.requests(list(State))] == [soon.id, late.id, done.id]
    assert [request.id for request in ledger.requests(list(State), most=1)] == [soon.id]
    assert soon.is_overdue(date(2026, 4, 2)) and not soon.is_overdue(date(2026, 4, 1))
    assert not ledger.request(done.id).is_overdue(date(2027, 1, 1))


@pytest.mark.parametrize(
    ("day", "due"), [("2026-01-31", "2026-02-28"), ("2026-12-05", "2027-01-05"), ("2028-01-30", "2028-02-29")]
)
def test_a_month_later(day: str, due: str) -> None:
    assert month_after(date.fromisoformat(day)).isoformat() == due


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
        ("DELETE FROM history WHERE number = 3", "request 3 is not as its history says"),
        ("UPDATE request SET due = '2030-01-01' WHERE id = 2", "request 2 is not as its history says"),
        ("UPDATE request SET state = 'closed' WHERE id = 1", "request 1 is not as its history says"),
    ],
)
def test_a_broken_chain_says_where(ledger: Ledger, key: Key, path: Path, statement: str, said: str) -> None:
    for _ in range(3):
        take_in(ledger, key)
    ledger.verify()
    changed(path, statement)
    with pytest.raises(BrokenChain, match=said):
        ledger.verify()


def test_a_request_that_was_taken_out(ledger: Ledger, key: Key, path: Path) -> None:
    take_in(ledger, key)
    changed(path, "DELETE FROM named", "DELETE FROM keyed_hash", "DELETE FROM request")
    with pytest.raises(BrokenChain, match="request 1 is in the history and no longer"):
        ledger.verify()


def test_a_ledger_of_a_later_version_is_left_alone(ledger: Ledger, path: Path) -> None:
    ledger.ask(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(BadFile, match=f"version {VERSION + 1}; this unrank knows"):
        Ledger.open(path)


def test_an_older_ledger_is_brought_up_to_date(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(f"{TABLES} PRAGMA user_version = 1; PRAGMA application_id = {APPLICATION};")
    connection.close()
    with Ledger.open(path) as ledger:
        assert ledger.ask("PRAGMA user_version") == [(VERSION,)]
        assert ("request_by_state",) in ledger.ask("SELECT name FROM sqlite_master WHERE type = 'index'")


def test_what_is_no_ledger(path: Path, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="no such ledger"):
        Ledger.open(path)
    path.write_text("a diary, and a long one " * 100)
    with pytest.raises(BadFile, match="not a database"):
        Ledger.open(path)
    sqlite3.connect(tmp_path / "other").execute("CREATE TABLE something (x)").connection.close()
    with pytest.raises(BadFile, match="not a ledger"):
        Ledger.open(tmp_path / "other")


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


MANY = "WITH RECURSIVE many(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM many WHERE n < 100000)"


def test_a_hundred_thousand_requests(ledger: Ledger, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ledger.transaction():
        for table, columns in {
            "request": "n, '2026-01-01', date('2026-01-01', (n % 1000) || ' days'), 'other', 'open', NULL",
            "named": "n, NULL, 'd' || n, NULL, 'the text ' || n",
            "history": "n, n, '2026-01-01', 'added', '{}', '', ''",
        }.items():
            ledger.ask(f"{MANY} INSERT INTO {table} SELECT {columns} FROM many")
    for command in (["list"], ["list", "--all", "--most", "100"], ["show", "77777"]):
        began = process_time()
        assert run(["desk", *command, "--ledger", str(path)]) == 0
        assert process_time() - began < 0.5, command
    said = capsys.readouterr().out
    assert "document d77777: the text 77777" in said and "99,900 more than shown" in said


def test_withdrawn_leaves_no_hash(ledger: Ledger, key: Key) -> None:
    one, other = take_in(ledger, key, DOCUMENT), take_in(ledger, key, QUERY)
    assert close(ledger, one.id, State.WITHDRAWN) is State.WITHDRAWN
    assert ledger.hashes("document") == set() and len(ledger.hashes("query")) == 2
    with pytest.raises(UnrankError, match="request 1 is withdrawn already"):
        close(ledger, one.id)
    with pytest.raises(UnrankError, match="request 2 is not fulfilled"):
        close(ledger, other.id)
    ledger.verify()
