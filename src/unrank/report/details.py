"""Details: every query's list before and after, as `unrank forget --details` wrote them, cut to what a page can hold.

Without texts nothing that was removed reaches the page: a removed query keeps its places alone, a removed document is
one without id or text, and so is the document of a removed pair.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unrank.disk import Form, fits, read_json
from unrank.errors import BadFile, UnrankError, count
from unrank.record import DETAILS, DETAILS_VERSION, SETS, Record

COUNTS = dict.fromkeys(SETS, int)
DRAWN = {kind: {"before": [int], "after": [int]} for kind in ("forgotten", "kept", "other")}
HEADER = {"run": str, "queries": COUNTS, "measured": COUNTS, "scores": {"edges": [float], **DRAWN}}
DOCUMENT = {"id": str, "text": str, "removed": bool, "says_removed": bool}
ENTRY = {"document": str, "score": float, "relevant": bool, "forgotten": bool}
QUERY = DOCUMENT | {
    "sets": [lambda name: name in SETS], "before": [ENTRY], "after": [ENTRY],
    "forgotten": [lambda move: _is_move(move)], "kept": [lambda move: _is_move(move)],
}  # fmt: skip
"""What each file must hold, beside other things."""
PAGE_BYTES = 4_500_000
"""What the lists may take of a page."""
MOST_QUERIES = 10_000
DEPTHS, LENGTHS = (10, 5, 3), (400, 240, 120, 80, 48)
"""Documents of a list and characters of a text that are shown: as many of the first as can be, then of the second."""
QUERY_LENGTH = 160
NOBODY = -1
"""The number of a document that may not be shown."""


@dataclass(frozen=True)
class Details:
    """Queries and documents as they stand in the files."""

    header: Mapping[str, Any]
    queries: Sequence[Mapping[str, Any]]
    documents: Mapping[str, Mapping[str, Any]]

    def moves(self, kind: str) -> list[tuple[int, int]]:
        """The places before and after of all forgotten, or all kept, documents."""
        return [(before, after) for query in self.queries for before, after in query[kind]]


def read_details(folder: Path, run: Record) -> Details:
    """The details of this run; those of another are refused."""
    header = read_json(folder / DETAILS)
    if not isinstance(header, dict) or header.get("details_version") != DETAILS_VERSION:
        raise BadFile(folder / DETAILS, f"not details of version {DETAILS_VERSION}")
    if not fits(header, HEADER) or not _is_drawable(header["scores"]):
        raise BadFile(folder / DETAILS, "damaged details: something in it is missing or of the wrong kind")
    if run.removed is None or header["run"] != run.removed.salt:
        raise UnrankError(f"the details in {folder} are of another run; name those that were written with this ranker")
    documents = {line["id"]: line for line in _lines(folder / "documents.jsonl", DOCUMENT)}
    queries = list(_lines(folder / "queries.jsonl", QUERY))
    listed = {entry["document"] for query in queries for side in ("before", "after") for entry in query[side]}
    if missing := len(listed - set(documents)):
        raise BadFile(folder / "documents.jsonl", f"cut short: {count(missing, 'document')} of the lists not in it")
    return Details(header, queries, documents)


def page_data(details: Details, texts: bool = True, most_bytes: int = PAGE_BYTES) -> dict[str, Any]:
    """What the page's table is made from: as many documents of a list, and as much of each, as there is room for."""
    queries = sorted(details.queries, key=lambda query: (not query["forgotten"], _fall(query)))[:MOST_QUERIES]
    veil = Veil(details, lifted=texts)
    while True:
        for depth in DEPTHS:
            numbers: dict[str, int] = {}
            rows = [_row(query, veil, depth, numbers) for query in queries]
            room = most_bytes - _size(rows)
            for length in LENGTHS:
                documents = [[id, _cut(veil.text(details.documents[id]), length)] for id in numbers]
                if _size(documents) <= room:
                    return {"sets": SETS, "documents": documents, "queries": rows}
        queries = queries[: len(queries) // 2]


@dataclass(frozen=True)
class Veil:
    """What may be shown: everything, or nothing that was removed."""

    details: Details
    lifted: bool

    def hides(self, removed: bool) -> bool:
        return removed and not self.lifted

    def text(self, line: Mapping[str, Any]) -> str:
        """Another query or document that says the same may not be shown either."""
        return "" if self.hides(line["says_removed"]) else str(line["text"])


def _row(query: Mapping[str, Any], veil: Veil, depth: int, numbers: dict[str, int]) -> list[Any]:
    """Id, text, sets, first places, and the two lists. `numbers` gains the documents that stand in them."""
    sets, places = [SETS.index(name) for name in query["sets"]], [*_first(query["forgotten"]), *_first(query["kept"])]
    if veil.hides(query["removed"]):
        return ["", "", sets, places]
    lists = [_list(query[side][:depth], veil, numbers) for side in ("before", "after")]
    return [query["id"], _cut(veil.text(query), QUERY_LENGTH), sets, places, *lists]


def _list(entries: Sequence[Mapping[str, Any]], veil: Veil, numbers: dict[str, int]) -> list[float]:
    """Flat, for it is long: a document's number, its score, and 1 if it is relevant + 2 if it was forgotten."""
    flat: list[float] = []
    for entry in entries:
        id = entry["document"]
        hidden = veil.hides(entry["forgotten"] or veil.details.documents[id]["removed"])
        number = NOBODY if hidden else numbers.setdefault(id, len(numbers))
        flat += [number, float(f"{entry['score']:.3g}"), entry["relevant"] + 2 * entry["forgotten"]]
    return flat


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _first(moves: Sequence[Sequence[int]]) -> list[int]:
    """The best place before and the best after; 0 where there is none."""
    return [min((move[side] for move in moves), default=0) for side in (0, 1)]


def _fall(query: Mapping[str, Any]) -> float:
    """How far the first forgotten document fell from the top: less for more, so that these come first."""
    before, after = _first(query["forgotten"])
    return 1 / after - 1 / before if before and after else 0.0


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters].rstrip()}…"


def _is_move(value: Any) -> bool:
    """A place before and a place after, both counted from 1."""
    return fits(value, [int]) and len(value) == 2 and min(value) > 0


def _is_drawable(scores: Mapping[str, Any]) -> bool:
    """Bins in order, and a count for each."""
    edges = scores["edges"]
    counts = [side for kind in DRAWN for side in scores[kind].values()]
    return edges == sorted(set(edges)) and all(len(side) == len(edges) - 1 > 0 for side in counts)


def _lines(path: Path, form: Form) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                value = json.loads(line)
                if not fits(value, form):
                    raise BadFile(path, "not a line of details", number)
                yield value
    except FileNotFoundError as error:
        raise BadFile(path, "no such file") from error
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
    except (ValueError, RecursionError) as error:
        raise BadFile(path, f"not JSON lines in UTF-8: {error}") from error
