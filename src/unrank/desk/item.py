"""What a request names: a query, a document, or a pair of both, with the texts they stand for.

Nothing here needs a collection to be open, so that the ledger answers at once.

>>> Item(document="d3", document_text="Lost  keys").kind
'document'
>>> normalised("Lost\\n  KEYS ")
'lost keys'
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.collection.removal import Removal
    from unrank.collection.texts import Texts

Kind = Literal["query", "document", "pair"]
KINDS: tuple[Kind, ...] = ("query", "document", "pair")
HashKind = Literal["query", "document", "pair", "in pair"]
"""What a hash is of; the last, of a text that stands in a removed pair and may itself stay."""


@dataclass(frozen=True)
class Item:
    """A query, a document, or where both are given the pair of them."""

    query: str | None = None
    document: str | None = None
    query_text: str | None = None
    document_text: str | None = None

    @property
    def kind(self) -> Kind:
        if self.query is not None and self.document is not None:
            return "pair"
        return "query" if self.query is not None else "document"


def normalised(text: str) -> str:
    """The same for texts that differ in letter case, blanks or the way that their characters are encoded."""
    folded = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split())


def items_of(removal: Removal, collection: Collection) -> list[Item]:
    """What a removal names, with its texts."""

    def texts(side: Texts, ids: Sequence[str]) -> list[str]:
        return side.texts(side.rows(ids))

    queries, documents = collection.queries, collection.documents
    sides = (texts(queries, [query for query, _ in removal.pairs]), texts(documents, [id for _, id in removal.pairs]))
    return [
        *map(Item, removal.queries, repeat(None), texts(queries, removal.queries)),
        *map(Item, repeat(None), removal.documents, repeat(None), texts(documents, removal.documents)),
        *(Item(*pair, *both) for pair, *both in zip(removal.pairs, *sides, strict=True)),
    ]


def removal_of(items: Sequence[Item]) -> Removal:
    from unrank.collection.removal import Removal

    return Removal(
        [item.query for item in items if item.kind == "query" and item.query],
        [item.document for item in items if item.kind == "document" and item.document],
        [(item.query, item.document) for item in items if item.query and item.document],
    )


def counts_of(items: Sequence[Item]) -> dict[Kind, int]:
    return {kind: sum(item.kind == kind for item in items) for kind in KINDS}
