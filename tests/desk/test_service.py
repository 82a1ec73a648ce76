"""The rankers of a service: a request is as forgotten as in the ranker that remembers it best."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from tests.desk.conftest import DOCUMENT, QUERY, take_in
from unrank.desk.closing import close
from unrank.desk.history_index import BrokenChain, Entry
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.request import State
from unrank.desk.service import (
    Role,
    ServiceRanker,
    add_ranker,
    deploy,
    put_back,
    ranker_at,
    remove_ranker,
    replace_ranker,
    runnable_in,
    service_ranker,
    service_rankers,
    settle,
    states_of,
)
from unrank.disk import folder_hash
from unrank.errors import UnrankError

FIRST = ServiceRanker("first", Role.retriever, "/srv/first", "/srv/data", ("/srv/index",), date(2026, 1, 2))
SECOND = ServiceRanker("second", Role.reranker, "/srv/second", "/srv/data")


class ClockAhead(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> ClockAhead:
        return super().now(tz) + timedelta(days=5 * 365)


def begin_run(ledger: Ledger, out: str = "/srv/out", **asked: str) -> int:
    """A run in the ledger, as small as one can be."""
    written = json.dumps(asked)
    with ledger.transaction():
        [[run]] = ledger.ask("INSERT INTO run (state, out, asked) VALUES ('begun', ?, ?) RETURNING id", [out, written])
        ledger.write_of_run("begun", run, requests=[])
    return int(run)


def pass_run(ledger: Ledger, name: str, out: Path, files: str | None = None) -> int:
    """A run that has put its new ranker in the place of a ranker of the service."""
    old = service_ranker(ledger, name)
    run = begin_run(ledger, str(out), ranker=old.ranker)
    with ledger.transaction():
        result = json.dumps({"files": {"ranker": files or "12" * 32}})
        ledger.ask("UPDATE run SET state = 'passed', result = ? WHERE id = ?", [result, run])
        ledger.write_of_run("passed", run)
        replace_ranker(ledger, old, run, out)
    return run


def settle_in(ledger: Ledger, request: int, state: State, name: str | None = None) -> State:
    run = begin_run(ledger)
    with ledger.transaction():
        return settle(ledger, request, state, run, None if name is None else service_ranker(ledger, name))


def test_a_request_is_forgotten_when_it_is_in_all_rankers(ledger: Ledger, key: Key) -> None:
    one, other = take_in(ledger, key, QUERY).id, take_in(ledger, key, DOCUMENT).id
    for ranker in (FIRST, SECOND):
        assert add_ranker(ledger, ranker) == []
    assert service_rankers(ledger) == [FIRST, SECOND]
    assert settle_in(ledger, one, State.FORGOTTEN, "first") is State.OPEN
    assert [there.state for there in states_of(ledger, one)] == [State.FORGOTTEN, State.OPEN]
    assert [request.id for request in runnable_in(ledger, FIRST)] == [other]
    assert [request.id for request in runnable_in(ledger, SECOND)] == [one, other]
    assert settle_in(ledger, one, State.NOT_FORGOTTEN, "second") is State.NOT_FORGOTTEN
    assert settle_in(ledger, one, State.NOT_VERIFIABLE, "second") is State.NOT_VERIFIABLE
    assert ledger.request(one).state is State.NOT_VERIFIABLE and ledger.request(other).state is State.OPEN
    assert [request.id for request in runnable_in(ledger, SECOND)] == [other]
    ledger.verify()
    ledger.check([one, other])


def test_a_ranker_that_comes_later_opens_requests_again(ledger: Ledger, key: Key) -> None:
    request = take_in(ledger, key).id
    assert settle_in(ledger, request, State.FORGOTTEN) is State.FORGOTTEN
    made = ServiceRanker("first", Role.retriever, "/srv/out", "/srv/data")
    assert add_ranker(ledger, made) == []  # the run of the request made this ranker
    assert states_of(ledger, request)[0].state is State.FORGOTTEN
    assert add_ranker(ledger, SECOND) == [request]
    assert ledger.request(request).state is State.OPEN
    assert remove_ranker(ledger, "second") == [request]
    assert ledger.request(request).state is State.FORGOTTEN
    remove_ranker(ledger, "first")
    assert service_rankers(ledger) == [] and ranker_at(ledger, "/srv/elsewhere") is None
    assert ledger.request(request).state is State.FORGOTTEN
    assert add_ranker(ledger, FIRST) == [request]  # another ranker, which no run of this ledger made
    ledger.verify()


def test_a_run_replaces_the_ranker_and_the_owner_says_since_when(ledger: Ledger, key: Key) -> None:
    add_ranker(ledger, FIRST)
    run = begin_run(ledger)
    with ledger.transaction():
        replace_ranker(ledger, FIRST, run, Path("/srv/out"))
    new = service_ranker(ledger, "first")
    assert (new.ranker, new.since, new.run, new.before) == ("/srv/out", None, run, ("/srv/first", "2026-01-02"))
    assert deploy(ledger, "first", date(2026, 3, 4)).since == date(2026, 3, 4)
    with ledger.transaction():
        assert put_back(ledger, run, "/srv/first") == FIRST
        assert put_back(ledger, run, "/srv/first") is None
    ledger.verify()


def test_two_undone_runs_lead_back_to_the_first_ranker(ledger: Ledger, key: Key) -> None:
    add_ranker(ledger, FIRST)
    runs = [pass_run(ledger, "first", Path(out)) for out in ("/srv/one", "/srv/two")]
    with ledger.transaction():
        between, ledger_after = put_back(ledger, runs[1], "/srv/one"), service_ranker(ledger, "first")
        assert between == ledger_after and (between.ranker, between.run) == ("/srv/one", runs[0])
        first = put_back(ledger, runs[0], "/srv/first")
        assert first is not None and (first.ranker, first.run, first.before) == ("/srv/first", None, None)
    ledger.verify()


def test_a_folder_with_another_ranker_is_not_the_one_of_its_run(ledger: Ledger, key: Key, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "model.safetensors").write_text("forgot")
    request, files = take_in(ledger, key).id, folder_hash(folder)
    add_ranker(ledger, FIRST)
    run = pass_run(ledger, "first", folder, files)
    with ledger.transaction():
        settle(ledger, request, State.FORGOTTEN, run, service_ranker(ledger, "first"))
    remove_ranker(ledger, "first")
    moved = folder.rename(tmp_path / "moved")
    there = ServiceRanker("moved", Role.retriever, str(moved), "/srv/data")
    assert add_ranker(ledger, there) == [] and service_ranker(ledger, "moved").run == run
    assert [each.state for each in states_of(ledger, request)] == [State.FORGOTTEN]
    assert deploy(ledger, "moved", date.today()).since == date.today()
    (moved / "model.safetensors").write_text("remembers")
    with pytest.raises(UnrankError, match=f"is not as run {run} wrote it"):
        deploy(ledger, "moved", date.today())
    remove_ranker(ledger, "moved")
    assert add_ranker(ledger, replace(there, name="again")) == [request]


def test_a_name_that_closed_requests_know_is_not_used_again(ledger: Ledger, key: Key) -> None:
    request = take_in(ledger, key).id
    add_ranker(ledger, FIRST)
    settle_in(ledger, request, State.FORGOTTEN, "first")
    close(ledger, request)
    remove_ranker(ledger, "first")
    with pytest.raises(UnrankError, match="earlier ranker 'first': choose another name"):
        add_ranker(ledger, FIRST)
    assert add_ranker(ledger, replace(FIRST, name="new")) == []


def test_a_clock_that_was_ahead_does_not_move_the_day(
    ledger: Ledger, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    with monkeypatch.context() as patch:
        patch.setattr("unrank.desk.ledger.datetime", ClockAhead)
        take_in(ledger, key, QUERY)
    add_ranker(ledger, FIRST)
    run = pass_run(ledger, "first", Path("/srv/one"))
    last = Entry(*ledger.ask("SELECT * FROM history ORDER BY number DESC LIMIT 1")[0])
    assert last.at[:4] > str(now.year) and abs(datetime.fromisoformat(last.when) - now) < timedelta(minutes=1)
    assert deploy(ledger, "first", date.today()).run == run


def test_a_ranker_that_is_taken_out_during_its_run_counts_no_longer(ledger: Ledger, key: Key) -> None:
    request, run = take_in(ledger, key).id, begin_run(ledger)
    for ranker in (FIRST, SECOND):
        add_ranker(ledger, ranker)
    for ranker, state in ((FIRST, State.OPEN), (SECOND, State.FORGOTTEN)):
        remove_ranker(ledger, ranker.name)
        with ledger.transaction():
            assert settle(ledger, request, State.FORGOTTEN, run, ranker) is state
            replace_ranker(ledger, ranker, run, Path("/srv/out"))
    assert service_rankers(ledger) == [] and states_of(ledger, request) == []
    ledger.verify()


def test_rankers_that_cannot_be_registered(ledger: Ledger, key: Key) -> None:
    add_ranker(ledger, FIRST)
    for other, words in (
        (FIRST, "has a ranker 'first' already"),
        (ServiceRanker("third", Role.reranker, "/srv/first", "/srv/data"), "is in the service already, as 'first'"),
        (ServiceRanker("a b", Role.reranker, "/srv/x", "/srv/data"), "up to 40 letters"),
    ):
        with pytest.raises(UnrankError, match=words):
            add_ranker(ledger, other)
    with pytest.raises(UnrankError, match="no ranker 'second': its rankers are first"):
        remove_ranker(ledger, "second")
    with pytest.raises(UnrankError, match="elsewhere is not in the service"):
        ranker_at(ledger, "/srv/elsewhere")
    assert ranker_at(ledger, "/srv/first") == FIRST


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE service_ranker SET ranker = '/srv/other'",
        "DELETE FROM service_ranker WHERE name = 'second'",
        "INSERT INTO service_ranker VALUES ('third', 'reranker', '/srv/third', '/srv/data', '[]', NULL, NULL, NULL)",
        "UPDATE state_by_ranker SET state = 'forgotten'",
        "DELETE FROM state_by_ranker",
    ],
)
def test_nobody_changes_the_service_unseen(change: str, ledger: Ledger, key: Key) -> None:
    request = take_in(ledger, key).id
    for ranker in (FIRST, SECOND):
        add_ranker(ledger, ranker)
    settle_in(ledger, request, State.NOT_FORGOTTEN, "first")
    ledger.verify()
    ledger.ask(change)
    with pytest.raises(BrokenChain, match=r"first|second|third|request 1"):
        ledger.verify()


@pytest.mark.parametrize("change", ["service_ranker SET since = 'x'", "service_ranker SET indexes = '{'"])
def test_what_cannot_be_read_is_a_change_too(change: str, ledger: Ledger, key: Key) -> None:
    add_ranker(ledger, FIRST)
    ledger.ask(f"UPDATE {change}")
    with pytest.raises(BrokenChain, match="the ranker first of the service was changed outside the history"):
        service_rankers(ledger)


def test_an_unknown_state_is_a_change_too(ledger: Ledger, key: Key) -> None:
    request = take_in(ledger, key).id
    add_ranker(ledger, FIRST)
    settle_in(ledger, request, State.FORGOTTEN, "first")
    ledger.ask("UPDATE state_by_ranker SET state = 'x'")
    with pytest.raises(BrokenChain, match=f"request {request} was changed outside its history"):
        states_of(ledger, request)


def test_no_path_of_the_service_names_a_request(ledger: Ledger, key: Key) -> None:
    add_ranker(ledger, FIRST)
    run = begin_run(ledger)
    with ledger.transaction():
        old = ServiceRanker("first", Role.retriever, "/srv/document-quixote/old", "/srv/data", ("/srv/index",))
        replace_ranker(ledger, old, run, Path("/srv/out"))
    request = take_in(ledger, key, DOCUMENT).id
    with pytest.raises(UnrankError, match="holds an id or words"):
        add_ranker(ledger, ServiceRanker("second", Role.reranker, "/srv/document-quixote", "/srv/data"))
    close(ledger, request, State.WITHDRAWN)
    assert service_ranker(ledger, "first").before is None
    ledger.verify()
    add_ranker(ledger, ServiceRanker("second", Role.reranker, "/srv/query-zanzibar", "/srv/data"))
    with pytest.raises(UnrankError, match="in the service as second, holds an id or words of request 2"):
        close(ledger, take_in(ledger, key, QUERY).id, State.WITHDRAWN)
