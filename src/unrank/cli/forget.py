"""The command `forget`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.cli.option import (
    CHECKPOINTS,
    NOT_REACHED,
    CacheFolder,
    CheckpointEvery,
    CollectionFolder,
    Deterministic,
    DeviceName,
    DeviceOption,
    Fast,
    Frozen,
    KeepAtLeast,
    Quiet,
    RankerName,
    RemovalOptions,
    Resume,
    Seed,
    Settings,
    open_cache,
    with_flags,
)
from unrank.cli.show import (
    duration,
    epochs_of,
    say,
    show_change,
    show_earlier,
    show_partition,
    show_recovery,
    show_sampled,
)
from unrank.disk import check_free, check_result
from unrank.errors import UnrankError

if TYPE_CHECKING:
    from unrank.collection.partition import Partition
    from unrank.forgetting.forget import Forgotten
    from unrank.forgetting.freezing import Freeze

TARGET = (
    "The forget MRR to reach: unseen, half-unseen, a share such as 50%, or a number; with --reference also "
    "destination-1, -2 or -3."
)
LAYERS = "What may move: so many of the encoder's last layers, 'head', or 'all-but-embeddings'."
DETAILS = "Also write every query's list before and after, to this folder; it still holds what was removed."
WATCH = "Queries of each kept set to measure at every check; by default 100 on a GPU."
NOTHING = RemovalOptions()
MEASURE = (
    "Queries of each kept set to measure at most, drawn by lot; 0 for all. By default 3,000, and 100 where a processor "
    "must read every pair with an encoder."
)


@with_flags
def forget(
    ranker: RankerName,
    collection: CollectionFolder,
    out: Annotated[Path | None, typer.Option("--out", help="The folder to write; it must not exist.")] = None,
    named: RemovalOptions = NOTHING,
    method: Annotated[str, typer.Option(help="How to forget; 'unrank list methods' names them.")] = "cocol",
    preset: Annotated[str | None, typer.Option(help="Settings by name: 'paper' is cocol as printed.")] = None,
    settings: Settings = None,
    target: Annotated[str, typer.Option(help=TARGET)] = "unseen",
    reference: Annotated[
        str | None, typer.Option(help="A ranker that was retrained without what is removed, to compare with.")
    ] = None,
    keep_at_least: KeepAtLeast = None,
    base: Annotated[
        str | None, typer.Option(help="The encoder, or the word vectors, that the ranker was trained from.")
    ] = None,
    train_layers: Annotated[str | None, typer.Option(help=LAYERS)] = None,
    freeze: Annotated[
        Frozen | None, typer.Option(help="Train the query side alone: document vectors that are stored stay valid.")
    ] = None,
    check_every: Annotated[int | None, typer.Option(help="Steps between checks; by default one an epoch.")] = None,
    minutes: Annotated[float | None, typer.Option(help="The most minutes that it may take.")] = None,
    watch: Annotated[int | None, typer.Option(help=WATCH, min=0)] = None,
    measure: Annotated[int | None, typer.Option(help=MEASURE, min=0)] = None,
    recovery: Annotated[
        bool, typer.Option("--recovery", help="Measure what comes back after an epoch on what is kept.")
    ] = False,
    details: Annotated[Path | None, typer.Option("--details", help=DETAILS)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    cache: CacheFolder = None,
    checkpoint_every: CheckpointEvery = CHECKPOINTS,
    resume: Resume = True,
    seed: Seed = 0,
    device: DeviceOption = DeviceName.auto,
    same_bits: Deterministic = False,
    fast: Fast = True,
    quiet: Quiet = False,
) -> None:
    """Make a ranker forget queries, documents or pairs, and leave the rest alone."""
    from unrank.collection.collection import open_collection
    from unrank.collection.partition import make_partition

    check_folders(out, details, dry_run)
    cached = open_cache(cache, out)
    removed = named.read()
    opened = open_collection(collection)
    partition = make_partition(opened, removed, named.source)

    from unrank.cli.progress import progress
    from unrank.engine.resume import resumable
    from unrank.engine.runtime import deterministic
    from unrank.forgetting.details import save_details
    from unrank.forgetting.earlier import check_references
    from unrank.forgetting.estimate import estimate
    from unrank.forgetting.forget import forget as forget_removal
    from unrank.forgetting.hashes import recognised
    from unrank.forgetting.run import Pace
    from unrank.forgetting.start import check_base, check_request, find_base
    from unrank.forgetting.target import check_target
    from unrank.forgetting.workspace import usual_measure
    from unrank.methods import make_method, read_settings
    from unrank.rankers import load_ranker
    from unrank.rankers.layers import read_layers
    from unrank.record import Record, requests_of

    given = read_settings(settings or ())
    make_method(method, given, preset=preset)  # what cannot be is refused before anything is loaded
    pace, layers = Pace(check_every, minutes, watch), read_layers(train_layers) if train_layers else None
    check_target(target, opened, partition, reference is not None)
    loaded = load_ranker(ranker, fast)
    chosen = make_method(method, given, loaded.kind, preset)
    record = Record.read(Path(ranker))
    frozen: Freeze | None = freeze.value if freeze else None
    measured = usual_measure(loaded, device.value) if measure is None else measure
    check_references([reference] if reference else [], opened, removed)
    check_base(loaded.kind, base)
    compared = load_ranker(reference, fast) if reference else None
    if dry_run:
        check_request(loaded, compared, chosen, target, pace, opened, partition)
        base = find_base(loaded, chosen, base, record)
        partition = make_partition(opened, removed, earlier=recognised(opened, requests_of(record)))
        seconds = estimate(loaded, opened, partition, chosen, base, device.value, frozen, layers, measured)
        tell_plan(partition, chosen.name, seconds)
        return
    assert out is not None
    checkpoints = resumable(out, every=checkpoint_every, resume=resume)
    with deterministic(same_bits), checkpoints as kept, progress(quiet) as listener:
        result = forget_removal(
            loaded,
            opened,
            removed,
            method=chosen,
            target=target,
            base=base,
            reference=compared,
            record=record,
            train_layers=layers,
            freeze=frozen,
            pace=pace,
            check_recovery=recovery,
            measure=measured,
            seed=seed,
            device=device.value,
            progress=listener,
            run=kept,
            cache=cached,
        )
        result.save(out)
    if details is not None:
        with progress(quiet) as listener:
            save_details(loaded, result, opened, removed, details, device.value, listener)
    tell_what_remembers(details, cache)
    report(result, out, keep_at_least)


def tell_plan(partition: Partition, method: str, seconds: float) -> None:
    """What would be done, and how long it would take."""
    show_partition(partition)
    say(f"with {method} that takes about {duration(seconds)} here; nothing was done")


def tell_what_remembers(details: Path | None, cache: Path | None) -> None:
    """What was written beside the ranker and still holds what it forgot."""
    if details is not None:
        say(f"{details} still holds what was removed: delete it when you have looked at it")
    if cache is not None:
        say(f"{cache} still holds what the old ranker gave for what was removed: delete it when you need it no more")


def check_folders(out: Path | None, details: Path | None, dry_run: bool) -> None:
    """Refuse folders that cannot be written, or that would hold what must lie apart."""
    if out is None and not dry_run:
        raise UnrankError("--out is missing: name the folder to write, or ask for a --dry-run")
    if out is not None:
        check_result(out)
    if details is not None:
        check_free(details)
    if out is not None and details is not None and details.resolve().is_relative_to(out.resolve()):
        raise UnrankError(f"--details {details} lies inside --out, and holds what was removed: choose a folder apart")


def report(result: Forgotten, out: Path, keep_at_least: float | None) -> None:
    """Say how it went; exit 3 where less was reached, or more was lost, than was asked for."""
    show_change(result)
    show_sampled(result)
    show_recovery(result.record)
    show_earlier(result.record)
    say(_in_words(result, out))
    if result.record.epochs and result.record.index_valid:
        say("document vectors that were stored with the old ranker stay valid: only the query side has moved")
    elif result.record.epochs and result.ranker.separable:
        say("document vectors that were stored with the old ranker are stale: encode the collection again")
    lost = {name: share for name, share in result.kept.items() if keep_at_least is not None and share < keep_at_least}
    for name, share in lost.items():
        say(f"{name} kept {share:.3f} of its MRR, less than --keep-at-least {keep_at_least:g}; the model is in {out}")
    if result.came_back:
        say(f"what was forgotten before has come back: hold it with cocol, or begin anew; the model is in {out}")
    if lost or result.came_back or not result.reached:
        raise typer.Exit(NOT_REACHED)


def _in_words(result: Forgotten, out: Path) -> str:
    record, goal = result.record, f"the target of {result.target:.3f}"
    epochs, took = epochs_of(record.epochs), duration(record.seconds)
    if result.fulfilled:
        return f"nothing to do: this ranker has forgotten all of it before; saved unchanged to {out}"
    if record.reached is None:
        return f"{record.method} has no target; {epochs}, {took}; written to {out}"
    if result.reached and not record.epochs:
        return f"nothing to do: the forget MRR is at or below {goal} already; saved unchanged to {out}"
    if result.reached:
        return f"the forget MRR was brought to {goal} in {epochs}, {took}; written to {out}"
    return f"{goal} was not reached in {epochs}, {took}; the best model was written to {out}"
