"""Attacks by files that are not files: a reader of a named pipe waits for ever, one of a device never ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.tiny import make_bi_encoder
from unrank.cli.main import run
from unrank.collection.collection import Collection
from unrank.desk.copies import find_copies, not_searched
from unrank.desk.request import Item
from unrank.disk import check_regular, open_regular, regular_files, sha256

TEXT = "Mr Quixote of Dulcinea Street owns a windmill"
LIMIT = 60
"""The seconds after which a command counts as hanging."""


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """Interrupt a test that hangs."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"still waiting after {LIMIT} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def fill(folder: Path) -> None:
    """Make a named pipe, a socket, a link to a device and a link to itself, with names that readers look for."""
    folder.mkdir(parents=True, exist_ok=True)
    os.mkfifo(folder / "notes.jsonl")
    os.mkfifo(folder / "config.json")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(folder)  # the path of a socket must be short
        listener.bind("answers.txt")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "round").symlink_to("round")


@pytest.mark.attack(15)
def test_a_pipe_is_no_regular_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path)
    (tmp_path / "text").write_text(TEXT)
    assert regular_files(tmp_path) == [tmp_path / "text"]
    for name in ("notes.jsonl", "answers.txt", "zero"):
        for read in (check_regular, open_regular, sha256):
            with pytest.raises(OSError, match="a named pipe, a socket or a device, which is not read"):
                read(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


@pytest.mark.attack(15)
def test_a_pipe_below_look_is_passed_over(tmp_path: Path, golden: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("plain", "ranker", "collection"):
        fill(tmp_path / "look" / name)
    os.mkfifo(tmp_path / "look" / "ranker" / "unrank.json")
    os.mkfifo(tmp_path / "look" / "ranker" / "model.safetensors")
    os.mkfifo(tmp_path / "look" / "collection" / "collection.json")
    (tmp_path / "look" / "plain" / "text").write_text(f"once {TEXT}, and on")
    unread = {Path(copy.path).name: copy.why for copy in not_searched([tmp_path / "look"])}
    assert unread["notes.jsonl"] == "is a named pipe, a socket or a device, which is not read, so it was not searched"
    assert unread["round"] == "is not readable, so it was not searched" and "text" not in unread
    item = Item(document="document-quixote", document_text=TEXT)
    found = find_copies([tmp_path / "look"], [item], golden, tmp_path / "desk.ledger")
    assert {Path(copy.path).name: copy.why for copy in found} == {
        "text": "holds a text, or half of one",
        "ranker": "has no record, so its training data is not known",
        "collection": "cannot be read, so its content is not known",
    }


@pytest.mark.attack(15)
@pytest.mark.parametrize("name", ["modules.json", "config.json", "model.safetensors", "unrank.json", "other"])
def test_a_pipe_among_a_models_files_is_refused(
    name: str, tmp_path: Path, encoder: Path, dense: Collection, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_bi_encoder(encoder, tmp_path / "ranker")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert run(["evaluate", str(folder), str(dense.folder)]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and name in said and "a named pipe, a socket or a device" in said


@pytest.mark.attack(15)
@pytest.mark.parametrize("name", ["documents.arrow", "queries.arrow"])
def test_a_pipe_in_a_collection_is_refused(
    name: str, tmp_path: Path, dense: Collection, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "collection"
    shutil.copytree(dense.folder, folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert run(["inspect", str(folder)]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and name in said


@pytest.mark.attack(15)
def test_a_pipe_in_a_source_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    (source / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        (source / name).write_text('{"_id": "1", "text": "a text"}\n')
    os.mkfifo(source / "qrels" / "train.tsv")
    assert run(["import", f"beir:{source}", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and "a named pipe, a socket or a device" in said
    os.mkfifo(tmp_path / "rows.parquet")
    assert run(["import", f"triples:{tmp_path / 'rows.parquet'}", "--out", str(tmp_path / "out")]) == 2
    assert "a named pipe, a socket or a device" in capsys.readouterr().err
