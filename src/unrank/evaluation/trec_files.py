"""Runs and qrels in TREC's formats: the lists of each set as they are measured, for trec_eval and its relatives.

trec_eval sorts by score and breaks ties by document id. So that its order is the one that is measured here, equal
scores are written as the next lower numbers: in every list they fall strictly, in single precision too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Collection
from unrank.disk import new_folder
from unrank.errors import UnrankError
from unrank.evaluation.measure import places
from unrank.evaluation.scorecard import MeasuredLists
from unrank.record import MEASURED

ENDS_AN_ID = re.compile(r"[\s%]")
TAG = "unrank"
TrecFiles = Mapping[str, Iterator[str]]
"""The lines of each file by its name."""


def run_files(lists: Mapping[str, MeasuredLists], collection: Collection, when: str = "") -> TrecFiles:
    """Return a run for each set; `when` becomes a part of the names."""
    ending = f"{when}.run" if when else "run"
    return {f"{name}.{ending}": run_lines(lists[name], collection) for name in MEASURED if name in lists}


def qrels_files(lists: Mapping[str, MeasuredLists], collection: Collection) -> TrecFiles:
    """Return the judgements of each set: its pairs with their grades, and nothing that its lists leave out."""
    return {f"{name}.qrels": qrels_lines(lists[name], collection) for name in MEASURED if name in lists}


def run_lines(measured: MeasuredLists, collection: Collection) -> Iterator[str]:
    """Yield query, `Q0`, document, rank, score and a tag for each entry, the best of each list first."""
    order = measured.lists.order(measured.ties_first)
    rank = places(measured.lists.owner[order])
    scores = falling(measured.lists.score[order], rank)
    names = collection.pair_ids(measured.pairs[order])
    for (query, document), place, score in zip(names, rank.tolist(), scores.tolist(), strict=True):
        yield f"{escaped(query)} Q0 {escaped(document)} {place} {score:.9g} {TAG}"


def qrels_lines(measured: MeasuredLists, collection: Collection) -> Iterator[str]:
    """Yield query, 0, document and grade for each pair of the set."""
    target = measured.lists.target
    grades = measured.lists.gains[target].astype(int).tolist()
    for (query, document), grade in zip(collection.pair_ids(measured.pairs[target]), grades, strict=True):
        yield f"{escaped(query)} 0 {escaped(document)} {grade}"


def write_trec(folder: Path, files: TrecFiles) -> None:
    """Write files to a new folder."""
    with new_folder(folder) as partial:
        for name, lines in files.items():
            with (partial / name).open("w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)


def escaped(id: str) -> str:
    """Return an id without blanks: each becomes its bytes with percent signs, and so does a percent sign.

    >>> escaped("d 1"), escaped("50%"), escaped("d1")
    ('d%201', '50%25', 'd1')
    """
    if not id:
        raise UnrankError("an id is empty, and TREC's formats cannot hold it: import the collection with other ids")
    return ENDS_AN_ID.sub(lambda found: quote(found.group(), safe=""), id)


def count_escaped(lists: Mapping[str, MeasuredLists], collection: Collection) -> int:
    """Return how many queries and documents of the lists have an id that is not written as it is."""
    pairs = np.concatenate([each.pairs for each in lists.values()])
    sides = ((collection.queries, 0), (collection.documents, 1))
    return sum(bool(ENDS_AN_ID.search(id)) for texts, side in sides for id in texts.ids(np.unique(pairs[:, side])))


def falling(scores: NDArray[np.float32], rank: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return scores that fall strictly within each list, given in the order of ranks; only equal ones change.

    >>> falling(np.array([2, 1, 1, 5], np.float32), np.array([1, 2, 3, 1])).tolist()
    [2.0, 1.0, 0.9999999403953552, 5.0]
    """
    found = scores.astype(np.float32)
    for place in np.flatnonzero(rank > 1).tolist():
        if found[place] >= found[place - 1]:
            found[place] = np.nextafter(found[place - 1], np.float32(-np.inf))
    return found
