"""The command `train`."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.cli.option import (
    FORGET,
    CacheFolder,
    CollectionFolder,
    Copies,
    DeviceFlags,
    Out,
    Quiet,
    RemovalFile,
    RunFlags,
    Seed,
    Settings,
    flag_of,
    open_cache,
    with_copies,
    with_flags,
)
from unrank.cli.proxies import ProxyFlags, prepare
from unrank.cli.show import (
    duration,
    epochs_of,
    say,
    show_scorecard,
)
from unrank.disk import check_outside, check_result
from unrank.errors import Stopped, UnrankError
from unrank.record import RECORD

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.collection.removal import Removal
    from unrank.forgetting.train import Trained

BASE = (
    "The model to start from: an encoder's folder or hub id, by default all-MiniLM-L6-v2; for duet and match-pyramid a "
    "file of word vectors in GloVe's format or 'random', by default GloVe 6B."
)
RESERVE = "Leave some training queries and documents out, so that they are unseen; or train on all."
SHARD_WEIGHTS = (
    "Let each of several processes hold a part of a decoder's layers, if the whole is too large for a GPU. No "
    "checkpoints are written."
)
PROXIES = "Also prepare this many proxies, as 'unrank proxies' does, in a folder beside --out."


@dataclass(frozen=True)
class TrainingFlags:
    """The options that say how to train, and on what."""

    base: Annotated[str | None, typer.Option("--base", help=BASE)] = None
    removal: RemovalFile = None
    copies: Copies = True
    settings: Settings = None
    train_layers: Annotated[str | None, flag_of(FORGET["train_layers"])] = None
    follow: Annotated[list[str] | None, flag_of(FORGET["follow"])] = None
    cache: CacheFolder = None
    proxies: Annotated[int | None, typer.Option("--proxies", help=PROXIES, metavar="COUNT", min=2)] = None
    reserve: Annotated[bool, typer.Option("--reserve/--no-reserve", help=RESERVE)] = True
    shard_weights: Annotated[bool, typer.Option("--shard-weights", help=SHARD_WEIGHTS)] = False
    seed: Seed = 0


def open_both(collection: Path, removal: Path | None, copies: bool) -> tuple[Collection, Removal | None]:
    """Open a collection and, if one is named, a removal of it with the copies of what it names."""
    from unrank.collection.collection import open_collection
    from unrank.collection.removal import Removal

    removed = Removal.load(removal) if removal else None
    opened = open_collection(collection)
    if removed is not None:
        removed = with_copies(removed, opened, copies, str(removal))
    return opened, removed


TRAINING, RUN = TrainingFlags(), RunFlags()


@with_flags
def train(
    collection: CollectionFolder,
    ranker: Annotated[str, typer.Option("--ranker", help="The kind of ranker to train; see 'unrank list rankers'.")],
    out: Out,
    training: TrainingFlags = TRAINING,
    flags: RunFlags = RUN,
    quiet: Quiet = False,
) -> None:
    """Train a ranker on a collection; with a removal, on the kept pairs only."""
    from unrank.rankers import ranker_kind

    kind = ranker_kind(ranker)
    if training.shard_weights and training.proxies is not None:
        raise UnrankError("--shard-weights prepares no --proxies, which are trained whole: leave one of them out")
    check_outside(out, collection)
    on = DeviceFlags(flags.device, flags.fast, quiet)
    check_new(out, collection, training, on)
    opened, removed = open_both(collection, training.removal, training.copies)
    if training.proxies is not None:
        from unrank.forgetting.prepared_proxies import check_count

        check_count(training.proxies, opened)
    trained = _train(opened, kind, removed, out, training, flags, quiet)
    show_scorecard(trained.after)
    say(f"{epochs_of(trained.record.epochs)} in {duration(trained.record.seconds)}; written to {out}")
    if training.proxies is not None:
        from unrank.engine.runtime import deterministic

        with deterministic(flags.deterministic):
            prepare_beside(out, collection, training, on)


def check_new(out: Path, collection: Path, training: TrainingFlags, on: DeviceFlags) -> None:
    """Refuse an `--out` that exists; if it may be the ranker of this command, say how its proxies are prepared."""
    try:
        check_result(out)
    except UnrankError as error:
        if training.proxies is None or not (out / RECORD).is_file():
            raise
        go_on = proxies_command(out, collection, training, on)
        raise UnrankError(f"{error}; if this command wrote it and was stopped then, go on with: {go_on}") from error


def _train(
    collection: Collection,
    kind: str,
    removed: Removal | None,
    out: Path,
    training: TrainingFlags,
    flags: RunFlags,
    quiet: bool,
) -> Trained:
    """Train a ranker and write it, with checkpoints, a progress bar and trackers."""
    from unrank.engine.resume import resumable
    from unrank.engine.runtime import deterministic
    from unrank.forgetting.progress import show_progress
    from unrank.forgetting.trackers import check_trackers, reporting
    from unrank.forgetting.train import recipe_of
    from unrank.forgetting.train import train as train_ranker
    from unrank.methods import read_settings

    method = recipe_of(kind, read_settings(training.settings or ()))
    cached = open_cache(training.cache, out)
    checkpoints = resumable(out, every=flags.checkpoint_every, resume=flags.resume)
    about = {"job": "train", "ranker": kind, "collection": collection.name, "seed": training.seed, **asdict(method)}
    trackers = flags.report_to or ()
    check_trackers(trackers)
    with (
        deterministic(flags.deterministic),
        checkpoints as kept,
        show_progress(quiet) as shown,
        reporting(shown, trackers, out, flags.device, about) as listener,
    ):
        trained = train_ranker(
            collection,
            kind,
            training.base,
            removed,
            method=method,
            seed=training.seed,
            device=flags.device,
            progress=listener,
            run=kept,
            cache=cached,
            fast=flags.fast,
            reserve=training.reserve,
            train_layers=training.train_layers,
            follow=tuple(training.follow or ()),
            shard_weights=training.shard_weights,
        )
        trained.save(out)
    return trained


def prepare_beside(out: Path, collection: Path, training: TrainingFlags, on: DeviceFlags) -> None:
    """Prepare the proxies of a ranker that was just written, in a folder beside it."""
    assert training.proxies is not None
    how = ProxyFlags(training.proxies, seed=training.seed, base=training.base, cache=training.cache)
    try:
        prepare(str(out), collection, proxies_of(out), how, on)
    except (Stopped, KeyboardInterrupt) as stop:
        go_on = proxies_command(out, collection, training, on)
        raise Stopped(f"stopped; the ranker is written, go on with: {go_on}") from stop


def proxies_of(out: Path) -> Path:
    return out.with_name(f"{out.name}-proxies")


def proxies_command(out: Path, collection: Path, training: TrainingFlags, on: DeviceFlags) -> str:
    """Return the command that prepares the proxies of a ranker that `train --proxies` has written."""
    given = {"--base": training.base, "--seed": training.seed or None, "--cache": training.cache}
    given |= {"--device": None if on.device == "auto" else on.device}
    more = [str(word) for option, value in given.items() if value is not None for word in (option, value)]
    head = ["unrank", "proxies", str(out), str(collection), "--out", str(proxies_of(out))]
    return shlex.join([*head, "--count", str(training.proxies), *more, *([] if on.fast else ["--no-fast"])])
