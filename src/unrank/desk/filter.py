"""The filter: copies new training data without what was removed, row by row and in its own format.

The reader of each source checks the rows and returns their texts; a row that passes is copied as it is. A row of
training columns (JSONL, TSV, CSV, Parquet) with a removed text is dropped; from a list of negatives only the removed
ones are taken out. Sources that are no files (irds, pydocs) are written as a BEIR folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from unrank.collection.sources import parse_source, read_source
from unrank.collection.sources.beir import beir_judgements, beir_texts
from unrank.collection.sources.files import PARQUET_ROWS, Row, read_json_lines, read_lines, read_rows
from unrank.collection.sources.source import Raw, Text
from unrank.collection.sources.trec import (
    DOCUMENTS,
    ID_KEYS,
    TEXT_KEYS,
    qrels_files,
    ranked,
    run_files,
    text_file,
    trec_judgements,
    trec_texts,
)
from unrank.collection.sources.triples import COLUMNS, Pair, files_by_split, pairs_of_row
from unrank.desk.matcher import Matcher
from unrank.disk import check_free, new_file, new_folder
from unrank.errors import BadFile

OWN_KEYS = {*ID_KEYS, *TEXT_KEYS, "title", "metadata"}
"""The names that a format gives to the parts of a query or a document. They are no texts."""
Count = Callable[[bool], None]
Kept = Iterator[tuple[Row, Row | None]]
"""Each row as it was read, and as it is written; `None` if it is dropped."""


@dataclass
class RowCounts:
    """The number of rows of each file that were read, and that were dropped."""

    read: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, kept: bool) -> None:
        self.read[name] = self.read.get(name, 0) + 1
        self.dropped[name] = self.dropped.get(name, 0) + (not kept)


def filter_source(source: str, out: Path, matcher: Matcher) -> RowCounts:
    """Read `kind:location` and write to `out`: a folder, or a file if the location is one file."""
    kind, location = parse_source(source)
    check_free(out)
    place, counts = Path(location), RowCounts()
    if kind == "triples" and not place.is_dir():
        [[path]] = files_by_split(place).values()
        with new_file(out) as partial:
            filter_columns(path, partial, matcher, _counting(counts, path.name))
        return counts
    raw = read_source(source) if kind != "triples" else None  # refuses a location that is no such source
    with new_folder(out) as folder:
        if raw is None:
            for path in (path for paths in files_by_split(place).values() for path in paths):
                filter_columns(path, folder / path.name, matcher, _counting(counts, path.name))
        elif kind == "beir":
            _filter_beir(place, folder, matcher, counts)
        elif kind == "trec":
            _filter_trec(place, folder, matcher, counts)
        else:
            _filter_raw(raw, folder, matcher, counts)
    return counts


def _filter_beir(place: Path, folder: Path, matcher: Matcher, counts: RowCounts) -> None:
    for name, keeps in (("queries.jsonl", matcher.keeps_query), ("corpus.jsonl", matcher.keeps_document)):
        _pass(place, name, folder, _keeps_rows(place / name, beir_texts(place / name), keeps), counts)
    for path in sorted((place / "qrels").glob("*.tsv")):
        judged = (matcher.keeps_ids(judgement.query, judgement.document) for judgement in beir_judgements(path))
        _pass(place, f"qrels/{path.name}", folder, judged, counts, has_header=_begins_with_header(path))


def _filter_trec(place: Path, folder: Path, matcher: Matcher, counts: RowCounts) -> None:
    for path, keeps in (
        (text_file(place, "queries"), matcher.keeps_query),
        (text_file(place, *DOCUMENTS), matcher.keeps_document),
    ):
        _pass(place, path.name, folder, _keeps_rows(path, trec_texts(path), keeps), counts)
    for path in qrels_files(place).values():
        judged = (matcher.keeps_ids(judgement.query, judgement.document) for judgement in trec_judgements(path))
        _pass(place, str(path.relative_to(place)), folder, judged, counts)
    for path in run_files(place):
        listed = (matcher.keeps_ids(line.query, line.document) for line in ranked([path]))
        _pass(place, str(path.relative_to(place)), folder, listed, counts)


def _keeps_rows(path: Path, texts: Iterable[Text], keeps: Callable[[Text, Sequence[str]], bool]) -> Iterator[bool]:
    """Tell for each text of a file whether it is kept, by all that its row of JSON holds, such as metadata."""
    if path.suffix != ".jsonl":
        return (keeps(text, ()) for text in texts)
    rows = (row for _, row in read_json_lines(path))
    return (keeps(text, [*_more_texts(text, row)]) for text, row in zip(texts, rows, strict=True))


def _more_texts(text: Text, row: Row) -> Iterator[str]:
    """Yield what a row of JSON holds besides the id and the text that are read from it. A title alone may stay."""
    values = [value for key, value in row.items() if key != "title"]
    names = (name for name in row if name not in OWN_KEYS)
    return (found for found in chain(names, _texts_in(values)) if found not in text)


def _filter_raw(raw: Raw, folder: Path, matcher: Matcher, counts: RowCounts) -> None:
    def texts(name: str, rows: Iterable[Text], keeps: Callable[[Text], bool]) -> None:
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            for text in rows:
                counts.count(name, kept := keeps(text))
                if kept:
                    file.write(json.dumps({"_id": text.id, "text": text.text}, ensure_ascii=False) + "\n")

    texts("queries.jsonl", raw.queries(), matcher.keeps_query)
    texts("corpus.jsonl", raw.documents(), matcher.keeps_document)
    (folder / "qrels").mkdir()
    for split, judgements in raw.splits.items():
        name = f"qrels/{split.replace('/', '-')}.tsv"
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            for judgement in judgements():
                counts.count(name, kept := matcher.keeps_ids(judgement.query, judgement.document))
                if kept:
                    file.write("\t".join(map(str, judgement)) + "\n")


def _pass(
    place: Path, name: str, folder: Path, keeps: Iterable[bool], counts: RowCounts, has_header: bool = False
) -> None:
    """Copy the kept lines of a file; `keeps` has a value for each line that is not empty."""
    lines = (line for _, line in read_lines(place / name))
    (folder / name).parent.mkdir(exist_ok=True)
    with (folder / name).open("w", encoding="utf-8", newline="") as file:
        if has_header:
            file.write(next(lines) + "\n")
        for line, kept in zip(lines, keeps, strict=True):
            counts.count(name, kept)
            if kept:
                file.write(line + "\n")


def _begins_with_header(path: Path) -> bool:
    _, line = next(read_lines(path), (0, ""))
    return line.split("\t")[-1].strip().lower() == "score"


def _counting(counts: RowCounts, name: str) -> Callable[[bool], None]:
    return lambda kept: counts.count(name, kept)


def filter_columns(path: Path, out: Path, matcher: Matcher, count: Count) -> None:
    """Copy the rows of a file that are kept; the format follows from the file's suffix."""
    write = {".jsonl": _json_lines, ".parquet": _parquet}.get(path.suffix, _table)
    write(path, out, _kept(path, matcher, count))


