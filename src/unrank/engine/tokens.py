"""The token store: every text that a job needs is tokenised once, when it is first needed.

With a cache, what earlier jobs have read need not be read again. Where a side of a ranker does not move, it keeps the
encodings of that side as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unrank.collection.collection import Collection, Pairs
from unrank.collection.texts import Rows, Texts
from unrank.engine.cache import Cache
from unrank.engine.encodings import NUMBERS_KEPT, KeptEncodings
from unrank.rankers.base import Ranker, Role
from unrank.rankers.tokens import Ids, Ints, Tokens

WORTH_KEEPING = 0.05
"""By how much the tokens of a side must have grown to be kept anew."""


class TokenStore:
    """The tokens of a collection's texts, for rankers that tokenise alike."""

    def __init__(self, ranker: Ranker, collection: Collection, cache: Cache | None = None) -> None:
        self._cache = cache
        self._sides: dict[Role, _Side] = {
            "query": _Side(ranker, collection.queries, "query"),
            "document": _Side(ranker, collection.documents, "document"),
        }
        self._names = {role: _name(ranker, role, collection) for role in self._sides} if cache else {}
        for role, name in self._names.items():
            if cache and name and (found := cache.load(name)):
                self._sides[role].take_up(found)
        self._kept: tuple[Role, tuple[Ranker, ...], KeptEncodings] | None = None

    def get(self, rows: Rows, role: Role) -> Tokens:
        return self._sides[role].get(rows)

    def lengths(self, rows: Rows, role: Role) -> Ints:
        return self._sides[role].lengths(rows)

    def read(self, pairs: Pairs) -> None:
        """Tokenise at once what these pairs need and has not been tokenised."""
        self.lengths(pairs[:, 0], "query")
        self.lengths(pairs[:, 1], "document")

    def save(self, say: Callable[[str], None]) -> None:
        """Leave in the cache, if there is one, what has been read."""
        for role, name in self._names.items():
            if self._cache and name and self._sides[role].has_grown:
                self._cache.save(name, self._sides[role].arrays(), say)

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


_NOTHING = np.empty(0, np.int64)


def _name(ranker: Ranker, role: Role, collection: Collection) -> str | None:
    """What the tokens of a side are kept under."""
    way = ranker.reads(role)
    return way and f"tokens-{role}-{collection.fingerprint[:16]}-{way[:16]}"


class _Side:
    def __init__(self, ranker: Ranker, texts: Texts, role: Role) -> None:
        self._ranker, self._texts, self._role = ranker, texts, role
        self._place = np.full(len(texts), -1, np.int32)
        self._tokens = Tokens.of([])
        self._known = 0

    @property
    def has_grown(self) -> bool:
        return len(self._tokens) > (1 + WORTH_KEEPING) * self._known

    def arrays(self) -> dict[str, Any]:
        """All that was read: which texts, and the ids of each, one after another."""
        rows = np.flatnonzero(self._place >= 0)
        read = self._tokens.take(self._place[rows].astype(np.int64))
        return {"rows": rows, "lengths": read.lengths, "ids": np.concatenate([np.empty(0, np.int32), *read])}

    def take_up(self, arrays: Mapping[str, Any]) -> None:
        """Begin with what another job has read, if it can be that."""
        rows, lengths, ids = (arrays.get(name, _NOTHING) for name in ("rows", "lengths", "ids"))
        whole = len(rows) == len(lengths) and lengths.sum() == len(ids) and (lengths >= 0).all()
        if whole and len(rows) and (np.diff(rows) > 0).all() and rows[0] >= 0 and rows[-1] < len(self._place):
            self._place[rows] = np.arange(len(rows))
            self._tokens = Tokens(Ids(ids), np.cumsum(lengths) - lengths, lengths)
            self._known = len(rows)

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
