"""The command `audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from unrank.cli.option import (
    AUDITED,
    NOT_REACHED,
    AsJson,
    AuditQueries,
    CollectionFolder,
    DeviceOption,
    Fast,
    Out,
    Quiet,
    RankerName,
    Seed,
)
from unrank.cli.show import console, duration, say, say_json
from unrank.disk import check_free
from unrank.errors import count

if TYPE_CHECKING:
    from unrank.audit.audit import Audit
    from unrank.evaluation.bootstrap import BootstrapEstimate


def audit(
    ranker: RankerName,
    collection: CollectionFolder,
    removal: Annotated[Path, typer.Option("--removal", help="The removal.json that it should have forgotten.")],
    out: Out,
    original: Annotated[str | None, typer.Option(help="The ranker before it forgot.")] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(help="A ranker retrained without what is removed; give two to measure their difference."),
    ] = None,
    queries: AuditQueries = AUDITED,
    as_json: AsJson = False,
    seed: Seed = 0,
    device: DeviceOption = "auto",
    fast: Fast = True,
    quiet: Quiet = False,
) -> None:
    """Test whether a ranker has forgotten; exit 3 if something is still remembered."""
    from unrank.collection.collection import open_collection
    from unrank.collection.partition import make_partition
    from unrank.collection.removal import Removal

    check_free(out)
    removed = Removal.load(removal)
    opened = open_collection(collection)
    make_partition(opened, removed, str(removal))  # refuse a wrong removal before anything is loaded

    from unrank.audit.audit import audit_ranker
    from unrank.audit.context import Thoroughness
    from unrank.audit.verdict import Verdict
    from unrank.forgetting.previous_requests import check_references
    from unrank.forgetting.progress import show_progress
    from unrank.rankers import load_ranker
    from unrank.record import Record

    check_references(reference or (), opened, removed)
    with show_progress(quiet or as_json) as listener:
        result = audit_ranker(
            load_ranker(ranker, fast),
            opened,
            removed,
            original=load_ranker(original, fast) if original else None,
            references=[load_ranker(name, fast) for name in reference or ()],
            record=Record.read(Path(ranker)),
            thoroughness=Thoroughness(queries=queries),
            seed=seed,
            device=device,
            progress=listener,
        )
    result.save(out)
    if as_json:
        say_json(result.to_json())
    else:
        show_audit(result, out)
    if result.verdict is Verdict.REMEMBERED:
        raise typer.Exit(NOT_REACHED)


def show_audit(result: Audit, out: Path) -> None:
    """Print one line for each test, then the reasons."""
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
            found.verdict.short,
        )
    console().print(table)
    say("")
    for name, found in result.findings.items():
        say(f"{_name(name)}, by {found.measures}: {found.verdict}; {found.words}")
    for name, counts in result.about["sets"].items():
        if counts["queries"] < counts["queries_in_all"]:
            say(f"tested on {counts['queries']:,} of the {count(counts['queries_in_all'], f'{name} query')}")
    say(f"\nin all: {result.verdict}{_why_unknown(result)}; {duration(result.about['seconds'])}; written to {out}")


def _why_unknown(result: Audit) -> str:
    """Say why nothing can be known, so that nobody takes it for a pass."""
    from unrank.audit.audit import OF_MEMORY
    from unrank.audit.verdict import Verdict

    if result.verdict is not Verdict.UNKNOWN:
        return ""
    unknown = [result.findings[name] for name in OF_MEMORY if result.findings[name].verdict is Verdict.UNKNOWN]
    return f", which is no sign of forgetting: {unknown[0].words}"


def _name(name: str) -> str:
    return name.replace("_", " ")


def _value(estimate: BootstrapEstimate | None) -> str:
    return f"{estimate.value:.3f}" if estimate else ""
