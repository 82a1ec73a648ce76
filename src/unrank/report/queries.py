"""The table of queries, searched and sorted in the page, with each list before and after side by side."""

from __future__ import annotations

from collections.abc import Sequence

from unrank.errors import count
from unrank.record import SETS
from unrank.report.page import Markup, Section, element, paragraph, script_data
from unrank.report.rankings import Rankings, page_data

COLUMNS = (
    "query", "sets", "forgotten: rank before", "forgotten: rank after", "kept: rank before", "kept: rank after",
)  # fmt: skip
PLACE = "forgotten: place"


def queries_section(rankings: Rankings, texts: bool) -> Section:
    data = page_data(rankings, texts)
    text = (
        "Open a query to see the top of its list before and after, forgotten documents marked. A rank is that of the "
        "first such document in the list as it is shown: with all relevant documents of the query, forgotten and kept, "
        "and without removed documents that it does not forget. The MRRs above are counted in other lists: for forget, "
        "other removed documents stay as candidates and the query's other relevant documents are left out; for "
        "entangled, disjoint and test, all removed documents are left out, and relevant documents of other sets."
    )
    columns = list(COLUMNS)
    if rankings.places:
        columns.insert(4, PLACE)
        text += (
            " The place is the rank before if each forgotten document stood where a ranker that never saw it puts it: "
            "the nearer the rank after is to it, the better."
        )
    unwritten = {name: rankings.measured[name] - rankings.written[name] for name in SETS}
    left = [f"{number:,} of {name}" for name, number in unwritten.items() if number > 0]
    missing = len(rankings.queries) - len(data["queries"])
    notes = [
        f"Left out when the lists were written: {', '.join(left)}." if left else "",
        f"{count(missing, 'query')} left out here for lack of room." if missing else "",
        "" if texts else "Ids and texts that were removed are left out of this page.",
    ]
    return Section("queries", "Queries", "Every query, before and after", [
        paragraph(text),
        paragraph(" ".join(filter(None, notes))) if any(notes) else None,
        _search(),
        _table(columns),
        element("p", {}, element("button", {"type": "button", "id": "more", "hidden": True}, "Show more")),
        element("noscript", {}, paragraph("The table of queries needs JavaScript, which is switched off.")),
        script_data("queries-data", data),
    ])  # fmt: skip


def _search() -> Markup:
    options = [element("option", {"value": name}, name) for name in SETS]
    return element(
        "div",
        {"class": "search", "role": "search"},
        element("label", {}, "Search in queries and documents", element("input", {"type": "search", "id": "search"})),
        element(
            "label",
            {"class": "narrow"},
            "Set",
            element("select", {"id": "only"}, element("option", {"value": ""}, "all"), options),
        ),
        element("p", {"id": "found", "class": "note", "role": "status", "aria-live": "polite"}),
    )


def _table(columns: Sequence[str]) -> Markup:
    heads = [
        element(
            "th",
            {"scope": "col", "class": "number" if place > 1 else None},
            element("button", {"type": "button"}, name),
        )
        for place, name in enumerate(columns)
    ]
    caption = element("caption", {}, "Queries; a column's name sorts by it")
    return element(
        "div",
        {"class": "scroll"},
        element(
            "table",
            {"id": "queries-table"},
            caption,
            element("thead", {}, element("tr", {}, heads)),
            element("tbody", {}),
        ),
    )
