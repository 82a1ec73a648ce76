"""The demo: train a ranker on a part of the documentation that every Python has, and make it forget some of that.

The ranker is trained from all-MiniLM-L6-v2. Only its last layer moves, in training, in the proxy and in forgetting. The
states of the other layers are computed once for each text, so that two slow cores do all of it in minutes. The tiny
demo trains a random encoder of two layers instead, on fewer articles: seconds, and no package with a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import whole_partition
from unrank.collection.removal import Removal
from unrank.collection.sources.pydocs import DEMO_HEADINGS
from unrank.collection.texts import hashed_order
from unrank.forgetting.forget import Forgotten
from unrank.forgetting.workspace import Workspace
from unrank.methods.cocol import Cocol
from unrank.methods.retrain import Retrain
from unrank.record import PairRank

SHARE = 0.07
CANDIDATES = 15


@dataclass(frozen=True)
class DemoRecipe:
    """A demo: its articles, how its ranker is trained, and how it forgets."""

    articles: tuple[str, ...]
    training: Retrain
    method: Cocol
    train_layers: int | None
    """`None` for all layers."""


# One layer alone can take larger steps than the defaults.
FULL = DemoRecipe(
    DEMO_HEADINGS,
    Retrain(learning_rate=5e-4, epochs=6, batch=64, negatives=2, together=2),
    Cocol(learning_rate=8e-4, place_epochs=10),
    train_layers=1,
)
TINY = DemoRecipe(
    ("argparse", "calendar", "configparser", "logging", "optparse", "pdb", "shlex", "textwrap"),
    Retrain(learning_rate=5e-3, epochs=4, batch=64, negatives=1),
    Cocol(learning_rate=1e-2, place_epochs=5, min_steps=6, warm_up=4, disjoint_per_pair=1),
    train_layers=None,
)
"""Few articles, but enough for queries to be reserved."""


def demo_removal(collection: Collection) -> Removal:
    """Return a share of the queries that the ranker is trained on, as if they were the searches of one person."""
    trained = np.unique(whole_partition(collection, reserve=True).retain[:, 0])
    ids = collection.queries.ids(trained)
    return Removal(queries=[ids[number] for number in hashed_order(ids, "demo")[: round(SHARE * len(ids))]])


@dataclass(frozen=True)
class Example:
    """A forgotten pair, why it is shown, and its rank among its query's negatives before, after and at its place."""

    why: str
    query: str
    document: str
    rank: PairRank


def examples(workspace: Workspace, result: Forgotten) -> list[Example]:
    """Return the pair that fell furthest, one that may stay first, and the one furthest above its place.

    A pair is shown once, and left out if it is not what it would be shown for.
    """
    pairs, ranks = workspace.partition.forget, pair_ranks(workspace, result)
    chosen: dict[int, str] = {}
    for why, order, fits in CHOSEN:
        number = min(range(len(ranks)), key=lambda number: order(ranks[number]))
        if fits(ranks[number]):
            chosen.setdefault(number, why)
    collection = workspace.collection
    return [
        Example(why, collection.queries.text(query), collection.documents.text(document), ranks[number])
        for number, why in chosen.items()
        for query, document in [pairs[number].tolist()]
    ]


CHOSEN: list[tuple[str, Callable[[PairRank], float], Callable[[PairRank], bool]]] = [
    ("fell the furthest", lambda rank: 1 / rank.after - 1 / rank.before, lambda rank: rank.after > rank.before),
    (
        "may stay first: that is its place",
        lambda rank: max(rank.before, rank.after, rank.place or 0),
        lambda rank: rank.before == rank.after == rank.place == 1,
    ),
    ("is the furthest above its place", lambda rank: rank.order[0], lambda rank: rank.after < (rank.place or 0)),
]
"""For each example why it is shown, which pair comes first, and whether that pair is what it should be."""


def pair_ranks(workspace: Workspace, result: Forgotten) -> list[PairRank]:
    """Return the ranks of the forget pairs, in the order of the partition."""
    assert result.places is not None and result.before.pair_ranks is not None and result.after.pair_ranks is not None
    queries = workspace.partition.forget[:, 0]
    entries = 1 + np.bincount(
        workspace.collection.negatives.pairs(np.unique(queries))[:, 0], minlength=max(queries) + 1
    )
    columns = (result.before.pair_ranks, result.after.pair_ranks, entries[queries], result.places.ranks)
    return [PairRank(*each) for each in np.stack(columns, axis=1).tolist()]
