"""A removed text that stays or comes back: disguised, or as a copy under another id."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import write_beir
from tests.tiny import make_bi_encoder
from unrank.cli.main import run
from unrank.collection.collection import Collection, open_collection
from unrank.desk.batch import count_copies, open_batch
from unrank.desk.copies import find_copies, not_searched
from unrank.desk.key import key_file
from unrank.desk.ledger import Ledger
from unrank.desk.request import Item
from unrank.forgetting.previous_requests import recognised
from unrank.record import Record, forgotten_requests

TEXT = "Mr Quixote of Dulcinea Street owns a windmill"
DISGUISES = {
    "byte order mark": f"\ufeff{TEXT}",
    "zero-width space": TEXT.replace("Quixote", "Qui\u200bxote"),
    "soft hyphen": TEXT.replace("windmill", "wind\u00admill"),
    "left-to-right mark": TEXT.replace(" ", " \u200e"),
    "NUL": f"{TEXT}\0",
    "NUL between words": TEXT.replace(" ", "\0 "),
    "full stop": f"{TEXT}.",
    "quotes": f"“{TEXT}!”",
    "tag characters": f"{TEXT}\U000e0041",
    "variation selector": TEXT.replace("M", "M\ufe0f"),
    "fullwidth letters": TEXT.replace("windmill", "ｗｉｎｄｍｉｌｌ"),
}


def make_desk(folder: Path, texts: dict[str, str], *words: str) -> Path:
    """A collection in which document d0 has the text, further documents have others, and a request that names d0."""
    beir = write_beir(folder / "beir", [(f"q{i}", f"d{i}") for i in range(6)], documents=4)
    lines = [json.loads(line) for line in (beir / "corpus.jsonl").read_text().splitlines()]
    rows = [{**line, "text": texts.get(line["_id"], line["text"])} for line in lines]
    (beir / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["import", f"beir:{beir}", "--out", str(folder / "collection"), "--candidates", "4"]) == 0
    command = ["desk", "add", str(folder / "collection"), "--document", "d0", "--ledger", str(folder / "ledger")]
    assert run([*command, *words]) == 0
    return folder / "collection"


@pytest.mark.attack(20)
def test_a_disguised_text_does_not_pass_the_filter(tmp_path: Path) -> None:
    make_desk(tmp_path, {"d0": TEXT})
    rows = [{"query": f"question {name}", "positive": text} for name, text in DISGUISES.items()]
    other = {"query": "another question", "positive": "Mr Quixote owns a windmill"}
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, other]))
    command = ["filter", f"triples:{tmp_path / 'new.jsonl'}", "--out", str(tmp_path / "kept.jsonl")]
    assert run([*command, "--ledger", str(tmp_path / "ledger")]) == 0
    assert [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()] == [other]


@pytest.mark.attack(4)
def test_a_copy_under_another_id_is_removed_with_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    collection = make_desk(tmp_path, {"d0": TEXT, "d3": f"\ufeff{TEXT.upper()}!", "d4": f"{TEXT} and a mill"})
    assert "document d3: the same text as d0" in capsys.readouterr().err
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert [item.document for item in ledger.items(1)] == ["d0", "d3"]
    assert run(["inspect", str(collection), "--removal", str(removal(tmp_path)), "--json"]) == 0
    said = capsys.readouterr()
    assert len(json.loads(said.out)["forget"]) == 2 and "1 copy of what is named: removed too" in said.err
    assert run(["inspect", str(collection), "--removal", str(removal(tmp_path)), "--json", "--no-copies"]) == 0
    said = capsys.readouterr()
    assert len(json.loads(said.out)["forget"]) == 1 and "left, as --no-copies says" in said.err


@pytest.mark.attack(4)
def test_a_ranker_trained_without_a_text_is_trained_without_its_copies(tmp_path: Path, encoder: Path) -> None:
    collection = make_desk(tmp_path, {"d0": TEXT, "d3": TEXT})
    command = ["train", str(collection), "--ranker", "bi-encoder", "--base", str(encoder), "--set", "epochs=1"]
    assert run([*command, "--removal", str(removal(tmp_path)), "--out", str(tmp_path / "retrained")]) == 0
    opened, record = open_collection(collection), Record.read(tmp_path / "retrained")
    assert recognised(opened, forgotten_requests(record)).documents == ("d0", "d3")


@pytest.mark.attack(4)
def test_a_copy_that_came_later_is_found_by_the_batch(tmp_path: Path) -> None:
    make_desk(tmp_path / "old", {"d0": TEXT})
    later = make_desk(tmp_path / "new", {"d0": TEXT, "d3": TEXT})
    place = tmp_path / "old" / "ledger"
    with Ledger.open(place) as ledger:
        key = ledger.key(key_file(place))
        batch = open_batch(ledger, key, open_collection(later), None)
        assert [item.document for item in batch.copies[1]] == ["d3"] and batch.removal.documents == ("d0", "d3")
        ledger.add_copies(1, batch.copies[1], key)
        ledger.verify()
        again = open_batch(ledger, key, open_collection(later), None)
        assert again.copies == {} and again.removal == batch.removal
        before = open_batch(ledger, key, open_collection(tmp_path / "old" / "collection"), None)
        assert before.removal.documents == ("d0",)  # the copy is not in this collection, and the request fits it


@pytest.mark.attack(4)
def test_copies_that_are_left_are_on_record(tmp_path: Path) -> None:
    collection = make_desk(tmp_path, {"d0": TEXT, "d3": TEXT}, "--no-copies")
    place = tmp_path / "ledger"
    with Ledger.open(place) as ledger:
        batch = open_batch(ledger, ledger.key(key_file(place)), open_collection(collection), None)
        assert batch.removal.documents == ("d0",) and batch.copies == {}
        assert [item.document for item in batch.left[1]] == ["d3"]
        assert count_copies(ledger, batch, 1) == {"left": 1}


def removal(folder: Path) -> Path:
    place = folder / "removal.json"
    place.write_text(json.dumps({"documents": ["d0"]}))
    return place


@pytest.mark.attack(6)
def test_a_run_keeps_no_path_that_names_an_item(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collection = make_desk(tmp_path, {"d0": TEXT})
    make_bi_encoder(encoder, tmp_path / "ranker")
    command = ["desk", "run", str(tmp_path / "ranker"), str(collection), "--yes", "--ledger", str(tmp_path / "ledger")]
    for out in ("without-d0", "MrQuixoteOfDulcineaStreet", "mr%20quixote%20of%20dulcinea"):
        before = (tmp_path / "ledger").read_bytes()
        assert run([*command, "--out", str(tmp_path / out)]) == 2
        assert "the ledger keeps this path" in capsys.readouterr().err
        assert (tmp_path / "ledger").read_bytes() == before


@pytest.mark.attack(0)
@pytest.mark.parametrize("name", ["a.gz", "a.zip", "renamed.txt", "a.parquet", "a.xz", "a.bz2", "a.br"])
def test_a_compressed_file_is_not_passed_over_silently(tmp_path: Path, name: str) -> None:
    written = {
        "a.gz": gzip.compress(TEXT.encode()),
        "renamed.txt": gzip.compress(TEXT.encode()),
        "a.xz": lzma.compress(TEXT.encode()),
        "a.bz2": bz2.compress(TEXT.encode()),
        "a.br": b"no magic bytes",
    }
    look = tmp_path / "look"
    look.mkdir()
    if name == "a.zip":
        with ZipFile(look / name, "w") as archive:
            archive.writestr("text", TEXT)
    elif name == "a.parquet":
        pq.write_table(pa.table({"text": [TEXT]}), look / name)
    else:
        (look / name).write_bytes(written[name])
    (look / "plain.txt").write_text("nothing")
    assert [Path(copy.path).name for copy in not_searched([look])] == [name]


@pytest.mark.attack(0)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1", "utf-8-sig"])
def test_a_text_is_found_in_other_encodings(tmp_path: Path, golden: Collection, encoding: str) -> None:
    (tmp_path / "export.txt").write_bytes("… Älter ist Herr Quijote nicht …".replace("…", "-").encode(encoding))
    item = Item(document="d1", document_text="Älter ist Herr Quijote nicht.")
    [found] = find_copies([tmp_path], [item], golden, tmp_path / "desk.ledger")
    assert Path(found.path).name == "export.txt"


@pytest.mark.attack(0)
def test_a_removed_text_does_not_pass_in_another_column(tmp_path: Path) -> None:
    text = f"{TEXT} by the river"
    make_desk(tmp_path, {"d0": text})
    words = ["desk", "add", str(tmp_path / "collection"), "--query", "q3", "--ledger", str(tmp_path / "ledger")]
    assert run(words) == 0
    [query] = [json.loads(line)["text"] for line in (tmp_path / "beir" / "queries.jsonl").read_text().splitlines()[3:4]]
    rows = [
        {"query": text, "positive": "another"},
        {"query": "another", "positive": query.upper()},
        {"query": "another", "positive": "one", "source": {"lines": [["first", f"{text}."]]}},
    ]
    kept = {"query": "another", "positive": "one", "source": {"lines": [["first"]]}}
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, kept]))
    command = ["filter", f"triples:{tmp_path / 'new.jsonl'}", "--out", str(tmp_path / "kept.jsonl")]
    assert run([*command, "--ledger", str(tmp_path / "ledger")]) == 0
    assert [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()] == [kept]


@pytest.mark.attack(0)
def test_a_result_is_not_written_into_what_it_is_made_from(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ranker inside a certified folder would make that folder another one than was certified."""
    collection, ranker = make_desk(tmp_path, {"d0": TEXT}), make_bi_encoder(encoder, tmp_path / "ranker")
    (tmp_path / "link").symlink_to(ranker)
    request = ["--removal", str(removal(tmp_path))]
    commands: list[list[str]] = [
        ["desk", "run", str(ranker), str(collection), "--yes", "--ledger", str(tmp_path / "ledger")],
        ["forget", str(ranker), str(collection), *request],
        ["audit", str(ranker), str(collection), *request],
        ["train", str(collection), "--ranker", "bi-encoder", "--base", str(encoder)],
    ]
    before = sorted(path.name for path in [*ranker.rglob("*"), *collection.rglob("*")])
    for command in commands:
        for place in (collection, ranker, tmp_path / "link"):
            if command[0] == "train" and place is not collection:
                continue
            assert run([*command, "--out", str(place / "inside")]) == 2
            assert "which must stay as it is: choose a folder outside" in capsys.readouterr().err
    assert sorted(path.name for path in [*ranker.rglob("*"), *collection.rglob("*")]) == before


