"""Buckets for packed batches: sizes are rounded up, so that batches of similar size share a shape."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unrank.rankers.tokens import Ints

SMALL = 4_096
"""Number of tokens below which a bucket may be filled with any share of unused tokens."""
MAX_SEQUENCES = 32_768
"""Most texts in one pass: with the filling they are as many as a GPU kernel's grid allows."""
MAX_FILLING = 1.25
"""Largest ratio of a bucket's tokens to the tokens of a batch that is put into it."""


class Bucket(NamedTuple):
    """The shape of a packed batch: number of tokens, number of sequences, and length of the longest."""

    tokens: int
    sequences: int
    max_length: int

    @classmethod
    def around(cls, lengths: Ints) -> Bucket:
        """Return a rounded bucket for texts of these lengths.

        >>> Bucket.around(np.array([100, 120]))
        Bucket(tokens=256, sequences=8, max_length=128)
        >>> Bucket.around(np.full(310, 110)) == Bucket.around(np.full(319, 110))
        True
        """
        tokens, sequences = int(lengths.sum()), len(lengths)
        max_length = max(64, 1 << (int(lengths.max()) - 1).bit_length())
        step, sequences_step = max(32, 1 << tokens.bit_length() >> 4), max(8, 1 << sequences.bit_length() >> 2)
        whole = -(-tokens // step) * step
        while True:
            filled = len(lengths) + -(-(whole - tokens) // max_length)
            sequences = -(-filled // sequences_step) * sequences_step
            if (bucket := cls(whole, sequences, max_length))._fits(lengths):
                return bucket
            whole += step

    def holds(self, lengths: Ints) -> bool:
        """Return whether texts of these lengths fit without much filling."""
        return self._fits(lengths) and self.tokens <= max(SMALL, MAX_FILLING * int(lengths.sum()))

    def _fits(self, lengths: Ints) -> bool:
        more, more_sequences = self.tokens - int(lengths.sum()), self.sequences - len(lengths)
        fills = 0 <= more_sequences <= more <= more_sequences * self.max_length
        return fills and int(lengths.max()) <= self.max_length

    def filled(self, lengths: Ints) -> Ints:
        """Append the lengths of unused sequences, so that all add up to the bucket.

        >>> Bucket(tokens=30, sequences=4, max_length=16).filled(np.array([9, 10])).tolist()
        [9, 10, 6, 5]
        """
        each, more = divmod(self.tokens - int(lengths.sum()), max(1, self.sequences - len(lengths)))
        unused = each + (np.arange(self.sequences - len(lengths)) < more)
        return np.concatenate([lengths, unused]).astype(np.int64)
