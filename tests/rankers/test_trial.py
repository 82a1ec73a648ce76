"""A model that the machine does not know is tried in a process with limits; one that it knows is not."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.tiny import made_record, make_bi_encoder
from unrank.errors import BadFile
from unrank.forgetting.save import save_ranker
from unrank.rankers import create_ranker, load_ranker, trial
from unrank.rankers.trial import GIB, Attempt, Limits, in_limits


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[Attempt]:
    """The attempts that were made."""
    made: list[Attempt] = []
    usual = trial.in_limits

    def noted(limits: Limits, attempt: Attempt) -> str | None:
        made.append(attempt)
        return usual(limits, attempt)

    monkeypatch.setattr(trial, "in_limits", noted)
    return made


@pytest.fixture
def folder(encoder: Path, tmp_path: Path) -> Path:
    """A ranker that the machine does not know."""
    folder = make_bi_encoder(encoder, tmp_path / "ranker")
    (folder / "README.md").write_text(str(tmp_path))
    return folder


def test_limits_follow_from_the_size_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"a" * 1000)
    with (tmp_path / "large").open("wb") as file:
        file.truncate(10**13)  # it claims that size, and fills no disk
    small, large = (Limits.of([tmp_path / name]) for name in ("small", "large"))
    assert (small.memory, small.seconds) == (2 * GIB + 8000, 120)
    assert large.memory < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert large.seconds == 120 + 120 * 10**13 // GIB


def test_a_folder_is_tried_once(folder: Path, trials: list[Attempt]) -> None:
    for _ in range(2):
        assert load_ranker(folder).kind == "bi-encoder"
    assert trials == [Attempt(str(folder))]


def test_what_no_library_opens_makes_no_difference(folder: Path, trials: list[Attempt]) -> None:
    load_ranker(folder)
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"anything")
    (folder / ".gitattributes").write_text("*.onnx filter=lfs")
    load_ranker(folder)
    assert len(trials) == 1


def test_a_folder_that_unrank_saved_is_known(folder: Path, tmp_path: Path, trials: list[Attempt]) -> None:
    save_ranker(load_ranker(folder), made_record(), tmp_path / "saved")
    load_ranker(tmp_path / "saved")
    assert len(trials) == 1
    (tmp_path / "saved" / "README.md").write_text("changed")
    load_ranker(tmp_path / "saved")
    assert len(trials) == 2


def test_an_encoder_is_tried_for_each_kind(encoder: Path, tmp_path: Path, trials: list[Attempt]) -> None:
    base = shutil.copytree(encoder, tmp_path / "base")
    (Path(base) / "README.md").write_text(str(tmp_path))
    for kind in ("bi-encoder", "cross-encoder", "bi-encoder"):
        create_ranker(kind, str(base), 0)
    assert trials == [Attempt(str(base), True, "bi-encoder"), Attempt(str(base), True, "cross-encoder")]


def test_the_line_of_a_refusal_is_that_of_the_trial(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(BadFile, match=r"model\.safetensors is damaged") as refused:
        load_ranker(folder)
    assert str(refused.value).startswith(f"{folder}: cannot be loaded as a ranker")


def test_the_environment_stays_as_it_is(folder: Path) -> None:
    before = dict(os.environ)
    load_ranker(folder)
    assert dict(os.environ) == before


class Looks(Attempt):
    """An attempt that is refused if a file of the first process is open, and that prints."""

    def make(self) -> None:
        print("a word")
        print("another", file=sys.stderr)
        with suppress(OSError):
            os.fstat(int(self.folder))
            raise BadFile(self.folder, "open")


def test_a_trial_holds_no_lock_and_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A job that is killed during a trial could else not go on until the trial is over."""
    with (tmp_path / "lock").open("w") as file:
        assert in_limits(Limits(GIB, 60), Looks(str(file.fileno()))) is None
        assert not file.closed
        file.write("still open here")
    print("own words")
    assert capfd.readouterr() == ("own words\n", "")


@pytest.mark.slow
def test_where_processes_cannot_be_copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "FORKS", False)
    limits = Limits(4 * GIB, 100)
    assert in_limits(limits, Attempt(str(folder))) is None
    assert in_limits(limits, Attempt(str(folder), new="cross-encoder")) is None
    assert "was not loaded within 1 s" in str(in_limits(Limits(GIB, 1), Attempt(str(folder))))
    (folder / "model.safetensors").write_bytes(b"nothing")
    assert "model.safetensors is damaged" in str(in_limits(limits, Attempt(str(folder))))
