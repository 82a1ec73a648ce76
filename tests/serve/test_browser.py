"""The desk in a real browser: from the mail to a verified certificate by clicking, and what nobody may do there."""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.report.test_watch import CHECKS, write_run
from unrank.collection.collection import Collection
from unrank.disk import beside
from unrank.serve.people import read_people

selenium = pytest.importorskip("selenium.webdriver")
pytest.importorskip("starlette")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
AXE = Path(os.environ.get("AXE_CORE", "build/axe/node_modules/axe-core/axe.min.js"))
PICTURES = os.environ.get("SCREENSHOTS")
"""A folder for pictures of every page, if somebody wants to look at them."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="Chromium or its driver is not installed"),
]
PATIENCE = 240.0


@dataclass
class Served:
    """A server of the demo's ledger, as a process of its own."""

    folder: Path
    tokens: dict[str, str]
    port: int = 0
    process: subprocess.Popen[str] | None = field(default=None)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        from unrank.serve.demo import RUN_WORDS

        files = ["--ledger", self.folder / "desk.ledger", "--tokens", self.folder / "desk.tokens"]
        files += ["--certificates", self.folder / "certificates", "--port", self.port]
        words = [sys.executable, "-m", "unrank", "desk", "serve", *map(str, files), "--", *RUN_WORDS]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r"127\.0\.0\.1:([0-9]+)", self.process.stdout.readline())
        assert found is not None
        self.port = int(found.group(1))

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from unrank.serve.demo import make_demo

    said: list[str] = []
    folder = tmp_path_factory.mktemp("desk")
    demo = make_demo(folder, said.append)
    names = [person.name for person in read_people(demo.tokens)]
    tokens = dict(zip(names, [line.split(": ")[1] for line in said if line.startswith("sign in")], strict=True))
    server = Served(folder, tokens)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    still = "--force-prefers-reduced-motion"  # a page that still scrolls cannot be clicked on
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1400,1000", still):
        options.add_argument(argument)
    downloads = tmp_path_factory.mktemp("downloads")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    driver = selenium.Chrome(options, selenium.ChromeService(DRIVER))
    driver.downloads = downloads
    yield driver
    driver.quit()


def wait(true: Callable[[], Any], what: str) -> Any:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            if found := true():
                return found
        except Exception as error:
            if "StaleElement" not in type(error).__name__ and "NoSuchElement" not in type(error).__name__:
                raise
        time.sleep(0.2)
    raise AssertionError(f"not seen: {what}")


def heading(browser: Any) -> str:
    return str(browser.find_element("tag name", "h1").text)


def click(browser: Any, text: str) -> None:
    """Click on the link or the button with this text, and wait for the next page."""
    path = f"//a[normalize-space()='{text}'] | //button[normalize-space()='{text}']"
    found = browser.find_elements("xpath", path)
    assert found, f"{text} is not on {heading(browser)}"
    old = browser.find_element("tag name", "html")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", found[0])
    found[0].click()
    wait(lambda: browser.find_element("tag name", "html") != old, f"the page after {text}")


def sign_in(browser: Any, served: Served, name: str) -> None:
    browser.delete_all_cookies()
    browser.get(f"{served.address}/sign-in")
    browser.find_element("name", "token").send_keys(served.tokens[name])
    click(browser, "Sign in")
    assert heading(browser) == "Requests"


