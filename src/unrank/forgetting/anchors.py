"""Anchors: what a run takes from the anchor file of its first original, and what it leaves there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import NO_PAIRS, Partition
from unrank.collection.texts import Rows, hashed_order
from unrank.engine.teacher import Scores, Teacher
from unrank.evaluation.measure import Floats
from unrank.forgetting.anchor_file import AnchorFile, AnchorList, IdHashes
from unrank.forgetting.outcome import pair_ranks
from unrank.forgetting.places import Places, margins_of, rank_at, score_at, with_room
from unrank.forgetting.previous_requests import PreviousRanks
from unrank.forgetting.workspace import Workspace
from unrank.methods.task import EarlierPlaces, Task, are_in
from unrank.owner import owner_key
from unrank.record import Record, requests_of

MOST_ANCHORS = 2_048
"""The most kept pairs in an anchor file."""
NEGATIVES = 8
"""The number of highest negatives that are kept of each query."""
NOT_HELD = "what is kept is held where the run before left it, not where the first original had it"


@dataclass(frozen=True)
class Anchors:
    """Kept pairs and negatives with the first original's scores, and the places of pairs that were forgotten before."""

    pairs: Pairs
    negatives: Pairs
    scores: Scores
    """Those of the pairs, then those of the negatives."""
    placed: Pairs
    margins: Floats
    """The margin of the place of each placed pair."""
    ranks: Rows
    """Its rank; 0 if the file does not say."""
    requests: Rows
    """The number of the request that it is of."""

    @property
    def digest(self) -> str:
        """A hash of all of it, because the weights of a run follow from it."""
        arrays = (self.pairs, self.negatives, self.scores, self.placed, self.margins, self.ranks, self.requests)
        return hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in arrays)).hexdigest()

    def hold(self, task: Task, previous: PreviousRanks, collection: Collection) -> Task:
        """Return a task that holds to the first original's scores, and to the places of what was forgotten before."""
        partition = previous.with_risen(task.partition, collection, self.placed)
        teacher = task.teacher.holding(np.concatenate([self.pairs, self.negatives]), self.scores)
        held = replace(task, partition=partition, teacher=teacher, anchors=self.pairs, anchor_negatives=self.negatives)
        there = are_in(partition.previous, self.placed)
        if not there.any():
            return held
        pairs, score = partition.previous[there], teacher.answers
        found = collection.find_pairs(pairs, self.placed)
        margins, ranks = self.margins[found], self.ranks[found]
        ranks = np.where(ranks > 0, ranks, rank_at(collection, pairs, score, margins))
        wanted = with_room(collection, pairs, ranks, score_at(collection, pairs, score, margins), score)
        places = EarlierPlaces.of(there, wanted, ranks, self.requests[found])
        now = pair_ranks(collection, pairs, teacher.scores)
        places.mark(now)
        return replace(held, earlier_places=replace(places, before=places.distance(now)))


def is_first(record: Record | None) -> bool:
    """Return whether no request changed the ranker before: it is an original, or was trained without what was asked."""
    return all(request.never_seen for request in requests_of(record))


def find_anchors(workspace: Workspace, record: Record | None) -> Anchors | None:
    """Return the anchors of a ranker; `None` if it is an original, or if there are none, which one line says."""
    if is_first(record):
        return None
    assert record is not None
    key, say = owner_key(), workspace.runtime.progress.say
    file = AnchorFile.read(record.lineage, key) if record.lineage else None
    if key is None or file is None:
        why = "has no" if record.lineage is None else "cannot find or read the"
        say(f"this ranker {why} anchor file in the owner's state folder: {NOT_HELD}")
        return None
    hashes, names = IdHashes(key), [request.salt for request in requests_of(record)]
    found = _lists_found(file.lists, workspace, hashes)
    if not len(found[0]):
        say(f"the anchor file of this ranker has no kept pair of this collection: {NOT_HELD}")
    placed, margins, ranks, requests = _places_found(file, names, workspace, hashes)
    return Anchors(*found, placed, margins, ranks, requests)


