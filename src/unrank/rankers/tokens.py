"""Token ids of many texts, laid end to end, and how they become padded tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
WIDTH_STEP = 8


@dataclass(frozen=True)
class Tokens:
    """Texts as token ids. Text i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: NDArray[np.int32]
    offsets: Ints  # [texts + 1]

    @classmethod
    def of(cls, texts: Iterable[Sequence[int] | NDArray[np.integer]]) -> Tokens:
        arrays = [np.asarray(text, np.int32) for text in texts]
        offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        return cls(np.concatenate([np.empty(0, np.int32), *arrays]), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def __add__(self, other: Tokens) -> Tokens:
        offsets = np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]])
        return Tokens(np.concatenate([self.ids, other.ids]), offsets)

    def take(self, places: Ints) -> Tokens:
        return self.spans(places, 0, self.lengths[places])

    def cut(self, lengths: Ints) -> Tokens:
        """Text i at most `lengths[i]` long."""
        return self.spans(np.arange(len(self)), 0, np.minimum(self.lengths, lengths))

    def spans(self, places: Ints, starts: Ints | int, ends: Ints) -> Tokens:
        """Of the text at each place, its tokens from start to end.

        >>> Tokens.of([[1, 2, 3], [4, 5]]).spans(np.array([1, 0]), np.array([0, 1]), np.array([1, 3])).ids.tolist()
        [4, 2, 3]
        """
        kept = ends - starts
        offsets = np.concatenate([[0], np.cumsum(kept)])
        source = np.repeat(self.offsets[places] + starts - offsets[:-1], kept) + np.arange(offsets[-1])
        return Tokens(self.ids[source], offsets)

    def place(self, matrix: NDArray[np.int64], column: Ints | int) -> None:
        """Write text i into row i of the matrix, from its column on."""
        start = np.arange(len(self)) * matrix.shape[1] + column
        target = np.repeat(start - self.offsets[:-1], self.lengths) + np.arange(self.offsets[-1])
        matrix.reshape(-1)[target] = self.ids

    def padded(self, padding: int, most: int) -> NDArray[np.int64]:
        """One row a text, none wider than `most`. [texts, width]"""
        matrix = np.full((len(self), width_for(self.lengths, most)), padding, np.int64)
        self.place(matrix, 0)
        return matrix


def mask_of(lengths: Ints, width: int) -> NDArray[np.int64]:
    """1 where there is a token, 0 where there is padding. [texts, width]"""
    return (np.arange(width) < lengths[:, None]).astype(np.int64)


def width_for(lengths: Ints, most: int) -> int:
    """The longest length, rounded up so that few shapes occur and memory is used again.

    >>> width_for(np.array([3, 18]), 64), width_for(np.array([63]), 50), width_for(np.array([], np.int64), 64)
    (24, 63, 8)
    """
    longest = int(lengths.max(initial=1))
    return max(longest, min(most, -(-longest // WIDTH_STEP) * WIDTH_STEP))
