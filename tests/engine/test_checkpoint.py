"""A checkpoint comes back bit by bit, or is refused: never anything between."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from unrank.disk import CHECKPOINT
from unrank.engine.checkpoint import Checkpoint, digest
from unrank.engine.resume import ResumableRun
from unrank.errors import BadFile, UnrankError


@pytest.fixture
def checkpoint() -> Checkpoint:
    generator = torch.Generator().manual_seed(1)
    tensors = {
        "walk/weights/a": torch.randn(7, 5, generator=generator),
        "walk/optimizer/0/step": torch.tensor(3.0),
        "steering/best/a": torch.randn(3, generator=generator).to(torch.bfloat16),
        "empty": torch.zeros(0),
    }
    return Checkpoint({"walk": {"at": [1, 0, 2], "loss": 0.1 + 0.2}, "job": {"seed": 0}, "steering": {}}, tensors)


@contextmanager
def files_at_most(size: int) -> Iterator[None]:
    """While no file may grow beyond a size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def same(one: Checkpoint | None, other: Checkpoint) -> bool:
    return one is not None and one.facts == other.facts and digest(one.tensors) == digest(other.tensors)


def test_it_comes_back_as_it_was(checkpoint: Checkpoint, tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "one")
    checkpoint.save(tmp_path / "one")
    back = Checkpoint.load(tmp_path / "one")
    assert same(back, checkpoint)
    assert back is not None
    assert back.part("walk").facts["loss"] == 0.1 + 0.2
    assert set(back.part("walk").under("weights")) == {"a"}
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert Checkpoint.load(tmp_path / "none") is None


def test_a_hash_tells_every_difference() -> None:
    numbers = torch.arange(4.0)
    alike = [{"a": numbers}, {"b": numbers}, {"a": numbers.double()}, {"a": numbers.view(2, 2)}, {"a": -numbers}]
    assert len({digest(tensors) for tensors in alike}) == len(alike)
    assert digest({"a": torch.tensor(0.0)}) != digest({"a": torch.tensor(-0.0)})


def test_whatever_is_damaged_is_refused_or_harmless(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path, generator = tmp_path / "one", random.Random(2)
    checkpoint.save(path)
    whole = path.read_bytes()
    flips = [bytearray(whole) for _ in range(300)]
    for flip in flips:
        flip[generator.randrange(len(flip))] ^= 1 << generator.randrange(8)
    cuts = [whole[: generator.randrange(len(whole))] for _ in range(100)]
    refused = 0
    for damaged in [*map(bytes, flips), *cuts, whole + b"more", b"", bytes(len(whole)), b"\xff" * len(whole)]:
        path.write_bytes(damaged)
        try:
            assert same(Checkpoint.load(path), checkpoint)
        except BadFile as error:
            assert "start again with --no-resume" in str(error)
            refused += 1
    assert refused > 380


def test_where_the_disk_is_full_the_one_before_stays(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "one"
    checkpoint.save(path)
    larger = Checkpoint({}, {"a": torch.zeros(100_000)})
    with files_at_most(5_000), pytest.raises(UnrankError, match=r"one cannot be written: .*File too large"):
        larger.save(path)
    assert same(Checkpoint.load(path), checkpoint)
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_checkpoint_with_former_names_of_settings_belongs_to_the_same_job(tmp_path: Path) -> None:
    Checkpoint({"job": {"method": "cocol", "held": 2, "seed": 0}}).save(tmp_path / CHECKPOINT)
    run = ResumableRun(tmp_path)
    run.claim(lambda: {"method": "cocol", "anchors_per_pair": 2, "seed": 0})
    with pytest.raises(UnrankError, match="not this one: anchors_per_pair is 2 there and 3 here; use the same options"):
        run.claim(lambda: {"method": "cocol", "anchors_per_pair": 3, "seed": 0})