@pytest.mark.attack(0)
def test_a_name_that_is_not_utf_8_is_refused_before_any_work(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collection, out = make_desk(tmp_path, {"d0": TEXT}), str(tmp_path / "x\udcff")
    for command in (
        ["train", str(collection), "--ranker", "bi-encoder", "--base", str(encoder)],
        ["import", f"beir:{tmp_path / 'beir'}"],
        ["desk", "run", str(encoder), str(collection), "--yes", "--ledger", str(tmp_path / "ledger")],
    ):
        assert run([*command, "--out", out]) == 2
        assert "is not UTF-8" in capsys.readouterr().err


@pytest.mark.attack(0)
def test_a_removed_text_does_not_pass_beside_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither in the metadata of a document, nor under a key that is there twice."""
    make_desk(tmp_path, {"d0": TEXT})
    new = write_beir(tmp_path / "new", [("a", "b"), ("c", "d")])
    rows = [json.loads(line) for line in (new / "corpus.jsonl").read_text().splitlines()]
    rows[0]["metadata"] = {"before": [TEXT.upper()]}
    rows[1]["metadata"] = {"before": []}
    (new / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ledger = ["--ledger", str(tmp_path / "ledger")]
    assert run(["filter", f"beir:{new}", "--out", str(tmp_path / "kept"), *ledger]) == 0
    assert [json.loads(line) for line in (tmp_path / "kept" / "corpus.jsonl").read_text().splitlines()] == rows[1:]
    assert "a\tb" not in (tmp_path / "kept" / "qrels" / "train.tsv").read_text()
    (tmp_path / "twice.jsonl").write_text(f'{{"query": "a", "positive": "{TEXT}", "positive": "b"}}\n')
    assert run(["filter", f"triples:{tmp_path / 'twice.jsonl'}", "--out", str(tmp_path / "k.jsonl"), *ledger]) == 2
    assert "line 1: the key 'positive' is there twice in one object" in capsys.readouterr().err
