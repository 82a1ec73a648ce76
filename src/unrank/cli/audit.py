"""The command `audit`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from unrank.cli.option import (
    AUDITED,
    NOT_REACHED,
    OUT,
    REFERENCES,
    AsJson,
    AuditQueries,
    CollectionFolder,
    Copies,
    DeviceFlags,
    RankerName,
    Seed,
    with_copies,
    with_flags,
)
from unrank.cli.show import between, console, duration, say, say_json, tell_other_collection, tell_unrecognised
from unrank.disk import check_free, check_outside
from unrank.errors import UnrankError, count
from unrank.forgetting.options import DeviceName

if TYPE_CHECKING:
    from unrank.audit.audit import Audit
    from unrank.audit.context import AuditOptions
    from unrank.audit.plan import AuditPlan
    from unrank.evaluation.bootstrap import BootstrapEstimate


FULL = "Also choose the best of many attempts to relearn, and test more forms of the ranker; takes far longer."
PROXIES = (
    "A folder of prepared proxies, which judge single pairs; those that had a share in the run do not. Repeatable."
)
PLAN = "Say what can be found and how long it takes, and test nothing."
BASE = "The model that the ranker was trained from, if its record does not lead to it."


@dataclass(frozen=True)
class AuditFlags:
    """The rankers to compare with, the queries of the tests, and what is printed."""

    out: Annotated[Path | None, OUT] = None
    plan: Annotated[bool, typer.Option("--plan", help=PLAN)] = False
    original: Annotated[str | None, typer.Option("--original", help="The ranker before it forgot.")] = None
    reference: Annotated[list[str] | None, typer.Option("--reference", help=REFERENCES)] = None
    proxies: Annotated[list[str] | None, typer.Option("--proxies", help=PROXIES)] = None
    base: Annotated[str | None, typer.Option("--base", help=BASE)] = None
    queries: AuditQueries = AUDITED
    full: Annotated[bool, typer.Option("--full", help=FULL)] = False
    copies: Copies = True
    as_json: AsJson = False
    seed: Seed = 0

    def check(self, *inputs: str | Path) -> None:
        """Refuse a missing folder, and one that cannot be written, before anything is loaded."""
        if self.out is None and not self.plan:
            raise UnrankError("--out is missing: name the folder to write, or ask for the --plan")
        if self.out is not None:
            check_outside(self.out, *inputs)
            check_free(self.out)

    def options(self, device: DeviceName) -> AuditOptions:
        from unrank.audit.context import AuditOptions, Thoroughness

        effort = Thoroughness(queries=self.queries, full=self.full)
        return AuditOptions(effort, self.seed, device, self.base, tuple(self.proxies or ()))


@with_flags
def audit(
    ranker: RankerName,
    collection: CollectionFolder,
    removal: Annotated[Path, typer.Option("--removal", help="The removal.json that it should have forgotten.")],
    flags: AuditFlags,
    on: DeviceFlags,
) -> None:
    """Test whether a ranker has forgotten; exit code 3 if something is still remembered."""
    from unrank.collection.collection import open_collection
    from unrank.collection.partition import make_partition
    from unrank.collection.removal import Removal

    flags.check(ranker, collection)
    removed = Removal.load(removal)
    opened = open_collection(collection)
    removed = with_copies(removed, opened, flags.copies, str(removal))
    make_partition(opened, removed, str(removal))  # refuse a wrong removal before anything is loaded

    from unrank.audit.audit import audit_opened, open_audit
    from unrank.audit.comparison import PerRanker
    from unrank.audit.plan import plan_audit
    from unrank.forgetting.previous_requests import check_references
    from unrank.forgetting.progress import show_progress
    from unrank.rankers import load_ranker, record_of

    references = flags.reference or ()
    check_references(references, opened, removed)
    with show_progress(on.quiet or flags.as_json) as listener:
        original = load_ranker(flags.original, on.fast) if flags.original else None
        compared = tuple(load_ranker(name, on.fast) for name in references)
        rankers = PerRanker(load_ranker(ranker, on.fast), original, compared)
        record = record_of(ranker)
        tell_unrecognised(record, on.quiet or flags.as_json)
        tell_other_collection(record, opened)
        context = open_audit(rankers, opened, removed, record, flags.options(on.device), listener)
        if flags.plan:
            made = plan_audit(context)
        else:
            assert flags.out is not None
            result = audit_opened(context, removed)
            result.save(flags.out)
    if flags.plan:
        show_plan(made, flags.as_json)
    else:
        report(result, flags.out, flags.as_json)


def show_plan(made: AuditPlan, as_json: bool) -> None:
    """Print what an audit can find, and how long it takes."""
    if as_json:
        say_json({"plan": True, **asdict(made), "seconds": [*made.seconds]})
        return
    for line in made.words:
        say(line)
    say(f"{count(made.pairs, 'pair')} of {count(made.queries, 'query')}; all tests take {between(*made.seconds)} here")
    say("nothing was done")


def report(result: Audit, out: Path | None, as_json: bool) -> None:
    """Print the result; exit code 3 if something is still remembered."""
    from unrank.audit.verdict import Verdict

    if as_json:
        say_json(result.to_json())
    else:
        show_audit(result, out)
    if result.verdict is Verdict.REMEMBERED:
        raise typer.Exit(NOT_REACHED)


def show_audit(result: Audit, out: Path | None) -> None:
    """Print what the test of single pairs could find; then each test, the reasons, the verdict and what it means."""
    from unrank.audit.verdict import MEANING

    say(f"single pairs: {result.findings['per_example'].words}")
    head = ("test", "figure", "95 %", "original", "retrained", "threshold", "verdict")
    table = Table(*head, box=None, collapse_padding=True, pad_edge=False)
    for name, found in result.findings.items():
        compared = found.compared
        table.add_row(
            _name(name),
            _value(found.figure) or "none",
            f"{found.figure.low:.3f} to {found.figure.high:.3f}" if found.figure else "",
            _value(compared.original if compared else None),
            _value(compared.reference if compared else None),
            f"{found.threshold:.3f}" if found.threshold is not None else "",
            str(found.verdict),
        )
    console().print(table)
    say("")
    for name, found in result.findings.items():
        say(f"{_name(name)}, by {found.measures}: {found.verdict}; {found.words}")
    for name, counts in result.about["sets"].items():
        if counts["queries"] < counts["queries_in_all"]:
            say(f"tested on {counts['queries']:,} of the {count(counts['queries_in_all'], f'{name} query')}")
    say(f"\nin all: {result.verdict}{_why_undecided(result)}; {duration(result.about['seconds'])}; written to {out}")
    say(MEANING[result.verdict])


def _why_undecided(result: Audit) -> str:
    """Say why nothing was decided, so that nobody takes it for a pass."""
    from unrank.audit.verdict import Verdict

    return f": {result.words}" if result.verdict is Verdict.UNDECIDED else ""


def _name(name: str) -> str:
    return name.replace("_", " ")


def _value(estimate: BootstrapEstimate | None) -> str:
    return f"{estimate.value:.3f}" if estimate else ""
