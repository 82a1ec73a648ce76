"""A long run holds no more at its end than after its first epochs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.forgetting.conftest import FAST
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.engine.resume import resumable
from unrank.engine.runtime import Silence
from unrank.forgetting.forget import forget
from unrank.forgetting.train import Trained

EPOCHS = 200
SETTLED = 40
"""Epochs after which allocators have what they need."""
MEGABYTES = 8


class Scales(Silence):
    """Weighs the process at every check."""

    def __init__(self) -> None:
        self.megabytes: list[float] = []

    def say(self, line: str) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.megabytes.append(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)


@pytest.mark.slow
def test_memory_stays_flat(trained: Trained, dense: Collection, removal: Removal, tmp_path: Path) -> None:
    scales, method = Scales(), replace(FAST, epochs=EPOCHS, learning_rate=1e-6, batch=64, phases="joint")
    with resumable(tmp_path / "out", every=0) as run:
        result = forget(trained.ranker, dense, removal, method=method, target=0.01, progress=scales, run=run)
    assert result.record.epochs == EPOCHS
    growth = max(scales.megabytes[SETTLED:]) - scales.megabytes[SETTLED]
    print(f"{growth:.1f} MB more after {EPOCHS} epochs than after {SETTLED}, of {scales.megabytes[SETTLED]:.0f} MB")
    assert growth < MEGABYTES
