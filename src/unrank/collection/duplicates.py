"""Copies of removed texts in a collection: texts under another id that are the same, or nearly so.

A text is an exact copy if it is the same once both are normalised. It is a near copy of a text of at least 20 words if
the two share at least .8 of their runs of three words (their number in both, divided by their number in either), or if
it holds at least .9 of the runs of the removed text, whatever else it holds. Shorter texts, such as queries, have exact
copies only. An excerpt of a removed text is no copy of it.

Texts are looked for in two steps. For a few, a regular expression finds the rows that have one of their rare words, or
a character that could hide one; for many, a filter finds the rows that have most of a text's rare words. Only these
rows are compared. Both steps of Arrow run in several threads, on a few thousand rows at a time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unrank.collection.collection import Collection
from unrank.collection.normalisation import CONTROL, LOWER, normalised
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows, Texts, as_texts
from unrank.errors import UnrankError

ALIKE = 0.8
"""The least share of runs that two near copies have in common."""
HOLDS = 0.9
"""The least share of a removed text's runs that a longer text with it holds."""
RUN = 3
ROUNDING = 1e-6
LEAST_WORDS = 20
"""The fewest words of a text that can have near copies."""
FEW_WORDS = 200
"""The most rare words that a regular expression looks for."""
MOST_FILTERED = 4_096
"""The most texts that a filter looks for."""
ROWS_AT_ONCE, CELLS_AT_ONCE = 2_048, 2**21
"""The most rows that a thread reads at a time, and the most of them times wanted texts."""
SAMPLE = 2_000
"""The number of texts that tell which words are rare."""
EAST_ASIAN = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Letters that are words by themselves: between them is no space."""
WORD = re.compile(f"[{EAST_ASIAN}]|[^\\W{EAST_ASIAN}]+")
BETWEEN_WORDS = bytes(code if chr(code).isalnum() or chr(code) == "_" else 0x20 for code in range(0x80)) + bytes(0x80)
"""Characters of ASCII that are in no word become spaces."""
FOLDED = bytes(0 if code in CONTROL else BETWEEN_WORDS[LOWER[code]] for code in range(0x100))
"""Plain text becomes words in small letters and spaces. A byte that could hide a word becomes zero."""
PLAIN = (
    r"\t-\r\x{20}-\x{7e}\x{85}\x{a0}-\x{a9}\x{ab}\x{ac}\x{ae}-\x{b1}\x{b4}\x{b6}-\x{b8}\x{bb}\x{bf}-\x{de}\x{e0}-\x{12f}"
    r"\x{131}\x{134}-\x{13e}\x{141}-\x{148}\x{14a}-\x{17e}\x{250}-\x{2af}\x{2b9}-\x{2d7}\x{386}-\x{38f}\x{391}-\x{3af}\x{3b1}-\x{3ce}\x{400}-\x{481}"
    r"\x{48a}-\x{52f}\x{5d0}-\x{5ea}\x{621}-\x{652}\x{660}-\x{669}\x{900}-\x{93b}\x{93d}-\x{957}\x{960}-\x{97f}"
    r"\x{e01}-\x{e32}\x{e34}-\x{e5b}\x{1ea0}-\x{1ef9}\x{2010}-\x{2027}\x{2030}-\x{205e}\x{20a0}-\x{20a7}\x{20a9}-\x{20c0}"
    r"\x{2190}-\x{245f}\x{2500}-\x{27ff}\x{3001}-\x{3037}\x{3041}-\x{3096}\x{30a1}-\x{30fa}\x{30fc}\x{3400}-\x{4dbf}"
    r"\x{4e00}-\x{9fff}\x{ac00}-\x{d7a3}\x{1f300}-\x{1f64f}\x{1f680}-\x{1f6ff}\x{1f900}-\x{1f9ff}"
)
"""Characters in which no word hides: they are the same in a normalised text, but for their letter case."""

Run = tuple[str, ...]


@dataclass(frozen=True)
class TextCopy:
    """A text of a collection that is a copy of a removed one."""

    kind: Literal["query", "document"]
    id: str
    of: str
    """The id of the removed text."""
    likeness: float
    """The share of runs in common."""
    exact: bool


@dataclass(frozen=True)
class Duplicates:
    """The copies of everything that a removal names, and the removal of these copies."""

    copies: list[TextCopy]
    removal: Removal
    tests: list[TextCopy]
    """Copies among the test queries: no ranker was trained on these, so none can forget them."""


def find_duplicates(collection: Collection, removal: Removal, where: str = "the removal") -> Duplicates:
    """Find the copies of all texts that a removal names, its pairs included; `where` is named in errors."""
    [found] = duplicates_of_each(collection, [removal], where)
    return found


def duplicates_of_each(
    collection: Collection, removals: Sequence[Removal], where: str = "the removal"
) -> list[Duplicates]:
    """Find the copies of what each of several removals names, in one search."""
    queries = _copies(collection.queries, [_ids(removal, 0) for removal in removals], "query", where)
    documents = _copies(collection.documents, [_ids(removal, 1) for removal in removals], "document", where)
    return [_duplicates(collection, *each, where) for each in zip(removals, queries, documents, strict=True)]


def _ids(removal: Removal, side: int) -> list[str]:
    named = (removal.queries, removal.documents)[side]
    return [*dict.fromkeys([*named, *(pair[side] for pair in removal.pairs)])]


def _duplicates(
    collection: Collection, removal: Removal, queries: list[TextCopy], documents: list[TextCopy], where: str
) -> Duplicates:
    of = removal.substitutes
    for copy in documents:
        if copy.exact and copy.id in of.values():
            raise UnrankError(f"{where}: the substitute {copy.id!r} has the text of {copy.of!r}: name another one")
    documents = [copy for copy in documents if copy.id not in of.values()]  # a substitute may be much like the old text
    is_test = collection.is_test[collection.queries.rows([copy.id for copy in queries])].tolist()
    trained = [copy for copy, test in zip(queries, is_test, strict=True) if not test]
    found = Removal(
        [copy.id for copy in trained if copy.of in {*removal.queries}],
        [copy.id for copy in documents if copy.of in {*removal.documents}],
        _pairs_of_copies(collection, removal, [*trained, *documents]),
    )
    gone = {*found.documents, *(document for _, document in found.pairs)}
    theirs = {copy.id: of[copy.of] for copy in documents if copy.of in of and copy.id in gone}
    found = replace(found, substitutes=theirs)
    tests = [copy for copy, test in zip(queries, is_test, strict=True) if test]
    return Duplicates([*trained, *documents], found, tests)


def _pairs_of_copies(collection: Collection, removal: Removal, copies: Sequence[TextCopy]) -> list[tuple[str, str]]:
    """Return the training pairs that have a copy in place of a removed pair's query, document or both."""
    if not removal.pairs or not copies:
        return []
    others: dict[tuple[str, str], list[str]] = {}
    for copy in copies:
        others.setdefault((copy.kind, copy.of), []).append(copy.id)
    trained = {*collection.pair_ids(collection.pairs)}
    alike = {
        (query, document)
        for one, other in removal.pairs
        for query in (one, *others.get(("query", one), ()))
        for document in (other, *others.get(("document", other), ()))
    }
    return sorted((alike & trained) - {*removal.pairs})


