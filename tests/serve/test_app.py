"""The page of the desk: what people do there, and what nobody may do."""

from __future__ import annotations

import html
import io
import json
import os
import re
import signal
import sqlite3
import stat
import zipfile
from dataclasses import replace
from datetime import date
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.desk.made import made_run, ranks
from tests.serve.conftest import HOST, Browser, Desk
from tests.tiny import make_collection
from unrank.desk.history_index import Entry
from unrank.desk.key import read_key
from unrank.desk.ledger import Ledger
from unrank.desk.service import Role as RankerRole
from unrank.desk.service import ServiceRanker, add_ranker, service_ranker
from unrank.desk.signature import CERTIFICATE, PAGE, read_signed, seal
from unrank.forgetting.outcome import ForgetState, Judgement
from unrank.serve.jobs import JobKind
from unrank.serve.limits import Limits
from unrank.serve.office import name_of
from unrank.serve.people import RIGHTS, Right, Role
from unrank.serve.routes import ROUTES, Route

VALUES = {"{number}": "2", "{name}": "certificate-2"}


def address(route: Route) -> str:
    path = route.path
    for name, value in VALUES.items():
        path = path.replace(name, value)
    return path


def history(desk: Desk) -> list[Entry]:
    with Ledger.read(desk.office.place.ledger) as ledger:
        ledger.verify()
        return [Entry(*row) for row in ledger.ask("SELECT * FROM history ORDER BY number")]


def certificate(browser: Browser, request: int = 2) -> str:
    answer = browser.post(f"/requests/{request}/certificate")
    assert answer.status_code == 303
    return str(answer.headers["location"])


def test_from_the_mail_to_the_ledger(desk: Desk) -> None:
    clerk = desk.signed_in("clerk")
    new = clerk.get("/requests/new").text
    collection = re.search(r'name="collection" value="([^"]+)"', new)
    assert collection is not None
    found = clerk.post("/requests/find", {"words": "baba bebi", "collection": collection.group(1)}).text
    items = re.findall(r'name="item" value="(document:doc[^"]+)"', found) or ["document:doc7"]
    chosen = {"collection": collection.group(1), "item": ["document:doc7"]}
    assert items
    shown = clerk.post("/requests/touched", chosen).text
    assert "Training pairs to forget" in shown and "document doc7" in shown
    with Ledger.read(desk.office.place.ledger) as ledger:
        assert ledger.counts()["open"] == 2  # type: ignore[index]
    added = clerk.post("/requests", {**chosen, "basis": "objection", "received": "2026-01-31", "due": ""})
    assert added.headers["location"] == "/requests/4?done=added"
    page = clerk.get("/requests/4").text
    assert "Request 4: open, overdue" in page and "due 2026-02-28" in page and "doc7" in page
    assert (history(desk)[-1].event, history(desk)[-1].by) == ("added", "clerk")


def test_texts_with_ids_that_no_page_can_show_are_taken_in(desk: Desk, tmp_path: Path) -> None:
    """A page writes control characters out, and a browser sends a line break as two characters."""
    ids = ["a\x1b[2J", r"a\x1b[2J", "b\nc", "d\r\n\u202ee", 'f"g\\', "\u00e9\U0001f600", "item:h"]
    held = make_collection(tmp_path / "held", [(f"query{row}", id) for row, id in enumerate(ids)], documents=9)
    with Ledger.open(desk.office.place.ledger) as ledger:
        ledger.key(desk.office.place.key)
        add_ranker(ledger, ServiceRanker("held", RankerRole.retriever, "owner/model", str(held.folder.resolve())))
    clerk, collection = desk.signed_in("clerk"), str(held.folder.resolve())
    for number, id in enumerate(ids, 4):
        [text] = held.documents.texts(held.documents.rows([id]))
        found = clerk.post("/requests/find", {"words": text, "collection": collection}).text
        values = [html.unescape(value) for value in re.findall(r'name="item" value="([^"]+)"', found)]
        assert all(value.isascii() and value.isprintable() for value in values)
        [chosen] = [value for value in values if json.loads(f'["{value}"]') == [f"document:{id}"]]
        shown = clerk.post("/requests/touched", {"item": chosen, "collection": collection}).text
        [again] = [html.unescape(value) for value in re.findall(r'name="item" value="([^"]+)"', shown)]
        added = clerk.post("/requests", {"item": again, "collection": collection, "basis": "objection"})
        assert added.headers["location"] == f"/requests/{number}?done=added"
        with Ledger.read(desk.office.place.ledger) as ledger:
            assert id in [item.document for item in ledger.items(number)]
    for wrong in ("document:\\ud800", "document:a\n", 'document:"', "document:\\x1b"):
        answer = clerk.post("/requests/touched", {"item": wrong, "collection": collection})
        assert answer.status_code == 400 and "not as the page wrote it" in answer.text


