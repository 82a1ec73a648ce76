"""The commands `desk serve` and `desk token`: what they print, and what they refuse before anything is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Refused
from unrank.cli.desk_serve import check_ledger
from unrank.cli.main import run
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.errors import UnrankError
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


def test_a_ledger_is_made_if_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "desk.ledger"
    key = key_file(path)
    for said in (f"{path} is new; keep a copy of its key, {key}, elsewhere: it cannot be replaced", ""):
        check_ledger(path, key)
        assert capsys.readouterr().out.strip() == said
    with Ledger.read(path) as ledger:
        assert ledger.head()[0] == 0
    key.rename(tmp_path / "elsewhere")
    with pytest.raises(UnrankError):
        check_ledger(path, key)


def test_what_is_refused_before_anything_is_served(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "desk.ledger"
    assert "No such file" in refused("desk", "serve", "--ledger", str(path))
    assert not path.exists(), "no ledger is made before somebody may sign in"
    assert run(["desk", "token", "anna", "--role", "clerk", "--ledger", str(path)]) == 0
    assert "tokens would travel in clear" in refused("desk", "serve", "--ledger", str(path), "--host", "0.0.0.0")
    assert "needs --name" in refused("desk", "serve", "--ledger", str(path), "--behind-tls")
    assert "is not an address" in refused("desk", "serve", "--ledger", str(path), "--host", "everywhere")
    (tmp_path / "desk.ledger.tokens").chmod(0o644)
    assert "chmod 600" in refused("desk", "serve", "--ledger", str(path))
