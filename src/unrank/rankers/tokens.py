"""Token ids of many texts, and how they become padded tensors.

Texts are spans of one long array of ids: to choose among them, cut them or join them copies nothing. That array is
moved to a device once, and batches are put together there.
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
    """A long array of token ids, and what a device has of it."""

    def __init__(self, array: NDArray[np.int32]) -> None:
        self.array = array
        self._moved: Tensor | None = None

    @cached_property
    def some_negative(self) -> bool:
        return bool((self.array < 0).any())

    def on(self, device: torch.device) -> Tensor:
        if self._moved is None or self._moved.device != device:
            self._moved = torch.from_numpy(self.array).to(device)
        return self._moved


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

    def place(self, matrix: Tensor, column: Ints | int) -> None:
        """Write text i into row i of the matrix, from its column on."""
        device, total = matrix.device, int(self.lengths.sum())
        target = np.arange(len(self)) * matrix.shape[1] + column
        starts, targets, lengths = to_device(np.stack([self.starts, target, self.lengths]), device)
        count = torch.arange(total, device=device)
        text = torch.repeat_interleave(lengths, output_size=total)
        count = count - (lengths.cumsum(0) - lengths)[text]
        matrix.view(-1)[targets[text] + count] = self.ids.on(device)[starts[text] + count].to(matrix.dtype)

    def padded(self, padding: int, most: int, device: torch.device) -> Tensor:
        """One row a text, none wider than `most`. int64 [texts, width]"""
        matrix = torch.full((len(self), width_for(self.lengths, most)), padding, device=device)
        self.place(matrix, 0)
        return matrix


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
