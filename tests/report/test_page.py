"""Pages of made-up records: their content, their size, and that nothing in them can do harm."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report.made import record, write_bench, write_details, write_run
from unrank.errors import BadFile
from unrank.record import read_run
from unrank.report.rankings import page_data, read_rankings
from unrank.report.write import read_page, write_report

BAD = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\"'"
VOID = {"meta", "link", "input", "br"}


class Checked(HTMLParser):
    """Reads a page as a browser would: its tags, and whether each is closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page_of(folder: Path, out: Path, details: Path | None = None, texts: bool = True) -> str:
    write_report(folder, out, details, texts)
    return out.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("bench")
    made = write_bench(folder / "bench", collections=["trec-car-little"], rankers=["bi-encoder"], shares=[0.25])
    return page_of(made, folder / "page.html")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("run")
    details = write_details(folder / "details", 9, ["word"])
    return page_of(write_run(folder / "run"), folder / "page.html", details)


def test_texts_from_data_cannot_leave_their_place(tmp_path: Path) -> None:
    made = record(BAD, (0.6, 0.9, 0.9, 0.6), ranker=BAD, settings={BAD: BAD}, base=BAD)
    made["collection"]["name"] = BAD
    details = write_details(tmp_path / "details", 30, [BAD])
    page = page_of(write_run(tmp_path / "run", made), tmp_path / "page.html", details)
    checked = Checked(page)
    assert [attributes.get("type") for tag, attributes in checked.tags if tag == "script"] == ["application/json", None]
    assert not [tag for tag, _ in checked.tags if tag == "img"]
    assert not [name for _, attributes in checked.tags for name in attributes if name.startswith("on")]
    found = re.search(r'id="queries-data">(.*?)</script>', page)
    assert found is not None
    assert json.loads(found[1])["queries"][0][1].startswith(BAD[:30])


def test_a_page_asks_for_nothing_from_outside(run: str, bench: str) -> None:
    for page in (run, bench):
        for tag, attributes in Checked(page).tags:
            assert tag not in {"img", "iframe", "object", "base", "form"}
            for name in ("src", "href", "xlink:href", "srcset"):
                assert (attributes.get(name) or "#").startswith(("#", "data:,")), (tag, attributes)
        assert "url(" not in page
        assert "w3.org" not in page
        assert "@import" not in page
        assert "default-src 'none'" in page


def test_a_page_can_be_read_aloud(run: str, bench: str) -> None:
    for page in (run, bench):
        tags = Checked(page).tags
        names = [attributes.get("id") for _, attributes in tags if "id" in attributes]
        assert len(names) == len(set(names))
        assert len([tag for tag, _ in tags if tag == "h1"]) == 1
        assert len([tag for tag, _ in tags if tag == "table"]) == len([tag for tag, _ in tags if tag == "caption"])
        for tag, attributes in tags:
            if tag == "svg":
                assert attributes["role"] == "img"
                assert set(str(attributes["aria-labelledby"]).split()) <= set(names)
        assert page.startswith('<!doctype html>\n<html lang="en">')


@pytest.mark.slow
def test_ten_thousand_queries_fit_into_six_mebibytes(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(4000)]
    details = write_details(tmp_path / "details", 10_000, words)
    page = page_of(write_run(tmp_path / "run"), tmp_path / "page.html", details)
    assert len(page.encode()) < 6 * 2**20
    found = re.search(r'id="queries-data">(.*?)</script>', page)
    assert found is not None
    data = json.loads(found[1])
    assert len(data["queries"]) == 10_000
    assert len(data["queries"][0][4]) >= 3 * 3
    assert min(len(text) for _, text in data["documents"]) > 20


