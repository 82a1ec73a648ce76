"""Ledgers and certificates of earlier versions: 0.1, whose run had a target of 1.0, and certificate version 2."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

from unrank.cli.main import run
from unrank.desk.certificate import certificate
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.request import State
from unrank.errors import UnrankError


@pytest.fixture
def former(tmp_path: Path) -> Path:
    with ZipFile(Path(__file__).parent / "version_0_1.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path


def test_its_ledger_opens_and_its_certificate_verifies(former: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["desk", "verify", str(former / "certificate"), "--ledger", str(former / "desk.ledger")]
    assert run(command) == 4
    assert capsys.readouterr().out.startswith("the signer is unknown")
    public = json.loads((former / "certificate" / "certificate.json").read_text())["public_key"]
    before = (former / "desk.ledger").read_bytes()
    assert run([*command, "--public-key", public]) == 0
    assert "no byte was changed since it was signed; request 1, of version 1" in capsys.readouterr().out
    assert (former / "desk.ledger").read_bytes() == before, "a reader migrates a copy in memory"
    with Ledger.open(former / "desk.ledger") as ledger:
        assert [request.state for request in ledger.requests(list(State))] == [State.FULFILLED, State.CLOSED]
        assert ledger.request(1).outcome is State.FULFILLED
        assert [item.document for item in ledger.items(2)] == ["d17"] and ledger.items(1) == []
    capsys.readouterr()
    assert run(["desk", "list", "--all", "--ledger", str(former / "desk.ledger")]) == 0
    assert capsys.readouterr().out.count("fulfilled by") == 3


def test_a_request_that_it_fulfilled_gets_no_new_certificate(former: Path) -> None:
    """Its run had a target of 1.0, and nothing in it was measured for the request by itself."""
    with Ledger.open(former / "desk.ledger") as ledger:
        for request in (1, 2):
            with pytest.raises(UnrankError, match="fulfilled by an earlier version, which did not judge it by itself"):
                certificate(ledger, Key(bytes(32)), request)


def test_a_certificate_of_version_2_verifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its audit has verdicts of earlier words, and no claims that a program can check."""
    with ZipFile(Path(__file__).parent / "certificate_2.zip") as archive:
        archive.extractall(tmp_path)
    envelope = json.loads((tmp_path / "certificate" / "certificate.json").read_text())
    public = envelope["signatures"][0]["keyid"]
    command = ["desk", "verify", str(tmp_path / "certificate"), "--ledger", str(tmp_path / "desk.ledger")]
    assert run([*command, "--public-key", public, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["certificate_version"], found["state"], found["contradictions"]) == (2, "forgotten", [])
