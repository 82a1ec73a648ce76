"""A folder of what the next job would compute anew: the token ids of texts, the scores that a ranker gave.

Nothing in it is needed: what is missing or damaged is made again. It remembers what a ranker thought of removed pairs,
so it exists only where it was asked for, and belongs with the collection that it was made from
(`docs/reference/resume.md`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from typing import Any

import torch
from numpy.typing import NDArray

from unrank.disk import follows
from unrank.engine.checkpoint import Checkpoint
from unrank.errors import UnrankError

ENDING = ".cache"
PARTIAL = ".partial-"
LONG_AGO = 3_600.0
"""Seconds after which nobody is still writing."""


@dataclass(frozen=True)
class Cache:
    """Arrays by name, a file each."""

    folder: Path
    scores: bool = True
    """Whether scores are kept too, or token ids alone."""

    def __post_init__(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise UnrankError(f"{self.folder} is not a folder, so nothing can be kept there: choose another --cache")

    def load(self, name: str) -> dict[str, NDArray[Any]] | None:
        """What was kept under a name; None where there is nothing that can be used."""
        try:
            found = Checkpoint.load(self.folder / f"{name}{ENDING}")
        except (OSError, UnrankError):
            return None
        if found is None or found.facts.get("name") != name:
            return None
        return {key: tensor.numpy() for key, tensor in found.tensors.items()}

    def save(self, name: str, arrays: dict[str, NDArray[Any]], say: Callable[[str], None]) -> None:
        """Keep arrays in place of those that were there; a job that cannot is none the worse."""
        if follows():
            return
        kept = Checkpoint({"name": name}, {key: torch.from_numpy(array) for key, array in arrays.items()})
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._tidy()
            with TemporaryDirectory(prefix=PARTIAL, dir=self.folder, ignore_cleanup_errors=True) as apart:
                kept.save(Path(apart) / name)
                (Path(apart) / name).replace(self.folder / f"{name}{ENDING}")
        except (OSError, UnrankError) as error:
            say(f"nothing is kept in the cache: {error}")

    def _tidy(self) -> None:
        """Take away what jobs that were killed have left."""
        for left in self.folder.glob(f"{PARTIAL}*"):
            if time() - left.stat().st_mtime > LONG_AGO:
                shutil.rmtree(left, ignore_errors=True)
