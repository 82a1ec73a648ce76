"""Files and folders that are written whole or not at all.

A folder is written beside its final place, flushed and renamed, so no reader sees half of one. A file or folder that
exists is never overwritten.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any, TextIO

from unrank.errors import BadFile, UnrankError

try:
    import fcntl
except ModuleNotFoundError as error:
    raise UnrankError(
        f"unrank needs the file locks of Linux or macOS, and {sys.platform} has none: on Windows run it in WSL 2"
    ) from error

LOCK = ".lock"
CHECKPOINT = "checkpoint.safetensors"
JOURNAL = "progress.jsonl"
"""The file to which a run adds lines about its progress, beside its checkpoints."""
PLACES_FILE = "places.checkpoint"
"""The file with the places of a run's pairs, beside its checkpoints. It must never ship with a ranker."""
TRIES = 100
SETTLED = 3_000_000_000
"""Nanoseconds after which the next change of a file has another time, on any file system."""
LARGEST = 1e300
NOT_REGULAR = errno.EINVAL
"""The number of the error for a file that is not regular."""
NUMBERS = re.compile(r"\[\n\s+(?:\d+,\n\s+)*\d+\n\s+\]")
"""A list of whole numbers as JSON writes it, one number a line. No string of JSON holds a line break."""

BLOCK = 1 << 24
"""The bytes of a file that are hashed at once."""

_hashes: dict[tuple[int, ...], str] = {}
"""The SHA-256 of files, by what tells their versions apart."""
_hashing = Lock()
"""Held while a file is hashed, so that no two threads hash the same one. A copy of the process finds it free."""
os.register_at_fork(before=_hashing.acquire, after_in_parent=_hashing.release, after_in_child=_hashing.release)


def several_processes() -> bool:
    """Return whether this is one of several processes on one job, as torchrun and accelerate start them."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def follows() -> bool:
    """Return whether this is a process after the first of a job. Only the first writes and prints."""
    return os.environ.get("RANK", "0") != "0"


def check_writable(out: Path) -> None:
    """Raise an error if a file or folder could not be made there."""
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise UnrankError(f"cannot write to {out}: {parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UnrankError(f"cannot write to {parent}: it is read-only")


def check_free(out: Path, option: str = "--out") -> None:
    """Raise an error if `out`, which an option names, exists or could not be made, before any work is done for it."""
    if not is_utf_8(out):
        raise UnrankError(f"{out} is not UTF-8: choose another name")
    if out.exists() or out.is_symlink():
        raise UnrankError(f"{out} exists already: choose another {option}, or remove it first")
    if out.name == "..":
        raise UnrankError(f"{out} names no file or folder to write: choose another {option}")
    check_writable(out)


def is_utf_8(path: str | Path) -> bool:
    """Return whether a path is UTF-8; Python reads other bytes of a name as surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in str(path))


def check_result(out: Path) -> None:
    """Raise an error if the result of a run exists or could not be made. A run that was killed at its end may have left
    checkpoints beside its result, which hold what it had to forget: delete them."""
    if out.exists():
        clear_unfinished(out)
    check_free(out)


def check_outside(out: Path, *folders: str | Path, option: str = "--out") -> None:
    """Raise an error if a result would be written into one of these folders, whose content would change by that."""
    for folder in map(Path, folders):
        if folder.is_dir() and out.resolve().is_relative_to(folder.resolve()):
            raise UnrankError(f"{option} {out} is inside {folder}, which must stay as it is: choose a folder outside")


def whole_path(path: Path) -> Path:
    """Return a path from the root, without `..`; a link keeps its name, and a circle of links stays as it is."""
    name = path.name if path.name != ".." else ""
    return Path(os.path.realpath(path.parent if name else path)) / name


def beside(out: Path) -> Path:
    """Return the folder of a run's checkpoints until its result is complete."""
    out = out if out.name else whole_path(out)
    if not out.name:
        raise UnrankError(f"{out} cannot be the folder of a result: name one inside it")
    return out.with_name(f"{out.name}.unfinished")


def clear_half_written(out: Path) -> None:
    """Delete the folders that killed jobs left half written beside `out`; those of jobs at work are locked. Names are
    compared and never patterns. A folder that holds more than a lock and what becomes `out` is not one of unrank's."""
    name = re.compile(re.escape(f".{out.name}.partial-") + "[0-9a-f]{8}")
    with suppress(OSError):  # a folder that cannot be listed
        for path in [path for path in out.parent.iterdir() if name.fullmatch(path.name)]:
            with suppress(OSError, UnrankError):
                if path.is_symlink() or any(each.name not in (LOCK, out.name) for each in path.iterdir()):
                    continue
                with sole_user(path, f"another job is at work on {out}"):
                    _delete(path / out.name)


