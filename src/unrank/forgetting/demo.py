"""The main job on data that every Python has: forget what `argparse` superseded.

A part of the standard library's documentation is the collection, all-MiniLM-L6-v2 as it comes is the ranker. All of
`optparse` is forgotten, and `calendar` with it, and some of `zipfile`, whose other paragraphs are entangled with those.
"""

from __future__ import annotations

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.collection.texts import hashed_order
from unrank.methods.cocol import Cocol

WHOLE = ("optparse", "calendar")
PARTLY = "zipfile"
SHARE = 0.06
CANDIDATES = 15
TARGET = "60%"
METHOD = Cocol(phases="joint", batch=32, learning_rate=4e-4, warm_up=1)
TRAIN_LAYERS = 1
"""One phase and one layer: two slow cores have minutes for it."""


def demo_removal(collection: Collection) -> Removal:
    """All documents of some articles, and some of another until a share of all documents is gone."""
    headings = collection.queries.texts(np.arange(len(collection.queries)))
    trained = set(collection.documents.ids(np.unique(collection.pairs[:, 1])))
    whole, partly = (
        sorted({id for heading in some for id in _documents(collection, headings.index(heading)) if id in trained})
        for some in (WHOLE, [PARTLY])
    )
    drawn = [partly[place] for place in hashed_order(partly, "demo") if partly[place] not in whole]
    return Removal(documents=[*whole, *drawn[: round(SHARE * len(collection.documents)) - len(whole)]])


def _documents(collection: Collection, query: int) -> list[str]:
    return collection.documents.ids(collection.judged[collection.judged[:, 0] == query, 1])
