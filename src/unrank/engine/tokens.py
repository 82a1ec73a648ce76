"""The token store: every text that a job needs is tokenised once, when it is first needed.

Where a side of a ranker does not move, it keeps the encodings of that side as well.
"""

from __future__ import annotations

import numpy as np

from unrank.collection.collection import Collection, Pairs
from unrank.collection.texts import Rows, Texts
from unrank.engine.encodings import NUMBERS_KEPT, KeptEncodings
from unrank.rankers.base import Ranker, Role
from unrank.rankers.tokens import Ints, Tokens


class TokenStore:
    """The tokens of a collection's texts, for rankers that tokenise alike."""

    def __init__(self, ranker: Ranker, collection: Collection) -> None:
        self._sides = {
            "query": _Side(ranker, collection.queries, "query"),
            "document": _Side(ranker, collection.documents, "document"),
        }
        self._kept: tuple[Role, tuple[Ranker, ...], KeptEncodings] | None = None

    def get(self, rows: Rows, role: Role) -> Tokens:
        return self._sides[role].get(rows)

    def lengths(self, rows: Rows, role: Role) -> Ints:
        return self._sides[role].lengths(rows)

    def read(self, pairs: Pairs) -> None:
        """Tokenise at once what these pairs need and has not been tokenised."""
        self.lengths(pairs[:, 0], "query")
        self.lengths(pairs[:, 1], "document")

    def keep(self, role: Role, *rankers: Ranker) -> None:
        """From now on encode each text of a side once for these rankers, which encode it alike and never otherwise."""
        self._kept = role, rankers, KeptEncodings(len(self._sides[role]), NUMBERS_KEPT)

    def keeps_for(self, ranker: Ranker) -> bool:
        """Whether anything is kept for a ranker."""
        return self._kept is not None and any(ranker is known for known in self._kept[1])

    def kept(self, ranker: Ranker, role: Role) -> KeptEncodings | None:
        """What is kept of a side for a ranker; nothing for one whose side moves."""
        if self._kept is None or not self.keeps_for(ranker):
            return None
        side, _, encodings = self._kept
        return encodings if side == role else None


class _Side:
    def __init__(self, ranker: Ranker, texts: Texts, role: Role) -> None:
        self._ranker, self._texts, self._role = ranker, texts, role
        self._place = np.full(len(texts), -1, np.int32)
        self._tokens = Tokens.of([])

    def __len__(self) -> int:
        return len(self._place)

    def get(self, rows: Rows) -> Tokens:
        places = self._places(rows)
        return self._tokens.take(places)

    def lengths(self, rows: Rows) -> Ints:
        places = self._places(rows)
        return self._tokens.lengths[places]

    def _places(self, rows: Rows) -> Ints:
        missing = np.unique(rows[self._place[rows] < 0])
        if len(missing):
            self._place[missing] = len(self._tokens) + np.arange(len(missing))
            self._tokens = self._tokens + self._ranker.tokenize(self._texts.texts(missing), self._role)
        return self._place[rows].astype(np.int64)