def clear_checkpoints(folder: Path) -> None:
    """Delete checkpoints, half-written ones included, and the journal of the run that wrote them."""
    for path in (*folder.glob(f"{CHECKPOINT}*"), folder / JOURNAL):
        path.unlink(missing_ok=True)


def clear_unfinished(out: Path) -> None:
    """Delete the checkpoints and the half-written folders that killed jobs left beside a result."""
    if (left := beside(out)).is_dir():
        with sole_user(left, f"another job is at work on {out}: wait for it, or stop it"):
            clear_checkpoints(left)
    clear_half_written(out)


def _delete(path: Path) -> None:
    """Delete a file or a folder, as far as possible. A link goes without what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _half_written(out: Path) -> Iterator[Path]:
    """Yield a path to write to, in a locked folder beside `out` that is deleted afterwards."""
    clear_half_written(out)
    folder = out.with_name(f".{out.name}.partial-{token_hex(4)}")
    with sole_user(folder, f"another job has just deleted {folder}: try again"):
        folder.chmod(0o700)
        partial = folder / out.name
        try:
            yield partial
        finally:
            _delete(partial)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a folder to write into. It becomes `out` if the block succeeds, and is deleted otherwise."""
    if follows():
        with tempfile.TemporaryDirectory() as nowhere:
            yield Path(nowhere)
        return
    check_free(out)
    with _half_written(out) as partial:
        partial.mkdir()
        yield partial
        for path in regular_files(partial):
            flush(path)
        partial.chmod(0o755)
        partial.replace(out)
        flush(out.parent)


@contextmanager
def sole_user(folder: Path, refusal: str) -> Iterator[None]:
    """Lock a folder for this process during the block, and delete it afterwards if it is empty. The lock ends with the
    process."""
    folders = [folder, *(parent for parent in folder.parents if not parent.exists())]
    lock = _locked(folder, refusal)
    try:
        yield
    finally:
        with lock, suppress(OSError):  # rmdir fails at the first folder that is not empty
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
            continue  # its last user has just deleted the folder
        except OSError as error:
            raise UnrankError(f"cannot write to {folder}: {error.strerror}") from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                return lock
        lock.close()
    raise UnrankError(
        f"cannot write to {folder}: it cannot be made, or another process deletes it again and again: "
        "choose another --out"
    )


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a file to write. It becomes `path` if the block succeeds, and is deleted otherwise."""
    if follows():
        with tempfile.TemporaryDirectory() as nowhere:
            yield Path(nowhere) / path.name
        return
    check_free(path)
    with _half_written(path) as partial:
        yield partial
        flush(partial)
        partial.replace(path)
        flush(path.parent)


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet, whole or not at all."""
    with new_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, a list of whole numbers on one line."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    path.write_text(NUMBERS.sub(lambda found: " ".join(found.group().split()), text) + "\n", encoding="utf-8")


