"""How a document is cut into passages: cores end to end, each with some tokens on either side of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np

from unrank.errors import BadFile, listed
from unrank.rankers.own_folder import DESCRIPTION
from unrank.rankers.tokens import Ints
from unrank.rankers.transformer import PairTemplate

Aggregation = Literal["transformer", "max"]
RANGES = {"longest": (1, 1_000_000), "passage": (1, 1_000_000), "overlap": (0, 1_000_000), "layers": (1, 24)}


@dataclass(frozen=True)
class PassageSettings:
    """What a parade ranker is made with, and keeps."""

    longest: int
    """How many tokens the encoder reads at once: the query, a passage, and what stands around them."""
    passage: int = 50
    overlap: int = 7
    layers: int = 2
    aggregation: Aggregation = "transformer"

    @property
    def window(self) -> int:
        return self.passage + 2 * self.overlap

    @classmethod
    def fitting(cls, template: PairTemplate) -> Self:
        """The usual passages; shorter ones for an encoder so short that they would leave no room for a query."""
        half = (template.longest - template.special) // 2
        overlap = min(cls.overlap, half // 4)
        return cls(template.longest, max(1, min(cls.passage, half - 2 * overlap)), overlap)

    @classmethod
    def read(cls, folder: Path, given: dict[str, Any]) -> Self:
        """The settings that a folder's description gives, each in its range."""
        path, names = folder / DESCRIPTION, [field.name for field in fields(cls)]
        if odd := sorted(set(names) ^ set(given)):
            raise BadFile(path, f"the settings of a parade ranker are {', '.join(names)}; wrong: {listed(odd)}")
        for name, (least, most) in RANGES.items():
            if type(given[name]) is not int or not least <= given[name] <= most:
                raise BadFile(path, f"{name} is a whole number from {least} to {most:,}, not {given[name]!r}")
        if given["aggregation"] not in get_args(Aggregation):
            raise BadFile(path, f"aggregation is {' or '.join(get_args(Aggregation))}, not {given['aggregation']!r}")
        return cls(**given)

    def check(self, folder: Path, template: PairTemplate) -> None:
        """Refuse settings that the folder's encoder cannot serve."""
        if self.longest > template.longest:
            raise BadFile(folder / DESCRIPTION, f"longest is {self.longest}; the encoder reads {template.longest}")
        if self.window + template.special >= self.longest:
            raise BadFile(folder / DESCRIPTION, f"passages of {self.window} tokens leave no room for a query")


def cores(lengths: Ints, passage: int) -> Ints:
    """How many passages documents so long have; an empty one has one, which is empty.

    >>> cores(np.array([0, 50, 51]), 50).tolist()
    [1, 1, 2]
    """
    counts: Ints = np.maximum(1, -(-lengths // passage))
    return counts


def passage_spans(lengths: Ints, settings: PassageSettings) -> tuple[Ints, Ints, Ints]:
    """Of each passage of each document: which document, and its tokens from where to where.

    >>> [array.tolist() for array in passage_spans(np.array([3, 51]), PassageSettings(256))]
    [[0, 1, 1], [0, 0, 43], [3, 51, 51]]
    """
    counts = cores(lengths, settings.passage)
    document = np.repeat(np.arange(len(lengths)), counts)
    core = settings.passage * (np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts))
    ends = np.minimum(core + settings.passage + settings.overlap, lengths[document])
    return document, np.maximum(core - settings.overlap, 0), ends
