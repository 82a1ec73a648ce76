"""Tuning: the same trials for every method, on development data, resumed, and frozen for a grid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, Literal, cast
from zlib import crc32

import numpy as np
import pytest

from tests.bench.conftest import Grid, cells_of
from unrank.bench.cell import Cell
from unrank.bench.method_spec import read_tuned, tuned_settings
from unrank.bench.search_space import Space, draw_trials, search_space
from unrank.bench.splits import Split
from unrank.bench.store import Store
from unrank.bench.tune import Trial, TuneOptions, Tuning, check_alike, freeze
from unrank.cli.main import run
from unrank.collection.collection import Collection
from unrank.errors import UnrankError
from unrank.methods import METHODS, MethodEntry, make_method, settings_of
from unrank.methods.base import Method
from unrank.methods.npo import NegativePreference
from unrank.rankers import RANKERS

PUBLISHED = Path(__file__).parents[2] / "results" / "tuned-bi-encoder.json"
QUICK = ["--training", "epochs=2,negatives=1,batch=32,learning_rate=1e-3", "--epochs", "1", "--remove", "documents"]


def test_a_search_begins_with_the_methods_own_settings_and_goes_on_alike() -> None:
    method = make_method("npo")
    space = search_space(method)
    assert space["learning_rate"] == (method.learning_rate / 8, method.learning_rate * 8) and "epochs" not in space
    few, many = (list(draw_trials(method, space, number, 3)) for number in (3, 9))
    assert few == many[:3] and few[0] == {}
    for trial in many[1:]:
        for name, (low, high) in space.items():
            assert float(low) <= float(trial[name]) <= float(high)
    assert list(draw_trials(method, space, 3, 4)) != few
    assert "learning_rate" not in search_space(make_method("ssd")), "it takes no steps"
    assert all(0 < end < 1 for end in search_space(make_method("salun"))["share"] if isinstance(end, float))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "retrain"])
def test_every_method_can_draw_its_trials(name: str) -> None:
    method = make_method(name)
    for trial in draw_trials(method, search_space(method), 12, 0):
        made = make_method(name, trial)
        assert type(made) is type(method) and {*trial} <= {*settings_of(type(made))}


def as_ever(name: str, space: Space, trials: int, seed: int) -> list[dict[str, str]]:
    """Return the trials of ranges of fractions, drawn as those of published records were."""
    generator = np.random.default_rng([seed, crc32(name.encode())])
    drawn: list[dict[str, str]] = [{}]
    while len(drawn) < trials:
        trial = {}
        for setting, (low, high) in cast(Mapping[str, tuple[float, float]], space).items():
            share = generator.random()
            wide = low > 0 and high / low >= 4
            trial[setting] = f"{low * (high / low) ** share if wide else low + (high - low) * share:.3g}"
        if trial not in drawn:
            drawn.append(trial)
    return drawn


@pytest.mark.parametrize("ranker", [None, *RANKERS])
def test_methods_of_unranks_own_are_drawn_as_ever(ranker: str | None) -> None:
    for name in METHODS:
        if name != "retrain":
            method = make_method(name, ranker=ranker)
            space = search_space(method)
            assert list(draw_trials(method, space, 20, 5, ranker)) == as_ever(name, space, 20, 5), name


def test_published_trials_are_drawn_again() -> None:
    entries = read_tuned(PUBLISHED)
    assert len(tuned_settings(PUBLISHED)) == len(entries) > 1
    for entry in entries:
        method = make_method(entry["method"], ranker=entry["ranker"])
        space = {name: tuple(ends) for name, ends in entry["searched"].items()}
        drawn = draw_trials(method, space, len(entry["trials"]), entry["seed"], entry["ranker"])
        assert list(drawn) == [trial["settings"] for trial in entry["trials"]], entry["method"]


@dataclass(frozen=True)
class Plugin(NegativePreference):
    """A method of one file, with a setting of every type."""

    name = "plugin"
    hold: float = 1.0
    steps: int = 4
    mode: Literal["x", "y"] = "x"
    sure: bool = False
    word: str = "a"


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> type[Plugin]:
    """Return a class of its own, whose `search` and `limits` a test may set."""
    made = type("Made", (Plugin,), {"__module__": __name__})
    monkeypatch.setitem(METHODS, "plugin", MethodEntry.of(made, "a plug-in"))
    return made


def drawn(method: Method, trials: int = 12) -> list[dict[str, str]]:
    """Return the trials of a method, its own settings first; make sure that no two are one method."""
    found = list(draw_trials(method, search_space(method), trials, 0))
    assert len({make_method(method.name, trial) for trial in found}) == len(found)
    return found


def test_a_search_is_read_by_the_type_of_the_setting(plugin: type[Plugin]) -> None:
    plugin.search = {"hold": (1, 10), "steps": (1, 3), "mode": ("x", "y"), "sure": (True, False), "beta": ("1", "2.5")}
    made = [make_method("plugin", trial) for trial in drawn(plugin(), 60)[1:]]
    assert len(made) == 59 and all(isinstance(each, Plugin) for each in made)
    found = {name: {getattr(each, name) for each in made} for name in plugin.search}
    assert {"steps": {1, 2, 3}, "mode": {"x", "y"}, "sure": {True, False}, "beta": {1, 2.5}}.items() <= found.items()
    assert all(1 <= hold <= 10 for hold in found["hold"]) and not all(hold == int(hold) for hold in found["hold"])


@pytest.mark.parametrize(
    ("search", "number"),
    [
        ({"mode": ("x", "y")}, 2),
        ({"sure": (True, False)}, 2),
        ({"gru": ("true", "false")}, 2),
        ({"steps": (3, 5)}, 3),
        ({"steps": (10, 12)}, 4),  # its own is 4
        ({"mode": ("x", "y"), "sure": ("true", "false")}, 4),
    ],
)
def test_a_small_space_has_as_many_trials_as_settings(plugin: type[Plugin], search: Any, number: int) -> None:
    plugin.search = search
    assert len(drawn(plugin(), 12)) == number and len(drawn(plugin(), 2)) == 2


def test_own_settings_are_those_that_suit_the_ranker(
    plugin: type[Plugin], dense: Collection, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin.search = {"steps": (3, 4)}
    assert [*draw_trials(plugin(), search_space(plugin()), 9, 0)] == [{}, {"steps": "3"}]
    method = make_method("cocol", ranker="duet")
    rate = f"{method.learning_rate:g}", f"{make_method('cocol').learning_rate:g}"
    space = {"learning_rate": rate}
    assert [*draw_trials(method, space, 9, 0, "duet")] == [{}, {"learning_rate": rate[1]}], "not its own rate again"
    plugin.search = {"sure": (True, False)}
    monkeypatch.setitem(RANKERS, "bi-encoder", replace(RANKERS["bi-encoder"], recipes={"plugin": {"steps": 6}}))
    tuning = Tuning.of(TuneOptions("plugin", str(dense.folder), "bi-encoder", str(encoder), 9))
    assert tuning.settings == [{}, {"sure": "true"}]


def test_draws_stay_in_their_range(plugin: type[Plugin]) -> None:
    plugin.limits = MappingProxyType({"hold": (-1.0, 1.0)})
    for ends in ((0.12345, 0.12399), (0.99, 0.999), (0.17901, 0.19999), (-0.5, 1.0)):
        plugin.search = {"hold": ends}
        found = [each for seed in range(20) for each in draw_trials(plugin(), search_space(plugin()), 12, seed) if each]
        assert len(found) == 220 and all(ends[0] <= float(each["hold"]) <= ends[1] for each in found), ends


def test_a_setting_without_a_search_stays_in_its_limits(plugin: type[Plugin]) -> None:
    plugin.limits = MappingProxyType({"hold": (0.9, float("inf")), "beta": (0.1, 0.1), "alpha": (0.97, 1.0)})
    method = plugin(beta=0.1)
    space = search_space(method)
    assert space["hold"] == (0.9, 8.0) and space["alpha"] == (0.97, 1.0) and "beta" not in space
    assert len(list(draw_trials(method, space, 12, 0))) == 12


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ({"hold": (0.1, 1.0, 10.0)}, "the search (0.1, 1.0, 10.0) of 'hold': expected two numbers from 0 to 20, the l"),
        ({"hold": (10.0, 0.1)}, "of 'hold': expected two numbers"),
        ({"hold": (1.0, 1.0)}, "of 'hold': expected two numbers"),
        ({"hold": (1.0,)}, "of 'hold': expected two numbers"),
        ({"hold": (False, True)}, "of 'hold': expected two numbers"),
        ({"hold": (1.0, "2")}, "of 'hold': expected two numbers"),
        ({"hold": (0.1, float("nan"))}, "of 'hold': expected two numbers"),
        ({"hold": (1.0, 30.0)}, "of 'hold': expected two numbers from 0 to 20"),
        ({"hold": (1, 10**400)}, "of 'hold': expected two numbers"),
        ({"hold": 5}, "of 'hold': expected two numbers"),
        ({"hold": "12"}, "of 'hold': expected two numbers"),
        ({"hold": ("1", "many")}, "a search of 'hold': hold takes a number, not 'many'"),
        ({"steps": (1.5, 3)}, "of 'steps': expected two whole numbers from 1 on, the lower one first"),
        ({"steps": (0, 3)}, "of 'steps': expected two whole numbers from 1 on"),
        ({"steps": (False, True)}, "of 'steps': expected two whole numbers"),
        ({"sure": (0, 1)}, "of 'sure': expected True and False"),
        ({"sure": (True, True)}, "of 'sure': expected True and False"),
        ({"mode": ("x", "z")}, "a search of 'mode': unknown value of mode 'z'"),
        ({"mode": ("x",)}, "of 'mode': expected two or more different texts"),
        ({"word": ("a", "b, hold=2")}, "a search of 'word': 'b, hold=2' cannot be written as a setting"),
        ({"holt": (1, 2)}, "unknown setting in the search of plugin 'holt': did you mean 'hold'?"),
        (["hold"], "plugin declares the search ['hold']: expected settings with their ranges"),
    ],
)
def test_a_search_that_cannot_be_drawn_is_refused(plugin: type[Plugin], search: Any, said: str) -> None:
    plugin.limits = MappingProxyType({"hold": (0, 20)})
    plugin.search = search
    with pytest.raises(UnrankError) as caught:
        search_space(plugin())
    assert said in str(caught.value) and "plugin" in str(caught.value)


def test_retrain_is_not_tuned() -> None:
    with pytest.raises(UnrankError, match="retrain is the reference, so it is not tuned"):
        search_space(make_method("retrain"))


def test_the_command_says_what_is_tried_of_a_small_space(
    plugin: type[Plugin], dense: Collection, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", "plugin", str(dense.folder), "--base", str(encoder), "--trials", "9", "--dry-run"]
    command += ["--out", str(tmp_path / "tuned.json")]
    plugin.search = {"steps": (3, 4), "sure": (True, False)}
    assert run(command) == 0
    said = "4 trials (not 9: no other settings were drawn): steps 3 to 4, sure true or false"
    assert said in capsys.readouterr().out
    plugin.search = {"hold": (1, 10)}
    assert run(command) == 0 and "9 trials: hold 1 to 10" in capsys.readouterr().out
    plugin.search = {"epochs": (1, 4)}
    assert run(command) == 0 and "5 trials (not 9" in capsys.readouterr().out
    assert run([*command, "--epochs", "2"]) == 2
    assert "plugin searches its epochs, so --epochs cannot limit them" in capsys.readouterr().err


@pytest.mark.parametrize("margin", ["nan", "inf", "7", "-3", "0", "1"])
def test_a_margin_is_between_0_and_1(
    margin: str, dense: Collection, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tuned.json"
    command = ["tune", "npo", str(dense.folder), "--base", str(encoder), "--trials", "2", "--out", str(out)]
    assert run([*command, f"--margin={margin}"]) == 2
    assert f"the margin must be between 0 and 1, such as 0.01, not {margin}" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_the_nearest_to_retrain_that_keeps_enough_is_chosen(dense: Collection, encoder: Path) -> None:
    tuning = Tuning.of(TuneOptions("npo", str(dense.folder), "bi-encoder", str(encoder), 1))

    def trial(distance: float, *kept: float) -> Trial:
        return Trial({}, distance, dict(zip(("entangled", "disjoint", "test"), kept, strict=True)), 1.0)

    keeps, nearer, wrecks = trial(0.3, 1.0, 0.991, 1.0), trial(0.2, 0.99, 0.99, 0.995), trial(0.1, 1.0, 0.7, 1.0)
    assert tuning.best([keeps, nearer, wrecks]) is nearer
    assert tuning.best([wrecks, trial(0.05, 0.6, 0.6, 0.6)]) is wrecks, "none keeps enough"


class Outcomes(Store):
    """A store of made-up records: what a cell kept, by what was removed."""

    def __init__(self, kept: Mapping[str, Mapping[str, float]]) -> None:
        self.kept = kept

    def record_of(self, cell: Cell) -> Any:
        after = {name: SimpleNamespace(mrr=share / 2) for name, share in self.kept[cell.removal.kind].items()}
        before = {name: SimpleNamespace(mrr=0.5) for name in after}
        agreement = SimpleNamespace(after=SimpleNamespace(distance=0.2))
        return SimpleNamespace(after=after, before=before, agreement=agreement, seconds=1.0)


def test_a_gain_after_one_removal_does_not_pay_for_a_loss_after_another(
    dense: Collection, encoder: Path, tmp_path: Path
) -> None:
    tuning = Tuning.of(TuneOptions("npo", str(dense.folder), "bi-encoder", str(encoder), 1, margin=0.05))
    lost = {"entangled": 0.9, "disjoint": 1.0}
    (trial,) = tuning.outcomes(Outcomes({"documents": lost, "queries": {"entangled": 1.3, "test": 0.96}}))
    assert trial.kept == {"entangled": 0.9, "disjoint": 1.0, "test": 0.96}, "the least of the sets that were measured"
    assert trial.beyond(0.05) == pytest.approx(0.05)
    (kept,) = tuning.outcomes(Outcomes({"documents": {"entangled": 0.95}, "queries": {"entangled": 1.0}}))
    assert kept.beyond(0.05) == 0, "sets without queries do not count"
    for number, (outcome, enough) in enumerate(((trial, False), (kept, True))):
        freeze(tuning, [outcome], out := tmp_path / f"{number}.json")
        (entry,) = frozen(out)
        assert entry["kept_enough"] is enough and "a set without queries does not count" in str(entry["objective"])


def test_methods_in_one_file_are_tuned_alike(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    out, usual = tmp_path / "tuned.json", TuneOptions("npo", str(dense.folder), "bi-encoder", str(encoder), 2)
    usual = replace(usual, training="epochs=2,negatives=1", epochs=3)
    tuning = Tuning.of(usual)
    freeze(tuning, [Trial({}, 0.1, {}, 1.0)], out)
    (entry,) = frozen(out)
    assert isinstance(training := entry["training"], dict) and training["epochs"] == 2 and entry["epochs"] == 3
    assert entry["base"] == encoder.name and entry["budget"] == 2

    def said(**changed: Any) -> str:
        try:
            check_alike(out, Tuning.of(replace(usual, **{"method": "undial", **changed})).terms)
        except UnrankError as error:
            return str(error).partition(", tuned with ")[2].partition(": all methods in one file are tuned alike")[0]
        return ""

    assert not said() and not said(training="negatives=1,epochs=2") and not said(removals=("queries", "documents"))
    assert not said(method="cocol"), "to places, as usual for it"
    assert not said(target="destination-1") and said(target="0.5") == "another --target (the usual one)"
    assert said(method="cocol", target="destination-1") == "another --target (the usual one)"
    assert said(trials=3) == "another --trials (2)" and said(margin=0.1) == "another --margin (0.01)"
    assert said(epochs=None, share=0.1) == "another --share (0.25), another --epochs (3)"
    assert said(removals=("queries",)) == "another --remove (documents, queries)"
    assert said(seed=1) == "another --seed (0)" and said(removal_seed=1) == "another --removal-seed (0)"
    assert said(training="epochs=4,negatives=1") == "another --training epochs (2)"
    terms = {**tuning.terms, "fingerprint": "another", "base_sha256": "another", "training": {"epochs": 9}}
    with pytest.raises(UnrankError, match=rf"collection \({dense.name}\), another --base \({encoder.name}\), another"):
        check_alike(out, terms)
    check_alike(out, {**tuning.terms, "ranker": "colbert", "base_sha256": "another", "training": {"epochs": 9}})


def test_files_of_older_versions_are_read(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    out, options = tmp_path / "tuned.json", TuneOptions("npo", str(dense.folder), "bi-encoder", str(encoder), 2)
    tuning = Tuning.of(replace(options, epochs=3))
    freeze(tuning, [Trial({}, 0.1, {}, 1.0)] * 2, out)
    (entry,) = frozen(out)
    new = ("base", "base_sha256", "training", "epochs", "usual_target", "budget")
    older = {key: value for key, value in entry.items() if key not in new}
    out.write_text(json.dumps({"format": 1, "tuned": [older]}))
    assert check_alike(out, Tuning.of(replace(options, method="cocol", training="epochs=2")).terms) == [older]
    with pytest.raises(UnrankError, match=r"another --trials \(2\)"):
        check_alike(out, Tuning.of(replace(options, trials=3)).terms)
    out.write_text(json.dumps({"format": 1, "tuned": [older | {"target": "0.5"}]}))
    with pytest.raises(UnrankError, match=r"another --target \(0.5\)"):
        check_alike(out, tuning.terms)
    published = json.loads(PUBLISHED.read_text())["tuned"]
    assert check_alike(PUBLISHED, published[0]) == published


def test_a_collection_that_is_reported_on_is_refused(
    dense: Collection, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = Split("marco", dense.fingerprint, "documents", 0.25, 0, 9, "ab")
    monkeypatch.setattr("unrank.bench.tune.frozen_splits", lambda: {split.draw: split})
    with pytest.raises(UnrankError, match=r"results are reported on .*: tune on development data"):
        Tuning.of(TuneOptions("npo", str(dense.folder), "bi-encoder", str(encoder), 1))


def frozen(out: Path) -> list[Mapping[str, object]]:
    found: list[Mapping[str, object]] = json.loads(out.read_text())["tuned"]
    return found


def test_trials_are_run_once_frozen_and_read_by_a_grid(
    dense: Collection, encoder: Path, grid: Grid, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tuned.json"
    command = ["tune", "npo", str(dense.folder), "--base", str(encoder), "--trials", "2", "--out", str(out), *QUICK]
    command += ["--device", "cpu"]
    assert run([*command, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "npo to destination-1" in said and "2 trials: learning_rate" in said and not out.exists()
    assert run(command) == 0
    assert "frozen in" in capsys.readouterr().out
    (entry,) = frozen(out)
    trials = entry["trials"]
    assert isinstance(trials, list) and len(trials) == 2 and trials[0]["settings"] == {}
    assert entry["distance"] in [trial["distance"] for trial in trials]
    assert "distance to retrain" in str(entry["objective"]) and entry["margin"] == 0.01
    cells = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "tuned-trials" / "cells").iterdir()}
    assert run([*command, "--quiet"]) == 0, "nothing is run again"
    assert cells == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "tuned-trials" / "cells").iterdir()}
    assert frozen(out) == [entry]
    other = ["undial" if word == "npo" else "3" if word == "2" else word for word in command]
    assert run(other) == 2 and frozen(out) == [entry]
    assert "holds npo for bi-encoder, tuned with another --trials (2): all methods" in capsys.readouterr().err
    path = grid(f'settings_from = "{out}"\nmethods = ["npo:tuned"]\nremovals = ["documents"]')
    with pytest.raises(UnrankError, match=r"were chosen on .*: run it on another collection"):
        cells_of(path)
    out.write_text(out.read_text().replace(str(entry["fingerprint"]), "another"))
    (cell,) = [cell for cell in cells_of(path) if not cell.is_retrained]
    assert cell.label == "npo:tuned"
    settings = entry["settings"]
    assert isinstance(settings, dict)
    assert all(getattr(cell.method, name) == float(value) for name, value in settings.items())
    out.write_text(out.read_text().replace(str(entry["method_source"]), "other code"))
    with pytest.raises(UnrankError, match="the code of npo changed since its settings were frozen"):
        cells_of(path)


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ("npo:tuned", "no frozen settings of npo for bi-encoder are known"),
        ("npo:tuned,beta=1", "takes no other settings"),
    ],
)
def test_a_grid_says_what_is_missing(grid: Grid, methods: str, said: str) -> None:
    with pytest.raises(UnrankError, match=said):
        cells_of(grid(f'methods = ["{methods}"]'))


def test_draws_of_a_grid_are_cells_of_their_own(grid: Grid) -> None:
    one, two = (cells_of(grid(f'methods = ["retrain"]\nremovals = ["queries"]\n{more}')) for more in
                ("removal_seed = 1", "removal_seeds = [0, 1]"))  # fmt: skip
    assert len(two) == 2 and {cell.name for cell in one} < {cell.name for cell in two}
    assert [str(cell.removal) for cell in two] == ["25 % of queries", "25 % of queries, draw 1"]
    with pytest.raises(UnrankError, match="are both given"):
        cells_of(grid("removal_seed = 1\nremoval_seeds = [0, 1]"))
