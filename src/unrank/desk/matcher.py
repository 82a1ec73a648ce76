"""The matcher: recognises removed items in rows of data by their keyed hashes.

It compares ids and normalised texts; in both normalisations while the ledger has hashes of the former one. So a removed
document that comes back under another id is caught, and so are the judgements with that id. Memory grows with what is
caught, not with what passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from unrank.collection.sources.source import Text
from unrank.desk.key import Key

if TYPE_CHECKING:
    from unrank.desk.ledger import Ledger

LONG_QUERY = 9
"""The fewest spaces in a query that is looked for among removed documents."""
SHORT_DOCUMENT = 200
"""The most characters of a document that is looked for among removed queries."""


@dataclass(frozen=True)
class Side:
    """The queries or the documents: hash functions, removed hashes, and ids under which removed texts came back."""

    of_id: Callable[[str], bytes]
    of_text: Callable[[str], bytes]
    of_former_text: Callable[[str], bytes] | None
    """The hash of a text in the former normalisation, if the ledger has such hashes."""
    removed: set[bytes]
    caught: set[str] = field(default_factory=set)
    """Ids of removed texts in this data."""
    other_names: dict[str, list[bytes]] = field(default_factory=dict)
    """Ids of texts in removed pairs, with the hashes of the texts."""

    def has_id(self, id: str) -> bool:
        return id in self.caught or self.of_id(id) in self.removed

    def names(self, id: str) -> list[bytes]:
        return [self.of_id(id), *self.other_names.get(id, ())]

    def hashes(self, text: str) -> list[bytes]:
        if self.of_former_text is None:
            return [self.of_text(text)]
        return [self.of_text(text), self.of_former_text(text)]


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
        of_former: list[Callable[[str], bytes] | None] = [None, None]
        for former in ledger.normalisations()[1:]:
            of_former = [partial(of_text, normalise=former) for of_text in (key.query_text, key.document_text)]
        return cls(
            key,
            Side(key.query_id, key.query_text, of_former[0], ledger.hashes("query")),
            Side(key.document_id, key.document_text, of_former[1], ledger.hashes("document")),
            ledger.hashes("pair"),
            ledger.hashes("in pair"),
        )

    def keeps_query(self, text: Text, others: Sequence[str] = ()) -> bool:
        """Tell whether a query is kept; `others` are further texts of its row."""
        return self._keeps(self.queries, text, others, self._is_removed_document)

    def keeps_document(self, text: Text, others: Sequence[str] = ()) -> bool:
        """Tell whether a document is kept; `others` are further texts of its row."""
        return self._keeps(self.documents, text, others, self._is_removed_query)

    def keeps_ids(self, query: str, document: str) -> bool:
        """Tell whether a judgement, or a line of a run, is kept; the texts must have been checked before."""
        if self.queries.has_id(query) or self.documents.has_id(document):
            return False
        return not self.pairs or not self._has_pair(self.queries.names(query), self.documents.names(document))

    def keeps_texts(self, query: str, documents: Iterable[str]) -> list[bool]:
        """Tell for each document whether its pair with the query is kept; all are texts."""
        asked = self.queries.hashes(query)
        gone = not self.queries.removed.isdisjoint(asked) or self._is_removed_document(query)
        in_pair = not self.in_pairs.isdisjoint(asked)

        def keeps(document: str) -> bool:
            found = self.documents.hashes(document)
            if gone or not self.documents.removed.isdisjoint(found) or self._is_removed_query(document):
                return False
            return not (in_pair and self._has_pair(asked, found))

        return [keeps(document) for document in documents]

    def _is_removed_document(self, query: str) -> bool:
        """Tell whether a query is a removed document. The words of a short one may be a title, which is kept."""
        return query.count(" ") >= LONG_QUERY and not self.documents.removed.isdisjoint(self.documents.hashes(query))

    def _is_removed_query(self, document: str) -> bool:
        """Tell whether a document is a removed query. A long one is none."""
        return len(document) <= SHORT_DOCUMENT and not self.queries.removed.isdisjoint(self.queries.hashes(document))

    def _is_removed(self, other: str) -> bool:
        return not self.documents.removed.isdisjoint(self.documents.hashes(other)) or self._is_removed_query(other)

    def _keeps(self, side: Side, text: Text, others: Sequence[str], is_removed_there: Callable[[str], bool]) -> bool:
        hashes = side.hashes(text.text)
        found = side.of_id(text.id) in side.removed or not side.removed.isdisjoint(hashes)
        if found or is_removed_there(text.text) or (others and any(map(self._is_removed, others))):
            side.caught.add(text.id)
            return False
        if not self.in_pairs.isdisjoint(hashes):
            side.other_names[text.id] = hashes
        return True

    def _has_pair(self, queries: Iterable[bytes], documents: list[bytes]) -> bool:
        return any(self.key.pair(query, document) in self.pairs for query in queries for document in documents)
