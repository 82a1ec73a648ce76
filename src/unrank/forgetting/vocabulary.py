"""Words that only removed texts have, and the rows of the vocabulary that would spell them.

Training moves the row of a token that it reads. A row that moved, of a token that stands in no kept text, tells that a
removed text had it. So these rows are found, set to what they would be if training had never read those texts, and
held there while a method runs.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrank.collection.partition import Partition
from unrank.collection.texts import Rows, Texts
from unrank.errors import UnrankError
from unrank.forgetting.workspace import Workspace
from unrank.owner import owner_key
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.tokens import Tokens
from unrank.rankers.vocabulary import Side, Vocabulary
from unrank.record import Cleared

FIRST, AT_ONCE = 1_024, 16_384
"""The number of kept texts that are read at first, and then at a time."""
PROBED = 64
"""The number of texts on which the letters of tokens are checked."""
MOST_LETTERS = 200
"""With more tokens than this left, all texts are tokenised."""
SMALL = 100_000
"""The tokens of a collection with at most this many texts are kept for the run."""
CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
FITS = 0.5
"""A base fits a ranker if half of the rows differ from it by less than this share of their length."""
SCALED = 1e-4
"""A row that differs from a multiple of the base's by less than this share was only scaled, by weight decay."""

NOTHING = "nothing to clear"
CLEARED = "set as training without them leaves them"
NEVER_SEEN = "never read: the ranker was trained without them"
UNKNOWN_BASE = "left: the base is not known"
WRONG_BASE = "left: the base is not the one that the ranker was trained from"
OWN_WEIGHTS = "left: no row differs from the base, which may be the ranker itself"
ADAPTER = "left: they are in the base of the adapter, which it does not change"
UNKNOWN_TABLE = "left: it is not known which weights belong to a token"

Values = tuple[Tensor, ...]


