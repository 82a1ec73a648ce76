"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.errors import UnrankError

if TYPE_CHECKING:
    from unrank.engine.checkpoint import Cache

NOT_REACHED = 3
"""The exit status if the target was not reached, or more was lost than allowed."""


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


def _check_seed(seed: int) -> int:
    if seed >= 2**63:
        raise UnrankError(f"--seed {seed} is too large: a seed is below 2**63")
    return seed


CollectionFolder = Annotated[Path, typer.Argument(metavar="COLLECTION", help="A folder that 'unrank import' wrote.")]
RankerName = Annotated[str, typer.Argument(metavar="RANKER", help="A model folder or a hub id.")]
Out = Annotated[Path, typer.Option("--out", help="The folder to write; it must not exist.")]
DeviceOption = Annotated[DeviceName, typer.Option("--device", help="The device to compute on.")]
Deterministic = Annotated[bool, typer.Option("--deterministic", help="Give bit-equal results on a GPU too; slower.")]
Seed = Annotated[int, typer.Option("--seed", help="The seed of every random choice.", min=0, callback=_check_seed)]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print results and errors only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the method; see 'unrank list methods'. Repeatable."),
]
KeepAtLeast = Annotated[
    float | None,
    typer.Option(
        help="The share of its MRR that each kept set must keep; exit status 3 if one does not.", callback=_check_share
    ),
]
AuditQueries = Annotated[int, typer.Option("--queries", help="Maximal number of queries of each set.", min=1)]
AUDITED = 1_000
Measure = Annotated[
    int,
    typer.Option("--measure", min=0, help="Maximal number of queries of each kept set to measure, sampled; 0 for all."),
]
MEASURED = 3_000
CheckpointEvery = Annotated[
    float,
    typer.Option(
        "--checkpoint-every", min=0, help="Seconds between checkpoints; a stopped run resumes from the last one."
    ),
]
CHECKPOINTS = 60.0
Resume = Annotated[bool, typer.Option("--resume/--no-resume", help="Resume an unfinished run, or start again.")]
CacheFolder = Annotated[
    Path | None,
    typer.Option(
        "--cache", help="A folder that keeps tokens and scores for the next job; it holds data of what was removed."
    ),
]
RemovalFile = Annotated[Path | None, typer.Option("--removal", help="The removal.json file of what to remove.")]
LedgerFile = Annotated[Path, typer.Option("--ledger", help="The ledger of requests.")]
KeyFile = Annotated[Path | None, typer.Option("--key", help="The ledger's key; by default beside it, ending in .key.")]
RequestNumber = Annotated[int, typer.Argument(metavar="REQUEST", help="The number of a request.")]


def open_cache(folder: Path | None, out: Path | None) -> Cache | None:
    """Open the cache folder. Its scores show what a ranker remembers, so it must not be inside a result."""
    from unrank.engine.checkpoint import Cache

    if folder is None:
        return None
    if out is not None and folder.resolve().is_relative_to(out.resolve()):
        raise UnrankError(
            f"--cache {folder} is inside --out, and holds scores of what was removed: choose a folder outside"
        )
    cache = Cache(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnrankError(f"--cache {folder} cannot be made: {error.strerror or error}") from error
    return cache
