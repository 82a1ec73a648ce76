"""A ledger and a certificate of version 0.1, whose run had a target of 1.0 and an audit that could not tell."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from unrank.cli.main import run
from unrank.desk.certificate import certificate
from unrank.desk.ledger import Ledger
from unrank.desk.page import certificate_page
from unrank.desk.request import State


@pytest.fixture
def former(tmp_path: Path) -> Path:
    with ZipFile(Path(__file__).parent / "version_0_1.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_its_ledger_opens_and_its_certificate_verifies(former: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["desk", "verify", str(former / "certificate"), "--ledger", str(former / "desk.ledger")]) == 0
    assert "no byte was changed; request 1" in capsys.readouterr().out
    with Ledger.open(former / "desk.ledger") as ledger:
        assert [request.state for request in ledger.requests(list(State))] == [State.FULFILLED, State.CLOSED]
        assert ledger.request(1).outcome is State.FULFILLED
        assert [item.document for item in ledger.items(2)] == ["d17"] and ledger.items(1) == []
    capsys.readouterr()
    assert run(["desk", "list", "--all", "--ledger", str(former / "desk.ledger")]) == 0
    assert capsys.readouterr().out.count("fulfilled by") == 3


def test_a_new_certificate_of_its_run_claims_no_fulfilment(former: Path) -> None:
    assert "Request 1 was fulfilled." in (former / "certificate" / "certificate.html").read_text()
    with Ledger.open(former / "desk.ledger") as ledger:
        page = certificate_page(certificate(ledger, 1), ledger.about("public_key"))
    assert page.verdict == "Request 1 was run, but whether it is forgotten cannot be known."
    assert "fulfilled" not in page.lead
