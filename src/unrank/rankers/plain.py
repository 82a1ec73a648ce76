"""The shortest way to a ranker of one's own: a class with weights, that says how it reads texts and what they score."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from unrank.rankers.base import Ranker
from unrank.rankers.own_folder import read_weights, write_own_folder
from unrank.rankers.tokens import Tokens

__all__ = ["PlainRanker", "Tokens"]


class PlainRanker(Ranker):
    """Made without arguments, on no base, and kept whole in its weights; `tokenize` and `forward` are left to write."""

    default_base = "nothing"

    @classmethod
    def create(cls, base: str | None) -> Self:
        return cls()

    @classmethod
    def load(cls, folder: Path) -> Self:
        ranker = cls()
        read_weights(folder, ranker)
        return ranker

    def save(self, folder: Path) -> None:
        write_own_folder(folder, self.kind, {}, self)