def test_lists_are_cut_no_further_than_they_must_be(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    details = read_rankings(write_details(tmp_path / "details", 60, ["some", "words"]), run)
    assert {len(query[4]) for query in page_data(details)["queries"]} == {30}
    little = page_data(details, most_bytes=9_000)
    parts = (little["documents"], little["queries"])
    assert sum(len(json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode()) for part in parts) <= 9_000
    assert 0 < len(little["queries"]) < 60


def test_queries_that_forgot_most_come_first(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    data = page_data(read_rankings(write_details(tmp_path / "details", 9, ["word"]), run))
    assert [query[3] for query in data["queries"]] == [[1, 8, 0, 0]] * 3 + [[0, 0, 1, 1]] * 6
    assert data["sets"][data["queries"][0][2][0]] == "forget"


@pytest.mark.usefixtures("undrawn")
def test_with_places_each_forget_query_shows_its_own(tmp_path: Path, run: str) -> None:
    folder, details = write_run(tmp_path / "run"), write_details(tmp_path / "placed", 9, ["word"], place=6)
    page = page_of(folder, tmp_path / "with.html", details)
    data = page_data(read_rankings(details, read_run(folder)))
    assert [query[3] for query in data["queries"]] == [[1, 8, 6, 0, 0]] * 3 + [[0, 0, 0, 1, 1]] * 6
    assert "forgotten: place" in page and "where a ranker that never saw it puts it" in page
    assert "forgotten: place" not in run and "never saw it" not in run


@pytest.mark.parametrize("places", [[], [0], [6, 6], ["6"], 6])
def test_places_that_do_not_fit_their_query_are_refused(tmp_path: Path, places: object) -> None:
    details = write_details(tmp_path / "details", 3, ["word"], place=6)
    first, *rest = (details / "queries.jsonl").read_text().splitlines()
    (details / "queries.jsonl").write_text("\n".join([json.dumps(json.loads(first) | {"places": places}), *rest]))
    with pytest.raises(BadFile, match="not every forgotten document has one place"):
        read_rankings(details, read_run(write_run(tmp_path / "run")))


def test_a_page_says_in_which_lists_ranks_are_counted(run: str, bench: str) -> None:
    assert "for forget, other removed documents stay as candidates" in run
    assert "the list as it is shown: with all relevant documents of the query" in run
    assert "as the forget MRR counts: among all candidates, other removed documents too" in bench


def test_a_run_without_a_target_has_no_trade_off(tmp_path: Path) -> None:
    made = record("ssd", (0.6, 0.9, 0.9, 0.6), target=None, target_name=None)
    page, _ = read_page(write_run(tmp_path / "run", made))
    assert page.verdict == "The forget MRR went from 0.950 to 0.600."
    assert "trade" not in {section.id for section in page.sections}
    html = page_of(tmp_path / "run", tmp_path / "page.html")
    assert "dashed line is the target" not in html and "Dashed lines" not in html


@pytest.mark.parametrize(
    ("after", "target", "reached", "verdict"),
    [
        (0.95, None, None, "The forget MRR stayed at 0.950."),
        (0.95, 0.96, True, "The forget MRR is 0.950, as before the run; the target was 0.960."),
        (0.59, 0.6, True, "Forgotten to 0.590; the target was 0.600."),
        (0.649, 0.6, True, "Forgotten to 0.649, within the tolerance for 1 forget query; the target was 0.600."),
        (0.7, 0.6, False, "Not forgotten enough: 0.700, and the target was 0.600."),
    ],
)
def test_a_verdict_is_true_of_one_query_and_of_no_change(
    tmp_path: Path, after: float, target: float | None, reached: bool | None, verdict: str
) -> None:
    made = record("cocol", (after, 0.9, 0.9, 0.6), target=target, reached=reached)
    made["after"]["forget"]["queries"] = 1
    page, _ = read_page(write_run(tmp_path / "run", made))
    assert page.verdict == verdict


@pytest.mark.usefixtures("undrawn")
def test_one_request_of_one_query_is_told_in_the_singular(tmp_path: Path) -> None:
    none = {"count": 0, "hashes": []}
    asked = {"salt": "5a17", "queries": {"count": 1, "hashes": []}, "documents": none, "pairs": none}
    made = record("cocol", (0.6, 0.9, 0.9, 0.6), removed=asked, removed_before=[asked], earlier={
        "before": 0.2, "after": 0.3, "above": 0.1,
    })  # fmt: skip
    made["after"]["forget"]["queries"] = 1
    page = page_of(write_run(tmp_path / "run", made), tmp_path / "page.html")
    assert "The request named 1 query. The forget set is measured on 1 query." in page
    assert "The ranker was asked to forget 1 request before. What was forgotten before had an MRR of 0.200" in page
    assert "stay forgotten" not in page, "nothing here says so"


def test_a_run_without_a_test_set_is_reported(tmp_path: Path) -> None:
    made = record("cocol", (0.6, 0.9, 0.9, 0.6))
    for side in ("before", "after"):
        made[side] |= {"test": None, "entangled": None, "disjoint": None}
    page, (table,) = read_page(write_run(tmp_path / "run", made))
    assert "no other set" in page.lead
    assert "tradeoff" not in {drawing.name for drawing in page.drawings}, "nothing is known of what was kept"
    assert [value.text for value in table.rows[3]][:2] == ["test", "none"]


@pytest.mark.usefixtures("undrawn")
def test_the_distance_to_the_reference_is_told(tmp_path: Path) -> None:
    """With one query a correlation is undefined, and that is what the page says."""
    before = {"queries": 1, "distance": 0.5, "low": 0.5, "high": 0.5, "correlation": None}
    made = record("cocol", (0.6, 0.9, 0.9, 0.6), agreement={"before": before, "after": before | {"distance": 0.25}})
    page = page_of(write_run(tmp_path / "run", made), tmp_path / "page.html")
    assert "the forget set is 0.250 from the reference's, before the run 0.500" in unescape(page)
    assert "over 1 query. Their correlation is undefined, before undefined." in page


@pytest.mark.usefixtures("undrawn")
def test_what_came_after_a_run_is_told(tmp_path: Path) -> None:
    found = {"before": 0.6, "after": 0.71, "reference_before": None, "reference_after": None}
    made = record("cocol", (0.6, 0.9, 0.9, 0.6), recovery=found, index_valid=True)
    page = page_of(write_run(tmp_path / "run", made), tmp_path / "page.html")
    assert "from 0.600 to 0.710. If it rises further than that of a ranker trained without" in page
    assert "stay valid" in page


def test_a_run_that_began_at_its_target_did_not_forget_to_it(tmp_path: Path) -> None:
    made = record("neggrad", (0.109, 0.9, 0.9, 0.6), target=0.185)
    made["before"]["forget"]["mrr"] = 0.111
    page, _ = read_page(write_run(tmp_path / "run", made))
    assert (
        page.verdict == "The forget MRR went from 0.111, at the target (0.185) or below within the tolerance, to 0.109."
    )


@pytest.mark.parametrize(("hashes", "held"), [([], "counts of what"), (["ab"], "counts and hashes of what")])
def test_hashes_are_named_where_there_are_any(tmp_path: Path, hashes: list[str], held: str) -> None:
    made = record("cocol", (0.6, 0.9, 0.9, 0.6))
    made["removed"]["documents"]["hashes"] = hashes
    assert f"The record holds {held} was removed" in page_of(write_run(tmp_path / "run", made), tmp_path / "page.html")


def test_a_number_that_no_page_can_show_is_refused(tmp_path: Path) -> None:
    made = record("cocol", (0.6, 0.9, 0.9, 0.6))
    made["after"]["test"]["queries"] = 10**400
    with pytest.raises(BadFile, match=r"unrank.json: damaged: a number in it has hundreds of digits; restore the file"):
        read_page(write_run(tmp_path / "run", made))


@pytest.mark.parametrize("name", ["queries", "documents"])
@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"text": "\ud800"}, "line 2: half of a surrogate pair, which is not text"),
        ({"more": 10**400}, "line 2: damaged: a number in it has hundreds of digits"),
    ],
)
def test_a_damaged_line_of_details_is_named(tmp_path: Path, name: str, wrong: dict[str, object], line: str) -> None:
    details = write_details(tmp_path / "details", 9, ["word"])
    lines = (details / f"{name}.jsonl").read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | wrong)
    (details / f"{name}.jsonl").write_text("\n".join(lines))
    with pytest.raises(BadFile, match=rf"{name}.jsonl, {line}"):
        read_page(write_run(tmp_path / "run"), details)


def test_a_set_of_few_queries_has_no_interval(tmp_path: Path) -> None:
    made = record("cocol", (0.601, 0.93, 0.955, 0.595))
    for side in ("before", "after"):
        made[side]["forget"]["queries"] = 9
    page = page_of(write_run(tmp_path / "run", made), tmp_path / "page.html")
    assert page.count("too few queries") == 1 and "0.581 to 0.621" not in page
    assert "0.910 to 0.950" in page, "the entangled set has 40"
