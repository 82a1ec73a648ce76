"""Encodings of many texts, held as they came from the encoder and brought to one width only where they are used.

An encoding is one vector, or one for every token. Chunks of texts of like length leave the encoder padded each to its
own longest; to pad all of them to the longest of all would fill the memory with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unrank.collection.texts import Rows
from unrank.rankers.staging import to_device

NUMBERS_KEPT = 2**30
"""How many numbers of encoded documents are held at once: 4 GiB."""


@dataclass(frozen=True)
class Encodings:
    """The encodings of texts, laid end to end: text i is `vectors[starts[i]:starts[i] + counts[i]]`."""

    vectors: Tensor  # [vectors, width]
    starts: Rows
    counts: Rows
    many: bool
    """Whether an encoding is a vector for every token."""

    @classmethod
    def of(cls, values: list[Tensor], chunks: list[Rows]) -> Encodings:
        """Of each chunk [texts, width] or [texts, tokens, width], at the places that the chunks give their texts."""
        back = np.argsort(np.concatenate(chunks), kind="stable")
        counts = np.repeat([value[0].numel() // value.shape[-1] for value in values], [len(chunk) for chunk in chunks])
        starts = np.cumsum(counts) - counts
        vectors = torch.cat([value.flatten(0, -2) for value in values])
        return cls(vectors, starts[back], counts[back], values[0].dim() == 3)

    @property
    def sizes(self) -> Rows:
        """How many numbers each encoding holds."""
        return self.counts * self.vectors.shape[1]

    def __len__(self) -> int:
        return len(self.starts)

    def __add__(self, other: Encodings) -> Encodings:
        vectors = torch.cat([self.vectors, other.vectors])
        starts = np.concatenate([self.starts, len(self.vectors) + other.starts])
        return Encodings(vectors, starts, np.concatenate([self.counts, other.counts]), self.many)

    def only(self, places: Rows) -> Encodings:
        """Those at these places, and no more memory than they take."""
        counts = self.counts[places]
        starts = np.cumsum(counts) - counts
        source = np.repeat(self.starts[places] - starts, counts) + np.arange(counts.sum())
        return Encodings(self.vectors[to_device(source, self.vectors.device)], starts, counts, self.many)

    def take(self, places: Rows) -> Tensor:
        """The encodings at these places, zeros after the shorter ones. [places, width] or [places, tokens, width]"""
        device = self.vectors.device
        starts = to_device(self.starts[places], device)
        if not self.many:
            return self.vectors[starts]
        counts = to_device(self.counts[places], device).unsqueeze(1)
        column = torch.arange(int(self.counts[places].max()), device=device)
        vectors = self.vectors[starts.unsqueeze(1) + torch.minimum(column, counts - 1)]
        return vectors * (column < counts).unsqueeze(2)


class KeptEncodings:
    """The encodings of texts whose side does not move, by row: each is made once, as far as there is room for it."""

    def __init__(self, texts: int, room: int) -> None:
        self._place = np.full(texts, -1, np.int64)
        self._kept: Encodings | None = None
        self._room = room

    def get(self, rows: Rows, sizes: Rows, encode: Callable[[Rows], Encodings]) -> tuple[Encodings, Rows]:
        """Encodings that hold those of these rows, and the place of each there.

        The rows are in order and each is there once. What there is no room for is encoded each time.
        """
        missing = np.flatnonzero(self._place[rows] < 0)
        fit = missing[np.cumsum(sizes[missing]) <= self._room]
        if len(fit):
            self._keep(rows[fit], encode)
            self._room -= int(sizes[fit].sum())
        known = self._place[rows] >= 0
        if self._kept is None or not known.any():
            return encode(rows), np.arange(len(rows))
        if known.all():
            return self._kept, self._place[rows]
        joined = self._kept.only(self._place[rows[known]]) + encode(rows[~known])
        return joined, np.argsort(np.concatenate([rows[known], rows[~known]]))

    def _keep(self, rows: Rows, encode: Callable[[Rows], Encodings]) -> None:
        with torch.inference_mode(False), torch.no_grad():  # what a check has encoded, a step takes too
            made = encode(rows)
        self._place[rows] = np.arange(len(rows)) + (len(self._kept) if self._kept else 0)
        self._kept = self._kept + made if self._kept else made
