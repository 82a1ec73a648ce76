"""The four kinds of certificates: their headings, their words, and when there is none."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.desk.conftest import DOCUMENT, PAIR, QUERY, take_in
from tests.desk.made import made_result, made_run, ranks
from unrank.audit.verdict import OLD_ALIKE, OLD_UNKNOWN, Verdict, short
from unrank.cli.main import run
from unrank.desk.certificate import certificate, write_certificate
from unrank.desk.closing import close
from unrank.desk.key import Key, key_file
from unrank.desk.ledger import Ledger
from unrank.desk.page import certificate_page
from unrank.desk.request import Item, State
from unrank.desk.service import Role, ServiceRanker, add_ranker, deploy, replace_ranker, service_ranker
from unrank.desk.signature import read_signed, seal, write_seal
from unrank.desk.trust import rotate
from unrank.desk.verification import Verification
from unrank.disk import file_hashes, folder_hash
from unrank.errors import UnrankError
from unrank.forgetting.outcome import ForgetState, Judgement
from unrank.forgetting.target import beyond_of
from unrank.report.page import page_html

Said = pytest.CaptureFixture[str]
MOVED = ranks([1, 1, 2], [5, 3, 9])
KINDS = {
    ForgetState.FORGOTTEN: ("Certificate of forgetting, made", "Request 1 is forgotten: it was fulfilled."),
    ForgetState.NOT_VERIFIABLE: (
        "Certificate of forgetting that cannot be verified",
        "Request 1 is forgotten, not verifiable.",
    ),
    ForgetState.NOT_CLEARED: (
        "Certificate of forgetting with weights that were not cleared",
        "Request 1 is forgotten, weights not cleared.",
    ),
    ForgetState.NOTHING: (
        "Statement of finding; this is not a certificate of fulfilment",
        "Request 1: there was nothing to forget.",
    ),
}


@pytest.mark.parametrize("state", KINDS)
def test_the_first_sentence_is_the_state(state: ForgetState, ledger: Ledger, key: Key, tmp_path: Path) -> None:
    take_in(ledger, key)
    made_run(ledger, {1: Judgement(state, "why", MOVED)})
    value = write_certificate(ledger, key, 1, tmp_path / "out")
    page = certificate_page(value, key.public)
    kind, verdict = KINDS[state]
    assert page.kind.startswith(kind) and page.verdict == verdict and value["state"] == state
    html = (tmp_path / "out" / "certificate.html").read_text()
    assert html == page_html(page) and html.index(verdict) < html.index("What was asked")
    assert ("fulfilled" in f"{page.verdict} {page.lead}") == (state is ForgetState.FORGOTTEN)
    assert ("made a new ranker" in html) == (state is not ForgetState.NOTHING)
    ledger.verify()


def test_the_first_sheet_has_the_requests_own_pairs(ledger: Ledger, key: Key) -> None:
    take_in(ledger, key)
    judged = {1: Judgement(ForgetState.NOT_VERIFIABLE, "why", MOVED)}
    made_run(ledger, judged, made_result(judged, Verdict.UNDECIDED))
    page = certificate_page(certificate(ledger, key, 1).value, key.public)
    html = page_html(page).replace("\xa0", " ")
    sheet = html[: html.index('<div class="appendix">')]
    assert "has 3 pairs of a query and a document, over 3 queries" in sheet
    assert "1 → 3 of 11; 1 → 5 of 11; 2 → 9 of 11. 3 of 3 changed." in sheet
    assert "is at rank 3 of 11; it was at rank 1" in sheet
    assert (
        "Every pair that was ranked above the target is ranked lower now, but 3 of 3 pairs are still among the first 10"
        " of their lists, the audit could not tell and nobody can say whether a trace is left."
    ) in sheet
    assert "forget 1 document (ground: consent withdrawn)" in sheet and "What is not claimed" in sheet
    assert "SHA-256" not in sheet and "seed" not in sheet, "that is for the appendix"
    assert "history, entry" in html[len(sheet) :]


@pytest.mark.parametrize(
    ("state", "change", "placed", "words"),
    [
        (
            "forgotten",
            {"method": "retrain"},
            [1],
            "The ranker was trained again without what the request names, but 1 of",
        ),
        ("forgotten", {"epochs": 0}, [1], "An earlier run had forgotten all of it, but this run trained nothing"),
        (
            "forgotten, weights not cleared",
            {"epochs": 0},
            [5],
            "Nothing that the request names was ranked above the target, so nothing had to fall, but this run trained",
        ),
        (
            "nothing to forget",
            {"epochs": 2},
            [5],
            "The ranker placed nothing that the request names better than what it never saw, and no training was",
        ),
        (
            "nothing to forget",
            {"epochs": 0, "cleared": {"rows": 2, "reset": 2, "left": 0, "how": "base"}},
            [5],
            "The ranker placed nothing that the request names better than what it never saw, and only rows of the",
        ),
        ("nothing to forget", {"epochs": 2}, [5] * 10, "On average the ranker placed what the request names no better"),
    ],
)
def test_what_was_achieved_is_true_of_runs_that_moved_nothing(
    state: str, change: dict[str, object], placed: list[int], words: str, ledger: Ledger, key: Key
) -> None:
    take_in(ledger, key)
    judged = {1: Judgement(ForgetState(state), "why", ranks(placed, placed))}
    result = made_result({1: Judgement(ForgetState.FORGOTTEN, "why", ranks(placed, placed))})
    result["record"] |= change
    made_run(ledger, judged, result)
    page = certificate_page(certificate(ledger, key, 1).value, key.public)
    assert page.lead.startswith(words), page.lead
    assert f"0 of {len(placed)} changed." in page_html(page)


@pytest.mark.parametrize(
    ("target", "change", "words"),
    [
        (
            "beyond:3",
            {},
            "Nothing that the request names was among the first 3 of its list, which is all that the target asks, and "
            "no weight was changed. 1 of 1 pair is still among the first 10 of its list.",
        ),
        (
            "beyond:20",
            {},
            "Nothing that the request names was among the first 20 of its list, except as the last of a list of 20 or "
            "fewer entries, which is all that the target asks, and no weight was changed.",
        ),
        ("destination-1", {}, "The ranker placed nothing that the request names better than a reference, given as"),
        ("0.4", {"unknown_references": 0}, "The ranker placed nothing that the request names better than a reference,"),
        ("0.4", {"unknown_references": 1}, "The ranker placed nothing that the request names better than what it nev"),
        ("0.4", {}, "The ranker placed nothing that the request names better than the target of the run asks, and"),
        ("unseen", {}, "The ranker placed nothing that the request names better than what it never saw, and no wei"),
    ],
)
def test_a_finding_of_nothing_says_what_the_run_compared_with(
    target: str, change: dict[str, object], words: str, ledger: Ledger, key: Key, path: Path, tmp_path: Path
) -> None:
    take_in(ledger, key)
    placed = ranks([11], [11]) if target == "beyond:20" else ranks([4], [4])
    if most := beyond_of(target):
        placed = replace(placed, least_ranks=(min(most + 1, 11),))
    judged = {1: Judgement(ForgetState.NOTHING, "why", placed)}
    made_run(ledger, judged, made_result(judged) | change, target=target)
    value = write_certificate(ledger, key, 1, tmp_path / "out")
    page = certificate_page(value, key.public)
    assert page.lead.startswith(words), page.lead
    assert value["rankers"][0]["done"]["target_name"] == ("test-mrr" if target == "unseen" else target)
    assert ("by the target of its run" in page.verdict) is (most is not None)
    assert (f"no pair is among the first {most} of its list" in page_html(page)) is (most is not None)


@pytest.mark.parametrize(
    ("queries", "verdict", "change", "words"),
    [
        (3, Verdict.EQUIVALENT, {}, "of their lists and nobody can say"),
        (3, Verdict.EQUIVALENT, {"unknown_references": 1}, "3 queries are too few to test its memory with, nobody can"),
        (12, Verdict.EQUIVALENT, {"unknown_references": 1}, "nobody can show what 1 reference was trained on and"),
        (12, Verdict.EQUIVALENT, {"unseen_measured": False}, "what it never saw could not be measured and nobody"),
        (12, Verdict.UNDECIDED, {"unknown_references": 0, "unseen_measured": True}, "the audit could not tell and"),
    ],
)
def test_a_certificate_names_the_reason_why_nothing_can_be_verified(
    queries: int, verdict: Verdict, change: dict[str, object], words: str, ledger: Ledger, key: Key
) -> None:
    take_in(ledger, key)
    judged = {1: Judgement(ForgetState.NOT_VERIFIABLE, "why", ranks([1] * queries, [9] * queries))}
    made_run(ledger, judged, made_result(judged, verdict) | change)
    page = certificate_page(certificate(ledger, key, 1).value, key.public)
    assert words in page.lead, page.lead
    assert ("could not tell" in page.lead) is (verdict is Verdict.UNDECIDED)


def test_a_request_that_no_run_settled_has_no_certificate(ledger: Ledger, key: Key) -> None:
    for _ in range(3):
        take_in(ledger, key)
    made_run(ledger, {2: Judgement(ForgetState.NOT_FORGOTTEN, "why", ranks([1], [1]))})
    close(ledger, 3, State.WITHDRAWN)
    for id, state in ((1, "open"), (2, "not forgotten"), (3, "withdrawn")):
        with pytest.raises(UnrankError, match=f"request {id} is {state}: only a request that a run has settled"):
            certificate(ledger, key, id)


def test_a_closed_request_keeps_its_kind(ledger: Ledger, key: Key) -> None:
    take_in(ledger, key)
    made_run(ledger, {1: Judgement(ForgetState.NOTHING, "why", ranks([4], [4]))})
    close(ledger, 1)
    value = certificate(ledger, key, 1).value
    closing = value["request"]["closing"]
    assert value["state"] == "nothing to forget" and closing is not None and closing["at"]


def test_what_was_found_at_closing_is_told(ledger: Ledger, key: Key) -> None:
    take_in(ledger, key)
    made_run(ledger, {1: Judgement(ForgetState.FORGOTTEN, "why", MOVED)})
    found: dict[str, Any] = {
        "deleted": {"ranker": 2},
        "left": {"collection": 1},
        "reason": "legal-duty",
        "not_checked": {},
    }
    close(ledger, 1, **found)
    html = page_html(certificate_page(certificate(ledger, key, 1).value, key.public))
    assert (
        "known to hold it: 2 rankers no longer there, or without it; 1 collection left there (reason: legal duty)."
        in html
    )


def test_copies_that_were_removed_with_it_are_told(ledger: Ledger, key: Key) -> None:
    take_in(ledger, key)
    ledger.add_copies(1, [Item(document="other", document_text="the same text")], key)
    judged = {1: Judgement(ForgetState.FORGOTTEN, "why", MOVED)}
    made_run(ledger, judged, made_result(judged) | {"copies": {"1": {"removed with it": 1}}}, items=2)
    value = certificate(ledger, key, 1).value
    assert value["rankers"][0]["alone"], "a copy belongs to its request"
    assert "In the collection: 1 copy of what it names removed with it." in page_html(
        certificate_page(value, key.public)
    )


def test_a_certificate_of_a_former_key_is_matched(ledger: Ledger, key: Key, path: Path, tmp_path: Path) -> None:
    take_in(ledger, key)
    made_run(ledger, {1: Judgement(ForgetState.FORGOTTEN, "why", MOVED)})
    write_certificate(ledger, key, 1, tmp_path / "out")
    rotate(ledger, key_file(path))
    for command in (["match", "--id", str(DOCUMENT.document)], ["verify"]):
        assert run(["desk", *command, str(tmp_path / "out"), "--ledger", str(path)]) == 0


def test_a_certificate_is_in_the_history_before_it_is_on_disk(
    ledger: Ledger, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_in(ledger, key)
    made_run(ledger, {1: Judgement(ForgetState.FORGOTTEN, "why", MOVED)})
    seen = []

    def write(event: str, *_: object, **__: object) -> None:
        seen.append((event, [path.name for path in tmp_path.iterdir() if not path.name.startswith((".", "desk"))]))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ledger, "write", write)
        write_certificate(ledger, key, 1, tmp_path / "out")
    assert seen == [("certificate", [])] and not (tmp_path / "out").exists(), "stopped at its entry, there is none"
    write_certificate(ledger, key, 1, tmp_path / "out")
    [entry] = [entry for entry in ledger.history(1) if entry.event == "certificate"]
    assert entry.values["content"] == read_signed(tmp_path / "out").digest


@pytest.mark.parametrize("closed", [False, True])
def test_a_certificate_is_matched_with_a_text(
    closed: bool, ledger: Ledger, key: Key, path: Path, tmp_path: Path, capsys: Said
) -> None:
    take_in(ledger, key, DOCUMENT, QUERY, PAIR)
    made_run(ledger, {1: Judgement(ForgetState.FORGOTTEN, "why", MOVED)})
    if closed:
        close(ledger, 1)
    write_certificate(ledger, key, 1, tmp_path / "out")

    def match(*words: str) -> tuple[int, dict[str, object]]:
        capsys.readouterr()
        status = run(["desk", "match", str(tmp_path / "out"), *words, "--ledger", str(path), "--json"])
        return status, json.loads(capsys.readouterr().out)

    for text, words in (
        (DOCUMENT.document_text, "a document that the request names"),
        (f"\ufeff{str(QUERY.query_text).upper()}?\n", "a query that the request names"),
        (PAIR.document_text, "a part of a pair that the request names"),
    ):
        (tmp_path / "text").write_text(str(text))
        status, found = match("--text", str(tmp_path / "text"))
        assert (status, found["about_it"], found["as"]) == (0, True, [words])
    assert match("--id", str(DOCUMENT.document))[0] == 0
    (tmp_path / "text").write_text("another text")
    assert match("--text", str(tmp_path / "text")) == (
        3,
        {"request": 1, "state": "forgotten", "about_it": False, "as": []},
    )
    assert run(["desk", "match", str(tmp_path / "out"), "--id", "other", "--ledger", str(path)]) == 3
    assert "is NOT about the id 'other'" in capsys.readouterr().out
    assert run(["desk", "match", str(tmp_path / "out"), "--ledger", str(path)]) == 2


def test_two_certificates_of_one_text_have_no_commitment_in_common(ledger: Ledger, key: Key) -> None:
    for id in (1, 2):
        take_in(ledger, key, DOCUMENT)
        made_run(ledger, {id: Judgement(ForgetState.FORGOTTEN, "why", MOVED)})
    held = [set(certificate(ledger, key, id).value["request"]["commitment"]["of"]) for id in (1, 2)]
    assert len(held[0]) == len(held[1]) == 2 and not held[0] & held[1]


def test_figures_of_a_run_of_several_requests_are_left_out(ledger: Ledger, key: Key) -> None:
    for _ in range(2):
        take_in(ledger, key)
    judged = {id: Judgement(ForgetState.FORGOTTEN, "4321 queries", MOVED) for id in (1, 2)}
    made_run(ledger, judged, made_result(judged, Verdict.SUPPRESSED))
    value = certificate(ledger, key, 1).value
    [part] = value["rankers"]
    assert part["requests"] == 2 and not part["alone"]
    assert "forget" not in part["measured"]["sets"] and part["copies"] == {}
    assert part["audited"] is not None and part["audited"]["tests"]["recovery"] == {"verdict": "suppressed"}
    evaluation = part["audited"]["evaluation"]
    assert evaluation is not None and not evaluation["claims"] and "sampleSize" not in evaluation
    assert len(re.findall(r"\b4321\b", json.dumps(value))) == 1, "of the test set, which no request is a part of"
    assert "together with 1 other request" in page_html(certificate_page(value, key.public))


@pytest.mark.parametrize("old", [OLD_ALIKE, OLD_UNKNOWN])
def test_an_audit_of_an_earlier_version_keeps_its_words(ledger: Ledger, key: Key, tmp_path: Path, old: str) -> None:
    take_in(ledger, key)
    judged = {1: Judgement(ForgetState.FORGOTTEN, "why", MOVED)}
    made_run(ledger, judged, made_result(judged, old))
    value = write_certificate(ledger, key, 1, tmp_path / "out")
    shown = page_html(certificate_page(value, key.public))
    assert (
        f"The audit says: {html.escape(old, quote=False)}." in shown
        and f"In all: {html.escape(old, quote=False)}." in shown
    )
    assert f">{short(old)}<" in shown
    ledger.verify()


def test_a_certificate_has_claims_that_a_program_can_check(ledger: Ledger, key: Key) -> None:
    take_in(ledger, key)
    made_run(ledger, {1: Judgement(ForgetState.FORGOTTEN, "why", MOVED)})
    value = certificate(ledger, key, 1).value
    audited = value["rankers"][0]["audited"]
    assert audited is not None and audited["evaluation"] is not None
    claims = audited["evaluation"]["claims"]
    assert {"test", "metric", "comparator", "threshold", "value", "passed", "sampleSize"} == {*claims[0]}
    assert claims[0]["test"] == "audit" and all(one["passed"] for one in claims)
    html = page_html(certificate_page(value, key.public))
    assert "Claims that a program can check" in html and "This does not show that no trace is left." in html


def test_a_run_of_an_earlier_version_has_no_claims(ledger: Ledger, key: Key, tmp_path: Path) -> None:
    take_in(ledger, key)
    judged = {1: Judgement(ForgetState.FORGOTTEN, "why", MOVED)}
    result = made_result(judged)
    del result["audit"]["evaluation"]
    result["audit"]["verdict"] = OLD_ALIKE
    made_run(ledger, judged, result)
    value = write_certificate(ledger, key, 1, tmp_path / "out")
    audited = value["rankers"][0]["audited"]
    assert audited is not None and audited["evaluation"] is None
    assert Verification(tmp_path, read_signed(tmp_path / "out"), "--public-key").holds
    html = page_html(certificate_page(value, key.public))
    assert "Claims that" not in html and "No test found a difference. One that is smaller" in html


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda part: part["audited"]["evaluation"]["claims"][1].update(value="-9"), "the claim of equivalence about"),
        (lambda part: part["audited"]["evaluation"]["testResult"].update(result="FAILED"), "the entry result of"),
        (lambda part: part["audited"].update(verdict="still remembered"), "the state forgotten, where the audit says"),
    ],
)
def test_a_signed_certificate_that_contradicts_itself(
    change: Any, said: str, ledger: Ledger, key: Key, tmp_path: Path
) -> None:
    """Its owner can sign anything: whoever reads it is told that the parts do not fit."""
    take_in(ledger, key)
    made_run(ledger, {1: Judgement(ForgetState.FORGOTTEN, "why", MOVED)})
    made = certificate(ledger, key, 1)
    value = json.loads(json.dumps(made.value))
    change(value["rankers"][0])
    write_seal(tmp_path / "out", seal(value, made.subjects, "<p>page</p>", key))
    found = Verification(tmp_path / "out", read_signed(tmp_path / "out"), "--public-key")
    assert not found.holds and any(line.startswith(said) for line in found.contradictions)
    assert any("CONTRADICTS itself" in line for line in found.lines())
    assert found.to_json()["contradictions"] == found.contradictions


def test_a_service_of_two_rankers_has_one_certificate(
    ledger: Ledger, key: Key, path: Path, tmp_path: Path, capsys: Said
) -> None:
    """Its state is the worst of both, and either ranker can be compared with it."""
    take_in(ledger, key)
    folders = {name: tmp_path / name for name in ("first", "second")}
    for name, folder in folders.items():
        folder.mkdir()
        (folder / "model.safetensors").write_text(name)
        add_ranker(ledger, ServiceRanker(name, Role.retriever, str(folder), "collection"))
    states = (ForgetState.FORGOTTEN, ForgetState.NOT_VERIFIABLE)
    for (name, folder), state in zip(folders.items(), states, strict=True):
        judged = {1: Judgement(state, "why", MOVED)}
        result = made_result(judged) | {"ranker_files": file_hashes(folder)}
        result["files"]["ranker"] = folder_hash(folder)
        made_run(ledger, judged, result, member=service_ranker(ledger, name))
        with ledger.transaction():
            replace_ranker(ledger, service_ranker(ledger, name), states.index(state) + 1, folder)
    today = date.today()
    deploy(ledger, "second", today)
    value = write_certificate(ledger, key, 1, tmp_path / "out")
    page = certificate_page(value, key.public)
    assert value["state"] == "forgotten, not verifiable" and page.verdict == "Request 1 is forgotten, not verifiable."
    assert [ranker["state"] for ranker in value["rankers"]] == [str(state) for state in states]
    assert "Ranker first: Every pair that was ranked above" in page.lead and "Ranker second: " in page.lead
    assert page_html(page).count(f"It is in service since {today}.") == 1
    verify = ["desk", "verify", str(tmp_path / "out"), "--ledger", str(path), "--ranker"]
    for folder in folders.values():
        assert run([*verify, str(folder)]) == 0
    (folders["second"] / "model.safetensors").write_text("third")
    assert run([*verify, str(folders["second"])]) == 3
    ids = [section.id for section in page.all_sections]
    assert len(ids) == len(set(ids))
