"""The matcher: recognises removed items in rows of data by their keyed hashes.

It compares ids and normalised texts. So a removed document that comes back under another id is caught, and so are the
judgements with that id. Memory grows with what is caught, not with what passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unrank.collection.sources.source import Text
from unrank.desk.key import Key

if TYPE_CHECKING:
    from unrank.desk.ledger import Ledger


@dataclass(frozen=True)
class Side:
    """The queries or the documents: hash functions, removed hashes, and ids under which removed texts came back."""

    of_id: Callable[[str], bytes]
    of_text: Callable[[str], bytes]
    removed: set[bytes]
    caught: set[str] = field(default_factory=set)
    """Ids of removed texts in this data."""
    other_names: dict[str, bytes] = field(default_factory=dict)
    """Ids of texts in removed pairs, with the hashes of the texts."""

    def has_id(self, id: str) -> bool:
        return id in self.caught or self.of_id(id) in self.removed

    def names(self, id: str) -> list[bytes]:
        return [self.of_id(id), *([self.other_names[id]] if id in self.other_names else [])]


@dataclass(frozen=True)
class Matcher:
    """The hashes of everything that must not pass."""

    key: Key
    queries: Side
    documents: Side
    pairs: set[bytes]
    in_pairs: set[bytes]
    """Hashes of texts in removed pairs."""

    @classmethod
    def of(cls, ledger: Ledger, key: Key) -> Matcher:
        return cls(
            key,
            Side(key.query_id, key.query_text, ledger.hashes("query")),
            Side(key.document_id, key.document_text, ledger.hashes("document")),
            ledger.hashes("pair"),
            ledger.hashes("in pair"),
        )

    def keeps_query(self, text: Text) -> bool:
        return self._keeps(self.queries, text)

    def keeps_document(self, text: Text) -> bool:
        return self._keeps(self.documents, text)

    def keeps_ids(self, query: str, document: str) -> bool:
        """Tell whether a judgement, or a line of a run, is kept; the texts must have been checked before."""
        if self.queries.has_id(query) or self.documents.has_id(document):
            return False
        return not self.pairs or not self._has_pair(self.queries.names(query), self.documents.names(document))

    def keeps_texts(self, query: str, documents: Iterable[str]) -> list[bool]:
        """Tell for each document whether its pair with the query is kept; all are texts."""
        asked = self.queries.of_text(query)
        gone, in_pair = asked in self.queries.removed, asked in self.in_pairs

        def keeps(document: str) -> bool:
            found = self.documents.of_text(document)
            if gone or found in self.documents.removed:
                return False
            return not (in_pair and found in self.in_pairs and self._has_pair([asked], [found]))

        return [keeps(document) for document in documents]

    def _keeps(self, side: Side, text: Text) -> bool:
        hashed = side.of_text(text.text)
        if hashed in side.removed or side.of_id(text.id) in side.removed:
            side.caught.add(text.id)
            return False
        if hashed in self.in_pairs:
            side.other_names[text.id] = hashed
        return True

    def _has_pair(self, queries: Iterable[bytes], documents: list[bytes]) -> bool:
        return any(self.key.pair(query, document) in self.pairs for query in queries for document in documents)
