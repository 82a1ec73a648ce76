"""TREC's file formats: queries, documents, qrels and runs in one folder.

- `queries.tsv` or `.jsonl`, and `documents.tsv` or `.jsonl` (or `collection`, `corpus`, `docs`): id and text separated
  by one tab, or a JSON object on each line with an id, a text and an optional title, which is put before the text;
- `qrels.txt` for the split `train`, `qrels.<split>.txt` or `qrels/<split>.txt` for any split: query, iteration,
  document, grade, separated by spaces. The ending may be `.tsv` too, and `.qrels` inside the folder `qrels`;
- optional: `run.txt`, `run.<name>.txt` or the files of `runs/`: query, Q0, document, rank, score, tag. Documents are
  ordered by rank; if there are several runs, by rank over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from unrank.collection.sources.files import read_grade, read_json_lines, read_lines, read_whole
from unrank.collection.sources.source import Judgement, Ranked, Raw, Text, best_first
from unrank.errors import BadFile

DOCUMENTS = ("documents", "collection", "corpus", "docs")
ID_KEYS = ("_id", "id", "docno", "query_id", "doc_id")
TEXT_KEYS = ("text", "contents", "body")
QREL = ("query", "iteration", "document", "grade")
RUN = ("query", "Q0", "document", "rank", "score", "tag")
LARGEST_RANK = 2**53
"""Ranks are sorted as float64, which tells whole numbers apart up to here."""


def read_trec(location: str, test_split: str | None) -> Raw:
    """Read a folder of TREC files."""
    folder = Path(location)
    if not folder.is_dir():
        raise BadFile(folder, "no such folder; trec: takes the folder of queries, documents and qrels")
    runs = run_files(folder)
    return Raw(
        name=folder.resolve().name,
        queries=partial(trec_texts, text_file(folder, "queries")),
        documents=partial(trec_texts, text_file(folder, *DOCUMENTS)),
        splits={split: partial(trec_judgements, path) for split, path in qrels_files(folder).items()},
        candidates=partial(best_first, partial(ranked, runs)) if runs else None,
    )


def text_file(folder: Path, *stems: str) -> Path:
    """Return the file of the queries or of the documents."""
    names = [f"{stem}{ending}" for stem in stems for ending in (".tsv", ".jsonl")]
    found = [name for name in names if (folder / name).is_file()]
    if not found:
        raise BadFile(folder, f"contains no {stems[0]}; expected one of {', '.join(names)}")
    if len(found) > 1:
        raise BadFile(folder, f"contains {stems[0]} twice, in {' and '.join(found)}; keep one")
    return folder / found[0]


def trec_texts(path: Path) -> Iterator[Text]:
    """Yield the texts of a TSV or JSONL file."""
    return _read_tsv(path) if path.suffix == ".tsv" else _read_jsonl(path)


def _read_tsv(path: Path) -> Iterator[Text]:
    for number, line in read_lines(path):
        columns = line.split("\t")
        if len(columns) != 2 or not columns[0]:
            raise BadFile(path, f"expected id and text separated by one tab, found {len(columns)} columns", number)
        yield Text(*columns)


def _read_jsonl(path: Path) -> Iterator[Text]:
    for number, row in read_json_lines(path):
        id = next((row[key] for key in ID_KEYS if key in row), None)
        text = next((row[key] for key in TEXT_KEYS if key in row), None)
        title = row.get("title") or ""
        if isinstance(id, int) and not isinstance(id, bool):
            id = str(id)
        if not (isinstance(id, str) and id and isinstance(text, str) and isinstance(title, str)):
            keys = f"{_either(ID_KEYS)} and {_either(TEXT_KEYS)}"
            raise BadFile(path, f"expected an object with {keys}, both strings", number)
        yield Text(id, f"{title} {text}".strip())


def qrels_files(folder: Path) -> dict[str, Path]:
    """Return the file of each split's judgements."""
    found: dict[str, Path] = {}
    plain = [("train", folder / name) for name in ("qrels", "qrels.txt", "qrels.tsv")]
    beside = [(path.stem.removeprefix("qrels."), path) for path in _files(folder, "qrels.*.*", ".txt", ".tsv")]
    within = [(path.stem, path) for path in _files(folder, "qrels/*", ".txt", ".tsv", ".qrels")]
    for split, path in [*plain, *beside, *within]:
        if not path.is_file():
            continue
        if split in found:
            raise BadFile(path, f"the split {split!r} is in {found[split].relative_to(folder)} already; keep one")
        found[split] = path
    if not found:
        raise BadFile(folder, "contains no qrels; expected qrels.txt, qrels.<split>.txt or qrels/<split>.txt")
    return found


def run_files(folder: Path) -> list[Path]:
    """Return the run files, if there are any."""
    plain = [path for name in ("run", "run.txt", "run.tsv") if (path := folder / name).is_file()]
    return [*plain, *_files(folder, "run.*.*", ".txt", ".tsv"), *_files(folder, "runs/[!.]*")]


def _files(folder: Path, pattern: str, *endings: str) -> list[Path]:
    return [path for path in sorted(folder.glob(pattern)) if path.is_file() and (path.suffix in endings or not endings)]


def trec_judgements(path: Path) -> Iterator[Judgement]:
    """Yield the judgements of a qrels file."""
    for number, (query, _, document, grade) in _read_columns(path, QREL):
        yield Judgement(query, document, read_grade(path, number, grade))


def ranked(paths: Sequence[Path]) -> Iterator[Ranked]:
    """Yield the lines of run files."""
    for path in paths:
        for number, (query, _, document, rank, _, _) in _read_columns(path, RUN):
            yield Ranked(query, document, _rank(path, number, rank))


def _rank(path: Path, number: int, text: str) -> int:
    return read_whole(path, number, "rank", text, -LARGEST_RANK, LARGEST_RANK)


def _read_columns(path: Path, names: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_lines(path):
        columns = line.split()
        if len(columns) != len(names):
            raise BadFile(
                path, f"expected {', '.join(names)} separated by spaces, found {len(columns)} columns", number
            )
        yield number, columns


def _either(names: Sequence[str]) -> str:
    """Return names as a choice in words.

    >>> _either(("a", "b", "c"))
    "'a', 'b' or 'c'"
    """
    *first, last = map(repr, names)
    return f"{', '.join(first)} or {last}"
