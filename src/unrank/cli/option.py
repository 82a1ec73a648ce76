"""Options that several commands share, and how they are read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.errors import UnrankError

if TYPE_CHECKING:
    from unrank.engine.checkpoint import Cache

NOT_REACHED = 3
"""The exit status where less was reached, or more was lost, than was asked for."""


class DeviceName(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Side(StrEnum):
    queries = "queries"
    documents = "documents"


class Frozen(StrEnum):
    documents = "documents"


def _check_share(share: float | None) -> float | None:
    if share is not None and not 0 < share <= 1:
        raise UnrankError(f"--keep-at-least {share:g} is outside (0, 1]")
    return share


CollectionFolder = Annotated[Path, typer.Argument(metavar="COLLECTION", help="A folder that 'unrank import' wrote.")]
RankerName = Annotated[str, typer.Argument(metavar="RANKER", help="A model folder or a hub id.")]
Out = Annotated[Path, typer.Option("--out", help="The folder to write; it must not exist.")]
DeviceOption = Annotated[DeviceName, typer.Option("--device", help="Where to compute.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="The same bits every time on a GPU too, at some cost of speed.")
]
Seed = Annotated[int, typer.Option("--seed", help="What every random choice follows from.", min=0, max=2**63 - 1)]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the method; 'unrank list methods' names them."),
]
KeepAtLeast = Annotated[
    float | None,
    typer.Option(help="The least share of its MRR that each kept set must keep; else exit 3.", callback=_check_share),
]
AuditQueries = Annotated[int, typer.Option("--queries", help="Queries of each set to look at, at most.", min=1)]
AUDITED = 1_000
Measure = Annotated[
    int, typer.Option("--measure", min=0, help="Queries of each kept set to measure at most, drawn by lot; 0 for all.")
]
MEASURED = 3_000
CheckpointEvery = Annotated[
    float,
    typer.Option("--checkpoint-every", min=0, help="Seconds between checkpoints, from which a stopped run goes on."),
]
CHECKPOINTS = 60.0
Resume = Annotated[
    bool, typer.Option("--resume/--no-resume", help="Whether to go on with an unfinished run, or to begin anew.")
]
CacheFolder = Annotated[
    Path | None,
    typer.Option("--cache", help="A folder to keep tokens and scores in for the next job; it remembers."),
]
RemovalFile = Annotated[Path | None, typer.Option("--removal", help="A removal.json.")]
LedgerFile = Annotated[Path, typer.Option("--ledger", help="The ledger of requests.")]
KeyFile = Annotated[Path | None, typer.Option("--key", help="The ledger's key; by default beside it, ending in .key.")]
RequestNumber = Annotated[int, typer.Argument(metavar="REQUEST", help="The number of a request.")]


def open_cache(folder: Path | None, out: Path | None) -> Cache | None:
    """The cache that was asked for. Its scores are what a ranker remembers, so it is no part of a result."""
    from unrank.engine.checkpoint import Cache

    if folder is None:
        return None
    if out is not None and folder.resolve().is_relative_to(out.resolve()):
        raise UnrankError(f"--cache {folder} lies inside --out, and remembers what was removed: choose a folder apart")
    cache = Cache(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnrankError(f"--cache {folder} cannot be made: {error.strerror or error}") from error
    return cache
