"""Options that several commands share."""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from unrank.cli.show import show_copies
from unrank.desk.key import Key, key_file
from unrank.desk.ledger import Ledger
from unrank.disk import exists
from unrank.errors import LONGEST_LINE, UnrankError, one_line
from unrank.forgetting.options import DeviceName, ForgetOptions

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.collection.removal import Removal
    from unrank.engine.checkpoint import Cache
    from unrank.engine.pieces import Job, Made, Pieces
    from unrank.engine.runtime import Progress

NOT_REACHED = 3
"""The exit code if a request is not forgotten, or more was lost than allowed."""
NOT_VERIFIABLE = 4
"""The exit code if a request is forgotten as far as can be seen, but this cannot be verified or is not complete."""


def exit_status(states: Iterable[str]) -> int:
    """Return the exit code of a run: that of the request with the worst state.

    >>> exit_status(["forgotten", "nothing to forget"]), exit_status(["forgotten, not verifiable", "not forgotten"])
    (0, 3)
    >>> exit_status(["forgotten", "forgotten while the adapter is on"])
    4
    """
    status = {"forgotten": 0, "nothing to forget": 0, "not forgotten": NOT_REACHED}
    found = {status.get(str(state), NOT_VERIFIABLE) for state in states}
    return next((code for code in (NOT_REACHED, NOT_VERIFIABLE) if code in found), 0)


class Side(StrEnum):
    queries = "queries"
    documents = "documents"


def flag_of(field: Field[Any], **changed: Any) -> Any:
    """Return the flag of a field of options, with some of its metadata changed."""
    known = {**field.metadata, **changed}
    more = {name: known[name] for name in ("help", "metavar", "min", "callback") if name in known}
    return typer.Option(known.get("flag", f"--{field.name.replace('_', '-')}"), **more)


FORGET = {field.name: field for field in fields(ForgetOptions)}
"""The fields of `ForgetOptions`. Other commands that have one of these flags take it from here."""

CollectionFolder = Annotated[Path, typer.Argument(metavar="COLLECTION", help="A folder that 'unrank import' wrote.")]
RankerName = Annotated[str, typer.Argument(metavar="RANKER", help="A model folder or a hub id.")]
OUT = typer.Option("--out", help="The folder to write; it must not exist.")
Out = Annotated[Path, OUT]
DeviceOption = Annotated[DeviceName, flag_of(FORGET["device"])]
Deterministic = Annotated[bool, flag_of(FORGET["deterministic"])]
Fast = Annotated[
    bool,
    typer.Option("--fast/--no-fast", help="Use unrank's faster passes through an encoder, or its library's own only."),
]
Seed = Annotated[int, flag_of(FORGET["seed"])]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print results and errors only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Settings = Annotated[list[str] | None, flag_of(FORGET["settings"])]
KeepAtLeast = Annotated[float | None, flag_of(FORGET["keep_at_least"])]
AuditQueries = Annotated[int, typer.Option("--queries", help="Maximal number of queries of each set.", min=1)]
AUDITED = 1_000
REFERENCES = "A ranker retrained without what is removed; give two to measure their difference. Repeatable."
MEASURE = "Maximal number of queries of each kept set to measure, sampled; 0 for all."
Measure = Annotated[int, flag_of(FORGET["measure"], help=MEASURE)]
MEASURED = 3_000
CheckpointEvery = Annotated[float, flag_of(FORGET["checkpoint_every"])]
Resume = Annotated[bool, flag_of(FORGET["resume"])]
REPORT_TO = "Also report figures to a tracker: trackio, tensorboard, wandb, mlflow, ... Repeatable; off by default."
ReportTo = Annotated[list[str] | None, typer.Option("--report-to", metavar="TRACKER", help=REPORT_TO)]
CacheFolder = Annotated[
    Path | None,
    typer.Option(
        "--cache", help="A folder that keeps tokens and scores for the next job; it holds data of what was removed."
    ),
]
COPIES = "Remove copies of what is named too: the same or nearly the same text under another id; or leave them."
Copies = Annotated[bool, typer.Option("--copies/--no-copies", help=COPIES)]
RemovalFile = Annotated[Path | None, typer.Option("--removal", help="The removal.json file of what to remove.")]
INDEX = (
    "The index: faiss:FOLDER, a folder, pgvector:TABLE in the database that PGHOST and PGDATABASE name, or qdrant:NAME "
    "on the server that QDRANT_URL names."
)
WHOLE_INDEX = f"Also give ranks among all documents of an index of this ranker. {INDEX}"
WholeIndexOption = Annotated[str | None, typer.Option("--index", metavar="INDEX", help=WHOLE_INDEX)]
DESK_LEDGER = Path("desk.ledger")
LedgerFile = Annotated[Path, typer.Option("--ledger", help="The ledger of requests.")]
KeyFile = Annotated[Path | None, typer.Option("--key", help="The ledger's key; by default beside it, ending in .key.")]
BY = "The name of the person who does this, for the history."
RequestNumber = Annotated[int, typer.Argument(metavar="REQUEST", help="The number of a request.")]


