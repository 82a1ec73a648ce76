"""Commands on rankers: train, forget, evaluate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unrank.cli.option import (
    NOT_REACHED,
    AsJson,
    CollectionFolder,
    DeviceName,
    DeviceOption,
    Frozen,
    Out,
    Quiet,
    RankerName,
    RemovalFile,
    Seed,
    Settings,
    read_settings,
)
from unrank.cli.show import duration, say, show_change, show_partition, show_scorecard
from unrank.disk import check_free
from unrank.errors import UnrankError, count

if TYPE_CHECKING:
    from unrank.collection.removal import Removal
    from unrank.forgetting.forget import Forgotten


BASE = (
    "What to start from: an encoder's folder or hub id, by default all-MiniLM-L6-v2; for duet and match-pyramid a file "
    "of word vectors in GloVe's format or 'random', by default GloVe 6B."
)


def train(
    collection: CollectionFolder,
    ranker: Annotated[str, typer.Option("--ranker", help="What to train; 'unrank list rankers' names them.")],
    out: Out,
    base: Annotated[str | None, typer.Option(help=BASE)] = None,
    removal: RemovalFile = None,
    settings: Settings = None,
    seed: Seed = 0,
    device: DeviceOption = DeviceName.auto,
    quiet: Quiet = False,
) -> None:
    """Train a ranker; with a removal, on what is kept alone."""
    from unrank.collection.collection import open_collection
    from unrank.collection.removal import Removal
    from unrank.rankers import ranker_kind

    kind = ranker_kind(ranker)
    check_free(out)
    removed = Removal.load(removal) if removal else None
    opened = open_collection(collection)

    from unrank.cli.progress import progress
    from unrank.forgetting.train import train as train_ranker
    from unrank.methods import make_method
    from unrank.methods.retrain import Retrain

    method = make_method("retrain", read_settings(settings), kind)
    assert isinstance(method, Retrain)
    with progress(quiet) as listener:
        trained = train_ranker(
            opened, kind, base, removed, method=method, seed=seed, device=device.value, progress=listener
        )
    trained.save(out)
    show_scorecard(trained.after)
    say(f"{trained.record.epochs} epochs in {duration(trained.record.seconds)}; written to {out}")


def evaluate(
    ranker: RankerName,
    collection: CollectionFolder,
    removal: RemovalFile = None,
    as_json: AsJson = False,
    device: DeviceOption = DeviceName.auto,
    quiet: Quiet = False,
) -> None:
    """Measure a ranker (or bm25, to compare with) on the forget, entangled, disjoint and test pairs."""
    from unrank.collection.collection import open_collection
    from unrank.collection.removal import Removal

    removed = Removal.load(removal) if removal else None
    opened = open_collection(collection)

    from unrank.cli.progress import progress
    from unrank.forgetting.evaluate import evaluate as measure
    from unrank.forgetting.evaluate import evaluate_bm25
    from unrank.rankers import load_ranker

    if ranker == "bm25":
        scorecard = evaluate_bm25(opened, removed)
    else:
        with progress(quiet or as_json) as listener:
            scorecard = measure(load_ranker(ranker), opened, removed, device=device.value, progress=listener)
    if as_json:
        print(json.dumps(scorecard.to_json()))
    else:
        show_scorecard(scorecard)


def forget(
    ranker: RankerName,
    collection: CollectionFolder,
    out: Annotated[Path | None, typer.Option("--out", help="The folder to write; it must not exist.")] = None,
    removal: RemovalFile = None,
    queries: Annotated[Path | None, typer.Option(help="A text file of query ids, one a line.")] = None,
    documents: Annotated[Path | None, typer.Option(help="A text file of document ids, one a line.")] = None,
    method: Annotated[str, typer.Option(help="How to forget; 'unrank list methods' names them.")] = "cocol",
    target: Annotated[
        str, typer.Option(help="The forget MRR to reach: unseen, half-unseen, a share such as 50%, or a number.")
    ] = "unseen",
    keep_at_least: Annotated[
        float | None, typer.Option(help="The least share of its MRR that each kept set must keep; else exit 3.")
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="The encoder, or the word vectors, that the ranker was trained from.")
    ] = None,
    settings: Settings = None,
    train_layers: Annotated[
        int | None, typer.Option(help="Let only so many of the encoder's last layers move.", min=1)
    ] = None,
    freeze: Annotated[
        Frozen | None, typer.Option(help="Train the query side alone: document vectors that are stored stay valid.")
    ] = None,
    watch: Annotated[
        int | None,
        typer.Option(help="Queries of each kept set to measure at every check; by default 100 on a GPU.", min=0),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    seed: Seed = 0,
    device: DeviceOption = DeviceName.auto,
    quiet: Quiet = False,
) -> None:
    """Make a ranker forget queries, documents or pairs, and leave the rest alone."""
    from unrank.collection.collection import open_collection
    from unrank.collection.partition import partition

    if out is None and not dry_run:
        raise UnrankError("--out is missing: name the folder to write, or ask for a --dry-run")
    if out is not None:
        check_free(out)
    if keep_at_least is not None and not 0 < keep_at_least <= 1:
        raise UnrankError(f"--keep-at-least {keep_at_least:g} is outside (0, 1]")
    removed = read_removal(removal, queries, documents)
    opened = open_collection(collection)
    parts = partition(opened, removed, str(removal or queries or documents))

    from unrank.cli.progress import progress
    from unrank.forgetting.estimate import estimate
    from unrank.forgetting.forget import forget as forget_removal
    from unrank.forgetting.record import read_record
    from unrank.forgetting.target import check_target
    from unrank.methods import make_method
    from unrank.rankers import load_ranker

    given = read_settings(settings)
    make_method(method, given)  # what cannot be is refused before anything is loaded
    check_target(target, opened, parts)
    loaded = load_ranker(ranker)
    chosen = make_method(method, given, loaded.kind)
    if dry_run:
        show_partition(parts)
        seconds = estimate(loaded, opened, parts, chosen, device.value, freeze.value if freeze else None)
        say(f"with {chosen.name} that takes about {duration(seconds)} here; nothing was done")
        return
    known: dict[str, Any] = read_record(Path(ranker)) or {}
    same = known.get("collection", {}).get("fingerprint") == opened.fingerprint
    with progress(quiet) as listener:
        result = forget_removal(
            loaded,
            opened,
            removed,
            method=chosen,
            target=target,
            base=base or known.get("base"),
            learning_epoch=known.get("learning_epoch") if same else None,
            train_layers=train_layers,
            freeze=freeze.value if freeze else None,
            watch=watch,
            seed=seed,
            device=device.value,
            progress=listener,
        )
    assert out is not None
    result.save(out)
    report(result, out, keep_at_least)


def read_removal(removal: Path | None, queries: Path | None, documents: Path | None) -> Removal:
    """The removal that the three options name together."""
    from unrank.collection.removal import Removal

    given = [
        *([Removal.load(removal)] if removal else []),
        *([Removal.load_ids(queries, "queries")] if queries else []),
        *([Removal.load_ids(documents, "documents")] if documents else []),
    ]
    if not given:
        raise UnrankError("nothing to forget was named: give --removal, --queries or --documents")
    whole = Removal()
    for part in given:
        whole |= part
    return whole


def report(result: Forgotten, out: Path, keep_at_least: float | None) -> None:
    """Say how it went; exit 3 where less was reached, or more was lost, than was asked for."""
    show_change(result)
    epochs, goal, took = result.record.epochs, f"the target of {result.target:.3f}", duration(result.record.seconds)
    if result.record.reached is None:
        say(f"{result.record.method} has no target; {count(epochs, 'epoch')}, {took}; written to {out}")
    elif not epochs:
        say(f"nothing to do: the forget MRR is at or below {goal} already; saved unchanged to {out}")
    elif result.reached:
        say(f"the forget MRR was brought to {goal} in {count(epochs, 'epoch')}, {took}; written to {out}")
    else:
        say(f"{goal} was not reached in {count(epochs, 'epoch')}; the best model was written to {out}")
    if epochs and result.record.index_valid:
        say("document vectors that were stored with the old ranker stay valid: only the query side has moved")
    elif epochs and result.ranker.separable:
        say("document vectors that were stored with the old ranker are stale: encode the collection again")
    lost = {name: share for name, share in result.kept.items() if keep_at_least is not None and share < keep_at_least}
    for name, share in lost.items():
        say(f"{name} kept {share:.3f} of its MRR, less than --keep-at-least {keep_at_least:g}; the model is in {out}")
    if lost or not result.reached:
        raise typer.Exit(NOT_REACHED)
