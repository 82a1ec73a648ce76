"""The rankers of a service: a request is as forgotten as in the ranker that remembers it best."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.desk.conftest import DOCUMENT, QUERY, take_in
from unrank.desk.closing import close
from unrank.desk.history_index import BrokenChain
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
from unrank.errors import UnrankError

FIRST = ServiceRanker("first", Role.retriever, "/srv/first", "/srv/data", ("/srv/index",), date(2026, 1, 2))
SECOND = ServiceRanker("second", Role.reranker, "/srv/second", "/srv/data")


def begin_run(ledger: Ledger, out: str = "/srv/out") -> int:
    """A run in the ledger, as small as one can be."""
    with ledger.transaction():
        [[run]] = ledger.ask("INSERT INTO run (state, out, asked) VALUES ('begun', ?, '{}') RETURNING id", [out])
        ledger.write_of_run("begun", run, requests=[])
    return int(run)


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
