"""The token store: a job tokenises each text once, when it is first needed, or takes its token ids from the cache.

The store also keeps the encodings of a frozen side of a ranker. An encoding is one vector, or one for every token.
Chunks of texts leave the encoder padded to the longest text of the chunk; to pad all chunks to the longest text of all
would fill the memory with zeros, so encodings are stored without padding and padded where they are used.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrank.collection.collection import Collection, Pairs
from unrank.collection.texts import Rows, Texts
from unrank.engine.checkpoint import Arrays, Cache, digest
from unrank.rankers.base import DualEncoder, Ranker, Role
from unrank.rankers.fast.pinned_memory import to_device
from unrank.rankers.tokens import Ids, Ints, Tokens

WORTH_KEEPING = 0.05
"""The growth of a side's tokens, as a share, from which on they are written to the cache again."""
TEXTS_READ = 32_768
"""The most texts in memory at once: tokens take much less of it."""
NUMBERS_KEPT = 2**30
"""The most numbers of encoded documents in memory at once: 4 GiB."""


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
                self._sides[role].restore(found)
        self._kept: list[_KeptSide] = []

    def get(self, rows: Rows, role: Role) -> Tokens:
        return self._sides[role].get(rows)

    def lengths(self, rows: Rows, role: Role) -> Ints:
        return self._sides[role].lengths(rows)

    def known(self, role: Role) -> Rows:
        """Return the rows of the texts that are tokenised."""
        return self._sides[role].known

    def read(self, pairs: Pairs) -> None:
        """Tokenise the texts of these pairs that are not tokenised yet."""
        self.lengths(pairs[:, 0], "query")
        self.lengths(pairs[:, 1], "document")

    def save(self, say: Callable[[str], None]) -> None:
        """Write the tokens and the vectors to the cache, if there is one."""
        for role, name in self._names.items():
            if self._cache and name and self._sides[role].has_grown:
                self._cache.save(name, self._sides[role].arrays(), say)
        for side in self._kept:
            if self._cache and side.name and side.encodings.has_grown:
                self._cache.save(side.name, side.encodings.arrays(), say)
                side.encodings.restored = side.encodings.known

    def keep(self, role: Role, *rankers: Ranker, again: Rows | None = None) -> None:
        """Encode each text of a side only once from now on, for rankers that encode it alike and never change it.

        What was kept so for an earlier job is dropped. If the vectors of one of the rankers are kept for later jobs,
        they serve the others too, but for the rows `again`.
        """
        self._kept = [side for side in self._kept if side.name]
        known = next((side for side in self._kept if side.is_of(role, *rankers)), None)
        if known is None:
            self._add(role, rankers, KeptEncodings(len(self._sides[role]), NUMBERS_KEPT))
        else:
            others = tuple(ranker for ranker in rankers if not known.is_of(role, ranker))
            self._add(role, others, known.encodings if again is None else known.encodings.without(again))

    def _add(self, role: Role, rankers: tuple[Ranker, ...], encodings: KeptEncodings) -> _KeptSide:
        self._kept.append(_KeptSide(role, rankers, encodings))
        return self._kept[-1]

    def keep_vectors(self, ranker: Ranker, device: str) -> None:
        """Encode each text only once for a dual encoder that does not change, in this job and in later ones.

        Nothing is kept without a cache that keeps vectors. `device` is the name of the device that computes them.
        """
        if not self.would_keep_vectors(ranker):
            return
        assert self._cache is not None and isinstance(ranker, DualEncoder)
        hashes: Hashes = {}
        for role in self._sides:
            side = next((side for side in self._kept if side.is_of(role, ranker)), None)
            if side is None:
                side = self._add(role, (ranker,), KeptEncodings(len(self._sides[role]), NUMBERS_KEPT))
            if side.name is None:
                side.name = _vectors_name(ranker, role, device, hashes)
                if not side.encodings.known and (found := self._cache.load(side.name)):
                    side.encodings.restore(found, ranker.device)

    def would_keep_vectors(self, ranker: Ranker) -> bool:
        """Return whether the vectors of a ranker that does not change are kept for later jobs."""
        return bool(self._cache and self._cache.vectors) and has_one_vector(ranker)

    def keeps_for(self, ranker: Ranker) -> bool:
        """Return whether encodings are kept for a ranker."""
        return any(side.is_of(side.role, ranker) for side in self._kept)

    def kept(self, ranker: Ranker, role: Role) -> KeptEncodings | None:
        """Return the kept encodings of a side; `None` if that side of the ranker moves."""
        return next((side.encodings for side in self._kept if side.is_of(role, ranker)), None)


