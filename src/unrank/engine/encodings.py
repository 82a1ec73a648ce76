"""Encodings of many texts, held as they came from the encoder and brought to one width only where they are used.

An encoding is one vector, or one for every token. Chunks of texts of like length leave the encoder padded each to its
own longest; to pad all of them to the longest of all would fill the memory with zeros.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from unrank.collection.texts import Rows
from unrank.rankers.staging import to_device


class Encodings:
    """The encodings of texts, by the places that the chunks give them."""

    def __init__(self, values: list[Tensor], chunks: list[Rows]) -> None:
        """values: of each chunk, [texts, width] or [texts, tokens, width]"""
        self._many = values[0].dim() == 3
        self._vectors = torch.cat([value.flatten(0, -2) for value in values])  # [vectors, width]
        back = np.argsort(np.concatenate(chunks), kind="stable")
        counts = np.repeat([value[0].numel() // value.shape[-1] for value in values], [len(chunk) for chunk in chunks])
        self._counts: Rows = counts[back]
        self._starts: Rows = (np.cumsum(counts) - counts)[back]

    @property
    def sizes(self) -> Rows:
        """How many numbers each encoding holds."""
        return self._counts * self._vectors.shape[1]

    def take(self, places: Rows) -> Tensor:
        """The encodings at these places, zeros after the shorter ones. [places, width] or [places, tokens, width]"""
        device = self._vectors.device
        starts = to_device(self._starts[places], device)
        if not self._many:
            return self._vectors[starts]
        counts = to_device(self._counts[places], device).unsqueeze(1)
        column = torch.arange(int(self._counts[places].max()), device=device)
        vectors = self._vectors[starts.unsqueeze(1) + torch.minimum(column, counts - 1)]
        return vectors * (column < counts).unsqueeze(2)
