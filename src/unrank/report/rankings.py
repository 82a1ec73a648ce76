"""Rankings: every query's list before and after, as `unrank forget --details` wrote them, cut to what a page can hold.

Without texts nothing that was removed reaches the page: a removed query keeps its ranks only, a removed document has
neither id nor text, and the same holds for the document of a removed pair.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from unrank.disk import Form, fits, json_of, open_regular, read_json
from unrank.errors import BadFile, UnrankError, count
from unrank.record import DETAILS, DETAILS_VERSION, SETS, Record
from unrank.report.bench_folder import check_numbers

COUNTS = dict.fromkeys(SETS, int)
KINDS = {kind: {"before": [int], "after": [int]} for kind in ("forgotten", "kept", "other")}
HEADER = {"run": str, "queries": COUNTS, "measured": COUNTS, "scores": {"edges": [float], **KINDS}}
DOCUMENT = {"id": str, "text": str, "removed": bool, "says_removed": bool}
ENTRY = {"document": str, "score": float, "relevant": bool, "forgotten": bool}
QUERY = DOCUMENT | {
    "sets": [lambda name: name in SETS], "before": [ENTRY], "after": [ENTRY],
    "forgotten": [lambda move: _is_move(move)], "kept": [lambda move: _is_move(move)],
}  # fmt: skip
"""The form of each file; it may hold more."""
PAGE_BYTES = 4_500_000
"""The most bytes that the lists take of a page."""
MOST_QUERIES = 10_000
DEPTHS, LENGTHS = (10, 5, 3), (400, 240, 120, 80, 48)
"""Documents of a list and characters of a text; texts are cut first, then lists."""
QUERY_LENGTH = 160
HIDDEN = -1
"""The number of a document that may not be shown."""


class Document(TypedDict):
    """A document or a query: `says_removed` if its text is that of a removed one."""

    id: str
    text: str
    removed: bool
    says_removed: bool


class Entry(TypedDict):
    """A document in a list."""

    document: str
    score: float
    relevant: bool
    forgotten: bool


class Query(Document):
    """A query with its two lists, and the ranks before and after of its forgotten and kept documents.

    With places, it also has the rank of the place of each forgotten document.
    """

    sets: list[str]
    before: list[Entry]
    after: list[Entry]
    forgotten: list[list[int]]
    kept: list[list[int]]
    places: NotRequired[list[int]]


class Sides(TypedDict):
    """Counts in the bins of a histogram, before and after."""

    before: list[int]
    after: list[int]


@dataclass(frozen=True)
class Rankings:
    """The queries and documents of a run, and histograms of its scores."""

    written: Mapping[str, int]
    """The number of queries of each set in the files."""
    measured: Mapping[str, int]
    edges: Sequence[float]
    scores: Mapping[str, Sides]
    queries: Sequence[Query]
    documents: Mapping[str, Document]

    def moves(self, kind: str) -> list[tuple[int, int]]:
        """Return the ranks before and after of all forgotten, or all kept, documents."""
        found = [query["forgotten"] if kind == "forgotten" else query["kept"] for query in self.queries]
        return [(before, after) for moves in found for before, after in moves]

    @property
    def places(self) -> list[int]:
        """The ranks of the places of all forgotten documents; empty if the run had another target."""
        return [rank for query in self.queries for rank in query.get("places", ())]


def read_rankings(folder: Path, run: Record) -> Rankings:
    """Read the rankings of a run; refuse those of another."""
    header = read_json(folder / DETAILS)
    if not isinstance(header, dict) or header.get("details_version") != DETAILS_VERSION:
        raise BadFile(folder / DETAILS, f"not details of version {DETAILS_VERSION}")
    if not fits(header, HEADER) or not _is_drawable(**header["scores"]):
        raise BadFile(folder / DETAILS, "damaged details: a value is missing or of the wrong kind")
    check_numbers(header, folder / DETAILS)
    if run.removed is None or header["run"] != run.removed.salt:
        raise UnrankError(f"the details in {folder} are of another run; name those that were written with this ranker")
    documents: dict[str, Document] = {line["id"]: line for line in _lines(folder / "documents.jsonl", DOCUMENT)}
    queries: list[Query] = list(_lines(folder / "queries.jsonl", QUERY))
    if any(not _has_places(query) for query in queries):
        raise BadFile(folder / "queries.jsonl", "damaged details: not every forgotten document has one place")
    listed = {entry["document"] for query in queries for side in (query["before"], query["after"]) for entry in side}
    if missing := len(listed - set(documents)):
        raise BadFile(folder / "documents.jsonl", f"cut short: {count(missing, 'ranked document')} not in it")
    scores = header["scores"]
    return Rankings(
        header["queries"],
        header["measured"],
        scores["edges"],
        {kind: scores[kind] for kind in KINDS},
        queries,
        documents,
    )


Row = list[Any]
"""A query for the page's script: id, text, sets, first ranks and, if they may be shown, its two lists."""