@dataclass
class _KeptSide:
    """The encodings of a side that are kept for some rankers."""

    role: Role
    rankers: tuple[Ranker, ...]
    encodings: KeptEncodings
    name: str | None = None
    """Its name in the cache; `None` if it is kept for this job only."""

    def is_of(self, role: Role, *rankers: Ranker) -> bool:
        return self.role == role and any(ranker is known for ranker in rankers for known in self.rankers)


def has_one_vector(ranker: Ranker) -> bool:
    """Return whether a ranker gives each text one dense vector, and it is known what that depends on."""
    if not isinstance(ranker, DualEncoder) or type(ranker).compact is not DualEncoder.compact:
        return False
    return ranker.similarity is not None and ranker.tokens_fingerprint("document") is not None


Hashes = dict[tuple[object, ...], str]
"""The hashes of tensors that do not change meanwhile, by their place in memory."""


def _vectors_name(ranker: DualEncoder, role: Role, device: str, hashes: Hashes) -> str:
    """Return the name of a side's vectors in the cache: a hash of everything that they depend on.

    A weight of both sides is hashed once.
    """
    weights, settings = ranker.document_state()
    facts = [ranker.kind, ranker.tokens_fingerprint(role), settings, device, ranker.fast, torch.__version__]
    state = weights if role == "document" else ranker.state_dict()
    lines = [json.dumps(facts, sort_keys=True, default=str)]
    for name, weight in sorted(state.items()):
        key = weight.data_ptr(), weight.shape, weight.stride(), weight.dtype
        if key not in hashes:
            hashes[key] = digest({"": weight})
        lines.append(f"{name} {hashes[key]}")
    made_by = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"vectors-{role}-{made_by[:32]}"


_NOTHING = np.empty(0, np.int64)


def _name(ranker: Ranker, role: Role, collection: Collection) -> str | None:
    """Return the name of a side's tokens in the cache; `None` if they are not kept."""
    way = ranker.tokens_fingerprint(role)
    return way and f"tokens-{role}-{collection.fingerprint[:16]}-{way[:16]}"


class _Side:
    """The tokens of the queries, or of the documents."""

    def __init__(self, ranker: Ranker, texts: Texts, role: Role) -> None:
        self._ranker, self._texts, self._role = ranker, texts, role
        self._place = np.full(len(texts), -1, np.int32)
        self._tokens = Tokens.of([])
        self._restored = 0

    @property
    def has_grown(self) -> bool:
        return len(self._tokens) > (1 + WORTH_KEEPING) * self._restored

    @property
    def known(self) -> Rows:
        """The rows that are tokenised."""
        return np.flatnonzero(self._place >= 0)

    def arrays(self) -> Arrays:
        """Return the rows that are tokenised, and the ids of each, one after another."""
        rows = self.known
        read = self._tokens.take(self._place[rows].astype(np.int64))
        return {"rows": rows, "lengths": read.lengths, "ids": np.concatenate([np.empty(0, np.int32), *read])}

    def restore(self, arrays: Arrays) -> None:
        """Take tokens from the cache, unless they are malformed."""
        rows, lengths, ids = (arrays.get(name, _NOTHING) for name in ("rows", "lengths", "ids"))
        whole = len(rows) == len(lengths) and lengths.sum() == len(ids) and (lengths >= 0).all()
        if whole and len(rows) and (np.diff(rows) > 0).all() and rows[0] >= 0 and rows[-1] < len(self._place):
            self._place[rows] = np.arange(len(rows))
            self._tokens = Tokens(Ids(ids), np.cumsum(lengths) - lengths, lengths)
            self._restored = len(rows)

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
            pieces = (missing[start : start + TEXTS_READ] for start in range(0, len(missing), TEXTS_READ))
            read = [self._ranker.tokenize(self._texts.texts(piece), self._role) for piece in pieces]
            self._tokens = Tokens.joined([self._tokens, *read])
        return self._place[rows].astype(np.int64)


