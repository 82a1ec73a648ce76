"""The command `demo`: training, a proxy and forgetting, step by step."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.cli.option import DeviceOption, Quiet, Seed, exit_status
from unrank.cli.show import duration, say, show_change, show_partition
from unrank.disk import check_free
from unrank.errors import count

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.collection.removal import Removal
    from unrank.engine.runtime import Device
    from unrank.forgetting.demo import DemoRecipe, Example
    from unrank.forgetting.forget import Forgotten
    from unrank.forgetting.train import Trained
    from unrank.forgetting.workspace import Workspace

TRAINING = "Training a ranker on it: the last layer of all-MiniLM-L6-v2 ..."
TRAINING_TINY = (
    "Training a tiny ranker on it: an encoder of two layers with random weights, made now. It shows that unrank works "
    "here, not how well: 'unrank demo' with 'unrank[demo]' installed trains a real encoder ..."
)
ONLY_TINY = "This was the tiny demo: its ranker knows only what it learned in these seconds, so its figures say little."
DESK = "To see the page of the desk, with a filled ledger in a scratch folder: unrank desk serve --demo"
SHOWN = 90
"""The characters of a text that are shown."""


@dataclass(frozen=True)
class How:
    """The options of a demo."""

    tiny: bool
    seed: int
    device: Device
    quiet: bool

    @property
    def recipe(self) -> DemoRecipe:
        from unrank.forgetting.demo import FULL, TINY

        return TINY if self.tiny else FULL


def demo(
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder to write; by default a new temporary one.")
    ] = None,
    tiny: Annotated[
        bool,
        typer.Option("--tiny", help="Train a random encoder of two layers, in seconds; its quality is not a ranker's."),
    ] = False,
    seed: Seed = 0,
    device: DeviceOption = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a ranker on a part of Python's documentation, and make it forget some of it; nothing to download."""
    how = How(tiny, seed, device, quiet)
    if out is not None:
        check_free(out)
    if not quiet:
        say("Reading the documentation that comes with this Python ...")
    folder = out or Path(tempfile.mkdtemp(prefix="unrank-demo-"))
    try:
        result, workspace = make_all(folder, how)
    except BaseException:  # it cannot be continued
        shutil.rmtree(folder, ignore_errors=True)
        raise
    say("")
    show_change(result)
    summarise(result)
    show_examples(workspace, result)
    say(f"\nThe page with every query, before, after and at its place: {folder / 'report.html'}")
    say(f"The ranker is in {folder / 'ranker'}; SentenceTransformer loads it. Its record is unrank.json there.")
    say(ONLY_TINY if tiny else DESK)
    if status := exit_status([result.state]):
        say(f"'unrank forget' ends such a run with exit code {status}. The demo has run to its end: its own is 0.")


def make_all(folder: Path, how: How) -> tuple[Forgotten, Workspace]:
    """Write the collection, train a ranker, forget, and write what became of it."""
    collection, removal = make_inputs(folder, how)
    if not how.quiet:
        say(f"{collection}\n")
        say(TRAINING_TINY if how.tiny else TRAINING)
    trained = train_original(collection, folder, how)
    if not how.quiet:
        introduce(collection, removal, trained)
    return forget_in_places(collection, removal, trained, folder, how)


def make_inputs(folder: Path, how: How) -> tuple[Collection, Removal]:
    """Write the collection of Python's documentation and the removal."""
    from unrank.collection.build import import_collection
    from unrank.collection.options import ImportOptions
    from unrank.collection.sources.pydocs import location_of
    from unrank.forgetting.demo import CANDIDATES, demo_removal

    options = ImportOptions(candidates=CANDIDATES)
    collection = import_collection(f"pydocs:{location_of(how.recipe.articles)}", folder / "collection", options)
    removal = demo_removal(collection)
    removal.save(folder / "removal.json")
    return collection, removal


