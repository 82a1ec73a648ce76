"""What a ranker would be saved as is known from the files that it was loaded from."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from tests.tiny import made_record
from unrank.engine import teacher
from unrank.engine.teacher import saved_digest
from unrank.forgetting.save import save_ranker
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.saved_files import saved_files


@pytest.fixture
def folder(encoder: Path, tmp_path: Path) -> Path:
    save_ranker(create_ranker("cross-encoder", str(encoder), 0), made_record(), tmp_path / "saved")
    return tmp_path / "saved"


def test_a_loaded_ranker_is_not_saved_to_know_its_digest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = load_ranker(folder)
    known = saved_digest(ranker)
    assert saved_files(ranker) is not None
    monkeypatch.setattr(teacher, "saved_files", lambda ranker: None)
    assert saved_digest(ranker) == known


def test_a_ranker_that_moved_is_another(folder: Path) -> None:
    ranker = load_ranker(folder)
    student = copy.deepcopy(ranker)
    assert saved_files(student) is None
    assert saved_files(ranker.to("cpu").requires_grad_(False)) is not None
    known = saved_digest(ranker)
    with torch.no_grad():
        next(ranker.parameters()).add_(1.0)
    assert saved_files(ranker) is None
    assert saved_digest(ranker) != known


def test_changed_files_are_not_what_would_be_saved(folder: Path) -> None:
    (folder / "notes.json").write_text("{}")
    assert saved_files(load_ranker(folder)) is None
