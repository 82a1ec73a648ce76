"""The plan and the result of a run of the desk, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unrank.cli.show import COPIES_SHOWN, between, numbered, say, show_partition
from unrank.desk.request import Item, State
from unrank.errors import count
from unrank.report.wording import left_out_words, places_found

if TYPE_CHECKING:
    from unrank.desk.plan import Plan
    from unrank.desk.run_result import RunResult


MAY_HELP = "a --reference for the audit, a lower --target, more epochs (--set epochs=40)"
MAY_HELP_BEYOND = "a --reference for the audit, more epochs (--set epochs=40)"
MAY_HELP_PLACES = "a --reference for the places and the audit, --target beyond:10"
"""What to try if a request is not forgotten."""


def show_plan(made: Plan, quiet: bool = False) -> None:
    batch = made.batch
    together = " together" if len(batch.requests) > 1 else ""
    say(f"{numbered([request.id for request in batch.requests])} can be run{together}")
    for id, prospect in sorted(made.prospects.items()):
        say(f"  request {id}: {prospect}")
    for one, other, pairs in made.overlaps:
        say(f"  {one} and {other} both name {count(pairs, 'pair')}")
    say_elsewhere([request.id for request in batch.elsewhere])
    if batch.again:
        say("this ranker has not forgotten all earlier requests: it forgets them too")
    for id, of in batch.substitutes.items():
        if of:
            say(f"request {id}: {count(len(of), 'removed document')} with another document in its place, a substitute")
            say("  'desk run --method curd' raises it; other methods only measure where it stands")
        if number := batch.left_out(id):
            say(f"request {id}: {left_out_words(number)}")
    for id, copies in batch.copies.items():
        say(f"request {id}: {count(len(copies), 'copy')} of what it names in this collection, which a run adds to it")
        _show_copies(copies)
    for id, copies in batch.left.items():
        say(f"request {id}: {count(len(copies), 'copy')} of what it names stay in this collection, as the request says")
        _show_copies(copies)
    show_partition(made.partition)
    say(f"{count(made.noticing, 'kept query')} affected: a forgotten document is in the list")
    for text in made.examples if not quiet else ():
        say(f"  {text[:160]}")
    say("copies on disk" if made.copies else "no copies were found where the desk looked")
    for copy in made.copies:
        say(f"  {copy.kind:<11}{copy.path}: {copy.why}")
    for copy in made.not_searched:
        say(f"  look at it yourself: {copy.path} {copy.why}")
    for line in made.audit.words:
        say(f"in the audit, {line}")
    if made.proxies is not None:
        say(str(made.proxies))
    for method, seconds in made.seconds.items():
        audited = seconds + made.audit.seconds
        say(f"with {method} it takes {between(*audited)} here, of which the audit takes {between(*made.audit.seconds)}")


def plan_json(made: Plan) -> dict[str, Any]:
    """Return the plan for programs. A time is the least and the most seconds, with the audit."""
    batch = made.batch
    prospects = sorted(made.prospects.items())
    return {
        "requests": [{"request": id, **asdict(each), "words": str(each)} for id, each in prospects],
        "overlaps": [{"requests": [one, other], "pairs": pairs} for one, other, pairs in made.overlaps],
        "elsewhere": [request.id for request in batch.elsewhere],
        "again": bool(batch.again),
        "copies_to_add": {str(id): len(copies) for id, copies in batch.copies.items()},
        "copies_to_leave": {str(id): len(copies) for id, copies in batch.left.items()},
        "substitutes": {
            str(id): {"used": len(of), "left_out": batch.left_out(id)} for id, of in batch.substitutes.items()
        },
        "pairs": {name: len(getattr(made.partition, name)) for name in ("forget", "entangled", "disjoint")},
        "kept_queries_affected": made.noticing,
        "copies": [asdict(copy) for copy in made.copies],
        "not_searched": [asdict(copy) for copy in made.not_searched],
        "single_pairs": str(made.audit.single),
        "margins": made.audit.margins and made.audit.margins.to_json(),
        "audit": list(made.audit.words),
        "places": str(made.proxies) if made.proxies is not None else None,
        "seconds": {method: [*(seconds + made.audit.seconds)] for method, seconds in made.seconds.items()},
        "audit_seconds": [*made.audit.seconds],
    }


def _show_copies(copies: Sequence[Item]) -> None:
    for copy in copies[:COPIES_SHOWN]:
        say(f"  {copy.kind} {' '.join(id for id in (copy.query, copy.document) if id is not None)}")
    if len(copies) > COPIES_SHOWN:
        say(f"  and {len(copies) - COPIES_SHOWN:,} more")


def result_json(done: RunResult) -> dict[str, Any]:
    """Return the result for programs. `state` is what this run shows; `state_in_all` is the request's in the ledger."""
    return {
        "run": done.run,
        "ranker": str(done.out) if done.out is not None else None,
        "usable": done.usable,
        "requests": [
            {
                "request": id,
                **one.to_json(),
                "state_in_all": str(done.states[id]),
                "substitutes": asdict(done.substitutes[id]) if id in done.substitutes else None,
            }
            for id, one in sorted(done.requests.items())
        ],
        "gates": [asdict(gate) for gate in done.gates],
        "places": asdict(done.places) if done.places else None,
        "elsewhere": done.elsewhere,
        "later": done.later,
        "still_to_delete": done.result["holders"],
        "not_searched": done.result["not_searched"],
    }