RESOURCE = "What a worker of --on gets, as submitit or Ray names it, such as slurm_partition=gpu. Repeatable."
WHOLE = "1/1"
Shard = Annotated[str, typer.Option("--shard", metavar="I/N", help="Do one of N parts of the work, such as 2/8.")]


def read_shard(shard: str) -> tuple[int, int]:
    """Return the number of a shard, and of how many.

    >>> read_shard("2/8")
    (2, 8)
    """
    number, _, of = shard.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise UnrankError(f"--shard {shard}: expected I/N with I from 1 to N, such as 1/4 to 4/4 for four shards")
    return int(number), int(of)


def read_resources(given: Sequence[str]) -> dict[str, object]:
    """Return what a worker gets: a number, true or false as such, and everything else as text.

    >>> read_resources(["num_gpus=1", "slurm_partition=gpu"])
    {'num_gpus': 1, 'slurm_partition': 'gpu'}
    """
    from unrank.methods import read_settings

    found: dict[str, object] = {}
    for key, text in read_settings(given).items():
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
    return found


class Cluster(StrEnum):
    ray = "ray"


ON_RAY = "Start as many workers as --jobs says in a Ray cluster, which share the work."


@dataclass(frozen=True)
class PieceFlags:
    """The options of work that is done in pieces, by several workers in one folder."""

    shard: Shard = WHOLE
    on: Annotated[Cluster | None, typer.Option(help=ON_RAY)] = None
    jobs: Annotated[int, typer.Option(help="Workers that --on starts.", min=1)] = 1
    resource: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help=RESOURCE)] = None

    def check(self) -> None:
        """Refuse options that say nothing together, or exclude each other."""
        read_shard(self.shard)
        if self.on is not None and self.shard != WHOLE:
            raise UnrankError("--on ray divides the work itself: leave out --shard")
        if self.on is None and (self.jobs > 1 or self.resource):
            raise UnrankError("--jobs and --resource describe the workers that --on starts: give --on ray too")

    def run(self, pieces: Pieces, job: Job, progress: Progress) -> Made:
        """Make the pieces that are asked for."""
        if self.on is not None:
            return pieces.run_on_ray(job, self.jobs, read_resources(self.resource or ()), progress)
        return pieces.run(*read_shard(self.shard), progress)


BETWEEN = "\0"
"""The character between the two ids of a pair. No word of a command line holds it."""


