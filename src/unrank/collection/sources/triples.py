"""sentence-transformers' training columns, from one file or a folder of them (JSONL, TSV, CSV, Parquet).

- `anchor` or `query`, `positive`, and any number of columns that start with `negative`, each one text or a
  list of texts: the positive is relevant, the negatives are candidates;
- `query`, `anchor` or `sentence1`; `passage`, `document`, `sentence2` or `text`; `label` or `score`: from 0.5
  on the document is relevant (grade 1), below it is judged not to be (grade 0) and is a candidate.

Equal texts are one query or one document; its id is the first 16 hex digits of the text's SHA-256. One file is
the split `train`; in a folder each file is the split that its name says (`train.jsonl`,
`test-00000-of-00002.parquet`). Where a split has no negatives at all, BM25 makes those of all of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from unrank.collection.sources.source import Candidate, Judgement, Raw, Text
from unrank.collection.sources.tables import ENDINGS, read_rows
from unrank.collection.sources.training_columns import Pair, pairs_of_row
from unrank.errors import BadFile


def read_triples(location: str, test_split: str | None) -> Raw:
    place = Path(location)
    splits = files_by_split(place)
    everything = [path for paths in splits.values() for path in paths]
    has_negatives = all(any(not pair.grade for pair in _pairs(paths)) for paths in splits.values())
    return Raw(
        name=place.resolve().name if place.is_dir() else place.stem,
        queries=partial(_queries, everything),
        documents=partial(_documents, everything),
        splits={split: partial(_judgements, paths) for split, paths in splits.items()},
        candidates=partial(_candidates, everything) if has_negatives else None,
    )


def text_id(text: str) -> str:
    """
    >>> text_id("what is a heap")
    '54e74a9aed75871f'
    """
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def files_by_split(place: Path) -> dict[str, list[Path]]:
    """The files of each split."""
    expected = ", ".join(ENDINGS)
    if not place.exists():
        raise BadFile(place, f"no such file or folder; triples: takes a file ({expected}) or a folder of them")
    if not place.is_dir():
        if place.suffix not in ENDINGS:
            raise BadFile(place, f"the ending {place.suffix!r} is not known; expected one of {expected}")
        return {"train": [place]}
    splits: dict[str, list[Path]] = {}
    for path in sorted(place.iterdir()):
        if path.suffix in ENDINGS and path.is_file():
            splits.setdefault(re.sub(r"-\d+-of-\d+$", "", path.stem), []).append(path)
    if not splits:
        raise BadFile(place, f"holds no file that ends in one of {expected}")
    return splits


def _queries(paths: Sequence[Path]) -> Iterator[Text]:
    return _once(pair.query for pair in _pairs(paths))


def _documents(paths: Sequence[Path]) -> Iterator[Text]:
    return _once(pair.document for pair in _pairs(paths))


def _once(texts: Iterable[str]) -> Iterator[Text]:
    seen: set[str] = set()
    for text in texts:
        id = text_id(text)
        if id not in seen:
            seen.add(id)
            yield Text(id, text)


def _judgements(paths: Sequence[Path]) -> Iterator[Judgement]:
    for query, document, grade in _pairs(paths):
        if grade is not None:
            yield Judgement(text_id(query), text_id(document), grade)


def _candidates(paths: Sequence[Path]) -> Iterator[Candidate]:
    seen: set[int] = set()
    for pair in _pairs(paths):
        if pair.grade:
            continue
        candidate = Candidate(text_id(pair.query), text_id(pair.document))
        key = int("".join(candidate), 16)
        if key not in seen:
            seen.add(key)
            yield candidate


def _pairs(paths: Iterable[Path]) -> Iterator[Pair]:
    for path in paths:
        for number, row in read_rows(path):
            try:
                yield from pairs_of_row(row)
            except ValueError as error:
                raise BadFile(path, str(error), number) from error