def _copies(
    texts: Texts, named: Sequence[Sequence[str]], kind: Literal["query", "document"], where: str
) -> list[list[TextCopy]]:
    """Return the copies of each list of ids; a text that a list names is no copy for that list."""
    ids = [*dict.fromkeys(id for these in named for id in these)]
    found = [
        (texts.id(row), [(ids[match.place], match) for match in matches])
        for row, matches in sorted(copies_of(texts, texts.texts(texts.rows(ids, where))).items())
    ]
    copies: list[list[TextCopy]] = []
    for these in map(set, named):
        own = [(id, [match for match in matches if match[0] in these]) for id, matches in found if id not in these]
        best = [(id, *max(matches, key=lambda match: match[1].likeness)) for id, matches in own if matches]
        copies.append([TextCopy(kind, id, of, match.likeness, match.exact) for id, of, match in best])
    return copies


class Match(NamedTuple):
    """The place of a wanted text, the share of its runs that a copy has, and whether both are the same."""

    place: int
    likeness: float
    exact: bool


def copies_of(texts: Texts, wanted: Sequence[str]) -> dict[int, list[Match]]:
    """Return each row that is a copy, with the wanted texts that it is a copy of; the wanted rows are among them."""
    if not wanted:
        return {}
    index = WantedTexts(wanted, _frequency(texts))
    rare, marks = index.rare_words(), index.mark_filter()
    if rare is not None:
        pattern = f"(?i:{'|'.join(map(_whole_word, rare))})|[^{PLAIN}]"
        rows = _rows_where(texts, partial(_rows_that_match, pattern), ROWS_AT_ONCE)
    elif marks is not None:
        rows = _rows_where(texts, marks.rows, marks.rows_at_once)
    else:
        rows = _all_rows(texts)
    return {row: matches for row, text in rows if (matches := index.matches(text))}


