"""Names and versions of the files that one room writes and others read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from unrank.errors import UnrankError

Value = TypeVar("Value")

RECORD = "unrank.json"
RECORD_VERSION = 1
HISTORY = "history.jsonl"
DETAILS = "details.json"
DETAILS_VERSION = 2
CELL = "cell.json"
CELL_FORMAT = 1
RANKS = "ranks.json"

RENAMED_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "cocol": {
        "held": "anchors_per_pair",
        "held_disjoint": "disjoint_per_pair",
        "held_an_epoch": "disjoint_per_epoch",
        "looked_at": "negatives_seen",
        "least_steps": "min_steps",
    }
}
"""For each method the former names of its settings, and their names now. Commands, grids and records may use both."""


def current_settings(method: str, settings: Mapping[str, Value]) -> dict[str, Value]:
    """Return a method's settings under their present names.

    >>> current_settings("cocol", {"held": 2, "batch": 8})
    {'anchors_per_pair': 2, 'batch': 8}
    """
    renamed = RENAMED_SETTINGS.get(method, {})
    for old, new in renamed.items():
        if old in settings and new in settings:
            raise UnrankError(f"{new} is given twice, once by its old name {old}: take one out")
    return {renamed.get(name, name): value for name, value in settings.items()}
