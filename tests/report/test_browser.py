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
