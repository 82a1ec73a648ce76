"""The anchor file: the first original's scores of some kept pairs, and the places of what was forgotten since.

Later requests hold to it, not to what the run before left. It is in the owner's state folder and ships with no ranker.
Ids are in it only as hashes under the owner's key. What a request removes is erased from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from unrank.collection.removal import Removal
from unrank.owner import OwnerKey, change_facts, fact_path, owner_key, recall, remember
from unrank.parse import WrongValue, parse

KIND = "anchors"
"""The kind of the fact, in the owner's state folder, that is an anchor file."""
DIGITS = 32
"""The length of a hash in the file."""


class IdHashes:
    """Hashes of ids under the owner's key."""

    def __init__(self, key: OwnerKey) -> None:
        self.key = key.name
        self._hashes = {what: key.macs(f"anchor {what}") for what in ("query", "document", "pair")}

    def query(self, id: str) -> str:
        return self._hashes["query"](id.encode())[:DIGITS]

    def document(self, id: str) -> str:
        return self._hashes["document"](id.encode())[:DIGITS]

    def pair(self, query: str, document: str) -> str:
        return self._hashes["pair"](json.dumps([query, document]).encode())[:DIGITS]


@dataclass(frozen=True)
class AnchorList:
    """The first original's scores in the list of one query, by the hashes of documents."""

    kept: Mapping[str, float]
    negatives: Mapping[str, float]

    def without(self, documents: set[str]) -> AnchorList:
        kept, negatives = (
            {document: score for document, score in scores.items() if document not in documents}
            for scores in (self.kept, self.negatives)
        )
        return AnchorList(kept, negatives)


@dataclass(frozen=True)
class AnchorFile:
    """The content of an anchor file."""

    key: str
    """The public name of the key that its ids are hashed with."""
    lists: Mapping[str, AnchorList]
    """By the hashes of queries."""
    places: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """For each request, by its name in the record, the margin of the place of each pair, by the hashes of pairs."""
    ranks: Mapping[str, int] = field(default_factory=dict)
    """The rank of the place of each pair. Files of version 0.3 and before have none."""

    @classmethod
    def read(cls, lineage: str, key: OwnerKey | None) -> AnchorFile | None:
        """Return the file of a first original; `None` if there is none that this key can read."""
        return cls._parsed(recall(KIND, lineage) or "", key)

    @classmethod
    def _parsed(cls, text: str, key: OwnerKey | None) -> AnchorFile | None:
        try:
            found: AnchorFile = parse(cls, json.loads(text))
        except (ValueError, WrongValue, RecursionError):
            return None
        return found if key is not None and found.key == key.name else None

    def write(self, lineage: str) -> bool:
        """Replace the file; return whether that was possible."""
        return remember(KIND, lineage, self._written())

    def _written(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    def without(self, removal: Removal, hashes: IdHashes) -> AnchorFile:
        """Return the file without what a removal names: queries, documents and pairs, also as negatives."""
        queries, documents = set(map(hashes.query, removal.queries)), set(map(hashes.document, removal.documents))
        of_query: dict[str, set[str]] = {}
        for query, document in removal.pairs:
            of_query.setdefault(hashes.query(query), set()).add(hashes.document(document))
        left = {
            query: of.without(documents | of_query.get(query, set()))
            for query, of in self.lists.items()
            if query not in queries
        }
        return replace(self, lists={query: of for query, of in left.items() if of.kept})

    def with_places(
        self, request: str, places: Mapping[str, float], ranks: Mapping[str, int] | None = None
    ) -> AnchorFile:
        """Return the file with the places of a request. A pair that was asked for before has its last place alone."""
        others = {
            name: {pair: margin for pair, margin in those.items() if pair not in places}
            for name, those in self.places.items()
            if name != request
        }
        margins = others | ({request: dict(places)} if places else {})
        known = {**self.ranks, **(ranks or {})}
        left = {pair: known[pair] for those in margins.values() for pair in those if pair in known}
        return replace(self, places=margins, ranks=left)


@dataclass(frozen=True)
class AnchorUpdate:
    """What a run changes in an anchor file when it is recorded."""

    lineage: str
    request: str
    removal: Removal
    lists: Mapping[str, AnchorList]
    """The lists of a first request; a later one has none."""
    places: Mapping[str, float]
    say: Callable[[str], None]
    ranks: Mapping[str, int] = field(default_factory=dict)

    def write(self) -> None:
        """Erase what the request removed, and add its places. A file that is there already keeps its lists."""
        key = owner_key()
        found = AnchorFile.read(self.lineage, key)
        if key is None or not (found or self.lists):
            return
        file = found or AnchorFile(key.name, self.lists)
        left = file.without(self.removal, IdHashes(key))
        if left.with_places(self.request, self.places, self.ranks).write(self.lineage):
            return
        if found is None:
            self.say("no anchor file could be written: later requests will hold to what the run before left")
        else:
            path = fact_path(KIND, self.lineage)
            self.say(f"{path} could not be written and may still hold scores of what was removed: delete it")


def erase_from_anchors(removal: Removal) -> list[Path]:
    """Erase what a removal names from all anchor files of this owner; return the files for which that failed."""
    return _change_all(lambda file, hashes: file.without(removal, hashes))


def drop_places(request: str) -> list[Path]:
    """Erase the places of a request from all anchor files; return the files for which that failed."""
    return _change_all(lambda file, hashes: file.with_places(request, {}))


def _change_all(change: Callable[[AnchorFile, IdHashes], AnchorFile]) -> list[Path]:
    key = owner_key()
    hashes = IdHashes(key) if key is not None else None

    def changed(text: str) -> str | None:
        file = AnchorFile._parsed(text, key)
        if file is None or hashes is None:
            return None
        after = change(file, hashes)
        return text if after == file else after._written()

    return change_facts(KIND, changed)