class WantedTexts:
    """Removed texts, indexed by their normalised forms and by marks.

    The marks of a text are words of which no run has two. A copy lacks few runs of the text, and with each mark that it
    lacks all runs that have this mark. So it has most marks, and only texts that do are compared run by run.
    """

    def __init__(self, texts: Sequence[str], frequency: Mapping[str, int] = MappingProxyType({})) -> None:
        """Choose marks that are rare. `frequency` tells in how many texts a word is; else long words count as rare."""
        self.exact: dict[str, list[int]] = {}
        self.runs: dict[int, set[Run]] = {}
        """The runs of each text that can have near copies."""
        self.marks: dict[str, list[tuple[int, int]]] = {}
        """The texts that a word is a mark of, and the number of their runs that have it."""
        self.least: dict[int, int] = {}
        """The number of runs of a text's marks that a copy has at least. Each run has one mark at most."""
        self.needed: list[list[str]] = []
        """Words of each text of which a copy has at least one; none if there are no such words."""
        self.short: dict[int, list[str]] = {}
        """The words of each text that can have exact copies only."""
        for place, text in enumerate(texts):
            whole = normalised(text)
            self.exact.setdefault(whole, []).append(place)
            words = words_of(whole)
            rarest = sorted(dict.fromkeys(words), key=lambda word: (frequency.get(word, 0), -len(word)))
            if len(words) < LEAST_WORDS:
                self.needed.append(rarest[:1])
                self.short[place] = rarest
                continue
            self.runs[place] = runs_of(words)
            marks = marks_of(self.runs[place], rarest)
            lacking = int((1 - ALIKE) * len(self.runs[place]) + ROUNDING)
            self.least[place] = sum(marks.values()) - lacking
            for word, runs in marks.items():
                self.marks.setdefault(word, []).append((place, runs))
            enough = [total > lacking for total in accumulate(marks.values())]
            self.needed.append([*marks][: enough.index(True) + 1] if any(enough) else [])
        self.unmarked = [place for place, runs in self.least.items() if runs <= 0]

    def matches(self, text: str) -> list[Match]:
        """Return the wanted texts that a text is a copy of."""
        whole = normalised(text)
        same = self.exact.get(whole, [])
        found = [Match(place, 1.0, True) for place in same]
        if len(self.runs) <= len(same):
            return found
        words = words_of(whole)
        there = dict.fromkeys(self.unmarked, 0)
        for word in {*filter(self.marks.__contains__, words)}:
            for place, runs in self.marks[word]:
                there[place] = there.get(place, 0) + runs
        near = sorted(place for place, runs in there.items() if runs >= self.least[place] and place not in same)
        if near:
            theirs = runs_of(words)
            shares = {place: likeness(self.runs[place], theirs) for place in near}
            found += [Match(place, share, False) for place, share in shares.items() if share]
        return found

    def rare_words(self) -> list[str] | None:
        """Return words of which every copy has at least one; `None` if they are too many, or a text has none."""
        chosen = dict.fromkeys(word for words in self.needed for word in words)
        return [*chosen] if all(self.needed) and len(chosen) <= FEW_WORDS else None

    def mark_filter(self) -> MarkFilter | None:
        """Return a filter of the rows that may be copies; `None` if a text has too few marks, or they are too many."""
        number = len(self.needed)
        if self.unmarked or not all(self.short.values()) or number > MOST_FILTERED:
            return None
        marks = {word: [*of] for word, of in self.marks.items()}
        for place, words in self.short.items():
            for word in words:
                marks.setdefault(word, []).append((place, 1))
        return MarkFilter(marks, [self.least.get(place) or len(self.short[place]) for place in range(number)])


