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

from unrank.disk import read_json
from unrank.errors import BadFile, UnrankError
from unrank.report.record import SETS, Run

DETAILS_VERSION = 1
PAGE_BYTES = 4_500_000
"""What the lists may take of a page."""
MOST_QUERIES = 10_000
CUTS = ((10, 400), (10, 200), (10, 120), (5, 120), (5, 80), (5, 48), (3, 48), (3, 24), (2, 0))
"""How many documents of a list and how many characters of each, the most that fits."""
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


def read_details(folder: Path, run: Run) -> Details:
    """The details of this run; those of another are refused."""
    header = read_json(folder / "details.json")
    if not isinstance(header, dict) or header.get("details_version") != DETAILS_VERSION:
        raise BadFile(folder / "details.json", f"not details of version {DETAILS_VERSION}")
    if header.get("run") != run.record["removed"].get("salt"):
        raise UnrankError(f"the details in {folder} are of another run; name those that were written with this ranker")
    queries = list(
        _lines(folder / "queries.jsonl", {"id", "text", "removed", "sets", "before", "after", "forgotten", "kept"})
    )
    documents = {line["id"]: line for line in _lines(folder / "documents.jsonl", {"id", "text", "removed"})}
    return Details(header, queries, documents)


def page_data(details: Details, texts: bool = True, most_bytes: int = PAGE_BYTES) -> dict[str, Any]:
    """What the page's table is made from: as many documents of a list, and as much of each, as there is room for."""
    queries = sorted(details.queries, key=lambda query: (not query["forgotten"], _fall(query)))[:MOST_QUERIES]
    while True:
        for documents, characters in CUTS:
            data = _packed(details, queries, documents, characters, texts)
            if len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()) <= most_bytes:
                return data
        queries = queries[: len(queries) // 2]


def _packed(
    details: Details, queries: Sequence[Mapping[str, Any]], documents: int, characters: int, texts: bool
) -> dict[str, Any]:
    """Documents once, and lists of their numbers: [number, score, 1 relevant + 2 forgotten, …]."""
    numbers: dict[str, int] = {}
    banned = set() if texts else _removed_texts(details)

    def packed(entries: Sequence[Mapping[str, Any]]) -> list[float]:
        flat: list[float] = []
        for entry in entries[:documents]:
            hidden = not texts and (entry["forgotten"] or details.documents[entry["document"]]["removed"])
            number = NOBODY if hidden else numbers.setdefault(entry["document"], len(numbers))
            flat += [number, float(f"{entry['score']:.3g}"), entry["relevant"] + 2 * entry["forgotten"]]
        return flat

    rows = []
    for query in queries:
        hidden = not texts and query["removed"]
        rows.append(
            [
                "" if hidden else query["id"],
                "" if hidden or query["text"] in banned else query["text"][: max(characters, 60)],
                [SETS.index(name) for name in query["sets"]],
                [*_first(query["forgotten"]), *_first(query["kept"])],
                *([] if hidden else [packed(query["before"]), packed(query["after"])]),
            ]
        )
    known = [details.documents[id] for id in numbers]
    shown = [[line["id"], "" if line["text"] in banned else _cut(line["text"], characters)] for line in known]
    return {
        "sets": SETS,
        "documents": shown,
        "queries": rows,
        "measured": sum(len(q["sets"]) > 0 for q in details.queries),
    }


def _removed_texts(details: Details) -> set[str]:
    """Texts that were removed: another query or document that says the same may not be shown either."""
    lines = [*details.queries, *details.documents.values()]
    return {line["text"] for line in lines if line["removed"]}


def _first(moves: Sequence[Sequence[int]]) -> list[int]:
    """The best place before and the best after; 0 where there is none."""
    return [min((move[side] for move in moves), default=0) for side in (0, 1)]


def _fall(query: Mapping[str, Any]) -> float:
    """How far the first forgotten document fell from the top: less for more, so that these come first."""
    before, after = _first(query["forgotten"])
    return 1 / after - 1 / before if before and after else 0.0


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters].rstrip()}…"


def _lines(path: Path, keys: set[str]) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                value = json.loads(line)
                if not isinstance(value, dict) or not keys <= set(value):
                    raise BadFile(path, "not a line of details", number)
                yield value
    except FileNotFoundError as error:
        raise BadFile(path, "no such file") from error
    except ValueError as error:
        raise BadFile(path, f"not JSON lines in UTF-8: {error}") from error
