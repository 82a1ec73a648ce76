"""The owner's state folder: the owner's key, and facts about files that this machine has seen.

It is `$UNRANK_STATE`, else `unrank` below `$XDG_STATE_HOME`, else `~/.local/state/unrank`. Nothing in it ships with a
ranker. A machine without a place for it works too: it has no key, and remembers nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unrank.secret import make_secret, read_secret

KEY = "owner.key"
KEPT = "kept"
"""The folder, in the state folder, of what requests need again."""
BLOCK_BYTES = 64
"""The block of SHA-256, to which HMAC pads a key."""


@dataclass(frozen=True)
class OwnerKey:
    """The owner's secret. Its hashes can be neither read nor guessed without it."""

    secret: bytes

    def mac(self, purpose: str, message: bytes) -> str:
        """Return a keyed hash of a message, in hex. Hashes for different purposes are unrelated."""
        return hmac.digest(self._derived(purpose), message, "sha256").hex()

    def macs(self, purpose: str) -> Callable[[bytes], str]:
        """Return `mac` for one purpose, faster: millions of messages share the inner and outer hash of HMAC."""
        padded = self._derived(purpose).ljust(BLOCK_BYTES, b"\0")
        starts = [hashlib.sha256(bytes(byte ^ mask for byte in padded)) for mask in (0x36, 0x5C)]

        def mac(message: bytes) -> str:
            inner, outer = (start.copy() for start in starts)
            inner.update(message)
            outer.update(inner.digest())
            return outer.hexdigest()

        return mac

    def _derived(self, purpose: str) -> bytes:
        return hmac.digest(self.secret, f"unrank owner: {purpose}".encode(), "sha256")

    @property
    def name(self) -> str:
        """A short public name of the key, by which a record says which key it was made with."""
        return self.mac("name", b"")[:16]


def state_folder() -> Path | None:
    """Return the place of the owner's state, which may not exist yet; `None` if there is no home directory."""
    if given := os.environ.get("UNRANK_STATE"):
        return Path(given)
    if shared := os.environ.get("XDG_STATE_HOME"):
        return Path(shared) / "unrank"
    try:
        return Path("~/.local/state/unrank").expanduser()
    except RuntimeError:
        return None


def owner_key(make: bool = False) -> OwnerKey | None:
    """Return the owner's key; `None` if there is none, and none is to be made or none can be."""
    folder = state_folder()
    if folder is None:
        return None
    path = folder / KEY
    if make and not path.exists():
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            make_secret(path)
    if not path.exists():
        return None
    return OwnerKey(read_secret(path, "not an owner's key: restore it from a backup"))


def remember(kind: str, digest: str, value: str = "") -> bool:
    """Keep a fact about the files with this digest; return whether it could be kept. The last value counts."""
    folder = state_folder()
    return folder is not None and _write(_fact(folder, kind, digest), value)


def _write(path: Path, value: str) -> bool:
    """Write a fact, whole or not at all; return whether it could be written."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial.write_text(value, encoding="utf-8")
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink()
        return False
    return True


def recall(kind: str, digest: str) -> str | None:
    """Return what was remembered about the files with this digest; `None` if nothing was."""
    folder = state_folder()
    if folder is None:
        return None
    try:
        return _fact(folder, kind, digest).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def recall_all(kind: str) -> list[str]:
    """Return everything that was remembered under a kind."""
    folder = state_folder()
    found = []
    for fact in sorted((folder / kind).glob("*")) if folder is not None else []:
        with suppress(OSError, UnicodeDecodeError):
            found.append(fact.read_text(encoding="utf-8"))
    return found


def change_facts(kind: str, change: Callable[[str], str | None]) -> list[Path]:
    """Rewrite everything that was remembered under a kind; return the files for which that failed.

    `change` returns the new value of a fact, and `None` for one that it cannot read.
    """
    folder = state_folder()
    failed = []
    for path in sorted((folder / kind).glob("*")) if folder is not None else []:
        try:
            before = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            failed.append(path)
            continue
        after = change(before)
        if after is None or (after != before and not _write(path, after)):
            failed.append(path)
    return failed


def fact_path(kind: str, digest: str) -> Path | None:
    """Return the file of a fact, which may not exist; `None` if there is no state folder."""
    folder = state_folder()
    return None if folder is None else _fact(folder, kind, digest)


def forget_kind(kind: str) -> int:
    """Delete everything that was remembered under a kind; return the number of facts."""
    folder = state_folder()
    facts = list((folder / kind).glob("*")) if folder is not None else []
    for fact in facts:
        fact.unlink(missing_ok=True)
    return len(facts)


def kept_folders() -> list[Path]:
    """Return the folders of the kept state (`engine/kept.py`), one for each collection."""
    folder = state_folder()
    return sorted((folder / KEPT).glob("*")) if folder is not None else []


def _fact(folder: Path, kind: str, digest: str) -> Path:
    """Return the file of a fact. Any digest is hashed once more, so that none of them is a path."""
    return folder / kind / hashlib.sha256(digest.encode()).hexdigest()
