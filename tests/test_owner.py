from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from unrank.errors import BadFile
from unrank.owner import KEY, fact_path, owner_key, recall, remember, state_folder


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNRANK_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def test_the_key_is_made_once_and_only_its_owner_may_read_it(state: Path) -> None:
    assert owner_key() is None
    made = owner_key(make=True)
    assert made is not None and made == owner_key(make=True) == owner_key()
    assert (state / KEY).stat().st_mode & 0o077 == 0
    assert made.secret.hex() not in made.name


def test_hashes_depend_on_purpose_and_message(state: Path) -> None:
    key = owner_key(make=True)
    assert key is not None
    assert len({key.mac("a", b"x"), key.mac("a", b"y"), key.mac("b", b"x"), key.name}) == 4
    fast = key.macs("a")
    assert [fast(message) for message in (b"", b"x", b"x" * 100)] == [
        key.mac("a", message) for message in (b"", b"x", b"x" * 100)
    ]


def test_a_pipe_in_place_of_the_key_is_refused_and_not_waited_for(state: Path) -> None:
    state.mkdir()
    os.mkfifo(state / KEY, 0o600)
    with pytest.raises(BadFile, match=re.escape(KEY)):
        owner_key()


@pytest.mark.parametrize(("content", "mode", "message"), [("zz", 0o600, "not an owner's key"), ("ab", 0o600, "not an")])
def test_a_damaged_key_is_refused(state: Path, content: str, mode: int, message: str) -> None:
    state.mkdir()
    (state / KEY).write_text(content)
    (state / KEY).chmod(mode)
    with pytest.raises(BadFile, match=message):
        owner_key()


def test_a_key_that_others_may_read_is_refused(state: Path) -> None:
    owner_key(make=True)
    (state / KEY).chmod(0o644)
    with pytest.raises(BadFile, match="others may read"):
        owner_key()


def test_a_fact_is_kept_in_a_file_of_its_own(state: Path) -> None:
    assert recall("base", "ab") is None
    assert remember("base", "ab", "here") and remember("base", "ab", "there")
    assert recall("base", "ab") == "there" and recall("other", "ab") is None
    place = fact_path("base", "ab")
    assert place is not None
    place.unlink()
    assert recall("base", "ab") is None


def test_no_digest_is_a_path(state: Path) -> None:
    remember("base", "../../x", "y")
    assert recall("base", "../../x") == "y"
    assert all(path.is_relative_to(state) for path in state.parent.rglob("*") if path != state)


def test_a_machine_without_a_place_has_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNRANK_STATE", str(tmp_path / "file" / "below"))
    assert owner_key(make=True) is None and not remember("base", "ab") and recall("base", "ab") is None


def test_the_state_folder_of_the_desktop_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNRANK_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "unrank"
