"""The commands `desk serve` and `desk token`: what they print, and what they refuse before anything is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Refused
from unrank.cli.main import run
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.serve.people import People

pytest.importorskip("starlette")


def test_a_token_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused) -> None:
    ledger = tmp_path / "desk.ledger"
    assert run(["desk", "token", "anna", "--role", "clerk", "--role", "auditor", "--ledger", str(ledger)]) == 0
    token = capsys.readouterr().out.strip()
    person = People(tmp_path / "desk.ledger.tokens").with_token(token)
    assert person is not None and person.name == "anna"
    assert "anna has a token already" in refused("desk", "token", "anna", "--role", "clerk", "--ledger", str(ledger))
    assert "cannot be used" in refused("desk", "token", "a b", "--role", "clerk", "--ledger", str(ledger))


def test_what_is_refused_before_anything_is_served(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "desk.ledger"
    assert "no such ledger" in refused("desk", "serve", "--ledger", str(path))
    with Ledger.open(path, make_with=key_file(path)):
        pass
    assert "No such file" in refused("desk", "serve", "--ledger", str(path))
    assert run(["desk", "token", "anna", "--role", "clerk", "--ledger", str(path)]) == 0
    assert "tokens would travel in clear" in refused("desk", "serve", "--ledger", str(path), "--host", "0.0.0.0")
    assert "needs --name" in refused("desk", "serve", "--ledger", str(path), "--behind-tls")
    assert "is not an address" in refused("desk", "serve", "--ledger", str(path), "--host", "everywhere")
    (tmp_path / "desk.ledger.tokens").chmod(0o644)
    assert "chmod 600" in refused("desk", "serve", "--ledger", str(path))
