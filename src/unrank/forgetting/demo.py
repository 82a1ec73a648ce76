"""The main job on data that every Python has: forget what `argparse` superseded.

A part of the standard library's documentation is the collection, all-MiniLM-L6-v2 as it comes is the ranker. All of
`optparse / OptionParser` is forgotten, and with it other paragraphs on options, configuration and archives,
until a twentieth of all is gone.
"""

from __future__ import annotations

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.order import hashed_order
from unrank.collection.removal import Removal
from unrank.methods.cocol import Cocol

HEADING = "optparse / OptionParser"
RELATED = ("optparse", "getopt", "configparser", "calendar", "zipfile")
SHARE = 0.05
CANDIDATES = 15
TARGET = "60%"
METHOD = Cocol(phases="joint", batch=16, learning_rate=2e-4)
TRAIN_LAYERS = 2
"""One phase and two layers: two slow cores have minutes for it."""


def demo_removal(collection: Collection) -> Removal:
    """All documents of the heading, and others of its kind until a twentieth of all documents is gone."""
    headings = collection.queries.texts(np.arange(len(collection.queries)))
    under = {heading: _documents(collection, headings.index(heading)) for heading in (HEADING, *RELATED)}
    trained = set(collection.documents.ids(np.unique(collection.pairs[:, 1])))
    others = sorted({id for heading in RELATED for id in under[heading]} - set(under[HEADING]))
    drawn = [others[place] for place in hashed_order(others, "demo") if others[place] in trained]
    removed = [id for id in under[HEADING] if id in trained]
    return Removal(documents=[*removed, *drawn[: round(SHARE * len(collection.documents)) - len(removed)]])


def _documents(collection: Collection, query: int) -> list[str]:
    return collection.documents.ids(collection.judged[collection.judged[:, 0] == query, 1])