def test_from_the_mail_to_a_verified_certificate(browser: Any, served: Served) -> None:
    # the clerk takes the mail in
    sign_in(browser, served, "clerk")
    click(browser, "New request")
    mail = "Dear all, I am Hermia. Please take the article on mine out of your search. Hermia of Harbour Road"
    browser.find_element("name", "words").send_keys(mail)
    click(browser, "Find texts")
    boxes = browser.find_elements("css selector", "input[value='document:hermia-2']")
    assert boxes
    boxes[0].click()
    click(browser, "See what it touches")
    assert "document hermia-2" in browser.page_source
    click(browser, "Add the request")
    assert heading(browser) == "Request 4: open"
    assert not browser.find_elements("xpath", "//button[contains(., 'Close') or contains(., 'certificate')]")
    click(browser, "Sign out")

    # the engineer plans and runs; the server dies in the middle of the run and comes back
    sign_in(browser, served, "engineer")
    click(browser, "Plan and run")
    click(browser, "Make a plan")
    wait(lambda: heading(browser) == "The plan is made", "the plan")
    click(browser, "See the plan")
    assert "Time of the run" in browser.page_source and "The power of the audit" in browser.page_source
    click(browser, "Run it")
    assert heading(browser) == "The run of engineer is at work"
    wait(lambda: "follows the work" in browser.find_element("id", "watch").text, "the stream")
    served.kill()
    wait(lambda: "does not answer" in browser.find_element("id", "watch").text, "the end of the stream")
    served.start()
    wait(lambda: heading(browser) == "The run has ended", "the end of the run")
    assert "Request 4" in browser.page_source and "forgotten, not verifiable" in browser.page_source
    assert "not forgotten" not in browser.page_source
    browser.find_element("link text", "Request 4").click()
    wait(lambda: heading(browser).startswith("Request 4: forgotten"), "the request")
    click(browser, "Write a certificate")
    browser.find_element("link text", "Download the zip file").click()
    packed = wait(lambda: [*browser.downloads.glob("certificate-4.zip")], "the download")[0]
    click(browser, "Sign out")

    # the auditor verifies the file, and one in which a byte was changed
    sign_in(browser, served, "auditor")
    click(browser, "Verify")
    browser.find_element("name", "file").send_keys(str(packed))
    browser.find_element("css selector", "main button").click()
    wait(lambda: "It is verified: request 4" in browser.find_element("tag name", "main").text, "the verification")
    click(browser, "History")
    people = {cell.text for cell in browser.find_elements("css selector", "td[data-label='by']")}
    assert {"clerk", "engineer"} <= people


def test_an_engineer_registers_a_ranker(browser: Any, served: Served) -> None:
    sign_in(browser, served, "engineer")
    click(browser, "Service")
    for name, value in (("name", "second"), ("ranker", "encoder"), ("collection", "collection")):
        given = value if name == "name" else str(served.folder / value)
        browser.find_element("name", name).send_keys(given)
    click(browser, "Register")
    assert "second is in the service" in browser.page_source
    click(browser, "Take second out")
    assert "second is no longer in the service" in browser.page_source


def test_a_clerk_cannot_run(browser: Any, served: Served) -> None:
    sign_in(browser, served, "clerk")
    click(browser, "Plan and run")
    assert not browser.find_elements("css selector", "main button")
    token = browser.find_element("name", "csrf").get_attribute("value")
    posted = (
        "const [token, done] = arguments; fetch('/runs', {method: 'POST', "
        "body: new URLSearchParams({csrf: token, requests: '2,3'})}).then(answer => done(answer.status))"
    )
    assert browser.execute_async_script(posted, token) == 403


def test_a_form_of_another_page_is_refused(browser: Any, served: Served, tmp_path: Path) -> None:
    sign_in(browser, served, "chief")
    evil = tmp_path / "evil.html"
    evil.write_text(
        f"<form method=post action='{served.address}/requests/2/end'><input name=instead value=refused>"
        "<button>Win</button></form>"
    )
    browser.get(evil.as_uri())
    browser.find_element("tag name", "button").click()
    wait(lambda: heading(browser) == "This was refused", "the refusal")
    browser.get(f"{served.address}/requests/2")
    sign_in(browser, served, "chief")
    browser.get(f"{served.address}/requests/2")
    assert heading(browser) == "Request 2: open, overdue" or "forgotten" in heading(browser)


