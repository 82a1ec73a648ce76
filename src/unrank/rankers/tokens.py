"""Token ids of many texts, and how they become padded tensors.

Texts are spans of one long array of ids: to choose among them or cut them copies nothing. Those of a batch are laid end
to end before they are moved to a device, so that few and small copies do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrank.rankers.staging import to_device

Ints = NDArray[np.int64]
WIDTH_STEP = 8


class Ids:
    """A long array of token ids."""

    def __init__(self, array: NDArray[np.int32]) -> None:
        self.array = array

    @cached_property
    def some_negative(self) -> bool:
        return bool((self.array < 0).any())


@dataclass(frozen=True)
class Tokens:
    """Texts as token ids. Text i is `ids.array[starts[i]:starts[i] + lengths[i]]`."""

    ids: Ids
    starts: Ints  # [texts]
    lengths: Ints  # [texts]

    @classmethod
    def of(cls, texts: Iterable[Sequence[int] | NDArray[np.integer]]) -> Tokens:
        arrays = [np.asarray(text, np.int32) for text in texts]
        lengths = np.array([len(array) for array in arrays], np.int64)
        ids = np.concatenate([np.empty(0, np.int32), *arrays])
        return cls(Ids(ids), np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, text: int) -> NDArray[np.int32]:
        return self.ids.array[self.starts[text] : self.starts[text] + self.lengths[text]]

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        return (self[text] for text in range(len(self)))

    def __add__(self, other: Tokens) -> Tokens:
        ids = Ids(np.concatenate([self.ids.array, other.ids.array]))
        starts = np.concatenate([self.starts, len(self.ids.array) + other.starts])
        return Tokens(ids, starts, np.concatenate([self.lengths, other.lengths]))

    def take(self, places: Ints) -> Tokens:
        return Tokens(self.ids, self.starts[places], self.lengths[places])

    def cut(self, lengths: Ints) -> Tokens:
        """Text i at most `lengths[i]` long."""
        return Tokens(self.ids, self.starts, np.minimum(self.lengths, lengths))

    def spans(self, places: Ints, starts: Ints, ends: Ints) -> Tokens:
        """Of the text at each place, its tokens from start to end.

        >>> spans = Tokens.of([[1, 2, 3], [4, 5]]).spans(np.array([1, 0]), np.array([0, 1]), np.array([1, 3]))
        >>> [text.tolist() for text in spans]
        [[4], [2, 3]]
        """
        return Tokens(self.ids, self.starts[places] + starts, ends - starts)

    def end_to_end(self) -> NDArray[np.int32]:
        """The ids of all texts, one text after another. [tokens]"""
        return self.with_room(np.zeros_like(self.lengths), self.lengths)

    def with_room(self, before: Ints, lengths: Ints) -> NDArray[np.int32]:
        """Stretches so long, one after another: the text at the same place stands in each, after so many ids that are
        to be written over, as are those after it. [tokens]"""
        if not len(self.ids.array):
            return np.zeros(lengths.sum(), np.int32)
        return self.ids.array.take(places(self.starts - before, lengths), mode="clip")

    def padded(self, padding: int, most: int, device: torch.device) -> Tensor:
        """One row a text, none wider than `most`. int64 [texts, width]"""
        return spread(self.end_to_end(), mask_of(self.lengths, width_for(self.lengths, most), device), padding)


def places(starts: Ints, lengths: Ints) -> Ints:
    """The places of spans that start here and are so long, one span after another.

    >>> places(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    each = np.repeat(starts - ends + lengths, lengths)
    each += np.arange(len(each))
    return each


def spread(tokens: NDArray[np.int32], mask: Tensor, padding: int) -> Tensor:
    """What stands end to end, where the mask is True, row after row; padding elsewhere. int64 [texts, width]"""
    rows = torch.full(mask.shape, padding, device=mask.device)
    return rows.masked_scatter_(mask, to_device(tokens, mask.device).long())


def mask_of(lengths: Ints, width: int, device: torch.device) -> Tensor:
    """True where there is a token, False where there is padding. [texts, width]"""
    return torch.arange(width, device=device) < to_device(lengths, device).unsqueeze(1)


def width_for(lengths: Ints, most: int) -> int:
    """The longest length, rounded up so that few shapes occur and memory is used again.

    >>> width_for(np.array([3, 18]), 64), width_for(np.array([63]), 50), width_for(np.array([], np.int64), 64)
    (24, 63, 8)
    """
    longest = int(lengths.max(initial=1))
    return max(longest, min(most, -(-longest // WIDTH_STEP) * WIDTH_STEP))
