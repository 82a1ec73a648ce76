"""The files that a ranker would be saved as, known without saving it: those it was loaded from, if unchanged.

To know under what name its scores are kept, a request would otherwise write and hash all weights of the original and of
each proxy once more.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from unrank.disk import regular_files, sha256_once
from unrank.errors import UnrankError
from unrank.rankers.base import Ranker
from unrank.record import HISTORY, MODEL_CARD, RECORD, Record, versions

_loaded: WeakKeyDictionary[Ranker, tuple[list[int], dict[str, str]]] = WeakKeyDictionary()
"""By ranker, how often its weights had been changed when it was loaded, and the hashes of its files."""


def note_loaded(ranker: Ranker, folder: Path) -> None:
    """Remember the files of a ranker that was just loaded, if today's versions wrote them and nobody changed them."""
    with suppress(UnrankError, OSError):
        record = Record.read(folder)
        if record is None or record.adapter is not None or record.versions != versions():
            return
        files = {path.relative_to(folder).as_posix(): path for path in regular_files(folder)}
        for name in (RECORD, HISTORY, MODEL_CARD):
            files.pop(name, None)
        if files.keys() == record.hashes.keys():
            hashes = {name: sha256_once(path) for name, path in files.items()}
            if hashes == record.hashes:
                _loaded[ranker] = _changes(ranker), hashes


def saved_files(ranker: Ranker) -> dict[str, str] | None:
    """Return the hashes of the files that a ranker would be saved as, by name; `None` if that is not known.

    A copy is not known, nor is a ranker whose weights were changed.
    """
    changes, hashes = _loaded.get(ranker, (None, None))
    return hashes if changes == _changes(ranker) else None


def _changes(ranker: Ranker) -> list[int]:
    return [weight._version for weight in ranker.state_dict(keep_vars=True).values()]
