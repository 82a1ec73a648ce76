"""From a grid to its cells: how many, in which order, and by which names."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import Grid, cells_of
from unrank.bench.grid import read_grid
from unrank.collection.collection import Collection
from unrank.errors import UnrankError
from unrank.methods import METHODS, MethodEntry, source_hash
from unrank.methods.cocol import Cocol
from unrank.methods.finetune import Finetune
from unrank.methods.retrain import Retrain

GRIDS = Path(__file__).parents[2] / "grids"
COUNTS = {
    "paper": 336, "mini": 208 + 16, "noise": 16, "tiny": 3, "destinations": 64, "ablation": 8, "words": 40,
    "opening": 12, "shares": 168, "quarter": 64 + 16 + 8 + 4,
    "quarter-elsewhere": 24,
}  # fmt: skip


@pytest.fixture
def datasets(dense: Collection, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for every collection that a grid of ours names, and for the encoder and the vectors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unrank.rankers.encoder.default_encoder", lambda: encoder)
    monkeypatch.setattr("unrank.rankers.word_ranker.vector_files", lambda base: [])
    for name in ("marco", "car", "nfcorpus", "my-collection"):
        for construction in ("", "-documents", "-queries"):
            folder = Path(shutil.copytree(dense.folder, tmp_path / (name + construction)))
            described = json.loads((folder / "collection.json").read_text())
            described |= {"name": name, "fingerprint": name + construction}
            del described["seal"]
            (folder / "collection.json").write_text(json.dumps(described))


@pytest.mark.parametrize("path", sorted(GRIDS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_grids_of_the_project(datasets: None, path: Path) -> None:
    assert len(cells_of(path)) == COUNTS[path.stem]


def test_the_noise_floor_shares_its_first_seed_with_the_tables(datasets: None) -> None:
    tables, noise = ({cell.name for cell in cells_of(GRIDS / f"{name}.toml")} for name in ("mini", "noise"))
    assert len(tables & noise) == 8


def test_what_is_given_stands_in_place_of_the_grids_in_every_part(grid: Grid) -> None:
    path = grid("[one]\nshares = [0.25]\n[two]\nshares = [0.05]\nseeds = [3]")
    given = {"methods": "cocol,held=4", "removals": "queries", "seeds": "[1, 2]", "watch": "7", "training": "epochs=1"}
    one, two = read_grid(path, given).values()
    assert (one.methods, one.removals, one.seeds, one.watch) == (("cocol,held=4",), ("queries",), (1, 2), 7)
    assert replace(two, shares=one.shares) == one
    assert (one.shares, two.shares, one.training) == ((0.25,), (0.05,), "epochs=1")
    several = read_grid(path, {"rankers": '["duet", "colbert"]', "destinations": "0.5", "recovery": "true"})["one"]
    assert (several.rankers, several.destinations, several.recovery) == (("duet", "colbert"), ("0.5",), True)


def test_every_method_where_none_is_named(grid: Grid) -> None:
    """Except one that needs substitutes, which a sampled removal has not."""
    assert {cell.method.name for cell in cells_of(grid())} == set(METHODS) - {"curd"}
    with pytest.raises(UnrankError, match=r"^curd needs substitutes, and a sampled removal has none"):
        cells_of(grid('methods = ["curd"]'))


def test_a_method_of_ones_own_is_in_the_grid_at_once(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(cells_of(grid()))

    class Own(Finetune):
        name = "own"

    monkeypatch.setitem(METHODS, "own", MethodEntry.of(Own, "a method of one's own"))
    cells = cells_of(grid())
    assert len(cells) == before + 2
    assert {cell.removal.kind for cell in cells if cell.label == "own"} == {"documents", "queries"}


def test_what_shares_an_original_stands_together_and_the_retrained_come_first(grid: Grid) -> None:
    cells = cells_of(grid('shares = [0.1, 0.25]\nmethods = ["cocol", "retrain"]\nseeds = [0, 1]'))
    assert len(cells) == 2 * 2 * 2 * 2
    assert [cell.original.seed for cell in cells] == [0] * 8 + [1] * 8
    for start in (0, 8):
        assert [cell.label for cell in cells[start : start + 8]] == ["retrain"] * 4 + ["cocol"] * 4


def test_a_destination_brings_the_retrained_ranker_along(grid: Grid) -> None:
    cells = cells_of(grid('methods = ["cocol"]\nremovals = ["queries"]'))
    assert [cell.label for cell in cells] == ["retrain", "cocol"]
    assert cells[1].reference == cells[0]
    assert len(cells_of(grid('methods = ["cocol"]\nremovals = ["queries"]\ndestinations = ["unseen"]'))) == 1


def test_a_primary_method_that_no_table_compares_is_refused(grid: Grid) -> None:
    two = 'destinations = ["destination-1", 0.5]\nmethods = ["cocol", "ssd"]'
    for more, primary, names in (
        ('methods = ["cocol", "ssd"]', "cocoll", "unknown primary method 'cocoll': did you mean 'cocol'"),
        ('methods = ["cocol", "ssd"]', "retrain", "unknown primary method 'retrain'"),
        (two, "cocol", "unknown primary method 'cocol': did you mean 'cocol → "),
    ):
        with pytest.raises(UnrankError, match=names):
            cells_of(grid(f'{more}\nprimary = "{primary}"'))
    cells = cells_of(grid('methods = ["cocol", "ssd"]\nprimary = "cocol"'))
    assert {cell.said.primary for cell in cells} == {"cocol"} and {cell.said.margin for cell in cells} == {None}


def test_who_is_not_steered_has_one_cell_for_all_destinations(grid: Grid) -> None:
    more = 'removals = ["queries"]\nmethods = ["retrain", "ssd", "cocol"]\ndestinations = ["destination-1", 0.5]'
    cells = cells_of(grid(more))
    assert [(cell.label, cell.target) for cell in cells] == [
        ("retrain", None), ("ssd", None), ("cocol", "destination-1"), ("cocol", "0.5"),
    ]  # fmt: skip


def test_parts_take_from_the_top_what_they_do_not_say(grid: Grid) -> None:
    more = 'removals = ["queries"]\nmethods = ["retrain"]\n[a]\nshares = [0.1]\n[b]\nshares = [0.2]\nseeds = [3]'
    assert [(cell.removal.share, cell.original.seed) for cell in cells_of(grid(more))] == [(0.1, 0), (0.2, 3)]


def test_presets_and_settings(grid: Grid) -> None:
    more = 'removals = ["queries"]\nmethods = ["cocol:paper,epochs=5", "cocol,held=4", "cf"]'
    choices = {cell.label: cell for cell in cells_of(grid(more))}
    assert list(choices) == ["retrain", "cocol:paper,epochs=5", "cocol,anchors_per_pair=4", "finetune"]
    assert choices["cocol:paper,epochs=5"].spec.preset == "paper"
    described: Any = choices["cocol,anchors_per_pair=4"].describe()
    settings = described["settings"]
    assert (settings["anchors_per_pair"], settings["epochs"], described["preset"]) == (4, 2, None)
    assert choices["cocol:paper,epochs=5"].method.epochs == 5
    assert choices["retrain"].method.epochs == 2


def test_what_is_kept_still(grid: Grid) -> None:
    more = 'removals = ["queries"]\nmethods = ["cocol", "cocol,train_layers=1", "cocol,freeze=documents,held=2"]'
    retrained, *cells = cells_of(grid(more))
    assert [(cell.label, cell.spec.train_layers, cell.spec.freeze) for cell in cells] == [
        ("cocol", None, None),
        ("cocol,train_layers=1", 1, None),
        ("cocol,anchors_per_pair=2,freeze=documents", None, "documents"),
    ]
    assert {cell.reference for cell in cells} == {retrained}
    assert len({cell.name for cell in cells}) == 3
    described: Any = cells[1].describe()
    assert described["settings"]["train_layers"] == 1


@pytest.mark.parametrize(
    ("method", "rankers", "reason"),
    [
        ("cocol,freeze=documents", '["cross-encoder"]', "a cross-encoder stores no vectors of documents"),
        ("cocol,freeze=queries", '["bi-encoder"]', "unknown side to freeze 'queries'"),
        ("cocol,train_layers=", '["bi-encoder"]', "unknown choice of layers ''"),
        ("cocol,train_layers=some", '["bi-encoder"]', "unknown choice of layers 'some'"),
        ("retrain,freeze=documents", '["bi-encoder"]', "retrain starts again"),
    ],
)
def test_what_cannot_be_kept_still(grid: Grid, method: str, rankers: str, reason: str) -> None:
    with pytest.raises(UnrankError, match=reason):
        cells_of(grid(f'methods = ["{method}"]', rankers))


NAMES = {
    "training": 'training = "epochs=3"',
    "share": "shares = [0.2]",
    "seed": "seeds = [1]",
    "removal_seed": "removal_seed = 1",
    "method": 'methods = ["finetune"]',
    "settings": 'methods = ["cocol,held=2"]',
    "destination": 'destinations = ["destination-1"]',
    "epochs": "epochs = 9",
    "minutes": "minutes = 2",
    "check_every": "check_every = 4",
    "watch": "watch = 3",
    "recovery": "recovery = true",
    "reserve": "reserve = false",
    "ranker": 'rankers = ["colbert"]',
    "removal": 'removals = ["documents"]',
}


@pytest.mark.parametrize("change", NAMES.values(), ids=NAMES)
def test_whatever_changes_gives_another_name(grid: Grid, change: str) -> None:
    before = cells_of(grid('[part]\nremovals = ["queries"]\nmethods = ["cocol"]'))
    more = ["[part]", 'removals = ["queries"]', 'methods = ["cocol"]']
    key = change.split(" ")[0]
    after = cells_of(grid("\n".join([*(line for line in more if not line.startswith(key)), change])))
    assert before[-1].name != after[-1].name


def test_the_name_goes_by_what_the_base_and_the_collection_hold(
    grid: Grid, dense: Collection, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell, *_) = cells_of(grid())
    text = grid().read_text()
    copied = Path(shutil.copytree(encoder, tmp_path / "copied"))
    moved = Path(shutil.copytree(dense.folder, tmp_path / "moved"))
    path = tmp_path / "moved.toml"
    path.write_text(text.replace(str(encoder), str(copied)).replace(str(dense.folder), str(moved)))
    assert cells_of(path)[0].name == cell.name
    with (copied / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    assert cells_of(path)[0].name != cell.name
    path.write_text(text.replace(str(dense.folder), str(moved)))
    described = (moved / "collection.json").read_text()
    (moved / "collection.json").write_text(described.replace(dense.fingerprint, "another").replace('"seal"', '"was"'))
    assert cells_of(path)[0].name != cell.name
    monkeypatch.setattr("unrank.__version__", "99")
    assert cells_of(grid())[0].name != cell.name


def test_a_cell_is_another_if_its_methods_code_is(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    path = grid('removals = ["queries"]\nmethods = ["cocol", "ssd"]')
    before = {cell.label: cell for cell in cells_of(path)}
    assert before["cocol"].identity()["method_source"] == source_hash(Cocol)
    assert before["cocol"].identity()["training_source"] == source_hash(Retrain)
    monkeypatch.setattr("unrank.bench.cell._source_hash", lambda of: "new" if of is Cocol else source_hash(of))
    after = {cell.label: cell for cell in cells_of(path)}
    assert [label for label in after if after[label].name != before[label].name] == ["cocol"]


def test_cells_that_would_collide(grid: Grid, dense: Collection, tmp_path: Path) -> None:
    with pytest.raises(
        UnrankError, match=r"two cells of the grid are the same: '.*cocol to .*' and '.*cocol,anchors_per_pair=1 to"
    ):
        cells_of(grid('methods = ["cocol", "cocol,held=1"]'))
    with pytest.raises(UnrankError, match="two cells of the grid are the same"):
        cells_of(grid("[a]\nshares = [0.1]\n[b]\nshares = [0.2, 0.1]"))
    moved = Path(shutil.copytree(dense.folder, tmp_path / "moved"))
    described = (moved / "collection.json").read_text()
    (moved / "collection.json").write_text(described.replace(dense.fingerprint, "another").replace('"seal"', '"was"'))
    path = grid()
    path.write_text(path.read_text().replace('"]', f'", "{moved}"]', 1))
    with pytest.raises(UnrankError, match="differ in nothing that a table shows, but in fingerprint: give all"):
        cells_of(path)
    twice = '[a]\nrecovery = true\nmethods = ["retrain", "cocol"]\n[b]\nmethods = ["finetune"]'
    with pytest.raises(UnrankError, match=r"retrain, seed 0', differ in nothing that a table shows, but in recovery"):
        cells_of(grid(twice))


@pytest.mark.parametrize(
    "more",
    [
        'methods = ["cocol,held=2", "cocol,held=02"]',
        'methods = ["cocol,held=2,batch=8", "cocol,batch=08,held=2"]',
        'methods = ["cocol,learning_rate=1e-4", "cocol,learning_rate=.0001"]',
        'methods = ["cocol,train_layers=1", "cocol,train_layers=01"]',
        'methods = ["cocol"]\ndestinations = [0.5, ".50"]',
        'methods = ["cocol"]\ndestinations = ["50%", "50.0%"]',
    ],
)
def test_two_spellings_of_a_cell_are_one_cell(grid: Grid, more: str) -> None:
    with pytest.raises(UnrankError, match=r"two cells of the grid are the same: '(.+)' and '\1'; take one out"):
        cells_of(grid(more))


def test_a_place_for_each_pair_is_no_destination_of_a_bench(grid: Grid) -> None:
    with pytest.raises(UnrankError, match="a bench compares forget MRRs, and beyond:10 is none: use it with"):
        cells_of(grid('methods = ["cocol"]\ndestinations = ["beyond:10"]'))


def test_two_spellings_of_a_method_are_one_row_of_a_table(grid: Grid) -> None:
    parts = '[a]\nshares = [0.1]\nmethods = ["{}"]\n[b]\nshares = [0.2]\nmethods = ["{}"]'
    spelled = cells_of(
        grid(parts.format("cocol,held=2,without_disjoint=TRUE", "cocol, without-disjoint=true, held=02"))
    )
    assert {cell.label for cell in spelled} == {"retrain", "cocol,anchors_per_pair=2,without_disjoint=true"}
    with pytest.raises(
        UnrankError, match=r"^'cocol' and 'cocol,anchors_per_pair=1' are the same method with the same settings: use"
    ):
        cells_of(grid(parts.format("cocol", "cocol,held=01")))
    with pytest.raises(UnrankError, match=r"^held is given twice: take one out"):
        cells_of(grid('methods = ["cocol,held=2,held=3"]'))
    with pytest.raises(UnrankError, match=r"^anchors_per_pair is given twice, once by its old name held: take one out"):
        cells_of(grid('methods = ["cocol,held=2,anchors_per_pair=2"]'))


def test_a_seed_that_no_library_takes(grid: Grid) -> None:
    with pytest.raises(UnrankError, match="99999999999999999999 is too large"):
        cells_of(grid("seeds = [99999999999999999999]"))
