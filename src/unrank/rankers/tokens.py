"""Token ids of many texts, and padded tensors of them.

Texts are spans of one long array of ids, so selecting or cutting texts copies nothing. The ids of a batch are
concatenated before they are copied to a device, so that copies are few and small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrank.rankers.fast.pinned_memory import to_device

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

    @classmethod
    def joined(cls, parts: Sequence[Tokens]) -> Tokens:
        """Return the texts of all parts, in order.

        >>> [text.tolist() for text in Tokens.joined([Tokens.of([[1, 2]]), Tokens.of([]), Tokens.of([[3], [4]])])]
        [[1, 2], [3], [4]]
        """
        before = np.cumsum([0, *(len(part.ids.array) for part in parts)])
        starts = np.concatenate([first + part.starts for first, part in zip(before, parts, strict=False)])
        ids = Ids(np.concatenate([part.ids.array for part in parts]))
        return cls(ids, starts, np.concatenate([part.lengths for part in parts]))

    def __add__(self, other: Tokens) -> Tokens:
        return self.joined([self, other])

    def take(self, texts: Ints) -> Tokens:
        return Tokens(self.ids, self.starts[texts], self.lengths[texts])

    def cut(self, lengths: Ints) -> Tokens:
        """Return the texts cut so that text i has at most `lengths[i]` tokens."""
        return Tokens(self.ids, self.starts, np.minimum(self.lengths, lengths))

    def spans(self, texts: Ints, starts: Ints, ends: Ints) -> Tokens:
        """Return tokens `starts[i]` to `ends[i]` of text `texts[i]`.

        >>> spans = Tokens.of([[1, 2, 3], [4, 5]]).spans(np.array([1, 0]), np.array([0, 1]), np.array([1, 3]))
        >>> [text.tolist() for text in spans]
        [[4], [2, 3]]
        """
        return Tokens(self.ids, self.starts[texts] + starts, ends - starts)

    def concatenated(self) -> NDArray[np.int32]:
        """Return the ids of all texts, one text after another. [tokens]"""
        return self.with_margins(np.zeros_like(self.lengths), self.lengths)

    def with_margins(self, before: Ints, lengths: Ints) -> NDArray[np.int32]:
        """Return rows of `lengths[i]` ids, one after another, with text i after `before[i]` ids. [tokens]

        The ids before and after a text are arbitrary: the caller writes over them.
        """
        if not len(self.ids.array):
            return np.zeros(lengths.sum(), np.int32)
        return self.ids.array.take(span_indices(self.starts - before, lengths), mode="clip")

    def padded(self, padding: int, most: int, device: torch.device) -> Tensor:
        """Return one row per text; the width is rounded up, but not above `most`. int64 [texts, width]"""
        mask = token_mask(self.lengths, padded_width(self.lengths, most), device)
        return pad_rows(self.concatenated(), mask, padding)


def span_indices(starts: Ints, lengths: Ints) -> Ints:
    """Return the indices of spans, one span after another.

    >>> span_indices(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    each = np.repeat(starts - ends + lengths, lengths)
    each += np.arange(len(each))
    return each


def pad_rows(tokens: NDArray[np.int32], mask: Tensor, padding: int) -> Tensor:
    """Write concatenated ids to where the mask is True, row by row, and padding elsewhere. int64 [texts, width]"""
    rows = torch.full(mask.shape, padding, device=mask.device)
    return rows.masked_scatter_(mask, to_device(tokens, mask.device).long())


def token_mask(lengths: Ints, width: int, device: torch.device) -> Tensor:
    """Return True for each token and False for padding. [texts, width]"""
    return torch.arange(width, device=device) < to_device(lengths, device).unsqueeze(1)


def padded_width(lengths: Ints, most: int) -> int:
    """Return the longest length, rounded up so that few shapes occur and memory is reused.

    >>> padded_width(np.array([3, 18]), 64), padded_width(np.array([63]), 50), padded_width(np.array([], np.int64), 64)
    (24, 63, 8)
    """
    longest = int(lengths.max(initial=1))
    return max(longest, min(most, -(-longest // WIDTH_STEP) * WIDTH_STEP))
