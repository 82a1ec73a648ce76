"""A checkpoint: all that a run needs to go on, in one file.

Tensors lie in it as safetensors, everything else as JSON in their header, with a hash of both: a file that was cut
short or changed is refused. Several parts of a run have a state; a checkpoint holds the state of each under its name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unrank.disk import flush
from unrank.errors import BadFile, UnrankError

BETWEEN = "/"


@dataclass(frozen=True)
class Checkpoint:
    """Facts and tensors by name."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Mapping[str, Checkpoint]) -> Checkpoint:
        """One of several."""
        tensors = {
            f"{name}{BETWEEN}{key}": value for name, part in parts.items() for key, value in part.tensors.items()
        }
        return cls({name: part.facts for name, part in parts.items()}, tensors)

    def part(self, name: str) -> Checkpoint:
        """What `of` put together under a name."""
        return Checkpoint(self.facts[name], self.under(name))

    def under(self, name: str) -> dict[str, Tensor]:
        """The tensors whose names begin so."""
        start = f"{name}{BETWEEN}"
        return {key.removeprefix(start): value for key, value in self.tensors.items() if key.startswith(start)}

    @property
    def number(self) -> int:
        """One that another checkpoint of a run is not likely to have."""
        return 1 + int(hashlib.sha256(json.dumps(self.facts).encode()).hexdigest()[:12], 16)

    def save(self, path: Path) -> None:
        """Write it in place of the one before, whole or not at all."""
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
        """The one that a file holds; None where there is no file."""
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                header = file.metadata() or {}
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise _damaged(path) from error
        if header.get("sha256") != digest(tensors, header.get("facts", "")):
            raise _damaged(path)
        return cls(json.loads(header["facts"]), tensors)


class Part(Protocol):
    """Something that changes while a run goes on."""

    def state(self) -> Checkpoint:
        """All that it needs to be as it is now."""

    def restore(self, state: Checkpoint) -> None:
        """Be as it was."""


def digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """One hash of a text and of tensors: their names, types, shapes and every bit."""
    hashed = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        hashed.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        hashed.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def _damaged(path: Path) -> BadFile:
    return BadFile(path, "damaged, so the run cannot go on from there; begin anew with --no-resume")
