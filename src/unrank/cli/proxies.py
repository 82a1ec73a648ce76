"""The command `proxies`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from unrank.cli.option import (
    FORGET,
    CacheFolder,
    CollectionFolder,
    DeviceFlags,
    RankerName,
    Seed,
    flag_of,
    open_cache,
    with_flags,
)
from unrank.cli.show import duration, say, tell_unrecognised
from unrank.disk import check_outside, check_writable

PROXIES_OUT = "The folder of the proxies. Those that it has are kept; never ship it: they remember what they saw."
KEEP = (
    "Also keep, in the owner's state folder, what later requests would compute again: tokens, scores and vectors. What "
    "a request removes is erased from it."
)
REBUILD = "Train proxies again that saw what RANKER has forgotten since, or that are of another collection."


@dataclass(frozen=True)
class ProxyFlags:
    """The options that say how proxies are prepared."""

    count: Annotated[int, typer.Option("--count", help="The number of proxies; each never sees one part.", min=2)] = 8
    epochs: Annotated[int, typer.Option("--epochs", help="Epochs that each is trained for.", min=1)] = 4
    seed: Seed = 0
    rebuild: Annotated[bool, typer.Option("--rebuild", help=REBUILD)] = False
    base: Annotated[str | None, flag_of(FORGET["base"])] = None
    cache: CacheFolder = None
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help=KEEP)] = True


PROXY, DEVICE = ProxyFlags(), DeviceFlags()


def prepare(ranker: str, collection: Path, out: Path, how: ProxyFlags, on: DeviceFlags) -> None:
    """Prepare proxies of a ranker, and print what was done."""
    from unrank.collection.collection import open_collection

    opened = open_collection(collection)

    from unrank.engine.kept import KeptState
    from unrank.forgetting.prepared_proxies import ProxyOptions, prepare_proxies
    from unrank.forgetting.progress import show_progress
    from unrank.forgetting.train import recipe_of
    from unrank.forgetting.validation import find_base
    from unrank.rankers import load_ranker, record_of

    loaded, record = load_ranker(ranker, on.fast), record_of(ranker)
    tell_unrecognised(record, on.quiet)
    base = find_base(loaded, recipe_of(loaded.kind), how.base, record)
    options = ProxyOptions(how.count, how.epochs, how.seed, on.device, how.rebuild)
    with show_progress(on.quiet) as listener:
        done = prepare_proxies(
            loaded,
            opened,
            out,
            base,
            record=record,
            options=options,
            progress=listener,
            cache=open_cache(how.cache, out) or KeptState.open(opened, make=how.keep),
        )
    new, again, left = len(done.made), len(done.rebuilt), len(done.kept)
    say(f"{new} proxies made, {again} trained again, {left} left as they are, in {duration(done.seconds)}: {out}")
    say("they remember what they were trained on: never ship this folder with a ranker")


@with_flags
def proxies(
    ranker: RankerName,
    collection: CollectionFolder,
    out: Annotated[Path, typer.Option("--out", help=PROXIES_OUT)],
    how: ProxyFlags = PROXY,
    on: DeviceFlags = DEVICE,
) -> None:
    """Prepare proxies: rankers from the same base, each of which never sees one part of the collection."""
    check_outside(out, ranker, collection)
    check_writable(out)
    prepare(ranker, collection, out, how, on)
