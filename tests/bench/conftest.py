"""A little grid on the tiny encoder, and a way to run it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unrank.bench.cell import Cell
from unrank.bench.grid import read_grid
from unrank.bench.plan import plan_cells
from unrank.cli.main import run
from unrank.collection.collection import Collection

Grid = Callable[..., Path]
RunBench = Callable[..., int]

QUICK = 'training = "epochs=2,negatives=1,batch=32,learning_rate=1e-3"\nepochs = 2\n'


@pytest.fixture
def grid(dense: Collection, encoder: Path, tmp_path: Path) -> Grid:
    """Write a grid on the dense collection; what is given comes on top of what every quick one has."""

    def write(more: str = "", rankers: str = '["bi-encoder"]', name: str = "grid.toml") -> Path:
        path = tmp_path / name
        head = f'collections = ["{dense.folder}"]\nrankers = {rankers}\nbase = "{encoder}"\n'
        path.write_text(f"{head}{QUICK}{more}\n", encoding="utf-8")
        return path

    return write


@pytest.fixture
def bench(tmp_path: Path) -> RunBench:
    def run_bench(grid: Path, *more: str, out: Path | None = None) -> int:
        return run(["bench", str(grid), "--out", str(out or tmp_path / "out"), "--quiet", "--device", "cpu", *more])

    return run_bench


def cells_of(path: Path) -> list[Cell]:
    return plan_cells(read_grid(path))