def _kept(path: Path, matcher: Matcher, count: Count) -> Kept:
    for number, row in read_rows(path):
        try:
            kept = kept_row(row, matcher)
        except ValueError as error:
            raise BadFile(path, str(error), number) from error
        count(kept is not None)
        yield row, kept


def kept_row(row: Row, matcher: Matcher) -> Row | None:
    """Return the row without the removed texts of its lists of negatives; `None` if it must be dropped."""
    pairs = list(pairs_of_row(row))
    keeps = matcher.keeps_texts(pairs[0].query, (pair.document for pair in pairs))
    others = [*_other_texts(row, pairs)]
    if others and not all(matcher.keeps_texts(pairs[0].query, others)):
        return None
    if all(keeps):
        return row
    removed = [pair for pair, kept in zip(pairs, keeps, strict=True) if not kept]
    if any(pair.grade is not None for pair in removed):
        return None
    gone, kept = {pair.document for pair in removed}, dict(row)
    for column, value in row.items():
        if not column.startswith("negative"):
            continue
        if isinstance(value, list):
            kept[column] = [text for text in value if text not in gone]
        if value in gone if isinstance(value, str) else value and not kept[column]:
            return None
    elsewhere = gone - {pairs[0].query}
    return kept if elsewhere.isdisjoint(_texts_in(kept)) else None


def _other_texts(row: Row, pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield the texts of a row that form no pair, and its own names of columns: they would be copied with it."""
    known = {pairs[0].query, *(pair.document for pair in pairs)}
    names = (name for name in row if name not in COLUMNS)
    return (text for text in chain(names, _texts_in([*row.values()])) if text not in known)


def _texts_in(value: object) -> Iterator[str]:
    """Yield all texts of a value: those in lists and objects, names of entries and bytes in UTF-8 too."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, bytes):
            with suppress(UnicodeDecodeError):  # it is no text
                yield found.decode()
        elif isinstance(found, dict):
            waiting += chain(found, found.values())
        elif isinstance(found, list | tuple):
            waiting += found


def _json_lines(path: Path, out: Path, rows: Kept) -> None:
    with out.open("w", encoding="utf-8", newline="") as file:
        for (_, line), (row, kept) in zip(read_lines(path), rows, strict=True):
            if kept is not None:
                file.write((line if kept is row else json.dumps(kept, ensure_ascii=False)) + "\n")


def _table(path: Path, out: Path, rows: Kept) -> None:
    """Write TSV or CSV. Their columns hold no lists, so a row is copied unchanged or dropped."""
    written = _csv_line if path.suffix == ".csv" else "\t".join
    first = next(rows, None)
    if first is None:
        shutil.copyfile(path, out)  # a header alone is copied
        return
    with out.open("w", encoding="utf-8", newline="") as file:
        file.write(written(first[0]) + "\n")
        for row, kept in chain([first], rows):
            if kept is not None:
                file.write(written(row.values()) + "\n")


def _csv_line(values: Iterable[str]) -> str:
    """Return a line of CSV with every value quoted.

    >>> print(_csv_line(["a", 'b "c", d']))
    "a","b ""c"", d"
    """
    return ",".join('"' + value.replace('"', '""') + '"' for value in values)


def _parquet(path: Path, out: Path, rows: Kept) -> None:
    with pq.ParquetFile(path) as file, pq.ParquetWriter(out, file.schema_arrow) as writer:
        for batch in file.iter_batches(batch_size=PARQUET_ROWS):
            found = [*islice(rows, len(batch))]
            try:
                writer.write_batch(_passed(batch, found))
            except pa.ArrowException as error:
                problem = f"cannot be written without what was removed: {error}; store its texts as (lists of) strings"
                raise BadFile(path, problem) from error


def _passed(batch: pa.RecordBatch, found: Sequence[tuple[Row, Row | None]]) -> pa.RecordBatch:
    """Return the kept rows of a batch. A column is made anew if something was taken out of it, or if it has a
    dictionary, which would still hold the values of dropped rows."""
    passed = [(row, kept) for row, kept in found if kept is not None]
    left = batch.filter(pa.array([kept is not None for _, kept in found], pa.bool_()))
    for place, column in enumerate(batch.schema):
        changed = any(kept[column.name] is not row[column.name] for row, kept in passed)
        if changed or "dictionary<" in str(column.type):
            left = left.set_column(place, column, pa.array([kept[column.name] for _, kept in passed], column.type))
    return left
