"""Who does what, and when: nothing twice, nothing too soon, and what shares an original with who has it at hand."""

from __future__ import annotations

from pathlib import Path

from tests.bench.conftest import Grid, cells_of
from unrank.bench.cell import Cell, Original
from unrank.bench.schedule import Schedule
from unrank.bench.times import Times

TWO = 'removals = ["documents"]\nmethods = ["retrain", "cocol", "ssd"]\nseeds = [0, 1]'


def open_schedule(path: Path) -> Schedule:
    return Schedule(cells_of(path), finished=(), trained=())


def label(task: Original | Cell | None) -> str:
    if task is None:
        return "nothing"
    return f"original {task.seed}" if isinstance(task, Original) else f"{task.label} {task.original.seed}"


def test_two_workers_never_train_the_same_and_stay_with_what_they_have(grid: Grid) -> None:
    schedule = open_schedule(grid(TWO))
    first, second = schedule.take(None), schedule.take(None)
    assert [label(task) for task in (first, second, schedule.take(None))] == ["original 0", "original 1", "nothing"]
    assert first is not None and second is not None
    schedule.done(second)
    retrain = schedule.take(second.name)
    assert label(retrain) == "retrain 1"
    assert label(schedule.take(None)) == "ssd 1"  # cocol waits for its destination
    assert label(schedule.take(None)) == "nothing"
    assert retrain is not None
    schedule.done(first)
    schedule.done(retrain)
    assert label(schedule.take(second.name)) == "cocol 1"
    assert label(schedule.take(second.name)) == "retrain 0"


def test_what_is_finished_is_not_handed_out(grid: Grid) -> None:
    cells = cells_of(grid(TWO))
    trained = {cell.original.name for cell in cells}
    schedule = Schedule(cells, {cell.name for cell in cells if cell.original.seed == 0}, trained)
    assert {label(task) for task in schedule.left} == {"retrain 1", "cocol 1", "ssd 1"}
    only_cocol = Schedule(cells, {cell.name for cell in cells if cell.label != "cocol"}, ())
    assert [label(task) for task in only_cocol.left] == ["original 0", "cocol 0", "original 1", "cocol 1"]
    assert Schedule(cells, {cell.name for cell in cells}, ()).left == []


def test_what_fails_takes_down_what_needs_it_and_no_more(grid: Grid) -> None:
    schedule = open_schedule(grid(TWO))
    first, second = schedule.take(None), schedule.take(None)
    assert first is not None and second is not None
    assert [label(task) for task in schedule.failed(first)] == ["retrain 0", "cocol 0", "ssd 0"]
    schedule.done(second)
    retrain = schedule.take(second.name)
    assert retrain is not None
    assert [label(task) for task in schedule.failed(retrain)] == ["cocol 1"]
    assert [label(task) for task in schedule.left] == ["ssd 1"]


def test_the_time_left_goes_by_the_nearest_that_is_done(grid: Grid) -> None:
    cells = cells_of(grid(TWO, rankers='["bi-encoder", "colbert"]'))
    cocol, colbert = (next(cell for cell in cells if cell.label == "cocol" and cell.original.ranker == kind)
                      for kind in ("bi-encoder", "colbert"))  # fmt: skip
    ssd = next(cell for cell in cells if cell.label == "ssd")
    assert Times([]).left([cocol], 1) is None
    times = Times([cocol.describe() | {"took": 10.0, "original": {"seconds": 40.0}}])
    assert times.left([cocol], 1) == 10
    assert times.left([colbert], 1) == 10
    assert times.left([cocol.original], 1) == 40
    assert times.left([ssd], 1) == 25  # like nothing that is done: the mean of all
    times.learn(colbert, 30.0)
    assert times.left([cocol, colbert], 2) == 20
    assert times.left([], 2) == 0
