"""The page in a real browser: it asks for nothing, says no error, opens quickly; its table is searched and sorted."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.made import write_bench, write_details, write_run
from unrank.report.write import write_report

selenium = pytest.importorskip("selenium.webdriver")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="Chromium or its driver is not installed"),
]

SECONDS = 3.0
Open = Callable[[Path], float]
FIRST_COLUMN = (
    "return [...document.querySelectorAll('#queries-table tbody tr')].map(row => row.children[{}].textContent)"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    still = "--force-prefers-reduced-motion"  # a page that still scrolls cannot be clicked on
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,900", still):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = selenium.Chrome(options, selenium.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten thousand queries."""
    folder = tmp_path_factory.mktemp("page")
    details = write_details(folder / "details", 10_000, [f"word{number}" for number in range(3000)])
    write_report(write_run(folder / "run"), folder / "page.html", details)
    return folder / "page.html"


@pytest.fixture
def opened(browser: Any) -> Open:
    """Open a page: how long it took. Nothing but the file may be asked for, and no error said."""

    def open_(path: Path) -> float:
        browser.get("about:blank")
        for log in ("browser", "performance"):
            browser.get_log(log)
        began = time.monotonic()
        browser.get(path.as_uri())
        browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        took = time.monotonic() - began
        assert browser.get_log("browser") == []
        messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
        sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        assert {url for url in sent if not url.startswith("data:")} == {path.as_uri()}
        return took

    return open_


def column(browser: Any, place: int) -> list[str]:
    values: list[str] = browser.execute_script(FIRST_COLUMN.format(place))
    return values


def heads(browser: Any) -> list[Any]:
    found: list[Any] = browser.find_elements("css selector", "#queries-table thead button")
    return found


def test_ten_thousand_queries_open_quickly_and_ask_for_nothing(browser: Any, opened: Open, page: Path) -> None:
    assert page.stat().st_size < 6 * 2**20
    assert opened(page) < SECONDS
    assert browser.find_element("id", "found").text == "10,000 of 10,000 queries"
    assert len(column(browser, 0)) == 50


def test_the_table_is_searched(browser: Any, opened: Open, page: Path) -> None:
    opened(page)
    wanted = browser.find_elements("css selector", "#queries-table .open")[7].text
    browser.find_element("id", "search").send_keys(wanted.upper())
    deadline = time.monotonic() + 5
    while len(column(browser, 0)) != 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert column(browser, 0) == [wanted]
    assert browser.find_element("id", "found").text == "1 of 10,000 queries"


def test_the_table_is_sorted_and_narrowed(browser: Any, opened: Open, page: Path) -> None:
    opened(page)
    for _ in range(2):
        heads(browser)[0].click()
    names = column(browser, 0)
    assert names == sorted(names, reverse=True)
    sorted_by = browser.find_element("css selector", "#queries-table th[aria-sort]")
    assert sorted_by.get_attribute("aria-sort") == "descending"
    heads(browser)[3].click()
    assert set(column(browser, 3)) == {"8"}
    browser.execute_script(
        "const only = document.getElementById('only'); only.value = 'test'; only.dispatchEvent(new Event('change'))"
    )
    assert set(column(browser, 1)) == {"test"}
    browser.find_element("id", "more").click()
    assert len(column(browser, 0)) == 100


def test_a_query_unfolds_into_its_lists_side_by_side(browser: Any, opened: Open, page: Path) -> None:
    opened(page)
    button = browser.find_element("css selector", "#queries-table .open")
    button.click()
    assert button.get_attribute("aria-expanded") == "true"
    lists = browser.find_elements("css selector", ".lists ol")
    assert len(lists) == 2
    assert "forgotten" in lists[0].find_element("css selector", "li").text
    assert lists[0].location["y"] == lists[1].location["y"]
    button.click()
    assert browser.find_elements("css selector", ".lists") == []


