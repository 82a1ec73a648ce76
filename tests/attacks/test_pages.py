"""Attacks by texts on the people who read a page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata

import pytest

from tests.report.made import record, write_details, write_run
from unrank.report.write import write_report

SHAPING = "\u200c\u200d"
"""Format characters that some scripts need; they neither hide nor reverse a text."""
SPOOF = "".join(
    chr(code)
    for code in (*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x61C, 0x180E, *range(0x200B, 0x2070), 0xFEFF, 0xFFF9, 0xE0041)
    if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp") and chr(code) not in SHAPING
)
INVISIBLE = [character for character in SPOOF if character not in "\t\n"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    made = record(f"co{SPOOF}col", (0.6, 0.9, 0.9, 0.6), ranker=SPOOF, settings={SPOOF: SPOOF}, base=SPOOF)
    made["collection"]["name"] = SPOOF
    details = write_details(folder / "details", 5, [f"fine{SPOOF}words"])
    write_report(write_run(folder / "run", made), folder / "page.html", details)
    return (folder / "page.html").read_text(encoding="utf-8")


@pytest.mark.attack(0)
def test_no_character_that_hides_or_reverses_text_reaches_a_page(page: str) -> None:
    assert "\x1b" in SPOOF and "\u202e" in SPOOF
    assert [character for character in INVISIBLE if character in page] == []
    found = re.search(r'id="queries-data">(.*?)</script>', page)
    assert found is not None
    shown = json.dumps(json.loads(found[1]), ensure_ascii=False)
    assert [character for character in INVISIBLE if character in shown] == [], "nor what its script puts in"
    assert r"\x1b" in shown.replace("\\\\", "\\"), "it is written out"


@pytest.mark.attack(0)
def test_a_page_runs_no_script_but_its_own(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    [hashed] = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts}
    assert rules["script-src"] == f"'sha256-{hashed}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