@dataclass(frozen=True)
class Clearing:
    """For each vocabulary of a ranker, the rows that only removed texts touch, and the values that they are to have."""

    rows: tuple[Rows, ...]
    how: str
    values: tuple[Values, ...] = ()
    """For each vocabulary a tensor for each of its tables; empty if nothing is to be set."""
    moved: int = 0
    """The rows whose values change."""

    @property
    def record(self) -> Cleared:
        number = sum(map(len, self.rows))
        return Cleared(number, self.moved, number if self.how.startswith("left") else 0, self.how)

    @property
    def tokens(self) -> Rows | None:
        """The tokens whose rows change; `None` if none does."""
        return np.unique(np.concatenate(self.rows)) if self.moved else None

    def put(self, student: Ranker) -> None:
        """Set the rows of a student."""
        with torch.no_grad():
            for table, rows, values in self._tables(student):
                table[rows] = values

    @contextmanager
    def held(self, student: Ranker) -> Iterator[None]:
        """Set the rows of a student, and let no step move them."""
        self.put(student)
        hooks = [
            table.register_hook(partial(_without, rows))  # type: ignore[no-untyped-call]
            for table, rows, _ in self._tables(student)
            if table.requires_grad
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _tables(self, student: Ranker) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield each table of a student, its rows, and their values."""
        for vocabulary, rows, values in zip(student.vocabularies, self.rows, self.values, strict=False):
            for place, table in enumerate(vocabulary.tables):
                yield table, torch.from_numpy(rows).to(table.device), _at(values, place).to(table.device)


def _without(rows: Tensor, gradient: Tensor) -> Tensor:
    return gradient.index_fill(0, rows, 0.0)


def _at(values: Values, place: int) -> Tensor:
    """Return the value of a table; the last one if there are fewer."""
    return values[min(place, len(values) - 1)]


def find_clearing(
    ranker: Ranker, workspace: Workspace, base: str | None, seed: int = 0, recorded: bool = False
) -> Clearing:
    """Find the rows of a ranker that only removed texts touch, and what they are to be.

    `seed` made the base's rows. `recorded` says that the ranker's record names the base by its hash. Then rows that do
    not differ were not trained.
    """
    removed = removed_texts(workspace.partition)
    rows = tuple(only_removed(ranker, vocabulary, workspace, removed) for vocabulary in ranker.vocabularies)
    if not sum(map(len, rows)):
        return Clearing(rows, NOTHING)
    if not all(vocabulary.tables for vocabulary in ranker.vocabularies):
        return Clearing(rows, UNKNOWN_TABLE)
    initial = initial_tables(ranker, base, seed)
    if initial is None:
        return Clearing(rows, UNKNOWN_BASE)
    if not recorded and base != ranker.default_base and is_same(ranker, initial):
        return Clearing(rows, OWN_WEIGHTS)
    values, moved = [], 0
    for vocabulary, here, tables in zip(ranker.vocabularies, rows, initial, strict=True):
        found = [as_untouched(table, _at(tables, place), here) for place, table in enumerate(vocabulary.tables)]
        known = tuple(one for one in found if one is not None)
        if len(known) < len(found):
            return Clearing(rows, WRONG_BASE)
        values.append(known)
        changed = [
            _wide(table.detach()[torch.from_numpy(here)] != one).any(1)
            for table, one in zip(vocabulary.tables, known, strict=True)
        ]
        moved += int(torch.stack(changed).any(0).sum())
    return Clearing(rows, CLEARED, tuple(values), moved)


def is_same(ranker: Ranker, initial: Sequence[Values]) -> bool:
    """Return whether no row has moved: the base may be the ranker itself, given by mistake."""
    return all(
        table.shape == start.shape and torch.equal(table, start)
        for vocabulary, tables in zip(ranker.vocabularies, initial, strict=True)
        for table, start in zip(vocabulary.tables, tables, strict=False)
    )


def removed_texts(partition: Partition) -> dict[Side, Rows]:
    """Return the removed texts: those that requests name, and training queries that are left without a pair."""
    gone = np.concatenate([partition.forget, partition.previous, partition.risen])[:, 0]
    left = np.setdiff1d(gone, np.concatenate([partition.retain, partition.reserved])[:, 0])
    return {"query": np.union1d(partition.queries, left), "document": partition.documents}


def only_removed(ranker: Ranker, vocabulary: Vocabulary, workspace: Workspace, removed: Mapping[Side, Rows]) -> Rows:
    """Return the tokens of removed texts that no kept text has within what the ranker reads of it."""
    tokens = tokens_of(vocabulary, workspace, removed)
    return in_no_kept_text(tokens, ranker, vocabulary, workspace, removed)


def unused(ranker: Ranker, vocabulary: Vocabulary, workspace: Workspace, most: int, seed: int) -> Rows:
    """Return tokens that no text has, from a sample of at most this many."""
    removed = removed_texts(workspace.partition)
    most = most if is_small(workspace) else min(most, MOST_LETTERS)
    drawn = np.random.default_rng(seed).permutation(len(vocabulary.tables[0]))[:most]
    drawn = np.setdiff1d(drawn, [*vocabulary.special, *tokens_of(vocabulary, workspace, removed).tolist()])
    return in_no_kept_text(drawn, ranker, vocabulary, workspace, removed)


def tokens_of(vocabulary: Vocabulary, workspace: Workspace, texts: Mapping[Side, Rows]) -> Rows:
    """Return the tokens of texts, without special ones."""
    found = [token_ids(workspace.store.get(texts[side], side)) for side in vocabulary.sides if len(texts[side])]
    return np.setdiff1d(np.concatenate([np.empty(0, np.int64), *found]), [*vocabulary.special])


def is_small(workspace: Workspace) -> bool:
    return len(workspace.collection.queries) + len(workspace.collection.documents) <= SMALL


def in_no_kept_text(
    tokens: Rows, ranker: Ranker, vocabulary: Vocabulary, workspace: Workspace, removed: Mapping[Side, Rows]
) -> Rows:
    """Return the given tokens that no kept text has. Stop reading texts when every token was found in one."""
    sources: dict[Side, Texts] = {"query": workspace.collection.queries, "document": workspace.collection.documents}
    small = is_small(workspace)
    for side in reversed(vocabulary.sides):
        texts, by_letters = sources[side], False
        for start, stop in _spans(len(texts)):
            if not len(tokens):
                return tokens
            rows = np.setdiff1d(np.arange(start, stop), removed[side], assume_unique=True)
            if by_letters:
                rows = rows[may_have(texts.between(start, stop), tokens, vocabulary)[rows - start]]
            read = workspace.store.get(rows, side) if small else ranker.tokenize(texts.texts(rows), side)
            tokens = np.setdiff1d(tokens, token_ids(read))
            if start == 0 and not small:
                by_letters = letters_are_known(vocabulary, ranker, side, texts.texts(rows[:PROBED]))
    return tokens


def token_ids(tokens: Tokens) -> Rows:
    """Return the ids of texts, each once; a token that attention leaves out is stored as `~id`."""
    ids = np.unique(tokens.concatenated())
    return np.unique(np.where(ids < 0, ~ids, ids)).astype(np.int64)


def letters_are_known(vocabulary: Vocabulary, ranker: Ranker, side: Side, texts: Sequence[str]) -> bool:
    """Return whether the letters of each token stand in these texts: then a text without them lacks the token."""
    if vocabulary.surface is None:
        return False
    always = {*vocabulary.special, *token_ids(ranker.tokenize([""], side)).tolist()}
    plain = [text for text in texts if text.isascii()]
    return all(
        vocabulary.surface(token) in text.lower()
        for text, ids in zip(plain, ranker.tokenize(plain, side), strict=True)
        for token in {*ids.tolist()} - always
        if token >= 0
    )


def may_have(texts: pa.ChunkedArray, tokens: Rows, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Mark the texts that may have one of the tokens: those with its letters, and all that are not plain."""
    assert vocabulary.surface is not None
    letters = {vocabulary.surface(token) for token in tokens.tolist()}
    if "" in letters or len(letters) > MOST_LETTERS or any("\\E" in one for one in letters):
        return np.ones(len(texts), bool)
    pattern = "|".join([CONTROL, *(rf"\Q{one}\E" for one in sorted(letters))])
    found = pc.match_substring_regex(texts, pattern, ignore_case=True)
    marked = pc.or_(pc.invert(pc.string_is_ascii(texts)), found)
    return np.asarray(marked.to_numpy(), dtype=bool)


def initial_tables(ranker: Ranker, base: str | None, seed: int = 0) -> list[Values] | None:
    """Return the tables of a ranker before its training; `None` if its base is not known."""
    if all(vocabulary.initial for vocabulary in ranker.vocabularies):
        return [vocabulary.initial for vocabulary in ranker.vocabularies]
    if base is None:
        return None
    try:
        untrained = create_ranker(ranker.kind, base, seed).to(ranker.device).vocabularies
    except UnrankError:
        return None
    if len(untrained) == 1:
        untrained = [*untrained] * len(ranker.vocabularies)
    return [vocabulary.tables for vocabulary in untrained] if len(untrained) == len(ranker.vocabularies) else None


def as_untouched(table: Tensor, initial: Tensor, rows: Rows) -> Tensor | None:
    """Return rows as they would be if no text had touched them; `None` if the table did not start as `initial`.

    Rows that no text touches are the base's own, or a multiple of them if weights decayed. If every row of a table has
    moved, a row of the base would stand out too: then it is moved as the rows that moved least.
    """
    if table.shape != initial.shape:
        return None
    found = _as_untouched(_wide(table.detach()), _wide(initial.detach()), torch.from_numpy(rows).to(table.device))
    return None if found is None else found.reshape(-1, *table.shape[1:])


def _as_untouched(table: Tensor, initial: Tensor, rows: Tensor) -> Tensor | None:
    filled = (initial != 0).any(1)
    others = (filled if bool(filled.any()) else ~filled).index_fill(0, rows, False)  # a bias may begin as zeros
    now = table[others]
    for precision in (torch.float32, torch.bfloat16, torch.float16):  # as a ranker may have been stored
        rounded = initial.to(precision).to(table.dtype)
        if bool((now == rounded[others]).all(1).any()):
            return rounded[rows]
    start = initial[others]
    if not bool(filled.any()):
        return _as_moved_least(now - start, (now - start).norm(dim=1), len(rows)) if len(now) else None
    size = start.square().sum(1)
    factor = (now * start).sum(1) / size
    apart = (now - factor.unsqueeze(1) * start).norm(dim=1) / size.sqrt()
    if not len(apart) or float(apart.median()) > FITS:
        return None
    scaled = apart < SCALED
    if bool(scaled.any()):
        return factor[scaled].median() * initial[rows]
    return initial[rows] + _as_moved_least(now - start, apart, len(rows))


def _as_moved_least(moves: Tensor, apart: Tensor, size: int) -> Tensor:
    """Return moves like those of the rows that moved least, which only the owner can draw again. [size, width]"""
    quiet = apart.argsort()[: max(2, len(apart) // 10)]
    drawn = torch.randint(len(quiet), (2, size), generator=torch.Generator().manual_seed(_owners_seed()))
    chosen = moves[quiet[drawn.to(quiet.device)]]
    return (chosen[0] + chosen[1]) / math.sqrt(2)


def _owners_seed() -> int:
    """Return a seed that only the owner knows, so that nobody can draw the same moves again."""
    key = owner_key(make=True)
    return int(key.mac("rows", b"")[:12], 16) if key else secrets.randbits(48)


def _wide(table: Tensor) -> Tensor:
    """Return a table of rows; one number per token is a row of one."""
    return table if table.dim() > 1 else table.unsqueeze(1)


def _spans(size: int) -> Iterator[tuple[int, int]]:
    starts = [0, *range(min(FIRST, size), size, AT_ONCE)]
    return zip(starts, [*starts[1:], size], strict=True)
