"""How results reach the disk: whole or not at all.

A folder is written beside its final place, flushed, and renamed into it, so that no reader ever sees half
of one. What stands at the final place already is never touched.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from unrank.errors import BadFile, UnrankError

LOCK = ".lock"
CHECKPOINT = "checkpoint.safetensors"
TRIES = 100


def check_free(out: Path) -> None:
    """Refuse a folder that exists, before any work is done for it."""
    if out.exists() or out.is_symlink():
        raise UnrankError(f"{out} exists already: choose another --out, or remove it first")


def check_result(out: Path) -> None:
    """The same for what a run makes. One that was killed at its very end may have left beside it what it had to forget:
    that is taken away."""
    if out.exists() and (left := beside(out)).is_dir():
        with sole_user(left, f"another job is at work on {out}: wait for it, or stop it"):
            clear_checkpoints(left)
    check_free(out)


def beside(out: Path) -> Path:
    """Where a run is kept until its result is whole."""
    return out.with_name(f"{out.name}.unfinished")


def clear_checkpoints(folder: Path) -> None:
    """The whole one, and one that was cut short."""
    for path in folder.glob(f"{CHECKPOINT}*"):
        path.unlink()


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to write into that becomes `out` when the block ends well, and is gone when it does not."""
    check_free(out)
    new_parents = [parent for parent in out.parents if not parent.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
    except OSError as error:
        raise UnrankError(f"cannot write to {out.parent}: {error.strerror}") from error
    try:
        yield partial
        for path in partial.rglob("*"):
            if path.is_file():
                flush(path)
        partial.chmod(0o755)
        partial.replace(out)
        flush(out.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        for parent in new_parents:
            parent.rmdir()
        raise


@contextmanager
def sole_user(folder: Path, refusal: str) -> Iterator[None]:
    """A folder that is this process's alone while the block lasts, and gone after it if nothing is in it. The lock dies
    with its holder."""
    folders = [folder, *(parent for parent in folder.parents if not parent.exists())]
    lock = _locked(folder, refusal)
    try:
        yield
    finally:
        with lock, suppress(OSError):  # the first that is not empty ends it
            (folder / LOCK).unlink()
            for empty in folders:
                empty.rmdir()


def _locked(folder: Path, refusal: str) -> TextIO:
    path = folder / LOCK
    for _ in range(TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = path.open("a")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise UnrankError(refusal) from error
        except FileNotFoundError:
            continue  # whoever had the folder has just taken it away
        except OSError as error:
            raise UnrankError(f"cannot write to {folder}: {error.strerror}") from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                return lock
        lock.close()
    raise UnrankError(f"{folder} does not stay where it is made: choose another --out")


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet, whole or not at all."""
    check_free(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        flush(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """A JSON file's value, or one line that says what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except FileNotFoundError as error:
        raise BadFile(path, "no such file") from error
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise BadFile(path, "not UTF-8 text") from error
    except UnicodeEncodeError as error:
        raise BadFile(path, "half of a surrogate pair, which is not text") from error
    except json.JSONDecodeError as error:
        raise BadFile(path, f"not JSON: {error.msg}", error.lineno) from error
    except RecursionError as error:
        raise BadFile(path, "not JSON that can be read: nested too deep") from error
    except ValueError as error:
        raise BadFile(path, "not JSON that can be read: a number with thousands of digits") from error


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Make sure that a file, or the names in a folder, outlive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
