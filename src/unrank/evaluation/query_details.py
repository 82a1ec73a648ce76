"""Query details: a ranker's figures query by query, as a file, so that a later comparison needs no weights.

They name nothing: queries and pairs are in the order of their rows, and the documents of a list are numbers within it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from unrank.collection.collection import Collection, Pairs
from unrank.disk import fits, read_json, write_new
from unrank.errors import BadFile, UnrankError
from unrank.evaluation.agreement import DEPTH, ForgetFigures
from unrank.evaluation.measure import Floats
from unrank.evaluation.scorecard import Scorecard
from unrank.owner import owner_key
from unrank.parse import WrongValue
from unrank.record import FORGET_LISTS, MEASURED

DETAILS_FORMAT = 1
FORM = {
    "details_format": int,
    "fingerprint": str,
    "request": (str, None),
    "reciprocal_ranks": {},
    "forget": (dict, None),
}
LISTS = {"pair_scores": [float], "lists": [list]}
MOST_PLACES = 10**9


def details_of(card: Scorecard, collection: Collection, forget: Pairs) -> dict[str, object]:
    """Return the details of a ranker as JSON: its reciprocal ranks on every set, and its forget scores and lists."""
    figures = card.forget_figures
    reciprocal = {name: getattr(card, name).reciprocal.tolist() for name in MEASURED if getattr(card, name) is not None}
    return {
        "details_format": DETAILS_FORMAT,
        "fingerprint": collection.fingerprint,
        "request": _request_hash(forget) if figures else None,
        "reciprocal_ranks": reciprocal,
        "forget": lists_to_json(figures) if figures else None,
    }


def write_details(path: Path, card: Scorecard, collection: Collection, forget: Pairs) -> None:
    """Write the details of a ranker to a new file."""
    write_new(path, json.dumps(details_of(card, collection, forget), separators=(",", ":")) + "\n")


def read_forget_figures(path: Path, collection: Collection, forget: Pairs) -> ForgetFigures:
    """Return the figures of a file that `write_details` wrote; refuse those of other forget pairs."""
    value = read_json(path)
    if not fits(value, FORM):
        raise BadFile(path, "not the details that 'unrank evaluate --details' writes, nor the folder of a ranker")
    if value["details_format"] != DETAILS_FORMAT:
        raise BadFile(path, f"details of format {value['details_format']}, this unrank reads {DETAILS_FORMAT}")
    if value["forget"] is None:
        raise BadFile(path, "details without a removal: write them again with --removal")
    if value["fingerprint"] != collection.fingerprint or value["request"] != _request_hash(forget):
        raise UnrankError(f"{path} holds details of another collection, request or owner: it cannot be compared")
    reciprocal = value["reciprocal_ranks"].get("forget")
    if not fits(reciprocal, [float]):
        raise BadFile(path, "damaged details: the reciprocal ranks of the forget set are not numbers")
    try:
        return figures_of_json(value["forget"], np.array(reciprocal, np.float64), len(forget))
    except WrongValue as error:
        raise BadFile(path, f"damaged details: {error}") from error


def lists_to_json(figures: ForgetFigures) -> dict[str, list[float] | list[list[int]]]:
    """Return the forget scores, to six digits, and the first places of the forget lists."""
    scores = [] if figures.pair_scores is None else [float(f"{score:.6g}") for score in figures.pair_scores.tolist()]
    return {"pair_scores": scores, "lists": [order.tolist() for order in figures.orders]}


def cell_lists(before: Scorecard, after: Scorecard, whole: bool) -> dict[str, object]:
    """Return the forget scores of a cell before and after, and its lists after; with `whole`, before too.

    Cells of one original have the same lists before: one of them is enough.
    """
    sides = {"before": before.forget_figures, "after": after.forget_figures}
    found: dict[str, object] = {}
    for side, figures in sides.items():
        if figures is not None:
            kept = figures if whole or side == "after" else replace(figures, orders=())
            found[side] = lists_to_json(kept)
    return found


def cell_figures(value: object, reciprocal: Mapping[str, Floats]) -> dict[str, ForgetFigures]:
    """Return the figures of a cell before and after, given its reciprocal ranks and the JSON that `cell_lists` made.

    They are without scores and lists if that is `None`, as in cells of earlier versions.
    """
    if value is None:
        return {side: ForgetFigures(values) for side, values in reciprocal.items()}
    if not fits(value, dict.fromkeys(reciprocal, dict)):
        raise WrongValue(f"{FORGET_LISTS} does not hold the two sides of a cell")
    assert isinstance(value, dict)
    return {side: figures_of_json(value[side], values) for side, values in reciprocal.items()}


def figures_of_json(value: object, reciprocal: Floats, pairs: int | None = None) -> ForgetFigures:
    """Return figures from the JSON of their lists and their reciprocal ranks; there may be no lists."""
    if not fits(value, LISTS):
        raise WrongValue("the forget scores and lists are not numbers")
    assert isinstance(value, dict)
    scores, lists = value["pair_scores"], value["lists"]
    if (lists and len(lists) != len(reciprocal)) or pairs not in (None, len(scores)):
        raise WrongValue("the forget scores and lists are not those of the forget set")
    return ForgetFigures(reciprocal, np.array(scores, np.float64), [_order(places) for places in lists])


def _order(places: Sequence[object]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if not 0 < len(places) <= DEPTH or {*map(type, places)} != {int} or len({*places}) < len(places):
        raise WrongValue("a list holds something else than the numbers of its documents")
    if not all(0 <= place < MOST_PLACES for place in places):  # type: ignore[operator]
        raise WrongValue("a list holds numbers that no document has")
    return np.array(places, np.int64)


def _request_hash(forget: Pairs) -> str | None:
    """Return the owner's keyed hash of the forget pairs; `None` if there is no key."""
    key = owner_key(make=True)
    return key.mac("forget pairs", np.ascontiguousarray(forget, np.int64).tobytes()) if key else None
