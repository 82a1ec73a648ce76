"""Attacks on a run of the desk: on what it forgets, what it is compared with, and what it leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from unrank.engine.resume import resumable


@pytest.mark.attack(18)
@pytest.mark.parametrize("name", ["*", "?b", "[a-z]b", "**", "ab.partial-x"])
def test_a_name_that_is_a_pattern_deletes_nothing_of_others(name: str, tmp_path: Path) -> None:
    others = [tmp_path / f".{other}.partial-x1_y" for other in ("ab", "ab.partial-x.partial-x", "*b", "**x")]
    own = tmp_path / f".{name}.partial-0abc_1"
    for folder in (*others, own):
        folder.mkdir()
    with resumable(tmp_path / name):
        pass
    assert not own.exists() and all(other.exists() for other in others)
