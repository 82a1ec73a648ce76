"""The filter: copies new training data without what was removed, row by row and in its own format.

The reader of each source checks the rows and returns their texts; a row that passes is copied as it is. A row of
training columns (JSONL, TSV, CSV, Parquet) with a removed text is dropped; from a list of negatives only the removed
ones are taken out. Sources that are no files (irds, pydocs) are written as a BEIR folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
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
from unrank.collection.sources.triples import Pair, files_by_split, pairs_of_row
from unrank.desk.matcher import Matcher
from unrank.disk import check_free, new_file, new_folder
from unrank.errors import BadFile

OWN_TEXTS = {*ID_KEYS, *TEXT_KEYS, "title"}
"""The keys of a row whose values are its id and its text."""
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
    others = ([value for key, value in row.items() if key not in OWN_TEXTS] for row in rows)
    return (keeps(text, [*_texts_in(more)] if more else ()) for text, more in zip(texts, others, strict=True))


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
    return kept


def _other_texts(row: Row, pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield the texts of columns that form no pair: they would be copied with the row."""
    known = {pairs[0].query, *(pair.document for pair in pairs)}
    for value in row.values():
        for text in (value,) if isinstance(value, str) else _texts_in(value):
            if text not in known:
                yield text


def _texts_in(value: object) -> Iterator[str]:
    """Yield all texts of a value, those in lists and objects too."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, list | dict):
            waiting += found.values() if isinstance(found, dict) else found


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
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
    with pq.ParquetWriter(out, schema) as writer:
        batch: list[Row] = []
        for _, kept in rows:
            if kept is not None:
                batch.append(kept)
            if len(batch) == PARQUET_ROWS:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch.clear()
        writer.write_table(pa.Table.from_pylist(batch, schema))
