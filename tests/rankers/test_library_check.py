"""A ranker from elsewhere is scored as its own library scores it, or refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tiny import made_record
from unrank.errors import BadFile
from unrank.forgetting.save import save_ranker
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.bi_encoder import BiEncoderRanker
from unrank.rankers.cross_encoder import CrossEncoderRanker
from unrank.record import RECORD

TEMPLATE = "{% for message in messages %}{{ message['role'] }} : {{ message['content'] }} {% endfor %}"


@pytest.fixture
def folder(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A cross-encoder of which no check is remembered."""
    shutil.copytree(folders["cross-encoder"], tmp_path / "ranker")
    (tmp_path / "ranker" / "README.md").write_text("nobody has this file")
    return tmp_path / "ranker"


class Checks:
    """The checks that were made, in whatever process: each leaves a line in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return len(self.path.read_text().splitlines()) if self.path.exists() else 0


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checks:
    made = Checks(tmp_path / "checks.txt")
    usual = CrossEncoderRanker.library_scores

    def noted(self: CrossEncoderRanker, queries: Sequence[str], documents: Sequence[str]) -> list[float]:
        with made.path.open("a") as file:
            file.write(f"{len(queries)} pairs\n")
        return usual(self, queries, documents)

    monkeypatch.setattr(CrossEncoderRanker, "library_scores", noted)
    return made


def with_chat_template(folder: Path) -> None:
    """As a folder that transformers wrote: sentence-transformers applies the template to every pair."""
    for name in ("modules.json", "sentence_bert_config.json"):
        (folder / name).unlink()
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": TEMPLATE}))


def test_a_chat_template_is_applied_as_the_library_does(folder: Path) -> None:
    """The trial would refuse other scores than the library's."""
    (folder / "README.md").write_text("a template")
    plain = load_ranker(folder).score_texts(["ba"], ["be bi"])
    with_chat_template(folder)
    ranker = load_ranker(folder)
    assert ranker.kind == "decoder"
    assert ranker.score_texts(["ba"], ["be bi"]) != pytest.approx(plain, abs=1e-3)


def test_a_template_that_is_not_followed_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_chat_template(folder)
    monkeypatch.setattr("unrank.rankers._is_decoder", lambda folder: False)
    with pytest.raises(BadFile, match=r"the model's own library .* \(it has a chat template\)") as refused:
        load_ranker(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("fast", [True, False])
def test_scores_that_differ_are_refused_each_time(
    fast: bool, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folders["bi-encoder"], tmp_path / "ranker")
    (tmp_path / "ranker" / "README.md").write_text(f"fast: {fast}")
    monkeypatch.setattr(BiEncoderRanker, "library_scores", lambda *_: [0.25, -7.0, 1e9])
    for _ in range(2):
        with pytest.raises(BadFile, match=r"unrank scores a pair .* and the model's own library 1e\+09"):
            load_ranker(tmp_path / "ranker", fast=fast)


def test_a_folder_is_checked_once_until_it_changes(folder: Path, checks: Checks) -> None:
    for _ in range(2):
        load_ranker(folder)
    assert len(checks) == 1
    (folder / "README.md").write_text("another")
    load_ranker(folder)
    assert len(checks) == 2


def test_a_check_tells_nothing_of_other_passes_or_another_version(
    folder: Path, checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "README.md").write_text("passes and versions")
    for _ in range(2):
        for fast in (False, True):
            load_ranker(folder, fast=fast)
    assert len(checks) == 2
    monkeypatch.setattr("unrank.__version__", "99")
    load_ranker(folder)
    assert len(checks) == 3


@pytest.mark.parametrize("home", ["a file", "nowhere"])
def test_without_a_state_directory_it_is_checked_each_time(
    home: str, folder: Path, checks: Checks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if home == "a file":
        (tmp_path / "state").write_text("")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    else:
        monkeypatch.delenv("XDG_STATE_HOME")

        def no_home(path: Path) -> Path:
            raise RuntimeError("no home directory")

        monkeypatch.setattr(Path, "expanduser", no_home)
    for _ in range(2):
        load_ranker(folder)
    assert len(checks) == 2


def test_what_unrank_wrote_is_not_checked(encoder: Path, tmp_path: Path, checks: Checks) -> None:
    ranker = create_ranker("cross-encoder", str(encoder), 3)
    save_ranker(ranker, replace(made_record(), ranker="cross-encoder"), tmp_path / "made")
    load_ranker(tmp_path / "made")
    assert len(checks) == 0


def test_a_record_that_anyone_can_write_spares_no_check(folder: Path, checks: Checks) -> None:
    (folder / RECORD).write_text(json.dumps({"hashes": {}}))
    load_ranker(folder)
    assert len(checks) == 1
