"""The filter: in every format, what was removed does not pass, and everything else does as it came."""

from __future__ import annotations

import csv
import json
import tracemalloc
from pathlib import Path
from time import process_time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.desk.conftest import DOCUMENT, PAIR, QUERY, take_in
from unrank.collection.normalisation import normalised, normalised_before_version_4
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.desk.filter import RowCounts, _filter_raw, filter_source, kept_row
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.matcher import Matcher
from unrank.desk.request import Item, State
from unrank.errors import BadFile, UnrankError

ASKED, FOUND = str(QUERY.query_text), str(DOCUMENT.document_text)
LEFT, RIGHT = str(PAIR.query_text), str(PAIR.document_text)

ROWS: list[dict[str, Any]] = [
    {"query": "a", "positive": "x", "negative": "y"},
    {"query": ASKED.upper(), "positive": "x", "negative": "y"},
    {"query": "b", "positive": f" {FOUND.lower()}\n", "negative": "y"},
    {"query": "c", "positive": "x", "negative": FOUND},
    {"query": LEFT, "positive": RIGHT, "negative": "y"},
    {"query": LEFT, "positive": "x", "negative": "y"},
    {"query": 'd, "quoted"', "positive": RIGHT, "negative": "ü"},
]
KEPT = [0, 5, 6]


@pytest.fixture
def matcher(ledger: Ledger, key: Key) -> Matcher:
    take_in(ledger, key, QUERY, DOCUMENT, PAIR)
    return Matcher.of(ledger, key)


