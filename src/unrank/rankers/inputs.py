"""What an encoder reads: the tokens of a batch of texts, laid end to end.

Put together without the device, and moved there in one copy. An encoder that wants its texts padded gets them so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrank.rankers.shape import Shape
from unrank.rankers.staging import to_device
from unrank.rankers.tokens import Ints, mask_of, spread, width_for


@dataclass(frozen=True)
class Inputs:
    """Texts with their special tokens."""

    ids: NDArray[np.int32]  # [tokens]
    lengths: Ints  # [texts]
    longest: int
    """Padded they are no wider than this."""
    padding: int
    types: NDArray[np.int32] | None = None  # [tokens]
    some_unseen: bool = False
    """Whether there are tokens that attention leaves out; `~id` stands for one."""

    @property
    def width(self) -> int:
        return width_for(self.lengths, self.longest)

    def packed(self, shape: Shape, device: torch.device) -> Tensor:
        """Filled up to a shape: ids, types where there are any, and where each text starts. int32, end to end"""
        rows = [row for row in (self.ids, self.types) if row is not None]
        whole = np.zeros(len(rows) * shape.tokens + shape.texts + 1, np.int32)
        for place, row in enumerate(rows):
            whole[place * shape.tokens :][: len(row)] = row
        whole[-shape.texts :] = np.cumsum(shape.filled_up(self.lengths))
        return to_device(whole, device)

    def padded(self, device: torch.device) -> dict[str, Tensor]:
        """As libraries name them. int64 [texts, width]"""
        there = mask_of(self.lengths, self.width, device)
        ids = spread(self.ids, there, self.padding)
        if self.some_unseen:
            unseen = ids < 0
            seen = {"input_ids": torch.where(unseen, ~ids, ids), "attention_mask": (there & ~unseen).long()}
            return {**seen, "query_expansion_positions": unseen}
        features = {"input_ids": ids, "attention_mask": there.long()}
        return features if self.types is None else {**features, "token_type_ids": spread(self.types, there, 0)}

    def stand_ins(self, device: torch.device) -> dict[str, Tensor]:
        """For an encoder that is given them packed, and gives back one state a text. int64 [texts, 1]"""
        ones = torch.ones(len(self.lengths), 1, dtype=torch.int64, device=device)
        return {"input_ids": ones, "attention_mask": ones}