@dataclass(frozen=True)
class Encodings:
    """The encodings of texts in one tensor: text i is `vectors[starts[i]:starts[i] + counts[i]]`."""

    vectors: Tensor  # [vectors, width]
    starts: Rows
    counts: Rows
    many: bool
    """Whether an encoding has a vector for every token."""

    @classmethod
    def of(cls, values: list[Tensor], chunks: list[Rows]) -> Encodings:
        """Join the encodings of chunks, each [texts, width] or [texts, tokens, width], in the order of the texts."""
        back = np.argsort(np.concatenate(chunks), kind="stable")
        counts = np.repeat([value[0].numel() // value.shape[-1] for value in values], [len(chunk) for chunk in chunks])
        starts = np.cumsum(counts) - counts
        vectors = torch.cat([value.flatten(0, -2) for value in values])
        return cls(vectors, starts[back], counts[back], values[0].dim() == 3)

    @property
    def sizes(self) -> Rows:
        """The number of floats in each encoding."""
        return self.counts * self.vectors.shape[1]

    def __len__(self) -> int:
        return len(self.starts)

    def __add__(self, other: Encodings) -> Encodings:
        vectors = torch.cat([self.vectors, other.vectors])
        starts = np.concatenate([self.starts, len(self.vectors) + other.starts])
        return Encodings(vectors, starts, np.concatenate([self.counts, other.counts]), self.many)

    def only(self, places: Rows) -> Encodings:
        """Copy the encodings at some places, without the memory of the others."""
        counts = self.counts[places]
        starts = np.cumsum(counts) - counts
        source = np.repeat(self.starts[places] - starts, counts) + np.arange(counts.sum())
        return Encodings(self.vectors[to_device(source, self.vectors.device)], starts, counts, self.many)

    def take(self, places: Rows) -> Tensor:
        """Return the encodings at some places, padded with zeros. [places, width] or [places, tokens, width]"""
        device = self.vectors.device
        starts = to_device(self.starts[places], device)
        if not self.many:
            return self.vectors[starts]
        counts = to_device(self.counts[places], device).unsqueeze(1)
        column = torch.arange(int(self.counts[places].max()), device=device)
        vectors = self.vectors[starts.unsqueeze(1) + torch.minimum(column, counts - 1)]
        return vectors * (column < counts).unsqueeze(2)


class KeptEncodings:
    """The encodings of a frozen side's texts, by row. Each is computed once, as long as memory allows."""

    def __init__(self, texts: int, capacity: int) -> None:
        self._place = np.full(texts, -1, np.int64)
        self._kept: Encodings | None = None
        self._capacity = capacity
        self.restored = 0
        """The number of texts whose encodings are in the cache."""

    @property
    def known(self) -> int:
        """The number of texts whose encodings are kept."""
        return int(np.count_nonzero(self._place >= 0))

    @property
    def has_grown(self) -> bool:
        """Whether more is kept than came from the cache, of encodings that are one vector."""
        is_one = self._kept is not None and not self._kept.many
        return is_one and self.known > (1 + WORTH_KEEPING) * self.restored

    def without(self, rows: Rows) -> KeptEncodings:
        """Return these encodings without those of some rows."""
        other = copy.copy(self)
        other._place = self._place.copy()
        other._place[rows] = -1
        return other

    def arrays(self) -> Arrays:
        """Return the rows whose vectors are kept, and the vectors."""
        assert self._kept is not None
        rows = np.flatnonzero(self._place >= 0)
        vectors: NDArray[np.float32] = self._kept.only(self._place[rows]).vectors.cpu().numpy()
        return {"rows": rows, "vectors": vectors}

    def restore(self, arrays: Arrays, device: torch.device) -> None:
        """Take vectors from the cache, unless they are malformed or too many."""
        rows, vectors = arrays.get("rows", _NOTHING), arrays.get("vectors", np.empty((0, 0), np.float32))
        fits = vectors.ndim == 2 and vectors.dtype == np.float32 and 0 < len(rows) == len(vectors)
        if not fits or vectors.size > self._capacity or (np.diff(rows) <= 0).any() or not np.isfinite(vectors).all():
            return
        if rows[0] >= 0 and rows[-1] < len(self._place):
            once = np.ones(len(rows), np.int64)
            self._kept = Encodings(torch.from_numpy(vectors).to(device), np.arange(len(rows)), once, many=False)
            self._place[rows] = np.arange(len(rows))
            self._capacity -= vectors.size
            self.restored = len(rows)

    def get(self, rows: Rows, sizes: Rows, encode: Callable[[Rows], Encodings]) -> tuple[Encodings, Rows]:
        """Return encodings that include those of `rows`, and the place of each row in them.

        `rows` is sorted and without duplicates. Texts that do not fit into memory are encoded at every call.
        """
        missing = np.flatnonzero(self._place[rows] < 0)
        fit = missing[np.cumsum(sizes[missing]) <= self._capacity]
        if len(fit):
            self._keep(rows[fit], encode)
            self._capacity -= int(sizes[fit].sum())
        known = self._place[rows] >= 0
        if self._kept is None or not known.any():
            return encode(rows), np.arange(len(rows))
        if known.all():
            return self._kept, self._place[rows]
        joined = self._kept.only(self._place[rows[known]]) + encode(rows[~known])
        return joined, np.argsort(np.concatenate([rows[known], rows[~known]]))

    def _keep(self, rows: Rows, encode: Callable[[Rows], Encodings]) -> None:
        with torch.inference_mode(False), torch.no_grad():  # a training step uses encodings that a check made
            made = encode(rows)
        self._place[rows] = np.arange(len(rows)) + (len(self._kept) if self._kept is not None else 0)
        self._kept = self._kept + made if self._kept is not None else made