def test_json_lines_pass_as_they_came(matcher: Matcher, tmp_path: Path) -> None:
    lines = [json.dumps(row, ensure_ascii=bool(number % 2)) for number, row in enumerate(ROWS)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    tally = filter_source(f"triples:{tmp_path / 'in.jsonl'}", tmp_path / "out.jsonl", matcher)
    assert (tmp_path / "out.jsonl").read_text().splitlines() == [lines[number] for number in KEPT]
    assert tally.read == {"in.jsonl": 7} and tally.dropped == {"in.jsonl": 4}


def test_tables(matcher: Matcher, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    with (folder / "train.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    flat = [{name: text.strip() for name, text in row.items()} for row in ROWS]
    lines = ["\t".join(flat[0]), *("\t".join(row.values()) for row in flat)]
    (folder / "more.tsv").write_text("\n".join(lines) + "\n")
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "test.parquet")
    filter_source(f"triples:{folder}", tmp_path / "out", matcher)
    with (tmp_path / "out" / "train.csv").open(newline="") as file:
        assert [*csv.DictReader(file)] == [ROWS[number] for number in KEPT]
    assert (tmp_path / "out" / "more.tsv").read_text().splitlines() == [lines[0], *(lines[n + 1] for n in KEPT)]
    table = pq.read_table(tmp_path / "out" / "test.parquet")
    assert table.to_pylist() == [ROWS[number] for number in KEPT]
    assert table.schema.equals(pq.read_schema(folder / "test.parquet"))


@pytest.mark.parametrize(("ending", "header"), [("csv", "query,positive\n"), ("tsv", "query\tpositive\n")])
def test_a_header_alone_passes(matcher: Matcher, tmp_path: Path, ending: str, header: str) -> None:
    source, out = tmp_path / f"in.{ending}", tmp_path / f"out.{ending}"
    source.write_text(header)
    filter_source(f"triples:{source}", out, matcher)
    assert out.read_text() == header


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_of_a_list_of_negatives_only_the_removed_are_taken_out(matcher: Matcher, tmp_path: Path, ending: str) -> None:
    rows = [
        {"query": "a", "positive": "x", "negatives": ["y", FOUND, "z"]},
        {"query": "b", "positive": "x", "negatives": [FOUND]},
        {"query": "c", "positive": "x", "negatives": []},
    ]
    source, out = tmp_path / f"in.{ending}", tmp_path / f"out.{ending}"
    if ending == "jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), source)
    filter_source(f"triples:{source}", out, matcher)
    found = pq.read_table(out).to_pylist() if ending == "parquet" else [*map(json.loads, out.read_text().splitlines())]
    assert found == [{**rows[0], "negatives": ["y", "z"]}, rows[2]]


def test_labelled_pairs(matcher: Matcher) -> None:
    assert kept_row({"query": "a", "passage": FOUND, "label": 0}, matcher) is None
    assert kept_row({"query": "a", "passage": "x", "label": 1}, matcher) == {"query": "a", "passage": "x", "label": 1}


@pytest.mark.parametrize(
    "row",
    [
        {"query": "a", "passage": "x", "label": 1, "negative": FOUND},
        {"query": "a", "passage": "x", "label": 1, "negatives": ["y", FOUND]},
        {"query": "a", "positive": "x", "negative": "y", "text": FOUND},
        {"query": "a", "positive": "x", "negatives": ["y", FOUND], "text": FOUND},
    ],
    ids=["a negative", "negatives", "a text", "a text that is a negative too"],
)
def test_a_column_that_no_pair_is_made_of_lets_nothing_through(row: dict[str, object], matcher: Matcher) -> None:
    assert kept_row(row, matcher) is None
    innocent = {name: ["y", "z"] if isinstance(value, list) else value for name, value in row.items() if value != FOUND}
    assert kept_row(innocent, matcher) == innocent


OTHER: list[Any] = [{FOUND: 1}, {"a": [{"b": FOUND}]}, FOUND.encode(), [("k", FOUND)], [(FOUND, "v")]]


@pytest.mark.parametrize("value", OTHER, ids=["a key", "deep", "bytes", "a map", "a key of a map"])
def test_a_removed_text_is_found_at_any_depth(value: object, matcher: Matcher) -> None:
    row = {"query": "a", "positive": "x", "more": value}
    assert kept_row(row, matcher) is None
    assert kept_row({**row, "more": [b"\xff", {"k": 1}, ("l", None)]}, matcher) is not None
    assert kept_row({"query": "a", "positive": "x", FOUND: 1}, matcher) is None, "a column is called by it"


MAP = pa.map_(pa.string(), pa.string())
DICTIONARY = pa.dictionary(pa.int32(), pa.string())


def parquet(folder: Path, rows: int, **more: pa.Array) -> Path:
    """A file of rows with these further columns."""
    columns = {"query": ["a"] * rows, "positive": [f"x{row}" for row in range(rows)], **more}
    pq.write_table(pa.table(columns), folder / "in.parquet")
    return folder / "in.parquet"


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[("k", FOUND)], [("k", "v")], [(FOUND, "v")]], MAP),
        pa.array([FOUND.encode(), b"\xff", f" {FOUND}".encode()]),
        pa.array([FOUND, "v", FOUND], DICTIONARY),
        pa.array([[FOUND], ["v"], [FOUND]], pa.list_(DICTIONARY)),
    ],
    ids=["map", "binary", "dictionary", "list of dictionary"],
)
def test_in_parquet_a_removed_text_is_found_in_any_type(column: pa.Array, matcher: Matcher, tmp_path: Path) -> None:
    source, out = parquet(tmp_path, 3, more=column), tmp_path / "out.parquet"
    filter_source(f"triples:{source}", out, matcher)
    assert pq.read_table(out)["positive"].to_pylist() == ["x1"]
    assert pq.read_schema(out).equals(pq.read_schema(source)) and FOUND.encode() not in out.read_bytes()


def test_in_parquet_other_columns_keep_their_values(matcher: Matcher, tmp_path: Path) -> None:
    """Python has no nanoseconds."""
    times = pa.array([1, 2, 3], pa.time64("ns"))
    source = parquet(tmp_path, 3, times=times, negatives=pa.array([["y", FOUND], [FOUND], ["z"]]))
    filter_source(f"triples:{source}", tmp_path / "out.parquet", matcher)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["times"].cast(pa.int64()).to_pylist() == [1, 3] and table["negatives"].to_pylist() == [["y"], ["z"]]


def test_parquet_that_cannot_be_written_without_a_text_is_refused(matcher: Matcher, tmp_path: Path) -> None:
    source = parquet(tmp_path, 2, negatives=pa.array([["y", FOUND], ["z", "u"]], pa.list_(pa.string(), 2)))
    with pytest.raises(BadFile, match="cannot be written without what was removed"):
        filter_source(f"triples:{source}", tmp_path / "out.parquet", matcher)
    assert not (tmp_path / "out.parquet").exists()


def test_a_text_that_is_removed_whole_and_in_a_pair_does_not_pass(ledger: Ledger, key: Key) -> None:
    take_in(ledger, key, PAIR, Item(document=PAIR.document, document_text=PAIR.document_text))
    assert Matcher.of(ledger, key).keeps_texts("another query", [RIGHT, "x"]) == [False, True]


