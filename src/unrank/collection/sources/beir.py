"""BEIR's layout: `corpus.jsonl`, `queries.jsonl` and `qrels/<split>.tsv` in one folder.

A document's text is its title and its text, joined. A qrels file has a header line and the columns query, document and
score, separated by tabs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from unrank.collection.sources.files import read_grade, read_json_lines, read_lines
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.errors import BadFile


def read_beir(location: str, test_split: str | None) -> Raw:
    """Read a BEIR folder."""
    folder = Path(location)
    if not folder.is_dir():
        raise BadFile(folder, "no such folder; beir: takes the folder that contains corpus.jsonl")
    for name in ("corpus.jsonl", "queries.jsonl"):
        if not (folder / name).is_file():
            raise BadFile(folder / name, "missing; a BEIR folder contains corpus.jsonl, queries.jsonl and qrels/")
    splits = {path.stem: partial(beir_judgements, path) for path in sorted((folder / "qrels").glob("*.tsv"))}
    if not splits:
        raise BadFile(folder / "qrels", "contains no .tsv file; a BEIR folder has one for each split")
    note = folder / "NOTE.txt"
    return Raw(
        name=folder.resolve().name,
        queries=partial(beir_texts, folder / "queries.jsonl"),
        documents=partial(beir_texts, folder / "corpus.jsonl"),
        splits=splits,
        licence=f"see {note.name} of the source" if note.is_file() else "",
    )


def beir_texts(path: Path) -> Iterator[Text]:
    """Yield the texts of corpus.jsonl or queries.jsonl."""
    for number, row in read_json_lines(path):
        id, title, text = row.get("_id"), row.get("title") or "", row.get("text")
        if not isinstance(id, str) or not id or not isinstance(text, str) or not isinstance(title, str):
            raise BadFile(path, 'expected {"_id": "...", "text": "..."}', number)
        yield Text(id, f"{title} {text}".strip())


def beir_judgements(path: Path) -> Iterator[Judgement]:
    """Yield the judgements of one split."""
    for place, (number, line) in enumerate(read_lines(path)):
        columns = line.split("\t")
        if len(columns) != 3:
            raise BadFile(
                path, f"expected query, document and score separated by tabs, found {len(columns)} columns", number
            )
        if place == 0 and columns[2].strip().lower() == "score":
            continue
        yield Judgement(columns[0], columns[1], read_grade(path, number, columns[2]))