def show_result(done: RunResult) -> None:
    """Print a sentence for each request, what cannot be known first; then the gates, and what is to be done."""
    if done.places is not None:
        say(places_found(done.places))
    for id, one in sorted(
        done.requests.items(), key=lambda each: (State(each[1].state) is not State.NOT_VERIFIABLE, each[0])
    ):
        say(f"request {id}: {one.state}: {one.words}")
    for id, each in sorted(done.substitutes.items()):
        say(f"request {id}: {each}")
    for gate in done.gates:
        say(f"{gate.name}: {'passed' if gate.passed else 'NOT passed'}; {gate.words}")
    for id, copies in done.result["copies"].items():
        for what, number in copies.items():
            say(f"request {id}: in the collection {count(number, 'copy')} of what it names, {what}")
    _say_ranker(done)
    for copy in done.result["holders"] if done.usable else ():
        say(f"  still to delete: {copy['kind']} {copy['path']}: {copy['why']}")
    for copy in done.result["not_searched"]:
        say(f"  look at it yourself: {copy['path']} {copy['why']}")
    for id, state in sorted(done.states.items()):
        if state in (State.WITHDRAWN, State.REFUSED):
            say(f"request {id} was {state} during the run, and keeps that state; the new ranker was to forget it too")
        elif done.usable and state is not State(done.requests[id].state):
            say(f"request {id} is {state} in the service as a whole: see 'unrank desk show {id}'")
    if done.later:
        say(f"{numbered(done.later)} came after this run had begun: run again")
    say_elsewhere(done.elsewhere)


def _say_ranker(done: RunResult) -> None:
    """Say where the new ranker is, and if it may be used."""
    if done.out is None:
        say(f"run {done.run} changed no weight and wrote no ranker: nothing had to be forgotten")
        return
    out = done.out.relative_to(Path.cwd()) if done.out.is_relative_to(Path.cwd()) else done.out
    again = sorted(id for id, one in done.requests.items() if not done.usable or not one.passed)
    if not done.usable:
        say(f"the ranker of run {done.run} in {out} is not for use; {numbered(again)} still to be run")
    else:
        say(f"run {done.run}: the new ranker is in {out}, its audit in {out}-audit")
    if again and done.usable:
        start = f"again from {out}" if len(again) < len(done.requests) else "again"
        say(f"{numbered(again)} not forgotten: run {start}")
    adapted = sorted(id for id, one in done.requests.items() if State(one.state) is State.WHILE_ADAPTED)
    if adapted and done.usable:
        say(f"{numbered(adapted)} forgotten only while the adapter in {out} is on: to close it, run with --as merged")
    if again:
        say(f"{_may_help(done)} or --method retrain may help")


def _may_help(done: RunResult) -> str:
    """Return what may help. A lower K of `beyond:K` asks for less, so that is not said."""
    from unrank.forgetting.target import beyond_of

    if done.places is not None:
        return MAY_HELP_PLACES
    return MAY_HELP if beyond_of(done.result["record"]["target_name"]) is None else MAY_HELP_BEYOND


def say_nothing_open(elsewhere: list[int]) -> None:
    say("no request is open on this collection: nothing was done")
    say_elsewhere(elsewhere)


def say_elsewhere(elsewhere: list[int]) -> None:
    if elsewhere:
        say(f"still open, but does not fit this collection: {numbered(elsewhere)}")