TEXTS = {
    "queries": [("q1", "a"), ("again", ASKED), (str(QUERY.query), "new words"), ("q2", LEFT), ("query-left", "other")],
    "documents": [
        ("d1", "x"),
        ("again", FOUND),
        ("document-quixote", "new"),
        ("d2", RIGHT),
        ("document-right", "o"),
    ],
}
JUDGED = [
    ("q1", "d1"), ("again", "d1"), (str(QUERY.query), "d1"), ("q1", "again"), ("q1", str(DOCUMENT.document)),
    ("q2", "d2"), ("query-left", "document-right"), ("q2", "document-right"), ("query-left", "d2"), ("q2", "d1"),
]  # fmt: skip
LEFT_OVER = [("q1", "d1"), ("q2", "d1")]
IDS = {"queries": ["q1", "q2", "query-left"], "documents": ["d1", "d2", "document-right"]}


def test_beir(matcher: Matcher, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    (folder / "qrels").mkdir(parents=True)
    for name, side in (("queries", "queries"), ("corpus", "documents")):
        rows = [{"_id": id, "title": "", "text": text, "metadata": {"n": 1}} for id, text in TEXTS[side]]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [f"{query}\t{document}\t1\n" for query, document in JUDGED]
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    (folder / "qrels" / "late.tsv").write_text("\nquery-id\tcorpus-id\tscore\n" + "".join(lines))
    (folder / "qrels" / "bare.tsv").write_text("".join(lines))
    tally = filter_source(f"beir:{folder}", out, matcher)
    for name, side in (("queries", "queries"), ("corpus", "documents")):
        rows = [json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()]
        assert [row["_id"] for row in rows] == IDS[side] and rows[0]["metadata"] == {"n": 1}
    kept = [f"{query}\t{document}\t1" for query, document in LEFT_OVER]
    for name in ("train.tsv", "late.tsv"):
        assert (out / "qrels" / name).read_text().splitlines() == ["query-id\tcorpus-id\tscore", *kept]
    assert (out / "qrels" / "bare.tsv").read_text().splitlines() == kept
    assert tally.dropped["qrels/train.tsv"] == 8


@pytest.mark.parametrize("more", [{"metadata": {FOUND: 1}}, {FOUND: 1}, {"body": FOUND}, {"title": "a", "text": FOUND}])
def test_a_document_passes_only_if_all_of_its_row_does(
    more: dict[str, object], matcher: Matcher, tmp_path: Path
) -> None:
    (tmp_path / "in" / "qrels").mkdir(parents=True)
    rows = [{"_id": "d1", "text": "x", "title": ASKED, "metadata": {"n": 1}}, {"_id": "d2", "text": "x", **more}]
    (tmp_path / "in" / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "in" / "queries.jsonl").write_text('{"_id": "q1", "text": "a"}\n')
    (tmp_path / "in" / "qrels" / "train.tsv").write_text("q1\td1\t1\nq1\td2\t1\n")
    tally = filter_source(f"beir:{tmp_path / 'in'}", tmp_path / "out", matcher)
    assert tally.dropped == {"queries.jsonl": 0, "corpus.jsonl": 1, "qrels/train.tsv": 1}


@pytest.mark.parametrize("ending", ["tsv", "jsonl"])
def test_trec(matcher: Matcher, tmp_path: Path, ending: str) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    (folder / "runs").mkdir(parents=True)
    for side, texts in TEXTS.items():
        lines = [f"{id}\t{text}" if ending == "tsv" else json.dumps({"id": id, "text": text}) for id, text in texts]
        (folder / f"{side}.{ending}").write_text("\n".join(lines) + "\n")
    (folder / "qrels.txt").write_text("".join(f"{query} 0 {document} 1\n" for query, document in JUDGED))
    (folder / "runs" / "bm25.txt").write_text("".join(f"{query} Q0 {document} 1 1.0 t\n" for query, document in JUDGED))
    filter_source(f"trec:{folder}", out, matcher)
    for side, ids in IDS.items():
        assert len((out / f"{side}.{ending}").read_text().splitlines()) == len(ids)
    assert (out / "qrels.txt").read_text().splitlines() == [f"{query} 0 {document} 1" for query, document in LEFT_OVER]
    assert len((out / "runs" / "bm25.txt").read_text().splitlines()) == 2


def test_what_is_no_file_is_written_as_a_beir_folder(matcher: Matcher, tmp_path: Path) -> None:
    texts = {side: [Text(*text) for text in texts] for side, texts in TEXTS.items()}
    judged = {"train/fold0": lambda: [Judgement(*pair, 1) for pair in JUDGED]}
    _filter_raw(
        Raw("made", lambda: texts["queries"], lambda: texts["documents"], judged), tmp_path, matcher, RowCounts()
    )
    lines = (tmp_path / "qrels" / "train-fold0.tsv").read_text().splitlines()
    assert lines[1:] == [f"{query}\t{document}\t1" for query, document in LEFT_OVER]
    assert len((tmp_path / "corpus.jsonl").read_text().splitlines()) == 3


def test_open_requests_count_and_withdrawn_ones_do_not(ledger: Ledger, key: Key) -> None:
    request = take_in(ledger, key, DOCUMENT)
    row = {"query": "a", "positive": FOUND}
    assert kept_row(row, Matcher.of(ledger, key)) is None
    with ledger.transaction():
        ledger.move(request.id, State.WITHDRAWN)
    assert kept_row(row, Matcher.of(ledger, key)) == row


def test_bad_data_leaves_nothing_behind(matcher: Matcher, tmp_path: Path) -> None:
    out, bad = tmp_path / "out.jsonl", tmp_path / "bad.jsonl"
    bad.write_text('{"query": "a", "positive": "b"}\n{"query": "a"}\n')
    with pytest.raises(BadFile, match="line 2"):
        filter_source(f"triples:{bad}", out, matcher)
    with pytest.raises(UnrankError, match="unknown source"):
        filter_source("tripels:x", out, matcher)
    with pytest.raises(UnrankError, match="needs a location"):
        filter_source("triples:", out, matcher)
    with pytest.raises(BadFile, match="no such file"):
        filter_source(f"triples:{tmp_path / 'none.jsonl'}", out, matcher)
    assert [path.name for path in tmp_path.glob("*out*")] == []


def rows_to_pass(path: Path, count: int) -> Path:
    """A row is a passage of fifty words, as training data has them."""
    words = " ".join(f"word{number}" for number in range(50))
    with path.open("w") as file:
        for number in range(count):
            row = {"query": f"query {number % 1000}", "positive": f"{number} {words}", "negative": f"{words} {number}"}
            file.write(json.dumps(row) + "\n")
    return path


@pytest.mark.slow
def test_twenty_thousand_rows_a_second(matcher: Matcher, tmp_path: Path) -> None:
    rows = rows_to_pass(tmp_path / "rows.jsonl", 40_000)
    began = process_time()
    filter_source(f"triples:{rows}", tmp_path / "timed.jsonl", matcher)
    assert 40_000 / (process_time() - began) > 20_000


@pytest.mark.slow
def test_memory_stays_flat(matcher: Matcher, tmp_path: Path) -> None:
    peaks = []
    for number, count in enumerate((500, 3_000)):
        path = rows_to_pass(tmp_path / f"{count}.jsonl", count)
        tracemalloc.start()
        filter_source(f"triples:{path}", tmp_path / f"out{number}.jsonl", matcher)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_hashes_of_the_former_normalisation_are_still_recognised(
    ledger: Ledger, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = Key.hashes
    with monkeypatch.context() as former:
        former.setattr("unrank.desk.ledger.NORMALISATION", None)
        former.setattr(Key, "hashes", lambda key, item: hashes(key, item, normalised_before_version_4))
        take_in(ledger, key, Item(document="d1", document_text="A windmill, and its owner."))
    take_in(ledger, key, Item(document="d2", document_text="Another windmill."))
    matcher = Matcher.of(ledger, key)
    passes = [matcher.keeps_document(Text(f"new{i}", text)) for i, text in enumerate(
        ["A windmill, and its OWNER.", "another windmill", "Another windmill…", "a third windmill."]
    )]  # fmt: skip
    assert passes == [False, False, False, True]


def test_one_normalisation_is_computed_where_one_is_in_the_ledger(ledger: Ledger, key: Key) -> None:
    take_in(ledger, key, DOCUMENT)
    assert ledger.normalisations() == [normalised] and Matcher.of(ledger, key).documents.of_former_text is None
