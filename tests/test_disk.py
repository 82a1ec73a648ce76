"""A file is hashed once in a process, and again if it may have changed; what killed jobs left half written goes."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unrank import disk
from unrank.disk import beside, check_free, clear_half_written, new_file, new_folder, sha256, sha256_once, whole_path
from unrank.errors import UnrankError


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every reading of a whole file by the function under test. All files count as old."""
    found, digest = list[Any](), disk._digest

    def counted(file: Any) -> Any:
        found.append(file)
        return digest(file)

    monkeypatch.setattr(disk, "_digest", counted)
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


KILLED = """
import os, signal, sys
from pathlib import Path
from unrank.disk import new_file, new_folder

out = Path(sys.argv[1])
with new_folder(out / "folder") as folder, new_file(out / "file.parquet") as file:
    (folder / "texts").write_text("a text")
    file.write_text("a text")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_nameless_path_has_a_folder_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert beside(Path()) == beside(tmp_path) and beside(Path("out")) == Path("out.unfinished")
    with pytest.raises(UnrankError, match="/ cannot be the folder of a result"):
        beside(Path("/"))


def test_a_whole_path_follows_no_circle_of_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to("in")
    assert whole_path(Path("circle/x")) == tmp_path / "circle" / "x"
    assert whole_path(Path("link/x")) == tmp_path / "in" / "x" and whole_path(Path("link")) == tmp_path / "link"
    assert whole_path(Path("link/..")) == whole_path(Path()) == tmp_path


def test_what_a_killed_job_left_half_written_goes_with_the_next_of_its_name(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, tmp_path]).returncode == -signal.SIGKILL
    assert len([*tmp_path.rglob("*")]) > 2 and all(path.name.startswith(".") for path in tmp_path.iterdir())
    with new_folder(tmp_path / "folder") as folder, new_file(tmp_path / "file.parquet") as file:
        assert len([path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]) == 0
        (folder / "texts").write_text("new")
        file.write_text("new")
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert found == {"folder", "folder/texts", "file.parquet"}


def test_what_a_job_at_work_has_half_written_stays(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "a[b]*", tmp_path / "elsewhere"
    hexadecimal = ".a[b]*.partial-"
    named = (".ab.partial-12345678", ".a[b]*.partial", f"{hexadecimal}1-2", f"{hexadecimal}backup", f"{hexadecimal}0")
    others = [tmp_path / name for name in (*named, f"{hexadecimal}1234abcd", f"{hexadecimal}123456789")]
    for other in (*others, elsewhere):
        other.mkdir()
        (other / "mine").write_text("mine")
    (tmp_path / f"{hexadecimal}1234abcd" / ".lock").touch()
    (tmp_path / f"{hexadecimal}abcdef12").symlink_to(elsewhere)
    (tmp_path / f"{hexadecimal}12345670").write_text("the file of a job that replaces it")
    before = {*tmp_path.iterdir()}
    with new_folder(out) as partial:
        (partial / "half").write_text("half")
        clear_half_written(out)
        assert (partial / "half").exists()
    assert {*tmp_path.iterdir()} == {*before, out}
    assert all((other / "mine").exists() for other in (*others, elsewhere))


def test_what_a_killed_job_left_goes_whatever_state_it_is_in(tmp_path: Path) -> None:
    left = [tmp_path / f".out.partial-{name}" for name in ("00000000", "11111111", "abcdef01")]
    for folder in left:
        folder.mkdir()
    for folder in left[1:]:
        (folder / ".lock").touch()
    (left[2] / "out").mkdir()
    (left[2] / "out" / "text").write_text("a text")
    clear_half_written(tmp_path / "out")
    assert [*tmp_path.iterdir()] == []


def test_what_a_job_left_that_was_stopped_while_it_deleted_goes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "out") as partial:
        (partial / "text").write_text("a text")
        patch.setattr("shutil.rmtree", stop)
        stop()
    [left] = tmp_path.iterdir()
    assert [path.name for path in left.iterdir()] == ["out"]  # its lock is gone
    clear_half_written(tmp_path / "out")
    assert not left.exists()


@pytest.mark.parametrize("name", ["new/..", "new/inner/.."])
def test_a_name_that_names_nothing_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnrankError, match=r"\.\. names no file or folder to write: choose another --out"):
        check_free(tmp_path / name)
    assert [*tmp_path.iterdir()] == []


def test_a_job_that_fails_leaves_nothing(tmp_path: Path) -> None:
    for make in (new_folder, new_file):
        with pytest.raises(KeyError), make(tmp_path / "new" / "out") as partial:
            (partial / "half" if partial.is_dir() else partial).write_text("half")
            raise KeyError
        assert not [*tmp_path.iterdir()]