def replace_json(path: Path, value: Any) -> None:
    """Write a value as JSON in place of what the file holds. A reader sees the old value or the new one."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        write_json(partial, value)
        flush(partial)
        partial.replace(path)
        flush(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def read_json(path: Path) -> Any:
    """Return the value of a JSON file, or raise an error that says what is wrong with it."""
    try:
        with open_regular(path) as file:
            return json_of(file.read(), path)
    except FileNotFoundError as error:
        raise BadFile(path, "no such file") from error
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; refuse one in which a key hides another value under the same name."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise KeyError(next(key for key in keys if keys.count(key) > 1))
    return found


def json_of(data: bytes, path: Path, line: int | None = None) -> Any:
    """Return the value of a JSON text; an error names the file and, if it is given, the line that the text is from."""
    try:
        text = data.decode()
        value = json.loads(text, object_pairs_hook=object_of)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeDecodeError as error:
        raise BadFile(path, "not UTF-8 text", line) from error
    except UnicodeEncodeError as error:
        raise BadFile(path, "half of a surrogate pair, which is not text", line) from error
    except json.JSONDecodeError as error:
        raise BadFile(path, f"not JSON: {error.msg}", line or error.lineno) from error
    except KeyError as error:
        raise BadFile(path, f"the key {error.args[0]!r} is there twice in one object", line) from error
    except RecursionError as error:
        raise BadFile(path, "JSON that cannot be read: nested too deep", line) from error
    except ValueError as error:
        raise BadFile(path, "JSON that cannot be read: a number with thousands of digits", line) from error


Form = Any
"""The form of a JSON value: a type, None, a list with the form of its items, an object with the forms of some of its
keys, a tuple of alternatives, or a function that checks the value."""


def fits(value: Any, form: Form) -> bool:
    """Return whether a JSON value has a form. A number is finite, and true is not a number.

    >>> fits({"a": [1, 2.5], "b": None}, {"a": [float]}), fits([1, True], [float]), fits(None, (str, None))
    (True, False, True)
    """
    if isinstance(form, dict):
        return isinstance(value, dict) and all(key in value and fits(value[key], each) for key, each in form.items())
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(item, form[0]) for item in value)
    if isinstance(form, tuple):
        return any(fits(value, each) for each in form)
    if form is float:
        return type(value) in (int, float) and -LARGEST < value < LARGEST
    if isinstance(form, type):
        return type(value) is form
    return bool(form(value)) if form is not None else value is None


def exists(path: Path) -> bool:
    """Return whether a path exists. A name that no file can have does not."""
    try:
        return path.exists()
    except OSError:
        return False


def inside(folder: Path, name: str, besides: Path | None = None) -> Path:
    """Return the path of a file that another file names. Raise an error if it leads outside `folder` and `besides`: by
    `..`, by an absolute path or by a link."""
    path, home = folder / name, folder.resolve()
    try:
        place = _resolved(path)
    except (OSError, RuntimeError, ValueError) as error:  # a link to itself, or an impossible name
        raise BadFile(folder, f"names {name!r}, which is not a file") from error
    if not any(place.is_relative_to(each) for each in (home, besides) if each is not None):
        raise BadFile(path, f"leads outside {folder.name or folder}, and is not followed; put the file itself there")
    return path


def _resolved(path: Path) -> Path:
    """Return where a path leads. Raise an error if it is a circle of links, which Python 3.13 leaves as it is."""
    place = path.resolve()
    try:
        place.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise
    return place


def regular_files(folder: Path) -> list[Path]:
    """Return the regular files below a folder, in order. Named pipes, sockets and devices are left out."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def check_regular(path: Path) -> None:
    """Raise an OSError if a path is no regular file: a reader of a named pipe waits for ever."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(NOT_REGULAR, "a named pipe, a socket or a device, which is not read", str(path))


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file for reading. Raise an OSError if it is not regular, even if it was replaced just now."""
    check_regular(path)
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")  # a pipe would wait for its other end here
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(NOT_REGULAR, "replaced while it was opened", str(path))
    return file


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open_regular(path) as file:
        return _digest(file)


def _digest(file: io.BufferedReader) -> str:
    """Return the SHA-256 of an open file. Other threads run while a block is read and hashed."""
    found = hashlib.sha256()
    while block := file.read(BLOCK):
        found.update(block)
    return found.hexdigest()


def folder_hash(folder: Path) -> str | None:
    """Return one hash of all files of a ranker's folder; `None` for a hub id."""
    if not folder.is_dir():
        return None
    return hash_of_files(file_hashes(folder))


def hash_of_files(files: dict[str, str]) -> str:
    """Return one hash of the hashes of files."""
    return hashlib.sha256(json.dumps([*map(list, files.items())]).encode()).hexdigest()


def file_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by its path in it."""
    return {path.relative_to(folder).as_posix(): sha256(path) for path in regular_files(folder)}


def sha256_once(path: Path) -> str:
    """Return the SHA-256 of a file, which this process reads again only if it may have changed.

    A change gives a file another time, unless it follows another within moments. So the hash of a file that has just
    changed is not remembered.
    """
    with open_regular(path) as file, _hashing:
        before, now = _identity(file), time.time_ns()
        if before not in _hashes:
            found = _digest(file)
            if _identity(file) != before or now - before[-1] < SETTLED:
                return found
            _hashes[before] = found
    return _hashes[before]


def _identity(file: io.BufferedReader) -> tuple[int, ...]:
    """Return which file is open, its size, and the times of its last changes."""
    about = os.fstat(file.fileno())
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def flush(path: Path) -> None:
    """Make sure that a file, or the names in a folder, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
