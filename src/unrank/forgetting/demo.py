"""The main job on data that every Python has: forget what `argparse` superseded.

A part of the standard library's documentation is the collection, all-MiniLM-L6-v2 as it comes is the ranker. All of
`optparse / OptionParser` is forgotten, and other documents with it until a twentieth of the training pairs is.
"""

from __future__ import annotations

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.order import hashed_order
from unrank.collection.removal import Removal
from unrank.methods.cocol import Cocol

HEADING = "optparse / OptionParser"
SHARE = 0.05
CANDIDATES = 15
TARGET = "58%"
METHOD = Cocol(phases="joint", batch=16)
"""One phase and small batches: two slow cores have minutes for it."""


def demo_removal(collection: Collection) -> Removal:
    """All documents of the heading, and others until a twentieth of the pairs is gone."""
    texts = collection.queries.texts(np.arange(len(collection.queries)))
    heading = collection.documents.ids(np.unique(collection.judged[collection.judged[:, 0] == texts.index(HEADING), 1]))
    rows, counts = np.unique(collection.pairs[:, 1], return_counts=True)
    pairs_of = dict(zip(collection.documents.ids(rows), counts.tolist(), strict=True))
    removed = [id for id in heading if id in pairs_of]
    others = [id for id in pairs_of if id not in removed]
    left = SHARE * len(collection.pairs) - sum(pairs_of[id] for id in removed)
    for place in hashed_order(others, "demo"):
        left -= pairs_of[others[place]]
        if left < 0:
            break
        removed.append(others[place])
    return Removal(documents=removed)
