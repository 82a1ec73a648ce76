"""Token files: who may sign in, and which files are refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from unrank.errors import UnrankError
from unrank.serve.limits import Rate
from unrank.serve.people import People, Right, Role, make_token, read_people


def test_a_token_is_stored_nowhere_and_finds_its_person(tmp_path: Path) -> None:
    path = tmp_path / "desk.tokens"
    token = make_token(path, "anna", [Role.clerk, Role.auditor])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and token not in path.read_text()
    people = People(path)
    anna = people.with_token(token)
    assert anna is not None and anna.rights == {Right.read, Right.add, Right.verify}
    assert people.with_token(f"{token}x") is None and people.with_token("") is None
    ben = make_token(path, "ben", [Role.engineer])
    assert people.with_token(ben) is not None  # the file is read again
    with pytest.raises(UnrankError, match="anna has a token already"):
        make_token(path, "anna", [Role.clerk])


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620])
def test_a_file_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "desk.tokens"
    make_token(path, "anna", [Role.clerk])
    path.chmod(mode)
    with pytest.raises(UnrankError, match="others may read or write it"):
        read_people(path)


@pytest.mark.parametrize(
    "line", ["anna clerk", "anna chief " + "0" * 64, "anna clerk 00", "a/b clerk " + "0" * 64, "anna clerk " + "G" * 64]
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "desk.tokens"
    path.write_text(f"\n{line}\n")
    path.chmod(0o600)
    with pytest.raises(UnrankError, match="line 2: not NAME, ROLES"):
        read_people(path)


def test_a_file_that_is_missing_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(UnrankError, match="unrank desk token"):
        People(tmp_path / "none").with_token("x")


def test_a_rate_forgets_after_a_while() -> None:
    now = [0.0]
    rate = Rate(2, 60, lambda: now[0])
    assert [rate.count("a") for _ in range(3)] == [True, True, False]
    assert rate.count("b") and rate.is_full("a")
    now[0] = 61.0
    assert rate.count("a") and not rate.is_full("a")