class PageData(TypedDict):
    """The data of the page's table, which a script draws."""

    sets: Sequence[str]
    documents: list[list[str]]
    queries: list[Row]


def page_data(rankings: Rankings, texts: bool = True, most_bytes: int = PAGE_BYTES) -> PageData:
    """Return as many documents of each list, and as much of each text, as there is room for."""
    queries = sorted(rankings.queries, key=lambda query: (not query["forgotten"], _fall(query)))[:MOST_QUERIES]
    veil = Veil(rankings, lifted=texts)
    while True:
        for depth in DEPTHS:
            numbers: dict[str, int] = {}
            rows = [_row(query, veil, depth, numbers) for query in queries]
            room = most_bytes - _size(rows)
            for length in LENGTHS:
                documents = [[id, _cut(veil.text(rankings.documents[id]), length)] for id in numbers]
                if _size(documents) <= room:
                    return {"sets": SETS, "documents": documents, "queries": rows}
        queries = queries[: len(queries) // 2]


@dataclass(frozen=True)
class Veil:
    """Hides what was removed, or nothing if it is lifted."""

    rankings: Rankings
    lifted: bool

    def hides(self, removed: bool) -> bool:
        return removed and not self.lifted

    def text(self, line: Document) -> str:
        """Return a text; one that reads like a removed text is hidden too."""
        return "" if self.hides(line["says_removed"]) else line["text"]


def _row(query: Query, veil: Veil, depth: int, numbers: dict[str, int]) -> Row:
    """Make the row of a query; `numbers` gains the documents of its lists."""
    sets, ranks = [SETS.index(name) for name in query["sets"]], [*_first(query["forgotten"]), *_first(query["kept"])]
    if veil.rankings.places:
        ranks.insert(2, min(query.get("places", ()), default=0))
    if veil.hides(query["removed"]):
        return ["", "", sets, ranks]
    lists = [_list(side[:depth], veil, numbers) for side in (query["before"], query["after"])]
    return [query["id"], _cut(veil.text(query), QUERY_LENGTH), sets, ranks, *lists]


def _list(entries: Sequence[Entry], veil: Veil, numbers: dict[str, int]) -> list[float]:
    """Return a list flat, to save room: a document's number, its score, and 1 if relevant + 2 if forgotten."""
    flat: list[float] = []
    for entry in entries:
        id = entry["document"]
        hidden = veil.hides(entry["forgotten"] or veil.rankings.documents[id]["removed"])
        number = HIDDEN if hidden else numbers.setdefault(id, len(numbers))
        flat += [number, float(f"{entry['score']:.3g}"), entry["relevant"] + 2 * entry["forgotten"]]
    return flat


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _first(moves: Sequence[Sequence[int]]) -> list[int]:
    """Return the best rank before and the best after; 0 if there is none."""
    return [min((move[side] for move in moves), default=0) for side in (0, 1)]


def _fall(query: Query) -> float:
    """Return the change of the first forgotten document's reciprocal rank: the largest fall is the least number."""
    before, after = _first(query["forgotten"])
    return 1 / after - 1 / before if before and after else 0.0


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters].rstrip()}…"


def _is_move(value: Any) -> bool:
    """Return whether a value is a rank before and a rank after, both counted from 1."""
    return fits(value, [int]) and len(value) == 2 and min(value) > 0


def _has_places(query: Query) -> bool:
    """Return whether a query has a place for each forgotten document, or none at all."""
    places = query.get("places")
    if places is None:
        return True
    return fits(places, [int]) and len(places) == len(query["forgotten"]) and min(places, default=1) > 0


def _is_drawable(edges: Sequence[float], **scores: Any) -> bool:
    """Return whether bins are in order, with a count for each."""
    counts = [side for kind in KINDS for side in scores[kind].values()]
    return edges == sorted(set(edges)) and all(len(side) == len(edges) - 1 > 0 for side in counts)


def _lines(path: Path, form: Form) -> Iterator[Any]:
    try:
        with open_regular(path) as file:
            for number, line in enumerate(file, 1):
                value = json_of(line, path, number)
                if not fits(value, form):
                    raise BadFile(path, "not a line of details", number)
                check_numbers(value, path, number)
                yield value
    except FileNotFoundError as error:
        raise BadFile(path, "no such file") from error
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
