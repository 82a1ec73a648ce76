"""The shape of a packed batch: round numbers, so that batches which differ a little are computed alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unrank.rankers.tokens import Ints

SMALL = 4_096
"""So few tokens that waste does not matter."""
MOST_TEXTS = 32_768
"""So many texts may go through an encoder at once: filled up, they are as many as a GPU's kernels can count."""
LARGEST_WASTE = 1.25
"""How many times as many tokens as it needs a batch may be given, to have the shape of another."""


class Shape(NamedTuple):
    """How many tokens of how many texts, and how long the longest may be."""

    tokens: int
    texts: int
    longest: int

    @classmethod
    def around(cls, lengths: Ints) -> Shape:
        """A round shape for texts of these lengths.

        >>> Shape.around(np.array([100, 120]))
        Shape(tokens=256, texts=8, longest=128)
        >>> Shape.around(np.full(310, 110)) == Shape.around(np.full(319, 110))
        True
        """
        tokens, texts = int(lengths.sum()), len(lengths)
        longest = max(64, 1 << (int(lengths.max()) - 1).bit_length())
        step, texts_step = max(32, 1 << tokens.bit_length() >> 4), max(8, 1 << texts.bit_length() >> 2)
        whole = -(-tokens // step) * step
        while True:
            texts = -(-(len(lengths) + -(-(whole - tokens) // longest)) // texts_step) * texts_step
            if (shape := cls(whole, texts, longest))._fits(lengths):
                return shape
            whole += step

    def holds(self, lengths: Ints) -> bool:
        """Whether texts of these lengths can be filled up to it without much waste."""
        return self._fits(lengths) and self.tokens <= max(SMALL, LARGEST_WASTE * int(lengths.sum()))

    def _fits(self, lengths: Ints) -> bool:
        more, more_texts = self.tokens - int(lengths.sum()), self.texts - len(lengths)
        return 0 <= more_texts <= more <= more_texts * self.longest and int(lengths.max()) <= self.longest

    def filled_up(self, lengths: Ints) -> Ints:
        """The lengths of these texts, and of others that nobody reads.

        >>> Shape(tokens=30, texts=4, longest=16).filled_up(np.array([9, 10])).tolist()
        [9, 10, 6, 5]
        """
        each, more = divmod(self.tokens - int(lengths.sum()), max(1, self.texts - len(lengths)))
        others = each + (np.arange(self.texts - len(lengths)) < more)
        return np.concatenate([lengths, others]).astype(np.int64)
