"""The commands `desk plan` and `desk run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.cli.option import (
    AUDITED,
    NOT_REACHED,
    AuditQueries,
    CollectionFolder,
    DeviceName,
    DeviceOption,
    Fast,
    KeepAtLeast,
    KeyFile,
    LedgerFile,
    Quiet,
    RankerName,
    Seed,
    Settings,
)
from unrank.cli.show import duration, numbered, say, show_partition
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.desk.request import State
from unrank.disk import several_processes
from unrank.errors import UnrankError, count

if TYPE_CHECKING:
    from unrank.desk.plan import Plan
    from unrank.desk.run import Done

Look = Annotated[
    list[Path] | None, typer.Option(help="Where else to look for rankers, collections and files that hold it.")
]
Base = Annotated[str | None, typer.Option(help="The encoder, or the word vectors, that the ranker was trained from.")]
TARGET = "The forget MRR to reach, as in 'unrank forget'; by default a reference's that never saw it, or 'unseen'."
REFERENCE = "A ranker retrained without what is removed, for the audit; give two to measure what chance makes of it."


def plan(
    ranker: RankerName,
    collection: CollectionFolder,
    look: Look = None,
    base: Base = None,
    ledger: LedgerFile = Path("desk.ledger"),
    key: KeyFile = None,
    device: DeviceOption = DeviceName.auto,
) -> None:
    """Say what a run would touch and take; nothing is done."""
    _check_places(look or ())
    with Ledger.open(ledger) as desk:
        secret = desk.key(key or key_file(ledger))

        from unrank.collection.collection import open_collection
        from unrank.desk.batch import open_batch
        from unrank.desk.plan import make_plan
        from unrank.rankers import load_ranker
        from unrank.record import Record

        desk.verify()
        opened, record = open_collection(collection), Record.read(Path(ranker))
        batch = open_batch(desk, secret, opened, record)
        if not batch.requests:
            _nothing([request.id for request in batch.elsewhere])
            return
        batch.partition(opened)  # what cannot be is refused before anything is loaded
        places = [place for place in (Path(ranker), collection) if place.exists()]
        look_at = [*places, *(look or ())]
        made = make_plan(load_ranker(ranker), opened, batch, record, look_at, ledger, base, device.value)
        show_plan(made)


def run(
    ranker: RankerName,
    collection: CollectionFolder,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write the new ranker; else beside the old.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Run; without it the plan is shown, and nothing is done.")] = False,
    method: Annotated[str, typer.Option(help="How to forget; 'unrank list methods' names them.")] = "cocol",
    settings: Settings = None,
    target: Annotated[str | None, typer.Option(help=TARGET)] = None,
    reference: Annotated[list[str] | None, typer.Option(help=REFERENCE)] = None,
    keep_at_least: KeepAtLeast = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="The audit must find no difference from a retrained ranker, and no loss.")
    ] = False,
    queries: AuditQueries = AUDITED,
    look: Look = None,
    base: Base = None,
    seed: Seed = 0,
    ledger: LedgerFile = Path("desk.ledger"),
    key: KeyFile = None,
    device: DeviceOption = DeviceName.auto,
    fast: Fast = True,
    quiet: Quiet = False,
) -> None:
    """Forget all that is open in one go, audit it, and record it; exit 3 where a gate is not passed."""
    if several_processes():
        raise UnrankError("a run keeps a ledger, and one process does that: start it without torchrun or accelerate")
    if not yes:
        plan(ranker, collection, look, base, ledger, key, device)
        say("nothing was done: --yes runs it")
        return
    _check_places(look or ())
    with Ledger.open(ledger) as desk:
        desk.key(key or key_file(ledger))

        from unrank.cli.progress import progress
        from unrank.desk.orders import Orders
        from unrank.desk.run import run_open
        from unrank.methods import read_settings

        orders = Orders(
            ranker,
            collection,
            method,
            read_settings(settings or ()),
            target,
            base,
            tuple(reference or ()),
            keep_at_least,
            strict,
            queries,
            seed,
            device.value,
            tuple(look or ()),
            fast,
        )
        with progress(quiet) as listener:
            done = run_open(desk, key or key_file(ledger), orders, out, listener)
        if done is None:
            _nothing([request.id for request in desk.requests([State.OPEN])])
            return
    show_done(done)
    _tell_of(done.elsewhere)
    if not done.passed:
        raise typer.Exit(NOT_REACHED)


def _check_places(look: Sequence[Path]) -> None:
    for place in look:
        if not place.exists():
            raise UnrankError(f"--look {place}: no such file or folder, so nothing there could be found")


def show_plan(made: Plan) -> None:
    batch = made.batch
    together = " together" if len(batch.requests) > 1 else ""
    say(f"{numbered([request.id for request in batch.requests])} can be fulfilled{together} in one run")
    for one, other, pairs in made.overlaps:
        say(f"  {one} and {other} name {count(pairs, 'pair')} alike")
    _tell_of([request.id for request in batch.elsewhere])
    if batch.again:
        say("this ranker has not forgotten all that was asked for before: that is forgotten again with it")
    show_partition(made.partition)
    say(f"{count(made.noticing, 'query')} that stay will notice: something that is removed stands in their lists")
    for text in made.examples:
        say(f"  {text[:160]}")
    say("still held by" if made.holders else "nothing was found on disk that still holds it")
    for holder in made.holders:
        say(f"  {holder.kind:<11}{holder.path}: {holder.why}")
    for method, seconds in made.seconds.items():
        say(f"with {method} it takes about {duration(seconds)} here")


def show_done(done: Done) -> None:
    for gate in done.gates:
        say(f"{gate.name}: {'passed' if gate.passed else 'NOT passed'}; {gate.words}")
    for id, result in sorted(done.requests.items()):
        say(f"request {id} by itself: {'passed' if result.forgotten else 'NOT passed'}; {result.words}")
    out = done.out.relative_to(Path.cwd()) if done.out.is_relative_to(Path.cwd()) else done.out
    if done.fulfilled:
        numbers = numbered(done.fulfilled)
        say(f"{numbers} fulfilled by run {done.run}; the new ranker is in {out}, its audit in {out}-audit")
        for holder in done.result["holders"]:
            say(f"  still to delete: {holder['kind']} {holder['path']}: {holder['why']}")
    if done.still_open and done.fulfilled:
        say(f"{numbered(done.still_open)} still open: run again from {out}")
    elif done.still_open:
        say(f"{numbered(done.still_open)} still open: run {done.run} did not pass; its ranker is in {out}, not for use")
        say("a --reference for the audit, a lower --target, more epochs (--set epochs=40) or --method retrain may pass")


def _nothing(elsewhere: list[int]) -> None:
    say("nothing is open on this collection: nothing was done")
    _tell_of(elsewhere)


def _tell_of(elsewhere: list[int]) -> None:
    if elsewhere:
        say(f"still open, but not in this collection as it was named: {numbered(elsewhere)}")
