"""Checkpoints and the cache: tensors and facts in one file that is written whole or not at all.

Tensors lie in it as safetensors, facts as JSON in their header, with a hash of both: a file that was cut short or
changed is refused. A checkpoint holds the state of each part of a run under its name. The cache keeps token ids and
scores for the next job. Nothing in it is needed: what is missing or damaged is computed again. It also holds scores of
removed pairs, so it is used only on request and must be deleted with its collection (`docs/reference/resume.md`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unrank.disk import check_regular, flush, follows
from unrank.errors import BadFile, UnrankError

BETWEEN = "/"
ENDING = ".cache"
INDEX = ("rows", "keys")
"""The arrays that say what the others of a file are of. A file has one of them, with a hash of its own."""
PARTIAL = ".partial-"
LONG_AGO = 3_600.0
"""Seconds after which a partial file belongs to a job that was killed."""

Facts = dict[str, Any]
"""A JSON object."""
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Checkpoint:
    """Facts and tensors by name."""

    facts: Facts
    tensors: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Mapping[str, Checkpoint]) -> Checkpoint:
        """Join checkpoints into one, each under its name."""
        tensors = {
            f"{name}{BETWEEN}{key}": value for name, part in parts.items() for key, value in part.tensors.items()
        }
        return cls({name: part.facts for name, part in parts.items()}, tensors)

    def part(self, name: str) -> Checkpoint:
        """Return the checkpoint that `of` joined under a name."""
        return Checkpoint(self.facts[name], self.under(name))

    def under(self, name: str) -> dict[str, Tensor]:
        """Return the tensors under a name, without that name in their keys."""
        start = f"{name}{BETWEEN}"
        return {key.removeprefix(start): value for key, value in self.tensors.items() if key.startswith(start)}

    @property
    def number(self) -> int:
        """A number that two different checkpoints hardly share."""
        return 1 + int(hashlib.sha256(json.dumps(self.facts).encode()).hexdigest()[:12], 16)

    def save(self, path: Path) -> None:
        """Replace the file at `path`, whole or not at all."""
        facts = json.dumps(self.facts)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        partial = path.with_name(f"{path.name}.partial")
        try:
            save_file(tensors, partial, metadata={"facts": facts, "sha256": digest(tensors, facts)})
            flush(partial)
            partial.replace(path)
            flush(path.parent)
        except (OSError, SafetensorError) as error:
            raise UnrankError(f"{path} cannot be written: {error}") from error
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Checkpoint | None:
        """Read a checkpoint; `None` if there is no file."""
        if not path.exists():
            return None
        try:
            check_regular(path)
            with safe_open(path, framework="pt", device="cpu") as file:
                header = file.metadata() or {}
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise _damaged(path) from error
        if header.get("sha256") != digest(tensors, header.get("facts", "")):
            raise _damaged(path)
        return cls(json.loads(header["facts"]), tensors)


class Stateful(Protocol):
    """Something that changes during a run and can be brought back to a saved state."""

    def state(self) -> Checkpoint:
        """Return everything that `restore` needs."""

    def restore(self, state: Checkpoint) -> None:
        """Return to a saved state."""


def digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """Hash a text and tensors: their names, types, shapes and every bit."""
    hashed = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        hashed.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        hashed.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def _index_digest(name: str, tensors: Mapping[str, Tensor]) -> str:
    return digest({key: tensor for key, tensor in tensors.items() if key in INDEX}, name)


def _damaged(path: Path) -> BadFile:
    return BadFile(path, "damaged, so the run cannot continue from it; start again with --no-resume")


@dataclass(frozen=True)
class Cache:
    """A folder of arrays by name, one file each."""

    folder: Path
    scores: bool = True
    """Whether scores are kept as well as token ids."""
    vectors: bool = False
    """Whether the vectors of dual encoders are kept, in place of their scores."""

    def __post_init__(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise UnrankError(f"{self.folder} is not a folder, so nothing can be kept there: choose another --cache")

    def load(self, name: str) -> Arrays | None:
        """Return the arrays kept under a name; `None` if there are none that can be used."""
        try:
            found = Checkpoint.load(self.path(name))
        except (OSError, UnrankError):
            return None
        if found is None or found.facts.get("name") != name:
            return None
        return {key: tensor.numpy() for key, tensor in found.tensors.items()}

    def index(self, name: str) -> Arrays | None:
        """Return the array that says what a file is of, without reading the others; `None` if that is not known."""
        path = self.path(name)
        try:
            check_regular(path)
            with safe_open(path, framework="pt", device="cpu") as file:
                facts = json.loads((file.metadata() or {})["facts"])
                found = {key: file.get_tensor(key).clone() for key in file.keys() if key in INDEX}  # noqa: SIM118
            whole = bool(found) and facts == {"name": name, "index": _index_digest(name, found)}
        except (OSError, SafetensorError, KeyError, ValueError):
            return None
        return {key: tensor.numpy() for key, tensor in found.items()} if whole else None

    def names(self, start: str) -> list[str]:
        """Return the names of the files that begin so."""
        return sorted(path.name.removesuffix(ENDING) for path in self.folder.glob(f"{start}*{ENDING}"))

    def save(self, name: str, arrays: Arrays, say: Callable[[str], None]) -> None:
        """Replace the arrays kept under a name. If that fails, say so and go on."""
        if follows():
            return
        try:
            self.write(name, arrays)
        except (OSError, UnrankError) as error:
            say(f"nothing is kept in the cache: {error}")

    def write(self, name: str, arrays: Arrays) -> None:
        """Replace the arrays kept under a name, whole or not at all."""
        tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
        kept = Checkpoint({"name": name, "index": _index_digest(name, tensors)}, tensors)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._tidy()
        with TemporaryDirectory(prefix=PARTIAL, dir=self.folder, ignore_cleanup_errors=True) as apart:
            kept.save(Path(apart) / name)
            (Path(apart) / name).replace(self.path(name))

    def path(self, name: str) -> Path:
        """Return the file of a name."""
        return self.folder / f"{name}{ENDING}"

    def _tidy(self) -> None:
        """Delete partial files of jobs that were killed."""
        for left in self.folder.glob(f"{PARTIAL}*"):
            if time() - left.stat().st_mtime > LONG_AGO:
                shutil.rmtree(left, ignore_errors=True)
