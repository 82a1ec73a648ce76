"""Secrets: 32 random bytes, each in a file of its own that only its owner may read."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from unrank.disk import open_regular
from unrank.errors import BadFile

SECRET_BYTES = 32
LONGEST = 1_000
"""The most bytes of a file that are read."""
READABLE_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_secret(path: Path) -> None:
    """Write a new secret, unless there is one. Of several processes one succeeds."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    partial.unlink(missing_ok=True)
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(SECRET_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            path.hardlink_to(partial)
    finally:
        partial.unlink(missing_ok=True)


def read_secret(path: Path, otherwise: str) -> bytes:
    """Read a secret. `otherwise` is the message for a file that holds none; a missing file is a FileNotFoundError."""
    try:
        with open_regular(path) as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read(LONGEST).decode("ascii").strip()
        secret = bytes.fromhex(text)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
    except ValueError as error:
        raise BadFile(path, otherwise) from error
    if len(secret) != SECRET_BYTES:
        raise BadFile(path, otherwise)
    if mode & READABLE_BY_OTHERS:
        raise BadFile(path, f"others may read the key (mode {stat.S_IMODE(mode):o}): run chmod 600 on it first")
    return secret