def train_original(collection: Collection, folder: Path, how: How) -> Trained:
    """Train the ranker that is to forget, and write it."""
    from unrank.forgetting.progress import show_progress
    from unrank.forgetting.train import TrainOptions, train
    from unrank.rankers.random_encoder import write_random_encoder

    options = TrainOptions(how.recipe.training, how.seed, how.device, train_layers=how.recipe.train_layers)
    base = str(write_random_encoder(folder / "encoder", collection)) if how.tiny else None
    with show_progress(how.quiet) as listener:
        trained = train(collection, "bi-encoder", base, options=options, progress=listener)
    trained.save(folder / "original")
    return trained


def introduce(collection: Collection, removal: Removal, trained: Trained) -> None:
    """Print what the ranker has learned, and what it is to forget."""
    from unrank.collection.partition import make_partition

    mrrs = trained.after.mrrs
    say(f"MRR {mrrs['disjoint']:.3f} on its training queries, {mrrs['test']:.3f} on queries of other articles.\n")
    asked = count(len(removal.queries), "query")
    say(f"To be forgotten: {asked}, as if they were the searches of one person who asks for it.")
    show_partition(make_partition(collection, removal, reserve=True))
    say("Training a proxy, a ranker that never sees this, and pulling each pair to the place that it gives ...")


def forget_in_places(
    collection: Collection, removal: Removal, trained: Trained, folder: Path, how: How
) -> tuple[Forgotten, Workspace]:
    """Forget, and write the ranker, the lists of all queries and the page."""
    from unrank.forgetting.forget import forget_in
    from unrank.forgetting.options import ForgetOptions
    from unrank.forgetting.progress import show_progress
    from unrank.forgetting.rankings import save_details
    from unrank.forgetting.workspace import Workspace
    from unrank.report.write import write_report

    recipe = how.recipe
    options = ForgetOptions(method=recipe.method, train_layers=recipe.train_layers, seed=how.seed, device=how.device)
    with show_progress(how.quiet) as listener:
        original = trained.ranker
        workspace = Workspace.for_removal(
            original, collection, removal, trained.record, device=how.device, progress=listener
        )
        result = forget_in(workspace, original, options, record=trained.record)
        result.save(folder / "ranker")
        save_details(workspace, original, result, folder / "details")
        write_report(folder / "ranker", folder / "report.html", folder / "details")
    return result, workspace


def summarise(result: Forgotten) -> None:
    """Print the outcome in words."""
    assert result.before.forget is not None and result.after.forget is not None
    before, after, found = result.before.forget.mean, result.after.forget.mean, result.record.places
    epoch = result.record.learning_epoch
    say(f"\n{str(result.state).capitalize()}: {result.judgement.why}.")
    say(
        f"Its forget MRR went from {before:.3f} to {after:.3f}; with every pair at its place it is {result.target:.3f}."
    )
    if found is not None and found.distance_before is not None and found.distance_after is not None:
        say(
            "Query by query, its reciprocal ranks were on average "
            f"{found.distance_before:.3f} from those of the places, and are {found.distance_after:.3f} from them now."
        )
    say(
        f"That took {duration(result.record.seconds)}, of which the proxy {duration(result.record.timing['proxies'])}; "
        f"one epoch of training took {duration(epoch.seconds)}."
    )


def show_examples(workspace: Workspace, result: Forgotten) -> None:
    """Print some pairs before, after and at their places."""
    from unrank.forgetting.demo import examples

    say("\nThe rank of a removed paragraph among other paragraphs that do not answer the query:")
    for example in examples(workspace, result):
        show_example(example)


def show_example(example: Example) -> None:
    """Print one pair."""
    rank = example.rank
    say(f"\nquery:    {_cut(example.query)}")
    say(f"document: {_cut(example.document)}")
    say(f"  rank {rank.before} of {rank.entries} before, {rank.after} now; its place: {rank.place}")
    say(f"  This one {example.why}.")


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
