"""Undoing a run: while the ranker that it began from is kept, its requests can be opened again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unrank.desk.ledger import Ledger
from unrank.desk.remains import PastRun, past_runs
from unrank.desk.request import PENDING, State
from unrank.desk.run_ledger import only_run
from unrank.desk.service import ServiceRanker, put_back, states_of, worst
from unrank.desk.trust import CERTIFIED, Reason, revocations, revoke
from unrank.disk import folder_hash
from unrank.errors import UnrankError, count
from unrank.forgetting.anchor_file import drop_places


@dataclass(frozen=True)
class Undone:
    """The result of an undone run: its requests with their states now, and the ranker that is in service again."""

    run: int
    out: Path
    requests: dict[int, State]
    original: str
    member: ServiceRanker | None
    revoked: int
    """The number of certificates that were revoked."""


def undo_run(ledger: Ledger, id: int) -> Undone:
    """Open the requests of a run again, and put back the ranker that it replaced.

    On disk, only the places of its pairs are erased from the anchor file.
    """
    with only_run(ledger.path), ledger.transaction():
        runs = {run.id: run for run in past_runs(ledger)}
        if id not in runs:
            raise UnrankError(f"{ledger.path}: there is no run {id}; it has {count(len(runs), 'run')}")
        run = runs[id]
        [[state]] = ledger.ask("SELECT state FROM run WHERE id = ?", [id])
        if state != "passed":
            raise UnrankError(f"run {id} settled no request ({state}): there is nothing to undo")
        requests = _requests_of(ledger, id)
        _check(ledger, run, requests, list(runs.values()))
        ledger.ask("UPDATE run SET state = 'abandoned' WHERE id = ?", [id])
        ledger.write_of_run("undone", id, requests=requests)
        member = put_back(ledger, id, run.ranker)
        revoked = _revoke(ledger, requests)
        drop_places(run.result.get("run_name", ""))  # by which the anchor file knows it
        return Undone(id, run.out, {each: _reopen(ledger, each, id) for each in requests}, run.ranker, member, revoked)


def _requests_of(ledger: Ledger, run: int) -> list[int]:
    """Return the requests that a run has settled, in one ranker of the service or in all."""
    query = "SELECT id FROM request WHERE run = ?1 UNION SELECT request FROM state_by_ranker WHERE run = ?1 ORDER BY 1"
    return [id for (id,) in ledger.ask(query, [run])]


def _check(ledger: Ledger, run: PastRun, requests: list[int], runs: list[PastRun]) -> None:
    """Refuse to undo a run that cannot be undone."""
    for request in requests:
        if (state := ledger.request(request).state) not in PENDING:
            raise UnrankError(f"run {run.id} cannot be undone: request {request} is {state}")
    for later in runs:
        if later.id > run.id and later.ranker == str(run.out):
            [[state]] = ledger.ask("SELECT state FROM run WHERE id = ?", [later.id])
            if state in ("begun", "passed"):
                raise UnrankError(
                    f"run {run.id} cannot be undone: run {later.id} began from its ranker; undo that first"
                )
    digest = folder_hash(Path(run.ranker))
    if digest is None:
        raise UnrankError(f"run {run.id} cannot be undone: the ranker that it began from, {run.ranker}, is not there")
    if digest != run.asked.get("ranker_files"):
        raise UnrankError(f"run {run.id} cannot be undone: {run.ranker} was changed since the run read it")


def _revoke(ledger: Ledger, requests: list[int]) -> int:
    """Revoke the certificates of these requests; return their number."""
    before = {each.certificate for each in revocations(ledger)}
    entries = [entry for request in requests for entry in ledger.history(request) if entry.event == CERTIFIED]
    issued = [hashed for entry in entries if (hashed := entry.values["content"]) not in before]
    for hashed in issued:
        revoke(ledger, hashed, Reason.ranker)
    return len(issued)


def _reopen(ledger: Ledger, request: int, run: int) -> State:
    """Open a request again in the ranker of the run; return its state."""
    ledger.ask("DELETE FROM state_by_ranker WHERE request = ? AND run = ?", [request, run])
    there = states_of(ledger, request)
    state = worst(each.state for each in there) if there else State.OPEN
    last = max((each.run for each in there if each.run is not None), default=None)
    ledger.ask("UPDATE request SET run = ? WHERE id = ?", [last, request])
    ledger.move(request, state, undone=run)
    return state
