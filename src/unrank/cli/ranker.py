"""Commands on rankers: train and evaluate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.cli.option import (
    FORGET,
    MEASURED,
    AsJson,
    CacheFolder,
    CollectionFolder,
    Copies,
    DeviceFlags,
    Measure,
    Out,
    Quiet,
    RankerName,
    RemovalFile,
    RunFlags,
    Seed,
    Settings,
    WholeIndexOption,
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
    say_json,
    show_comparison,
    show_scorecard,
    show_substitutes,
    show_whole_index,
)
from unrank.cli.whole_index import ranks_over_index
from unrank.disk import check_free, check_outside, check_result
from unrank.errors import UnrankError

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.collection.removal import Removal

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.collection.removal import Removal
    from unrank.engine.runtime import Progress
    from unrank.evaluation.scorecard import Scorecard

BASE = (
    "The model to start from: an encoder's folder or hub id, by default all-MiniLM-L6-v2; for duet and match-pyramid a "
    "file of word vectors in GloVe's format or 'random', by default GloVe 6B."
)
RESERVE = "Leave some training queries and documents out, so that they are unseen; or train on all."
PROXIES = "Also prepare this many proxies, as 'unrank proxies' does, in a folder beside --out."


@dataclass(frozen=True)
class TrainingFlags:
    """The options that say how to train, and on what."""

    base: Annotated[str | None, typer.Option("--base", help=BASE)] = None
    removal: RemovalFile = None
    copies: Copies = True
    settings: Settings = None
    train_layers: Annotated[str | None, flag_of(FORGET["train_layers"])] = None
    cache: CacheFolder = None
    proxies: Annotated[int | None, typer.Option("--proxies", help=PROXIES, metavar="COUNT", min=2)] = None
    reserve: Annotated[bool, typer.Option("--reserve/--no-reserve", help=RESERVE)] = True
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


REFERENCE = (
    "A ranker retrained without what is removed, or the file that --details wrote for it: how far the two agree on the "
    "forget set, query by query. Give two for the noise between them. Repeatable."
)
DETAILS = "Also write the figures of every query to this file, so that a later comparison needs no weights."

TRAINING, RUN, DEVICE = TrainingFlags(), RunFlags(), DeviceFlags()


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
    check_outside(out, collection)
    check_result(out)
    opened, removed = open_both(collection, training.removal, training.copies)

    from unrank.engine.resume import resumable
    from unrank.engine.runtime import deterministic
    from unrank.forgetting.progress import show_progress
    from unrank.forgetting.train import recipe_of
    from unrank.forgetting.train import train as train_ranker
    from unrank.methods import read_settings

    method = recipe_of(kind, read_settings(training.settings or ()))
    cached = open_cache(training.cache, out)
    checkpoints = resumable(out, every=flags.checkpoint_every, resume=flags.resume)
    with deterministic(flags.deterministic), checkpoints as kept, show_progress(quiet) as listener:
        trained = train_ranker(
            opened,
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
        )
        trained.save(out)
    show_scorecard(trained.after)
    say(f"{epochs_of(trained.record.epochs)} in {duration(trained.record.seconds)}; written to {out}")
    if training.proxies is not None:
        with deterministic(flags.deterministic):
            prepare_beside(out, collection, training, DeviceFlags(flags.device, flags.fast, quiet))


def prepare_beside(out: Path, collection: Path, training: TrainingFlags, on: DeviceFlags) -> None:
    """Prepare the proxies of a ranker that was just written, in a folder beside it."""
    assert training.proxies is not None
    how = ProxyFlags(training.proxies, seed=training.seed, base=training.base, cache=training.cache)
    prepare(str(out), collection, out.with_name(f"{out.name}-proxies"), how, on)


@with_flags
def evaluate(
    ranker: RankerName,
    collection: CollectionFolder,
    removal: RemovalFile = None,
    copies: Copies = True,
    measure: Measure = MEASURED,
    reference: Annotated[list[str] | None, typer.Option("--reference", help=REFERENCE)] = None,
    details: Annotated[Path | None, typer.Option("--details", metavar="FILE", help=DETAILS)] = None,
    index: WholeIndexOption = None,
    as_json: AsJson = False,
    on: DeviceFlags = DEVICE,
) -> None:
    """Measure a ranker, or the baseline bm25, on the forget, entangled, disjoint and test pairs."""
    from unrank.collection.collection import open_collection
    from unrank.collection.removal import Removal

    if details is not None:
        check_outside(details, ranker, collection, *(reference or ()), option="--details")
        check_free(details)
    if reference and removal is None:
        raise UnrankError("--reference compares what is forgotten: name what was removed with --removal")
    removed = Removal.load(removal) if removal else None
    opened = open_collection(collection)
    if removed is not None:
        removed = with_copies(removed, opened, copies, str(removal))

    from unrank.forgetting.evaluate import compare_with, reference_figures
    from unrank.forgetting.previous_requests import check_references
    from unrank.forgetting.progress import show_progress

    with show_progress(on.quiet or as_json) as listener:
        if removed is not None:
            check_references(reference or (), opened, removed)
            where = (opened, removed, on.device, listener, on.fast)
            references = {name: reference_figures(name, *where) for name in reference or ()}
        whole = ranks_over_index(index, ranker, opened, removed, measure, on, listener) if index else None
        scorecard = _measure(ranker, opened, removed, measure, on, listener)
    compared = compare_with(scorecard, references) if reference else None
    if details is not None:
        _write_details(details, scorecard, opened, removed)
    if as_json:
        found = {"whole_index": {name: asdict(each) for name, each in whole.items()}} if whole is not None else {}
        say_json(scorecard.to_json() | (compared.to_json() if compared else {}) | found)
        return
    show_scorecard(scorecard)
    show_substitutes(None, scorecard.substitutes)
    show_whole_index(whole)
    if compared is not None:
        show_comparison(compared)


def _measure(
    ranker: str, collection: Collection, removal: Removal | None, measure: int, on: DeviceFlags, progress: Progress
) -> Scorecard:
    """Return the scorecard of a ranker or of bm25."""
    from unrank.forgetting.evaluate import evaluate as evaluate_ranker
    from unrank.forgetting.evaluate import evaluate_bm25
    from unrank.rankers import load_ranker
    from unrank.record import Record

    if ranker == "bm25":
        return evaluate_bm25(collection, removal, measure)
    return evaluate_ranker(
        load_ranker(ranker, on.fast),
        collection,
        removal,
        record=Record.read(Path(ranker)),
        measure=measure,
        device=on.device,
        progress=progress,
    )


def _write_details(out: Path, scorecard: Scorecard, collection: Collection, removal: Removal | None) -> None:
    from unrank.collection.partition import NO_PAIRS, make_partition
    from unrank.evaluation.query_details import write_details

    forget = make_partition(collection, removal).forget if removal is not None else NO_PAIRS
    write_details(out, scorecard, collection, forget)
