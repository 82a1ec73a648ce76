"""A file is hashed once in a process, and again if it may have changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unrank import disk
from unrank.disk import sha256, sha256_once


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every reading of a whole file by the function under test. All files count as old."""
    found, digest = list[Any](), hashlib.file_digest

    def counted(file: Any, name: str) -> Any:
        found.append(file)
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    monkeypatch.setattr(disk, "SETTLED", -1)
    return found


def test_a_file_that_stays_is_read_once(reads: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_bytes(b"weights")
    expected = hashlib.sha256(b"weights").hexdigest()
    assert [sha256_once(path) for _ in range(3)] == [expected] * 3 and len(reads) == 1
    assert sha256(path) == expected and len(reads) == 2, "the other function reads always"


def rewrite(path: Path) -> None:
    path.write_bytes(b"WEIGHTS")


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"WEIGHTS")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


def rewrite_in_secret(path: Path) -> None:
    about = path.stat()
    path.write_bytes(b"WEIGHTS")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


@pytest.mark.parametrize("change", [rewrite, replace, rewrite_in_secret])
def test_a_changed_file_is_read_again(change: Callable[[Path], None], reads: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.write_bytes(b"weights")
    before, about = sha256_once(path), path.stat()
    while path.stat().st_ctime_ns == about.st_ctime_ns:  # the clock of a file system has coarse steps
        change(path)
    assert path.stat().st_size == about.st_size and sha256_once(path) == sha256(path) != before


def test_the_hash_of_a_new_file_is_not_remembered(
    reads: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "SETTLED", 10**12)
    path = tmp_path / "one"
    path.write_bytes(b"weights")
    assert sha256_once(path) == sha256_once(path) and len(reads) == 2