def test_a_long_list_has_pages(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three requests of the desk, two a page: none is out of reach."""
    monkeypatch.setattr("unrank.serve.requests.A_PAGE", 2)
    browser = desk.signed_in("auditor")
    first, second = browser.get("/").text, browser.get("/?from=2").text
    seen = [re.findall(r'href="/requests/([0-9]+)"', page) for page in (first, second)]
    assert len(seen[0]) == 2 and sorted(seen[0] + seen[1]) == ["1", "2", "3"]
    assert "1 to 2 of 3" in first and 'href="/?from=2"' in first and "Those before" not in first
    assert "3 to 3 of 3" in second and 'href="/?from=0"' in second and "Those after" not in second
    for odd in ("-1", "x", "9" * 30):
        assert browser.get(f"/?from={odd}").text.count("Request 1<") == first.count("Request 1<")
    assert "There are 3." in browser.get("/?from=99").text


def test_a_certificate_is_written_read_downloaded_verified_and_revoked(desk: Desk) -> None:
    engineer, auditor = desk.signed_in("engineer"), desk.signed_in("auditor")
    place = certificate(engineer)
    assert place == "/certificates/certificate-2"
    assert certificate(engineer) == "/certificates/certificate-2-2"
    assert "certificate-2-2" in auditor.get("/certificates").text
    page = auditor.get(f"{place}/page")
    assert "sandbox" in page.headers["content-security-policy"] and "Request 2" in page.text
    packed = auditor.get(f"{place}/download")
    assert packed.headers["content-disposition"] == 'attachment; filename="certificate-2.zip"'

    def verified(content: bytes, name: str = "certificate-2.zip") -> str:
        return str(auditor.post("/verify", {"public_key": ""}, files={"file": (name, content)}).text)

    assert "It is verified: request 2, forgotten" in verified(packed.content)
    with zipfile.ZipFile(io.BytesIO(packed.content)) as archive:
        files = {Path(name).name: archive.read(name) for name in archive.namelist()}
    both = [("file", (name, content)) for name, content in files.items()]
    assert "It is verified" in auditor.post("/verify", files=both).text
    forged = [("file", (name, content.replace(b"forgotten", b"forgattan"))) for name, content in files.items()]
    assert "It is NOT verified" in auditor.post("/verify", files=forged).text
    assert "certificate.html missing" in verified(files["certificate.json"], "certificate.json")
    for content in (b"", b"PK\x03\x04 nothing", b"text"):
        assert "It is NOT verified" in verified(content)
    assert engineer.post(f"{place}/revoke", {"reason": "mistake"}).status_code == 303
    assert "It does NOT hold" in verified(packed.content) and "revoked" in auditor.get(place).text
    assert engineer.post(f"{place}/revoke", {"reason": "mistake"}).status_code == 400
    assert [entry.by for entry in history(desk) if entry.event.startswith("certificate")] == ["engineer"] * 3


def test_deletions_are_ticked_off_and_a_request_is_closed(desk: Desk) -> None:
    engineer = desk.signed_in("engineer")
    assert engineer.post("/requests/2/tick", {"what": "backups"}).status_code == 303
    assert "deleted, says engineer" in engineer.get("/requests/2").text
    assert engineer.post("/requests/2/tick", {"what": "everything"}).status_code == 400
    assert "may still remember request 2" in engineer.get("/requests/2/remains").text
    kept = engineer.post("/requests/2/close", {"leave": ""})
    assert kept.status_code == 409 and "still there" in kept.text
    assert engineer.post("/requests/2/close", {"leave": "other-purpose"}).status_code == 303
    assert "closed (forgotten)" in engineer.get("/requests/2").text
    assert "Keyed hashes are left" in engineer.get("/requests/2").text
    assert engineer.post("/requests/1/end", {"instead": "withdrawn"}).status_code == 303
    assert {entry.by for entry in history(desk)[-3:]} == {"engineer"}


def test_of_a_request_that_is_withdrawn_after_a_run_no_hashes_are_left(desk: Desk) -> None:
    with Ledger.open(desk.office.place.ledger) as ledger:
        ledger.key(desk.office.place.key)
        made_run(
            ledger,
            {1: Judgement(ForgetState.NOT_FORGOTTEN, "none fell", ranks([1], [1]))},
            member=service_ranker(ledger, "first"),
        )
    engineer = desk.signed_in("engineer")
    assert "not forgotten" in engineer.get("/requests/1").text
    assert engineer.post("/requests/1/end", {"instead": "withdrawn"}).status_code == 303
    ended = engineer.get("/requests/1").text
    assert "It was erased." in ended and "Keyed hashes" not in ended


def test_an_engineer_registers_rankers_and_takes_them_out(desk: Desk, tmp_path: Path) -> None:
    engineer, clerk = desk.signed_in("engineer"), desk.signed_in("clerk")
    for name in ("second", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "second" / "modules.json").write_text("[]")
    (tmp_path / "second.index").write_text("")
    collection = next(iter(desk.office.collections()))
    given = {"name": "second", "ranker": str(tmp_path / "second"), "collection": collection, "role": "reranker"}
    wrong: list[tuple[dict[str, str], str]] = [
        ({"name": "a b"}, "up to 40 letters"), ({"name": "first"}, "the service has a ranker"),
        ({"ranker": ""}, "write the folder"), ({"ranker": "/no/where"}, "no such ranker folder"),
        ({"ranker": "no such hub"}, "no such ranker folder"), ({"ranker": "/etc"}, "no model is in it"),
        ({"ranker": str(tmp_path / "empty")}, "no model is in it"),
        ({"ranker": str(tmp_path / "second.index")}, "a ranker is a folder"),
        ({"collection": "made"}, "no whole path"), ({"collection": "/no/where"}, "no such collection folder"),
        ({"indexes": "here"}, "no whole path"), ({"indexes": "/no/where"}, "no such file or folder"),
        ({"indexes": "/\n" * 60}, "at most 50"), ({"role": "king"}, "one of the roles"),
        ({"since": "soon"}, "is not a date"), ({"since": "2999-01-01"}, "in the future"),
    ]  # fmt: skip
    before = len(history(desk))
    for change, said in wrong:
        answer = engineer.post("/service", {**given, **change})
        assert answer.status_code == 400 and said in answer.text, change
    assert len(history(desk)) == before
    added = engineer.post("/service", {**given, "indexes": f"{tmp_path / 'second.index'}\n", "since": "2026-01-02"})
    assert "second is in the service" in added.text and "Request 2 open again" in added.text
    shown = clerk.get("/service").text
    assert str(tmp_path / "second.index") in shown and "2026-01-02" in shown and "<form" not in shown.split("<main")[1]
    assert "is in service since 2026-02-03" in engineer.post("/service/second/deploy", {"since": "2026-02-03"}).text
    assert engineer.post("/service/nobody/deploy").status_code == 400
    removed = engineer.post("/service/second/remove")
    assert "second is no longer in the service" in removed.text and "Request 2 is now forgotten" in removed.text
    entries = [entry for entry in history(desk)[before:] if entry.event.startswith("service")]
    assert [entry.event for entry in entries] == ["service added", "service deployed", "service removed"]
    assert {entry.by for entry in history(desk)[before:]} == {"engineer"}
    page = clerk.get("/history").text
    assert "service deployed (ranker second, since 2026-02-03)" in page and "(run 1, in first)" in page


def test_a_desk_without_rankers_says_who_registers_one(desk: Desk) -> None:
    engineer, clerk = desk.signed_in("engineer"), desk.signed_in("clerk")
    engineer.post("/service/first/remove")
    assert "None is registered yet: an engineer does that here." in clerk.get("/service").text
    answer = clerk.get("/requests/new")
    assert answer.status_code == 400 and "an engineer does that on the page" in answer.text


def test_who_is_signed_in_stays_so_on_a_page_that_is_not_there(desk: Desk) -> None:
    shown = desk.signed_in("clerk").get("/nowhere")
    assert shown.status_code == 404 and "clerk (clerk)" in shown.text and 'href="/"' in shown.text
    assert 'href="/sign-in"' in desk.browser().get("/nowhere").text


def test_nobody_does_what_another_role_does(desk: Desk) -> None:
    """Every address, by every role, and without a session."""
    certificate(desk.signed_in("chief"))
    before = len(history(desk))
    nobody = desk.browser()
    for route in ROUTES:
        answer = nobody.get(address(route)) if route.method == "GET" else nobody.post(address(route), token="none")
        assert answer.status_code == (303 if route.method == "GET" else 401), route
        assert answer.headers.get("location", "/sign-in") == "/sign-in"
    for role in Role:
        browser = desk.signed_in(role)
        token = browser.csrf()
        for route in ROUTES:
            if route.right not in RIGHTS[role]:
                got = browser.get(address(route)) if route.method == "GET" else browser.post(address(route), {}, token)
                assert got.status_code == 403 and f"right to {route.right}" in got.text, (role, route)
            elif route.method == "GET":
                assert browser.get(address(route)).status_code in (200, 404), (role, route)
    assert len(history(desk)) == before
    assert {route.right for route in ROUTES} == {*Right}


@pytest.mark.parametrize("route", [route for route in ROUTES if route.method == "POST"], ids=lambda route: route.path)
def test_a_forged_post_is_refused(desk: Desk, route: Route) -> None:
    chief, before = desk.signed_in("chief"), len(history(desk))
    own, others = chief.csrf(), desk.signed_in("clerk").csrf()
    for token in ("", "x", others, own[:-1]):
        assert chief.post(address(route), {}, token).status_code == 403
    for origin in ("http://evil.test", "null", f"{HOST}.evil.test", "", "https://desk.test"):
        assert chief.post(address(route), {}, own, headers={"origin": origin}).status_code == 403
    foreign = {"sec-fetch-site": "cross-site"}
    assert chief.post(address(route), {}, own, headers=foreign).status_code == 403
    assert len(history(desk)) == before


def test_another_name_is_refused(desk: Desk) -> None:
    browser = desk.signed_in("chief")
    for host in ("evil.test", "desk.test:81", "desk.test.evil.test", ""):
        for path in ("/", "/sign-in", "/static/desk.css", "/nowhere"):
            assert browser.client.get(path, headers={"host": host}).status_code == 421, (host, path)


def test_every_answer_has_the_headers(desk: Desk) -> None:
    browser = desk.signed_in("chief")
    paths = ["/", "/sign-in", "/static/desk.js", "/nowhere", "/requests/99", "/certificates/..%2f..%2fdesk.ledger"]
    for answer in (*(browser.get(path) for path in paths), desk.browser().get("/")):
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
    for path in ("/", "/history", "/plan", "/verify", "/requests/new", "/requests/2"):
        text = browser.get(path).text
        assert not re.search(r'(src|href)="(https?:)?//|style="|<script>|\son[a-z]+="', text), path


@pytest.mark.parametrize(
    "path",
    [
        "/requests/0", "/requests/-1", "/requests/99999999999999999999", "/requests/1e3", "/runs/7", "/jobs/7",
        "/certificates/certificate-9", "/certificates/%2e%2e", "/certificates/%2e%2e%2fdesk.ledger/download",
        "/certificates/certificate-2%00/page", "/static/%2e%2e%2fdesk.ledger", "/desk.ledger",
    ],
)  # fmt: skip
def test_what_is_not_there(desk: Desk, path: str) -> None:
    assert desk.signed_in("chief").get(path).status_code == 404


def test_markup_in_texts_stays_text(desk: Desk) -> None:
    clerk = desk.signed_in("clerk")
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
    collection = next(iter(desk.office.collections()))
    for answer in (
        clerk.post("/requests/find", {"words": f"{evil} ba", "collection": collection}),
        clerk.post("/requests/find", {"words": evil, "collection": evil}),
        clerk.post("/requests/touched", {"item": f"document:{evil}", "collection": collection}),
        clerk.get(f"/?show={evil}"),
    ):
        assert "<script>alert" not in answer.text and "<img" not in answer.text
        assert answer.status_code in (200, 400)


def test_forms_that_cannot_be(desk: Desk) -> None:
    chief = desk.signed_in("chief")
    collection = next(iter(desk.office.collections()))
    good = {"collection": collection, "item": "document:doc7", "basis": "objection"}
    wrong: list[dict[str, Any]] = [
        {"item": ""}, {"item": "document:nothing"}, {"item": "other:doc7"}, {"basis": "because"},
        {"received": "yesterday"},
        {"received": "2999-01-01"}, {"due": "1999-01-01"}, {"collection": "/etc"}, {"collection": "../.."},
    ]  # fmt: skip
    before = len(history(desk))
    for change in wrong:
        answer = chief.post("/requests", {**good, **change})
        assert answer.status_code == 400 and 'role="alert"' in answer.text, change
    token = chief.csrf()
    for kind, body in (
        ("text/plain", b"csrf=x"), ("application/json", b"{}"), ("multipart/form-data", b""),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\nno name\r\n--x--"),
        ("multipart/form-data; boundary=x", b"--x"),
        ("application/x-www-form-urlencoded", b"a=1&" * 1000), ("application/x-www-form-urlencoded", b"\xff=1"),
    ):  # fmt: skip
        answer = chief.client.post("/requests", content=body, headers={"content-type": kind})
        assert answer.status_code in (400, 403), (kind, body)
    assert token and len(history(desk)) == before


def test_messages_that_are_too_large(desk: Desk) -> None:
    small = replace(desk, limits=Limits(form_bytes=2_000, upload_bytes=5_000))
    chief = small.signed_in("chief")
    assert chief.post("/requests/find", {"words": "x" * 3_000}).status_code == 413
    assert chief.post("/verify", files={"file": ("a.zip", b"x" * 6_000)}).status_code == 413
    lies = {"content-length": "10", "content-type": "application/x-www-form-urlencoded"}
    assert chief.client.post("/requests/find", content=b"x" * 3_000, headers=lies).status_code in (403, 413)


def test_a_bomb_is_not_unpacked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrank.serve.certificates.UNPACKED", 10_000)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("certificate.json", "../../certificate.html"):
            archive.writestr(name, b"0" * 20_000)
    answer = desk.signed_in("auditor").post("/verify", files={"file": ("a.zip", packed.getvalue())})
    assert "larger than any certificate" in answer.text


@pytest.mark.parametrize(
    ("method", "at"),
    [(zipfile.ZIP_STORED, 0), (zipfile.ZIP_DEFLATED, 0), (zipfile.ZIP_BZIP2, 0), (zipfile.ZIP_LZMA, 4)],
)
def test_a_damaged_zip_file_is_refused(desk: Desk, method: int, at: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name in ("certificate.json", "certificate.html"):
            archive.writestr(name, "a certificate " * 20)
    damaged, begin = bytearray(packed.getvalue()), 30 + len("certificate.json") + at
    damaged[begin : begin + 16] = b"\xff" * 16
    nameless = packed.getvalue().replace(b"certificate.json", b"\0ertificate.json")
    for content in (bytes(damaged), nameless):
        answer = desk.signed_in("auditor").post("/verify", files={"file": ("a.zip", content)})
        assert answer.status_code == 422 and "neither a zip file of a certificate" in answer.text


def test_a_certificate_of_an_unknown_state(desk: Desk) -> None:
    """The key that was typed signed it, but a later version may have states that this one does not know."""
    place = desk.office.place.certificates / certificate(desk.signed_in("engineer")).rpartition("/")[2]
    page = (place / PAGE).read_text()
    sealed = seal({**read_signed(place).value, "state": "forgotten twice"}, {}, page, read_key(desk.office.place.key))
    both = [("file", (CERTIFICATE, sealed.envelope)), ("file", (PAGE, sealed.page))]
    typed = {"public_key": read_key(desk.office.place.key).public}
    answer = desk.signed_in("auditor").post("/verify", typed, files=both)
    assert answer.status_code == 200 and "It is verified" not in answer.text
    assert "its state is none that this unrank knows" in answer.text and "request 2, forgotten twice" in answer.text


def test_posts_and_wrong_tokens_are_limited(desk: Desk) -> None:
    few = replace(desk, limits=Limits(posts=3, sign_ins=2))
    browser = few.browser()
    for _ in range(2):
        assert browser.sign_in("wrong").status_code == 403
    assert browser.sign_in(desk.tokens["chief"]).status_code == 429
    chief = few.signed_in("chief")
    answers = [chief.post("/requests/1/tick", {"what": "backups"}).status_code for _ in range(4)]
    assert answers == [400, 400, 400, 429]


def test_sessions(desk: Desk) -> None:
    browser = desk.signed_in("clerk")
    cookie = browser.client.cookies["desk"]
    folder = desk.office.place.folder / "sessions"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(cookie not in path.name + path.read_text() for path in folder.iterdir())
    again = Browser(desk.app())  # the server was started again
    again.client.cookies.set("desk", cookie)
    assert again.get("/").status_code == 200
    assert browser.post("/sign-out").status_code == 303
    assert browser.get("/").status_code == again.get("/").status_code == 303
    other = desk.signed_in("auditor")
    lines = desk.people.path.read_text().splitlines(keepends=True)
    desk.people.path.write_text("".join(line for line in lines if not line.startswith("auditor ")))
    assert other.get("/").status_code == 303
    for value in ("", "x", "../" * 10, "a" * 43, cookie):
        other.client.cookies.set("desk", value)
        assert other.get("/").status_code == 303


def test_a_cookie_cannot_be_read_by_scripts_or_sent_by_others(desk: Desk) -> None:
    answer = desk.browser().sign_in(desk.tokens["clerk"])
    flags = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} < {*flags}


def test_a_run_is_started_once_and_only_as_it_was_shown(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    engineer = desk.signed_in("engineer")
    monkeypatch.setattr(desk.office, "run_command", lambda *_: ["sleep", "30"])
    shown = re.search(r'name="requests" value="([0-9a-f]+)"', engineer.get("/plan").text)
    assert shown is not None and shown.group(1) == name_of([1, 3])
    for other in (name_of([1]), "", "1,3", "é"):
        assert engineer.post("/runs", {"requests": other}).status_code == 400
    assert engineer.post("/runs", {"requests": name_of([1, 3])}).headers["location"] == "/jobs/1"
    try:
        twice = desk.signed_in("chief").post("/runs", {"requests": name_of([3, 1])})
        assert twice.status_code == 400 and "engineer has started a run already" in twice.text
        assert "The run of engineer is at work" in engineer.get("/jobs/1").text
        assert "at work" in engineer.get("/").text
    finally:
        stop(desk)
    assert "It was stopped before its end" in engineer.get("/jobs/1").text
    assert desk.office.jobs.running(JobKind.run) is None


@pytest.mark.parametrize(("end", "stopped"), [("kill -9 $$", True), ("exit 3", False), ("exit 0", False)])
def test_a_run_that_was_killed_after_its_first_ranker_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, end: str, stopped: bool
) -> None:
    first = """echo '{"service_ranker": "first", "run": 1, "requests": []}'"""
    monkeypatch.setattr(desk.office, "run_command", lambda *_: ["sh", "-c", f"{first}; {end}"])
    engineer = desk.signed_in("engineer")
    for address in ("/runs", "/plan"):
        job = engineer.post(address, {"requests": name_of([1, 3])}).headers["location"]
        wait(desk)
        ended = engineer.get(job).text if address == "/runs" else engineer.get("/plan").text
        assert ("It was stopped before its end" in ended) is stopped
    assert "See run 1" in engineer.get("/jobs/1").text


def wait(desk: Desk) -> None:
    """Wait until no job of a desk is at work."""
    until = monotonic() + 10
    while any(job.is_running for job in desk.office.jobs.all()) and monotonic() < until:
        sleep(0.02)


def stop(desk: Desk) -> None:
    """End the sleeping processes of a desk."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            held = [path.resolve() for path in (process / "fd").iterdir()]
        except OSError:
            continue
        if int(process.name) != os.getpid() and any(desk.office.place.folder in path.parents for path in held):
            os.kill(int(process.name), signal.SIGKILL)
    wait(desk)


def test_the_page_says_of_a_run_whether_its_ranker_is_usable(desk: Desk) -> None:
    """A run can end well while a gate of one of its requests is not met, so no page says that it passed."""
    with sqlite3.connect(desk.office.place.ledger) as raw:
        for id, state in enumerate(("begun", "passed", "failed", "abandoned"), 11):
            raw.execute("INSERT INTO run VALUES (?, ?, 'out', '{\"requests\": []}', NULL)", [id, state])
    engineer = desk.signed_in("engineer")
    listed = engineer.get("/runs").text
    for id, words in enumerate(("not ended", "ranker usable", "not usable", "abandoned"), 11):
        assert f"Run {id}: {words}" in engineer.get(f"/runs/{id}").text and f">{words}<" in listed
    assert "passed" not in listed


def test_what_a_job_printed_goes_with_its_request(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    chief = desk.signed_in("chief")
    monkeypatch.setattr(desk.office, "run_command", lambda *_: ["echo", '{"requests": [], "secret": "doc1"}'])
    chief.post("/plan", {"requests": name_of([1, 3])})
    job = desk.office.jobs.find(1)
    while job.is_running:
        pass
    assert job.results == [{"requests": [], "secret": "doc1"}]
    chief.post("/requests/1/end", {"instead": "refused"})
    assert not job.folder.exists() and chief.get("/jobs/1").status_code == 404


def test_the_events_of_a_job(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    chief = desk.signed_in("chief")
    monkeypatch.setattr(desk.office, "run_command", lambda *_: ["sleep", "0.6"])
    chief.post("/plan", {"requests": name_of([1, 3])})
    events = chief.get("/jobs/1/events")
    assert events.headers["content-type"] == "text/event-stream"
    assert events.text.startswith('data: {"what": "starting"') and events.text.endswith("event: end\ndata: {}\n\n")


def test_a_broken_history_is_shown_and_nothing_is_added(desk: Desk) -> None:

    with sqlite3.connect(desk.office.place.ledger) as raw:
        raw.execute("UPDATE request SET due = '2030-01-01' WHERE id = 1")
    chief = desk.signed_in("chief")
    assert "changed outside the history" in chief.get("/").text
    assert "changed outside the history" in chief.get("/history?check=yes").text
    collection = next(iter(desk.office.collections()))
    answer = chief.post("/requests", {"collection": collection, "item": "document:doc7", "basis": "objection"})
    assert answer.status_code == 400 and "changed outside the history" in answer.text


def test_who_changes_the_ledger_between_two_posts_is_noticed(desk: Desk) -> None:

    chief, collection = desk.signed_in("chief"), next(iter(desk.office.collections()))
    form = {"collection": collection, "item": "document:doc7", "basis": "objection", "received": str(date.today())}
    assert chief.post("/requests", form).status_code == 303
    assert chief.post("/requests", form).status_code == 303
    with sqlite3.connect(desk.office.place.ledger) as raw:
        raw.execute("UPDATE request SET due = '2030-01-01' WHERE id = 1")
    assert chief.post("/requests", form).status_code == 400


def test_a_ledger_that_was_replaced_is_opened_again(desk: Desk, tmp_path: Path) -> None:
    chief, collection = desk.signed_in("chief"), next(iter(desk.office.collections()))
    form = {"collection": collection, "item": "document:doc7", "basis": "objection", "received": str(date.today())}
    place, backup, old = desk.office.place.ledger, tmp_path / "backup", tmp_path / "old"

    def back_up(to: Path) -> None:
        with sqlite3.connect(place) as now, sqlite3.connect(to) as copy:
            now.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            now.backup(copy)
        now.close()
        copy.close()

    back_up(old)
    assert chief.post("/requests", form).status_code == 303
    back_up(backup)
    backup.replace(place)
    added = chief.post("/requests", form)
    assert added.headers["location"].startswith("/requests/5") and chief.get("/requests/5").status_code == 200
    assert history(desk)[-1].request == 5
    back_up(backup)
    old.replace(place)
    refused = chief.post("/requests", form)
    assert refused.status_code == 400 and "an old copy was put back" in refused.text
    place.unlink()
    assert chief.post("/requests/find", {"words": "ba"}).status_code == 400
    backup.replace(place)
    assert chief.post("/requests", form).headers["location"].startswith("/requests/6")
