"""The commands `desk plan` and `run`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from unrank.cli.desk_show import plan_json, result_json, say_nothing_open, show_plan, show_result
from unrank.cli.forget import tell_of_places
from unrank.cli.option import (
    AUDITED,
    FORGET,
    NOT_REACHED,
    REFERENCES,
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
    WriteFlags,
    check_places,
    exit_status,
    flag_of,
    with_flags,
)
from unrank.cli.show import say, say_json, tell_unrecognised
from unrank.disk import several_processes
from unrank.errors import UnrankError
from unrank.forgetting.options import METHOD, DeviceName, ForgetOptions, SavedAs
from unrank.methods import read_settings

Look = Annotated[
    list[Path] | None,
    typer.Option("--look", help="A folder or file to search for copies: rankers, collections, files. Repeatable."),
]
Base = Annotated[str | None, flag_of(FORGET["base"])]
TARGET = "Where to stop, as in 'unrank forget'; by default each pair comes to its own place (places)."
Target = Annotated[str | None, flag_of(FORGET["target"], help=TARGET)]
Proxies = Annotated[str | None, flag_of(FORGET["proxies"])]
JUDGES = "A folder of prepared proxies for the audit, which had no share in the run. Repeatable."
AuditProxies = Annotated[list[str] | None, typer.Option("--audit-proxies", help=JUDGES)]
PROGRESS = "A file that always holds how far the run has come, as JSON."
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
    target: Target = None,
    proxies: Proxies = None,
    audit_proxies: AuditProxies = None,
    files: LedgerFlags = LEDGER,
    device: DeviceOption = "auto",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show what a run would change and how long it would take; nothing is done."""
    check_places("--look", look or ())
    flags = DeskRunFlags(
        look=look, base=base, target=target, proxies=proxies, audit_proxies=audit_proxies, json=as_json
    )
    for name, at, data in _rankers(ranker, collection, flags, files):
        if not as_json:
            _say_name(name)
        with _naming_entry(name, at, data):
            _plan(name, at, data, flags, files, DeviceFlags(device, quiet=quiet))


def _plan(
    name: str | None, ranker: str, collection: Path, flags: DeskRunFlags, files: LedgerFlags, on: DeviceFlags
) -> None:
    with files.read() as (desk, secret):
        from unrank.collection.collection import open_collection
        from unrank.desk.batch import open_batch
        from unrank.desk.plan import make_plan
        from unrank.desk.service import ranker_at
        from unrank.forgetting.target import check_target
        from unrank.rankers import load_ranker, record_of

        desk.verify()
        opened, record = open_collection(collection), record_of(ranker)
        tell_unrecognised(record, silent=True)
        batch = open_batch(desk, secret, opened, record, ranker_at(desk, ranker))
        if not batch.requests:
            _say_nothing_open(name, [request.id for request in batch.elsewhere], flags.json)
            return
        partition, options = batch.partition(opened), flags.forget(on.device)
        check_target(options.target, opened, partition, bool(flags.reference))  # before anything is loaded
        places = [place for place in (Path(ranker), collection) if place.exists()]
        look_at, loaded = [*places, *(flags.look or ())], load_ranker(ranker, on.fast)
        compared = (flags.reference or (), flags.audit_proxies or ())
        made = make_plan(loaded, opened, batch, record, look_at, files.ledger, options, *compared)
        if flags.json:
            say_json({"service_ranker": name, **plan_json(made)})
        else:
            show_plan(made, on.quiet)