class WithPairs(TyperCommand):
    """A command with `--pair QUERY DOCUMENT` and `--substitute OLD NEW`.

    Typer has no repeatable option of two words, so they are joined.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words, two = iter(args), ("--pair", "--substitute")
        joined = [f"{word}={next(words, '')}{BETWEEN}{next(words, '')}" if word in two else word for word in words]
        return super().parse_args(ctx, joined)


def read_pairs(given: Sequence[str] | None) -> list[tuple[str, str]]:
    """Return the ids of each `--pair`.

    >>> read_pairs(["q1\\0d1", "q2\\0d2"])
    [('q1', 'd1'), ('q2', 'd2')]
    """
    return _two_ids(given, "--pair takes the id of a query and the id of a document: --pair QUERY DOCUMENT")


def read_substitutes(given: Sequence[str] | None) -> dict[str, str]:
    """Return the new document of each old one that `--substitute` names."""
    said = "--substitute takes the id of a removed document and the id of the one in its place: --substitute OLD NEW"
    found = dict[str, str]()
    for old, new in _two_ids(given, said):
        if found.setdefault(old, new) != new:
            raise UnrankError(f"{old!r} has two substitutes: keep one")
    return found


def _two_ids(given: Sequence[str] | None, wrong: str) -> list[tuple[str, str]]:
    pairs = [(one, other) for one, _, other in (words.partition(BETWEEN) for words in given or ())]
    if any("" in pair for pair in pairs):
        raise UnrankError(wrong)
    return pairs


@dataclass(frozen=True)
class RemovalOptions:
    """The options that name what to forget: ids, or files of them. A command with them needs `cls=WithPairs`."""

    removal: RemovalFile = None
    query: Annotated[list[str] | None, typer.Option("--query", metavar="ID", help="The id of a query. Repeatable.")] = (
        None
    )
    document: Annotated[
        list[str] | None, typer.Option("--document", metavar="ID", help="The id of a document. Repeatable.")
    ] = None
    pair: Annotated[
        list[str] | None,
        typer.Option("--pair", metavar="QUERY DOCUMENT", help="The ids of a query and of a document. Repeatable."),
    ] = None
    substitute: Annotated[
        list[str] | None,
        typer.Option(
            "--substitute", metavar="OLD NEW", help="The id of a removed document, and of the one in its place."
        ),
    ] = None
    queries: Annotated[Path | None, typer.Option("--queries", help="A text file of query ids, one on each line.")] = (
        None
    )
    documents: Annotated[
        Path | None, typer.Option("--documents", help="A text file of document ids, one on each line.")
    ] = None
    copies: Copies = True

    @property
    def is_empty(self) -> bool:
        named = [field.name for field in fields(self) if field.name not in ("copies", "substitute")]
        return not any(getattr(self, name) for name in named)

    @property
    def source(self) -> str:
        """The file or option that is named in an error about an id."""
        return str(self.removal or self.queries or self.documents or "the command")

    def read(self, found: Removal | None = None) -> Removal:
        """Return all that the options name together, and what was `found` besides."""
        from unrank.collection.removal import Removal

        if self.is_empty and not found:
            raise UnrankError(
                "nothing to forget was named: give --query, --document or --pair with ids, "
                "or --removal, --queries or --documents with a file"
            )
        for flag, path in (("query", self.queries), ("document", self.documents)):
            if path is not None and not path.exists():
                raise UnrankError(f"{path}: no such file; if that is the id of a {flag}, write --{flag} {path}")
        files = [
            *([Removal.load(self.removal)] if self.removal else []),
            *([Removal.load_ids(self.queries, "queries")] if self.queries else []),
            *([Removal.load_ids(self.documents, "documents")] if self.documents else []),
        ]
        given = Removal(self.query or [], self.document or [], read_pairs(self.pair))
        whole = Removal.union([given, *files, *([found] if found else [])])
        return whole.with_substitutes(read_substitutes(self.substitute))


def with_copies(removal: Removal, collection: Collection, remove: bool, where: str) -> Removal:
    """Find the copies of what a removal names, and say which; return the removal with them, if they are removed too."""
    from unrank.collection.duplicates import find_duplicates

    found = find_duplicates(collection, removal, where)
    show_copies(found, remove)
    return removal | found.removal if remove else removal


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag for each field of its dataclass parameters, in place of the parameter.

    The metadata of a field holds its `help`, and may hold the `flag`, `metavar`, `min`, the command line's `type`, and
    `read`, which makes the field's value from what was typed. A field of an `Annotated` type is taken as it is.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            parameters += _parameters(groups[parameter.name])
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(annotation=hints[parameter.name], kind=kind))

    @functools.wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            typed = {field.name: (field, given.pop(field.name)) for field in fields(group)}
            given[name] = group(**{key: _read(field, value) for key, (field, value) in typed.items()})
        command(**given)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _parameters(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        kind = field.metadata.get("type", hints[field.name])
        if get_origin(kind) is not Annotated:
            kind = Annotated[kind, flag_of(field)]
        default = field.default if field.default is not MISSING else None
        yield inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _read(field: Field[Any], value: Any) -> Any:
    read = field.metadata.get("read")
    return read(value) if read is not None else value


@dataclass(frozen=True)
class RunFlags:
    """The options of every command that trains."""

    checkpoint_every: CheckpointEvery = ForgetOptions.checkpoint_every
    resume: Resume = True
    device: DeviceOption = "auto"
    deterministic: Deterministic = False
    fast: Fast = True
    report_to: ReportTo = None


@dataclass(frozen=True)
class DeviceFlags:
    """The device, the passes through an encoder, and whether progress is printed."""

    device: DeviceOption = "auto"
    fast: Fast = True
    quiet: Quiet = False


@dataclass(frozen=True)
class LedgerFlags:
    """The ledger of requests, and its key."""

    ledger: LedgerFile = DESK_LEDGER
    key: KeyFile = None

    @property
    def key_file(self) -> Path:
        return self.key or key_file(self.ledger)

    @contextmanager
    def read(self) -> Iterator[tuple[Ledger, Key]]:
        """Open the ledger with its key, only to read it."""
        with Ledger.read(self.ledger) as desk, notes_of(desk):
            yield desk, desk.key(self.key_file)


@dataclass(frozen=True)
class WriteFlags(LedgerFlags):
    """The ledger of requests, its key, and the person who writes to it."""

    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help=BY)] = None

    @contextmanager
    def open(self, make: bool = False) -> Iterator[tuple[Ledger, Key]]:
        """Open the ledger with its key, to write to it."""
        with Ledger.open(self.ledger, self.key_file if make else None, self.by) as desk, notes_of(desk):
            yield desk, desk.key(self.key_file)


@contextmanager
def notes_of(desk: Ledger) -> Iterator[None]:
    """Print on standard error what the user should know about a ledger."""
    try:
        yield
    finally:
        for note in dict.fromkeys(desk.notes):
            print(f"unrank: {one_line(note, LONGEST_LINE)}", file=sys.stderr)


def check_places(option: str, places: Sequence[Path]) -> None:
    """Refuse a place that does not exist."""
    for place in places:
        if not exists(place):
            raise UnrankError(f"{option} {place}: no such file or folder")


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