def test_the_keyboard_is_enough(browser: Any, served: Served) -> None:
    """From the mail to the button that runs, without a mouse."""
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    browser.delete_all_cookies()
    browser.get(f"{served.address}/sign-in")

    def press(*words: str) -> None:
        selenium.ActionChains(browser).send_keys(*words).perform()

    def tab_to(matches: Callable[[Any], bool]) -> None:
        for _ in range(80):
            press(keys.TAB)
            active = browser.switch_to.active_element
            if matches(active):
                outline = active.value_of_css_property("outline-style")
                assert outline != "none" or active.get_attribute("type") == "checkbox"
                return
        raise AssertionError("the keyboard does not reach it")

    def enter(said: str) -> None:
        press(keys.ENTER)
        wait(lambda: heading(browser) == said, said)

    tab_to(lambda active: active.get_attribute("name") == "token")
    press(served.tokens["clerk"])
    enter("Requests")
    tab_to(lambda active: active.text == "New request")
    enter("New request")
    tab_to(lambda active: active.get_attribute("name") == "words")
    press("the articles of Prospero")
    tab_to(lambda active: active.text == "Find texts")
    press(keys.ENTER)
    wait(lambda: browser.find_elements("id", "found"), "what was found")
    tab_to(lambda active: active.get_attribute("value") == "document:prospero-2")
    press(keys.SPACE)
    tab_to(lambda active: active.text == "See what it touches")
    enter("What it touches")
    tab_to(lambda active: active.text == "Add the request")
    press(keys.ENTER)
    wait(lambda: heading(browser).endswith(": open"), "the request")
    tab_to(lambda active: active.text == "Sign out")
    enter("Sign in")
    tab_to(lambda active: active.get_attribute("name") == "token")
    press(served.tokens["engineer"])
    enter("Requests")
    tab_to(lambda active: active.text == "Plan and run")
    enter("Plan and run")
    tab_to(lambda active: active.text == "Make a plan")
    press(keys.ENTER)
    wait(lambda: heading(browser) == "The plan is made", "the plan")
    tab_to(lambda active: active.text == "See the plan")
    enter("Plan and run")
    tab_to(lambda active: active.text == "Run it")


PAGES = ["/", "/requests/1", "/requests/2", "/requests/new", "/plan", "/runs", "/runs/1", "/service", "/certificates"]
PAGES += ["/certificates/certificate-1", "/verify", "/history", "/requests/1/remains", "/nowhere", "/sign-in"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_every_page_fits_and_everybody_can_read_it(browser: Any, served: Served, width: int, dark: bool) -> None:
    sign_in(browser, served, "chief")
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 640}
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    wrong = []
    try:
        for path in PAGES:
            browser.get(f"{served.address}{path}")
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            wrong += [(path, f"{wide} pixels wide")] if wide > width else []
            if PICTURES:
                whole = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
                name = f"{path.strip('/').replace('/', '-') or 'list'}-{width}-{'dark' if dark else 'light'}.png"
                (Path(PICTURES) / name).write_bytes(base64.b64decode(whole["data"]))
            wrong += [(path, said) for said in barriers(browser)]
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wrong == []


def barriers(browser: Any) -> list[str]:
    """Return what axe-core finds at levels A and AA; nothing if it is not installed."""
    if not AXE.exists():
        return []
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    run = (
        "const done = arguments[1]; axe.run(document, {runOnly: {type: 'tag', values: arguments[0]}})"
        ".then(found => done(found.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html).slice(0, 3).join(' '))))"
    )
    found: list[str] = browser.execute_async_script(run, RULES)
    return found


def free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return int(some.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as some:
        return some.connect_ex(("127.0.0.1", port)) == 0


def test_a_run_is_watched_as_it_moves(browser: Any, dense: Collection, tmp_path: Path) -> None:
    journal, port = write_run(beside(tmp_path / "out"), dense), free_port()
    words = [sys.executable, "-m", "unrank", "watch", str(tmp_path / "out"), "--serve", str(port)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL)

    def shown() -> str:
        return str(browser.find_element("id", "watch").text)

    try:
        wait(lambda: answers(port), "the server")
        browser.get(f"http://127.0.0.1:{port}/")
        assert "It is running." in shown() and "epoch 3: forget, 7 of 20" in shown() and "0.700" in shown()
        browser.execute_script("window.still = true")
        journal.write("check", check=replace(CHECKS[-1], epoch=3, forget=0.613).to_json())
        wait(lambda: "0.613" in shown(), "the next check")
        assert barriers(browser) == []
        size = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        journal.write("end", how="stopped", why="by its user")
        wait(lambda: "It is running." not in shown(), "the end of the run")
        assert browser.execute_script("return window.still"), "the page was not loaded again"
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        server.kill()
        server.wait()


def test_axe_is_there() -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm install --prefix build/axe axe-core")
    assert AXE.stat().st_size > 100_000