def _lists_found(
    lists: Mapping[str, AnchorList], workspace: Workspace, hashes: IdHashes
) -> tuple[Pairs, Pairs, Scores]:
    """Return the kept pairs and the negatives of a file that are in a collection, and their scores.

    Queries of which something is forgotten now are left out: their lists are compared with those of this run.
    """
    collection, parts = workspace.collection, workspace.partition
    queries = np.setdiff1d(parts.retain[:, 0], parts.forget[:, 0])
    hashed = dict(zip(queries.tolist(), map(hashes.query, collection.queries.ids(queries)), strict=True))
    there = np.array([query for query, name in hashed.items() if name in lists], np.int64)
    kept = parts.retain[np.isin(parts.retain[:, 0], there)]
    negatives = collection.negatives.pairs(there)
    negatives = negatives[~np.isin(negatives[:, 1], parts.documents)]
    documents = np.unique(np.concatenate([kept[:, 1], negatives[:, 1]]))
    ids = dict(zip(documents.tolist(), map(hashes.document, collection.documents.ids(documents)), strict=True))
    found = [
        _scored(pairs, [getattr(lists[hashed[query]], side).get(ids[document]) for query, document in pairs.tolist()])
        for pairs, side in ((kept, "kept"), (negatives, "negatives"))
    ]
    return found[0][0], found[1][0], np.concatenate([scores for _, scores in found])


def _scored(pairs: Pairs, scores: list[float | None]) -> tuple[Pairs, Scores]:
    """Return the pairs that have a score, and these scores."""
    known = np.array([score is not None for score in scores], bool)
    return pairs[known], np.array([score for score in scores if score is not None], np.float32)


def _places_found(
    file: AnchorFile, requests: Sequence[str], workspace: Workspace, hashes: IdHashes
) -> tuple[Pairs, Floats, Rows, Rows]:
    """Return the pairs of earlier requests that have places, the margins and ranks of these, and their requests."""
    known = {
        pair: (margin, file.ranks.get(pair, 0), number)
        for number, name in enumerate(requests)
        for pair, margin in file.places.get(name, {}).items()
    }
    previous = workspace.partition.previous if known else NO_PAIRS
    names = [hashes.pair(*ids) for ids in workspace.collection.pair_ids(previous)]
    pairs = previous[np.array([name in known for name in names], bool)]
    margins, ranks, numbers = np.array([known[name] for name in names if name in known]).reshape(-1, 3).T
    return pairs, margins, ranks.astype(np.int64), numbers.astype(np.int64)


def make_lists(collection: Collection, parts: Partition, teacher: Teacher) -> dict[str, AnchorList]:
    """Return the lists of a new anchor file: of kept pairs that the original has scored, at most 2,048 by hashed id.

    So a file costs no further scores. Empty if there is no owner's key.
    """
    key = owner_key()
    if key is None:
        return {}
    hashes, known = IdHashes(key), parts.retain[teacher.knows(parts.retain)]
    names = [f"{query} {document}" for query, document in collection.pair_ids(known)]
    known = known[hashed_order(names, "anchors")[:MOST_ANCHORS]]
    negatives = collection.negatives.pairs(np.unique(known[:, 0]))
    negatives = negatives[teacher.knows(negatives) & ~np.isin(negatives[:, 1], parts.documents)]
    negatives = _highest(negatives, teacher.scores(negatives))
    found: dict[str, AnchorList] = {}
    for pairs, kind in ((known, "kept"), (negatives, "negatives")):
        for (query, document), score in zip(collection.pair_ids(pairs), teacher.scores(pairs).tolist(), strict=True):
            of = found.setdefault(hashes.query(query), AnchorList({}, {}))
            getattr(of, kind)[hashes.document(document)] = score
    return found


def _highest(pairs: Pairs, scores: Scores) -> Pairs:
    """Return the pairs with the highest scores of each query."""
    ordered = pairs[np.lexsort((-scores, pairs[:, 0]))]
    place = np.arange(len(ordered)) - np.searchsorted(ordered[:, 0], ordered[:, 0])
    return ordered[place < NEGATIVES]


def make_places(collection: Collection, places: Places, teacher: Teacher) -> tuple[dict[str, float], dict[str, int]]:
    """Return the margins and the ranks of the places of the forget pairs, by hashes of pairs.

    Both are empty if there is no owner's key.
    """
    key = owner_key()
    if key is None:
        return {}, {}
    hashes, margins = IdHashes(key), margins_of(collection, places.pairs, places.wanted, teacher.scores)
    names = [hashes.pair(*ids) for ids in collection.pair_ids(places.pairs)]
    return dict(zip(names, margins.tolist(), strict=True)), dict(zip(names, places.ranks.tolist(), strict=True))
