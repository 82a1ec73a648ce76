"""Names and versions of the files that one room writes and others read."""

from __future__ import annotations

RECORD = "unrank.json"
RECORD_VERSION = 1
HISTORY = "history.jsonl"
DETAILS = "details.json"
DETAILS_VERSION = 2
CELL = "cell.json"
CELL_FORMAT = 1
RANKS = "ranks.json"
