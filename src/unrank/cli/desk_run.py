"""The commands `desk plan` and `run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unrank.cli.option import (
    AUDITED,
    FORGET,
    NOT_REACHED,
    AsJson,
    AuditQueries,
    CheckpointEvery,
    DeviceFlags,
    DeviceOption,
    KeepAtLeast,
    LedgerFlags,
    Quiet,
    Seed,
    Settings,
    check_places,
    exit_status,
    flag_of,
    with_flags,
)
from unrank.cli.show import COPIES_SHOWN, between, numbered, say, say_json, show_partition
from unrank.desk.request import Item, State
from unrank.disk import several_processes
from unrank.errors import UnrankError, count
from unrank.forgetting.options import METHOD, DeviceName, ForgetOptions
from unrank.methods import read_settings

if TYPE_CHECKING:
    from unrank.desk.plan import Plan
    from unrank.desk.run import RunResult

Look = Annotated[
    list[Path] | None,
    typer.Option("--look", help="A folder or file to search for copies: rankers, collections, files. Repeatable."),
]
Base = Annotated[str | None, flag_of(FORGET["base"], help="The encoder or word vectors the ranker was trained from.")]
TARGET = (
    "The forget MRR to reach, as in 'unrank forget'; by default that of a reference that never saw it, or 'unseen'."
)
REFERENCE = "A ranker retrained without what is removed, for the audit; give two to measure their difference."
LEDGER = LedgerFlags()
EVERY = ForgetOptions.checkpoint_every


RankerOfRun = Annotated[
    str | None,
    typer.Argument(metavar="RANKER", help="A model folder or a hub id; by default each ranker of the service."),
]
CollectionOfRun = Annotated[
    Path | None, typer.Argument(metavar="COLLECTION", help="Its collection; by default as the service has it.")
]


@with_flags
def plan(
    ranker: RankerOfRun = None,
    collection: CollectionOfRun = None,
    look: Look = None,
    base: Base = None,
    files: LedgerFlags = LEDGER,
    device: DeviceOption = "auto",
    quiet: Quiet = False,
) -> None:
    """Show what a run would change and how long it would take; nothing is done."""
    check_places("--look", look or ())
    flags = DeskRunFlags(look=look, base=base)
    for name, at, data in _rankers(ranker, collection, flags, files):
        _say_name(name)
        _plan(at, data, flags, files, DeviceFlags(device, quiet=quiet))


def _plan(ranker: str, collection: Path, flags: DeskRunFlags, files: LedgerFlags, on: DeviceFlags) -> None:
    with files.read() as (desk, secret):
        from unrank.collection.collection import open_collection
        from unrank.desk.batch import open_batch
        from unrank.desk.plan import make_plan
        from unrank.desk.service import ranker_at
        from unrank.rankers import load_ranker
        from unrank.record import Record

        desk.verify()
        opened, record = open_collection(collection), Record.read(Path(ranker))
        batch = open_batch(desk, secret, opened, record, ranker_at(desk, ranker))
        if not batch.requests:
            _say_nothing_open([request.id for request in batch.elsewhere])
            return
        batch.partition(opened)  # refuse wrong requests before anything is loaded
        places = [place for place in (Path(ranker), collection) if place.exists()]
        look_at, loaded = [*places, *(flags.look or ())], load_ranker(ranker, on.fast)
        given = (flags.forget(on.device), flags.reference or ())
        made = make_plan(loaded, opened, batch, record, look_at, files.ledger, *given)
        show_plan(made, on.quiet)


@dataclass(frozen=True)
class DeskRunFlags:
    """The flags of `desk run`."""

    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for the new ranker; by default beside the old one.")
    ] = None
    yes: Annotated[bool, typer.Option("--yes", help="Run; without it only the plan is shown.")] = False
    method: Annotated[str, flag_of(FORGET["method"], help="The method; see 'unrank list methods'.")] = METHOD
    settings: Settings = None
    target: Annotated[str | None, flag_of(FORGET["target"], help=TARGET)] = None
    reference: Annotated[list[str] | None, typer.Option("--reference", help=REFERENCE)] = None
    keep_at_least: KeepAtLeast = None
    strict: Annotated[bool, typer.Option("--strict", help="Require an audit without any difference or loss.")] = False
    queries: AuditQueries = AUDITED
    look: Look = None
    base: Base = None
    seed: Seed = 0
    checkpoint_every: CheckpointEvery = EVERY
    json: AsJson = False

    def forget(self, device: DeviceName) -> ForgetOptions:
        """Return how a run forgets."""
        return ForgetOptions(
            method=self.method,
            settings=read_settings(self.settings or ()),
            base=self.base,
            seed=self.seed,
            checkpoint_every=self.checkpoint_every,
            device=device,
        )


def _rankers(
    ranker: str | None, collection: Path | None, flags: DeskRunFlags, files: LedgerFlags
) -> list[tuple[str | None, str, Path]]:
    """Return the rankers to run, each with its name in the service and its collection; an unfinished run goes first."""
    from unrank.desk.run_ledger import unfinished_run
    from unrank.desk.service import ranker_at, service_rankers

    if ranker is not None and collection is not None:
        return [(None, ranker, collection)]
    with files.read() as (desk, _):
        members = service_rankers(desk)
        if ranker is not None:
            if (member := ranker_at(desk, ranker)) is None:
                raise UnrankError(f"give the collection of {ranker} too: no ranker is registered with one")
            return [(member.name, ranker, Path(member.collection))]
        if not members:
            raise UnrankError("give RANKER and COLLECTION, or register rankers with 'unrank desk service add'")
        if len(members) > 1 and (flags.out or flags.reference):
            option = "--out" if flags.out else "--reference"
            raise UnrankError(f"{option} is for one ranker, and the service has {len(members)}: give RANKER too")
        begun = unfinished_run(desk)
        members.sort(key=lambda member: begun is None or member.ranker != begun.asked.get("ranker"))
        return [(member.name, member.ranker, Path(member.collection)) for member in members]


@with_flags
def run(
    *,
    ranker: RankerOfRun = None,
    collection: CollectionOfRun = None,
    flags: DeskRunFlags,
    files: LedgerFlags,
    on: DeviceFlags,
) -> None:
    """Forget all open requests in one run of each ranker, audit it, and judge each request by itself.

    Exit status 3 if one is not forgotten or more was lost than allowed, 4 if one cannot be verified.
    """
    if several_processes():
        raise UnrankError(
            "a run writes a ledger, which takes a single process: start it without torchrun or accelerate"
        )
    check_places("--look", flags.look or ())
    rankers = _rankers(ranker, collection, flags, files)
    statuses = []
    for name, at, data in rankers:
        if not flags.json:
            _say_name(name)
        if flags.yes:
            statuses.append(_run(name, at, data, flags, files, on))
        else:
            _plan(at, data, flags, files, on)
    if not flags.yes:
        say("nothing was done: --yes runs it")
    elif status := NOT_REACHED if NOT_REACHED in statuses else max(statuses):
        raise typer.Exit(status)


def _run(
    name: str | None, ranker: str, collection: Path, flags: DeskRunFlags, files: LedgerFlags, on: DeviceFlags
) -> int:
    """Run one ranker, and print what came of it; return the exit status."""
    with files.open() as (desk, _):
        from unrank.desk.run import run_open
        from unrank.desk.run_options import RunOptions
        from unrank.desk.service import ranker_at, runnable_in
        from unrank.forgetting.progress import show_progress

        options = RunOptions(
            ranker,
            collection,
            flags.forget(on.device),
            target=flags.target,
            references=tuple(flags.reference or ()),
            keep_at_least=flags.keep_at_least,
            strict=flags.strict,
            audit_queries=flags.queries,
            look=tuple(flags.look or ()),
            fast=on.fast,
        )
        with show_progress(on.quiet or flags.json) as listener:
            done = run_open(desk, files.key_file, options, flags.out, listener)
        if done is None:
            waiting = [request.id for request in runnable_in(desk, ranker_at(desk, ranker))]
            nothing = {"service_ranker": name, "run": None, "requests": [], "elsewhere": waiting}
            say_json(nothing) if flags.json else _say_nothing_open(waiting)
            return 0
    say_json({"service_ranker": name, **result_json(done)}) if flags.json else show_result(done)
    return exit_status(one.state for one in done.requests.values()) if done.usable else NOT_REACHED


def _say_name(name: str | None) -> None:
    if name is not None:
        say(f"{name}:")


def show_plan(made: Plan, quiet: bool = False) -> None:
    batch = made.batch
    together = " together" if len(batch.requests) > 1 else ""
    say(f"{numbered([request.id for request in batch.requests])} can be run{together}")
    for id, prospect in sorted(made.prospects.items()):
        say(f"  request {id}: {prospect}")
    for one, other, pairs in made.overlaps:
        say(f"  {one} and {other} both name {count(pairs, 'pair')}")
    _say_elsewhere([request.id for request in batch.elsewhere])
    if batch.again:
        say("this ranker has not forgotten all earlier requests: it forgets them too")
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
        say(f"  not searched {copy.path}: {copy.why}")
    for method, seconds in made.seconds.items():
        audited = seconds + made.audit
        say(f"with {method} it takes {between(*audited)} here, of which the audit takes {between(*made.audit)}")


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
            {"request": id, **one.to_json(), "state_in_all": str(done.states[id])}
            for id, one in sorted(done.requests.items())
        ],
        "gates": [asdict(gate) for gate in done.gates],
        "elsewhere": done.elsewhere,
        "later": done.later,
        "still_to_delete": done.result["holders"],
        "not_searched": done.result["not_searched"],
    }


def show_result(done: RunResult) -> None:
    """Print a sentence for each request, what cannot be known first; then the gates, and what is to be done."""
    for id, one in sorted(
        done.requests.items(), key=lambda each: (State(each[1].state) is not State.NOT_VERIFIABLE, each[0])
    ):
        say(f"request {id}: {one.state}: {one.words}")
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
    _say_elsewhere(done.elsewhere)


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
    if again:
        say("a --reference for the audit, a lower --target, more epochs (--set epochs=40) or --method retrain may help")


def _say_nothing_open(elsewhere: list[int]) -> None:
    say("no request is open on this collection: nothing was done")
    _say_elsewhere(elsewhere)


def _say_elsewhere(elsewhere: list[int]) -> None:
    if elsewhere:
        say(f"still open, but does not fit this collection: {numbered(elsewhere)}")