class MarkFilter:
    """Finds the rows that have most marks of a wanted text, as `WantedTexts.matches` does, but many rows at a time."""

    def __init__(self, marks: Mapping[str, Sequence[tuple[int, int]]], least: Sequence[int]) -> None:
        self._words, self._least = pa.array([*marks], pa.string()), np.array(least)
        self._counts = np.array([len(of) for of in marks.values()])
        self._ends = np.cumsum(self._counts)
        self._places, self._runs = np.array([mark for of in marks.values() for mark in of]).T
        self.rows_at_once = min(ROWS_AT_ONCE, CELLS_AT_ONCE // len(least))

    def rows(self, texts: pa.StringArray) -> Rows:
        """Return the rows that may be copies, and all that are not plain."""
        _, offsets, data = texts.buffers()
        bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
        folded = bytes(memoryview(data or b"")[bounds[0] : bounds[-1]]).translate(FOLDED)
        bounds = bounds - bounds[0]
        plain = pa.StringArray.from_buffers(len(texts), pa.py_buffer(bounds), pa.py_buffer(folded))
        words = pc.ascii_split_whitespace(plain)
        found = pc.index_in(words.values, value_set=self._words)
        owners = _owners(np.asarray(words.offsets), np.flatnonzero(found.is_valid()))
        once = np.unique(owners * len(self._words) + found.drop_null().to_numpy())
        owners, marks = np.divmod(once, len(self._words))
        counts = self._counts[marks]
        each = np.repeat(self._ends[marks] - np.cumsum(counts), counts) + np.arange(counts.sum())
        cells = np.repeat(owners, counts) * len(self._least) + self._places[each]
        runs = np.bincount(cells, self._runs[each], len(texts) * len(self._least))
        may: NDArray[np.bool_] = np.any(runs.reshape(len(texts), -1) >= self._least, axis=1)
        may[_owners(bounds, np.flatnonzero(np.frombuffer(folded, np.uint8) == 0))] = True
        return np.flatnonzero(may)


def _owners(bounds: NDArray[np.int32], places: Rows) -> Rows:
    """Return the row that each place is in; row i is between bounds i and i + 1."""
    return np.searchsorted(bounds, places, side="right") - 1


def marks_of(runs: Set[Run], words: Iterable[str]) -> dict[str, int]:
    """Choose words, the first ones first, so that no run has two of them; return how many runs have each.

    >>> marks_of(runs_of("to be or not to be".split()), ["or", "not", "be"])
    {'or': 3}
    """
    having: dict[str, set[Run]] = {}
    for run in runs:
        for word in run:
            having.setdefault(word, set()).add(run)
    marks, marked = dict[str, int](), set[Run]()
    for word in words:
        if marked.isdisjoint(having[word]):
            marks[word] = len(having[word])
            marked |= having[word]
    return marks


def words_of(text: str) -> list[str]:
    """Return the words of a normalised text.

    >>> words_of("a-b c_d, e1"), words_of("naïve 鍵を")
    (['a', 'b', 'c_d', 'e1'], ['naïve', '鍵', 'を'])
    """
    if text.isascii():  # most texts are, and this is many times quicker
        return text.encode().translate(BETWEEN_WORDS).decode().split()
    return WORD.findall(text)


def runs_of(words: Sequence[str]) -> set[Run]:
    """Return all runs of three words.

    >>> sorted(runs_of("to be or not".split()))
    [('be', 'or', 'not'), ('to', 'be', 'or')]
    """
    return {*zip(*(words[start:] for start in range(RUN)), strict=False)}


def likeness(removed: Set[Run], other: Set[Run]) -> float:
    """Return how alike two texts are, by their runs of words; 0 if the other is no copy of the removed one.

    >>> runs = runs_of("the clerk keeps every lost key in a box behind the old door".split())
    >>> likeness(runs, runs), likeness(runs, runs | runs_of("and more words than the first had".split()))
    (1.0, 1.0)
    >>> likeness(runs, runs_of("the clerk keeps a key".split()))
    0.0
    """
    common = len(removed & other)
    alike = common / (len(removed) + len(other) - common)
    if alike >= ALIKE:
        return alike
    return common / len(removed) if common >= HOLDS * len(removed) else 0.0


def _frequency(texts: Texts) -> Counter[str]:
    """Return in how many texts of a sample each word is."""
    rows = np.unique(np.linspace(0, len(texts) - 1, min(SAMPLE, len(texts))).astype(np.int64))
    return Counter(word for text in texts.texts(rows) for word in {*words_of(normalised(text))})


def _all_rows(texts: Texts) -> Iterator[tuple[int, str]]:
    yield from enumerate(text for chunk in texts.batches() for text in as_texts(chunk))


def _rows_where(texts: Texts, choose: Callable[[pa.StringArray], Rows], at_once: int) -> Iterator[tuple[int, str]]:
    """Yield the rows that a function chooses; it is called in several threads."""
    parts = [chunk.slice(first, at_once) for chunk in texts.batches() for first in range(0, len(chunk), at_once)]
    with ThreadPoolExecutor(pa.cpu_count()) as threads:
        start = 0
        for part, rows in zip(parts, threads.map(choose, parts), strict=True):
            yield from zip((start + rows).tolist(), as_texts(part.take(pa.array(rows))), strict=True)
            start += len(part)


def _rows_that_match(pattern: str, texts: pa.StringArray) -> Rows:
    return np.flatnonzero(pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False))


def _whole_word(word: str) -> str:
    """Return a pattern for a word. RE2 knows the boundaries of words in ASCII only.

    >>> print(_whole_word("jaw"), _whole_word("naïveté"))
    \\bjaw\\b \\bnaïveté
    """
    return ("\\b" if word[0].isascii() else "") + word + ("\\b" if word[-1].isascii() else "")
