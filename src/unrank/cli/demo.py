"""The command `demo`: forgetting, step by step."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.cli.option import DeviceOption, Quiet, exit_status
from unrank.cli.show import duration, say, show_change, show_partition
from unrank.disk import check_free

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.collection.removal import Removal
    from unrank.forgetting.demo import Example, Line
    from unrank.forgetting.forget import Forgotten


def demo(
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder to write; by default a new temporary one.")
    ] = None,
    device: DeviceOption = "auto",
    quiet: Quiet = False,
) -> None:
    """Forget a part of Python's documentation, in minutes; nothing to download."""
    if out is not None:
        check_free(out)
    if not quiet:
        say("Reading the documentation that comes with this Python, and the encoder all-MiniLM-L6-v2 ...")
    from unrank.forgetting.demo import METHOD, TARGET, TRAIN_LAYERS, examples
    from unrank.forgetting.forget import forget_in
    from unrank.forgetting.options import ForgetOptions
    from unrank.forgetting.progress import show_progress
    from unrank.forgetting.workspace import Workspace
    from unrank.rankers import load_ranker
    from unrank.rankers.encoder import DEFAULT_ENCODER, default_encoder

    original = load_ranker(default_encoder())
    folder = out or Path(tempfile.mkdtemp(prefix="unrank-demo-"))
    collection, removal = make_inputs(folder)
    if not quiet:
        introduce(collection, removal)
    with show_progress(quiet) as listener:
        workspace = Workspace.for_removal(original, collection, removal, device=device, progress=listener)
        options = ForgetOptions(
            method=METHOD, target=TARGET, train_layers=TRAIN_LAYERS, device=device, base=DEFAULT_ENCODER
        )
        result = forget_in(workspace, original, options)
    result.save(folder / "ranker")
    say("")
    show_change(result)
    summarise(result)
    for example in examples(workspace, original, result):
        show_example(example)
    say(f"\nThe ranker is in {folder / 'ranker'}; SentenceTransformer loads it. Its record is unrank.json there.")
    if status := exit_status([result.state]):
        raise typer.Exit(status)


def make_inputs(folder: Path) -> tuple[Collection, Removal]:
    """Write the collection of Python's documentation and the removal."""
    from unrank.collection.build import import_collection
    from unrank.collection.options import ImportOptions
    from unrank.collection.sources.pydocs import demo_location
    from unrank.forgetting.demo import CANDIDATES, demo_removal

    options = ImportOptions(candidates=CANDIDATES)
    collection = import_collection(f"pydocs:{demo_location()}", folder / "collection", options)
    removal = demo_removal(collection)
    removal.save(folder / "removal.json")
    return collection, removal


def introduce(collection: Collection, removal: Removal) -> None:
    """Print what is to be forgotten."""
    from unrank.collection.partition import make_partition
    from unrank.forgetting.demo import PARTLY, TARGET, WHOLE

    say(f"{collection}\n")
    say(
        f"argparse superseded optparse, so all of optparse is to be forgotten, all of {WHOLE[1]}, and a part of "
        f"{PARTLY}: {len(removal.documents) / len(collection.documents):.0%} of the documents."
    )
    show_partition(make_partition(collection, removal))
    say(f"Forgetting, until the forget MRR is {TARGET} of its value before ...")


def summarise(result: Forgotten) -> None:
    """Print the outcome in words."""
    assert result.before.forget is not None and result.after.forget is not None
    before, after, epoch = result.before.forget.mean, result.after.forget.mean, result.record.learning_epoch
    kept = ", ".join(f"{name} {share:.3f}" for name, share in result.kept.items())
    say(f"\n{str(result.state).capitalize()}: {result.judgement.why}.")
    say(f"Its forget MRR went from {before:.3f} to {after:.3f} (target {result.target:.3f}).")
    say(f"Share of the MRR kept: {kept}.")
    say(
        f"That took {duration(result.record.seconds)}; "
        f"one epoch of training takes {duration(epoch.seconds)} ({epoch.how})."
    )


def show_example(example: Example) -> None:
    """Print the first documents of a query before and after."""
    say(f"\nquery: {example.query}")
    for when, lines, place in (
        ("before", example.before, example.rank_before),
        ("after", example.after, example.rank_after),
    ):
        say(f"  {when}: the first forgotten document is at rank {place}")
        for number, line in enumerate(lines, 1):
            say(f"    {number}. {_mark(line)}")


def _mark(line: Line) -> str:
    text = line.text if len(line.text) <= 90 else f"{line.text[:89]}…"
    return f"{text}  [removed]" if line.forgotten else text
