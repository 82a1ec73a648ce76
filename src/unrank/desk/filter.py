"""The filter: passes new training data on, without what was removed, row by row and in the form it came in.

Each source's own reader checks the rows and tells their texts; the line that a row stands in is passed on as it is. A
row of training columns that holds something removed is dropped whole; of a list of negatives only those are taken out
that were removed. What a source does not keep as files (irds, pydocs) is written as a BEIR folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from unrank.collection.sources import parse_source, read_source
from unrank.collection.sources.beir import beir_judgements, beir_texts
from unrank.collection.sources.files import read_lines
from unrank.collection.sources.source import Raw, Text
from unrank.collection.sources.trec import (
    DOCUMENTS,
    qrels_files,
    ranked,
    run_files,
    text_file,
    trec_judgements,
    trec_texts,
)
from unrank.collection.sources.triples import files_by_split
from unrank.desk.columns import filter_columns
from unrank.desk.sieve import Sieve
from unrank.disk import check_free, new_file, new_folder


@dataclass
class Tally:
    """How many rows of each file were read, and how many of them dropped."""

    read: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, kept: bool) -> None:
        self.read[name] = self.read.get(name, 0) + 1
        self.dropped[name] = self.dropped.get(name, 0) + (not kept)


def filter_source(source: str, out: Path, sieve: Sieve) -> Tally:
    """Read `kind:location` and write to `out`, a folder or, where the location is one file, a file."""
    kind, location = parse_source(source)
    check_free(out)
    place, tally = Path(location), Tally()
    if kind == "triples" and not place.is_dir():
        [[path]] = files_by_split(place).values()
        with new_file(out) as partial:
            filter_columns(path, partial, sieve, _counting(tally, path.name))
        return tally
    raw = read_source(source) if kind != "triples" else None  # refuses what is no such source
    with new_folder(out) as folder:
        if raw is None:
            for path in (path for paths in files_by_split(place).values() for path in paths):
                filter_columns(path, folder / path.name, sieve, _counting(tally, path.name))
        elif kind == "beir":
            _filter_beir(place, folder, sieve, tally)
        elif kind == "trec":
            _filter_trec(place, folder, sieve, tally)
        else:
            _filter_raw(raw, folder, sieve, tally)
    return tally


def _filter_beir(place: Path, folder: Path, sieve: Sieve, tally: Tally) -> None:
    for name, keeps in (("queries.jsonl", sieve.keeps_query), ("corpus.jsonl", sieve.keeps_document)):
        _pass(place, name, folder, map(keeps, beir_texts(place / name)), tally)
    for path in sorted((place / "qrels").glob("*.tsv")):
        judged = (sieve.keeps_ids(judgement.query, judgement.document) for judgement in beir_judgements(path))
        _pass(place, f"qrels/{path.name}", folder, judged, tally, has_header=_begins_with_header(path))


def _filter_trec(place: Path, folder: Path, sieve: Sieve, tally: Tally) -> None:
    for path, keeps in (
        (text_file(place, "queries"), sieve.keeps_query),
        (text_file(place, *DOCUMENTS), sieve.keeps_document),
    ):
        _pass(place, path.name, folder, map(keeps, trec_texts(path)), tally)
    for path in qrels_files(place).values():
        judged = (sieve.keeps_ids(judgement.query, judgement.document) for judgement in trec_judgements(path))
        _pass(place, str(path.relative_to(place)), folder, judged, tally)
    for path in run_files(place):
        listed = (sieve.keeps_ids(line.query, line.document) for line in ranked([path]))
        _pass(place, str(path.relative_to(place)), folder, listed, tally)


def _filter_raw(raw: Raw, folder: Path, sieve: Sieve, tally: Tally) -> None:
    def texts(name: str, rows: Iterable[Text], keeps: Callable[[Text], bool]) -> None:
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            for text in rows:
                tally.count(name, kept := keeps(text))
                if kept:
                    file.write(json.dumps({"_id": text.id, "text": text.text}, ensure_ascii=False) + "\n")

    texts("queries.jsonl", raw.queries(), sieve.keeps_query)
    texts("corpus.jsonl", raw.documents(), sieve.keeps_document)
    (folder / "qrels").mkdir()
    for split, judgements in raw.splits.items():
        name = f"qrels/{split.replace('/', '-')}.tsv"
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            for judgement in judgements():
                tally.count(name, kept := sieve.keeps_ids(judgement.query, judgement.document))
                if kept:
                    file.write("\t".join(map(str, judgement)) + "\n")


def _pass(place: Path, name: str, folder: Path, keeps: Iterable[bool], tally: Tally, has_header: bool = False) -> None:
    """Pass on the lines of a file that are to be kept; `keeps` says so for each line that is not empty."""
    lines = (line for _, line in read_lines(place / name))
    (folder / name).parent.mkdir(exist_ok=True)
    with (folder / name).open("w", encoding="utf-8", newline="") as file:
        if has_header:
            file.write(next(lines) + "\n")
        for line, kept in zip(lines, keeps, strict=True):
            tally.count(name, kept)
            if kept:
                file.write(line + "\n")


def _begins_with_header(path: Path) -> bool:
    _, line = next(read_lines(path), (0, ""))
    return line.split("\t")[-1].strip().lower() == "score"


def _counting(tally: Tally, name: str) -> Callable[[bool], None]:
    return lambda kept: tally.count(name, kept)