@dataclass(frozen=True)
class DeskRunFlags:
    """The flags of `desk run`."""

    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for the new ranker; by default beside the old one.")
    ] = None
    yes: Annotated[bool, typer.Option("--yes", help="Run; without it only the plan is shown.")] = False
    method: Annotated[str, flag_of(FORGET["method"])] = METHOD
    settings: Settings = None
    target: Target = None
    reference: Annotated[list[str] | None, typer.Option("--reference", help=REFERENCES)] = None
    keep_at_least: KeepAtLeast = None
    strict: Annotated[bool, typer.Option("--strict", help="Require an audit without any difference or loss.")] = False
    queries: AuditQueries = AUDITED
    look: Look = None
    base: Base = None
    proxies: Proxies = None
    audit_proxies: AuditProxies = None
    adapt: Annotated[str | None, flag_of(FORGET["adapt"])] = None
    saved_as: Annotated[SavedAs, flag_of(FORGET["saved_as"])] = "merged"
    seed: Seed = 0
    checkpoint_every: CheckpointEvery = EVERY
    progress: Annotated[Path | None, typer.Option("--progress", help=PROGRESS)] = None
    json: AsJson = False

    def forget(self, device: DeviceName) -> ForgetOptions:
        """Return how a run forgets."""
        return ForgetOptions(
            method=self.method,
            settings=read_settings(self.settings or ()),
            target=self.target or ForgetOptions.target,
            base=self.base,
            proxies=self.proxies,
            adapt=self.adapt,
            saved_as=self.saved_as,
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
    files: WriteFlags,
    on: DeviceFlags,
) -> None:
    """Forget all open requests in one run of each ranker, audit it, and judge each request by itself.

    Exit code 3 if one is not forgotten or more was lost than allowed, 4 if one cannot be verified.
    """
    if several_processes():
        raise UnrankError(
            "a run writes a ledger, which takes a single process: start it without torchrun or accelerate"
        )
    check_places("--look", flags.look or ())
    rankers = _rankers(ranker, collection, flags, files)
    statuses = []
    if not (on.quiet or flags.json):
        tell_of_places(flags.forget(on.device).target)
    for name, at, data in rankers:
        if not flags.json:
            _say_name(name)
        with _naming_entry(name, at, data):
            if flags.yes:
                statuses.append(_run(name, at, data, flags, files, on))
            else:
                _plan(name, at, data, flags, files, on)
    if not flags.yes:
        if not flags.json:
            say("nothing was done: --yes runs it")
    elif status := NOT_REACHED if NOT_REACHED in statuses else max(statuses):
        raise typer.Exit(status)


def _run(
    name: str | None, ranker: str, collection: Path, flags: DeskRunFlags, files: WriteFlags, on: DeviceFlags
) -> int:
    """Run one ranker, and print what came of it; return the exit code."""
    with files.open() as (desk, _):
        from unrank.desk.progress_file import progress_to
        from unrank.desk.run import run_open
        from unrank.desk.run_options import RunOptions
        from unrank.desk.service import ranker_at, runnable_in
        from unrank.forgetting.progress import show_progress
        from unrank.rankers import record_of

        options = RunOptions(
            ranker,
            collection,
            flags.forget(on.device),
            target=flags.target,
            references=tuple(flags.reference or ()),
            keep_at_least=flags.keep_at_least,
            strict=flags.strict,
            audit_queries=flags.queries,
            audit_proxies=tuple(flags.audit_proxies or ()),
            look=tuple(flags.look or ()),
            fast=on.fast,
        )
        tell_unrecognised(record_of(ranker), on.quiet or flags.json)
        with show_progress(on.quiet or flags.json) as shown, progress_to(flags.progress, shown) as listener:
            done = run_open(desk, files.key_file, options, flags.out, listener)
        if done is None:
            waiting = [request.id for request in runnable_in(desk, ranker_at(desk, ranker))]
            _say_nothing_open(name, waiting, flags.json, run=None)
            return 0
    if flags.json:
        say_json({"service_ranker": name, **result_json(done)})
    else:
        show_result(done)
    return exit_status(one.state for one in done.requests.values()) if done.usable else NOT_REACHED


def _say_nothing_open(name: str | None, waiting: list[int], as_json: bool, **more: object) -> None:
    """Say that no request is open for a ranker, and which ones wait for another ranker."""
    if as_json:
        say_json({"service_ranker": name, **more, "requests": [], "elsewhere": waiting})
    else:
        say_nothing_open(waiting)


def _naming_entry(name: str | None, ranker: str, collection: Path) -> AbstractContextManager[None]:
    """Let an error about a ranker or a collection name its entry of the service."""
    from unrank.desk.service import naming_entry

    return naming_entry(name, ranker, str(collection))


def _say_name(name: str | None) -> None:
    if name is not None:
        say(f"{name}:")
