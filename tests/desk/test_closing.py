"""After a request is closed, no byte of the ledger's files tells what it named."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.desk.conftest import DOCUMENT, PAIR, QUERY, take_in
from unrank.desk import closing
from unrank.desk.closing import Deletion, also_named_by, close, scrub, tick, ticked
from unrank.desk.key import Key, key_file
from unrank.desk.ledger import Ledger
from unrank.desk.request import Item, State
from unrank.errors import UnrankError

NAMED = (QUERY, DOCUMENT, PAIR)


def fulfilled(ledger: Ledger, key: Key, *items: Item) -> int:
    request = take_in(ledger, key, *items)
    with ledger.transaction():
        ledger.move(request.id, State.FORGOTTEN)
    return request.id


def said_in(folder: Path, *items: Item) -> set[str]:
    """Which ids and texts of the items stand in the bytes of the files of a folder."""
    content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    texts = {text for item in items for text in vars(item).values() if text is not None}
    return {text for text in texts if text.encode() in content}


def test_no_byte_is_left(ledger: Ledger, key: Key, path: Path) -> None:
    """Enough requests around it that pages split and are moved, and some that long texts overflow."""
    for number in range(300):
        take_in(ledger, key, Item(document=f"other{number}", document_text=f"word{number} " * (number % 700)))
    id = fulfilled(ledger, key, *NAMED)
    long = fulfilled(ledger, key, Item(document="long", document_text="a very long tale " * 5_000))
    assert len(said_in(path.parent, *NAMED)) == 8
    close(ledger, id)
    close(ledger, long)
    assert said_in(path.parent, *NAMED) == set()
    content = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"a very long tale" not in content and b"word299" in content
    assert ledger.items(id) == [] and len(ledger.hashes("pair")) == 4
    ledger.verify()


def test_a_close_that_was_stopped_between_its_steps_is_made_up_for(
    ledger: Ledger, key: Key, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = fulfilled(ledger, key, *NAMED)

    def stopped(ledger: Ledger) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(closing, "scrub", stopped)
    with pytest.raises(KeyboardInterrupt):
        close(ledger, id)
    assert said_in(path.parent, *NAMED), "what was written to the log is still there"
    with Ledger.open(path) as later:
        scrub(later)
    assert said_in(path.parent, *NAMED) == set()


def test_a_reader_in_the_way_is_told(ledger: Ledger, key: Key, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    id = fulfilled(ledger, key, *NAMED)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM named").fetchall()
    ledger.ask("PRAGMA busy_timeout = 100")
    with pytest.raises(UnrankError, match="another process still reads"):
        close(ledger, id)
    assert ledger.request(id).state is State.CLOSED
    reader.close()
    scrub(ledger)
    assert said_in(path.parent, *NAMED) == set()


def test_what_is_closed_while_another_is_scrubbed_is_not_passed_over(
    ledger: Ledger, key: Key, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process scrubs; just before it is done another closes a request, and dies before it scrubs itself."""
    first, second = fulfilled(ledger, key, QUERY), fulfilled(ledger, key, DOCUMENT)
    plain = Ledger.ask

    def ask(self: Ledger, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        found = plain(self, query, values)
        if "wal_checkpoint" in query and self is ledger:
            with Ledger.open(path) as other, monkeypatch.context() as dying:
                other.key(key_file(path))
                dying.setattr(closing, "scrub", lambda _: None)
                close(other, second)
        return found

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Ledger, "ask", ask)
        close(ledger, first)
    scrub(ledger)
    assert said_in(path.parent, QUERY, DOCUMENT) == set()


def test_no_hash_in_the_history_tells_what_was_withdrawn(ledger: Ledger, key: Key) -> None:
    """Even who has the key cannot test a guess."""
    one, other = (take_in(ledger, key, DOCUMENT).id for _ in range(2))
    assert ledger.history(one)[0].values["covers"] != ledger.history(other)[0].values["covers"]
    for id in (one, other):
        close(ledger, id, State.WITHDRAWN)
    assert ledger.ask("SELECT * FROM named") == [] == ledger.ask("SELECT * FROM keyed_hash")


def test_deletions_are_ticked_off_once_and_only_when_a_run_has_settled_the_request(ledger: Ledger, key: Key) -> None:
    waiting, settled = take_in(ledger, key).id, fulfilled(ledger, key, PAIR)
    with pytest.raises(UnrankError, match="is open: deletions are ticked off when a run has settled it"):
        tick(ledger, waiting, Deletion.backups)
    tick(ledger, settled, Deletion.indexes)
    close(ledger, settled)
    tick(ledger, settled, Deletion.backups)  # they end later
    assert [*ticked(ledger, settled)] == [Deletion.indexes, Deletion.backups]
    with pytest.raises(UnrankError, match="backups are ticked off already"):
        tick(ledger, settled, Deletion.backups)
    ledger.verify()


def test_a_tick_ends_when_its_request_is_opened_again(ledger: Ledger, key: Key) -> None:
    id = fulfilled(ledger, key, PAIR)
    tick(ledger, id, Deletion.rankers)
    for state in (State.OPEN, State.FORGOTTEN):  # its run is undone, and another one settles it
        with ledger.transaction():
            ledger.move(id, state)
    assert ticked(ledger, id) == {}
    assert tick(ledger, id, Deletion.rankers) == ticked(ledger, id)[Deletion.rankers]


def test_a_closing_names_the_requests_that_have_its_document_as_a_substitute(ledger: Ledger, key: Key) -> None:
    replaced = Item(document="old", document_text="old text", substitute="new", substitute_text="new text")
    other = take_in(ledger, key, replaced).id
    by_id = fulfilled(ledger, key, Item(document="new", document_text="another text by now"))
    by_text = fulfilled(ledger, key, Item(document="copy", document_text="new text"))
    alone = fulfilled(ledger, key, Item(document="third", document_text="third text"))
    assert [also_named_by(ledger, id) for id in (by_id, by_text, alone)] == [[other], [other], []]