@pytest.mark.parametrize("width", [390, 1200])
def test_no_page_is_wider_than_the_screen(browser: Any, opened: Open, page: Path, tmp_path: Path, width: int) -> None:
    write_report(write_bench(tmp_path / "bench", rankers=["bi-encoder"]), tmp_path / "bench.html")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        for path in (page, tmp_path / "bench.html"):
            assert opened(path) < SECONDS
            assert browser.execute_script("return document.documentElement.scrollWidth") == width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture(scope="module")
def bench_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bench of two collections and two rankers."""
    folder = tmp_path_factory.mktemp("bench")
    write_report(write_bench(folder / "bench", shares=[0.25], seeds=[0]), folder / "bench.html")
    return folder / "bench.html"


CELLS = "[...document.querySelectorAll('#cells tr[data-cell]')].filter(row => !row.hidden)"


def choose(browser: Any, name: str, value: str) -> None:
    browser.execute_script(
        f"const one = document.querySelector('[data-filter={name}]'); one.value = arguments[0];"
        "one.dispatchEvent(new Event('change'))",
        value,
    )


def test_a_bench_is_filtered_by_collection_ranker_removal_and_method(
    browser: Any, opened: Open, bench_page: Path
) -> None:
    assert opened(bench_page) < SECONDS
    told = browser.find_element("id", "shown-cells")
    assert told.text == "32 of 32 cells shown"
    kinds = {"collection": "other", "ranker": "cross-encoder", "removal": "queries", "method": "cocol"}
    for (name, value), left in zip(kinds.items(), (16, 8, 4, 1), strict=True):
        choose(browser, name, value)
        assert told.text == f"{left} of 32 cells shown"
        assert set(browser.execute_script(f"return {CELLS}.map(row => row.dataset.{name})")) == {value}
    primary = "[...document.querySelectorAll('#result table')[0].tBodies[0].rows].filter(row => !row.hidden)"
    assert browser.execute_script(f"return {primary}.map(row => row.dataset.method)") == ["cocol"]
    browser.find_element("id", "clear-filters").click()
    assert told.text == "32 of 32 cells shown"


def test_a_bench_is_sorted_by_a_columns_name(browser: Any, opened: Open, bench_page: Path) -> None:
    opened(bench_page)
    column = browser.execute_script(
        "return [...document.querySelectorAll('#cells thead th')].findIndex(head => head.textContent == 'F')"
    )
    values = f"return {CELLS}.map(row => Number(row.cells[{column}].dataset.key))"
    for descending in (False, True):
        browser.execute_script(f"document.querySelectorAll('#cells thead .sort')[{column}].click()")
        found = browser.execute_script(values)
        assert found == sorted(found, reverse=descending) and len(set(found)) > 1
    head = browser.find_element("css selector", "#cells th[aria-sort]")
    assert head.get_attribute("aria-sort") == "descending"


def test_a_cell_opens_and_the_heads_stay_in_view(browser: Any, opened: Open, bench_page: Path) -> None:
    opened(bench_page)
    button = browser.find_element("css selector", "#cells .open")
    browser.execute_script("arguments[0].click()", button)
    assert button.get_attribute("aria-expanded") == "true"
    shown = browser.find_element("css selector", "#cells .opened").text
    assert "learning_rate 5e-05" in shown and "MRR before" in shown and "entangled" in shown
    browser.execute_script("arguments[0].click()", button)
    assert browser.find_elements("css selector", "#cells .opened") == []
    top = (
        "const box = document.querySelector('#cells .scroll'); box.scrollTop = 400;"
        "return box.querySelector('thead th').getBoundingClientRect().top - box.getBoundingClientRect().top"
    )
    assert abs(browser.execute_script(top)) < 2, "the head is sticky"


def test_no_table_of_a_bench_is_clipped_on_a_wide_screen(browser: Any, opened: Open, bench_page: Path) -> None:
    metrics = {"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        opened(bench_page)
        wide = (
            "return [...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth + 1)"
            ".map(box => box.getAttribute('aria-label'))"
        )
        assert browser.execute_script(wide) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
