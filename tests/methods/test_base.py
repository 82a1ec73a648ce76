"""The base of all methods: names and limits of settings, old names included, draws, and the hash of a method's code."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch

from tests.table import as_set, collection_of, forgetting, random_lists, random_table, task_of
from unrank.collection.collection import Collection
from unrank.engine.loop import Schedule, fit
from unrank.engine.runtime import Runtime
from unrank.engine.samples import Phase, Samples, all_present
from unrank.engine.tokens import TokenStore
from unrank.errors import UnrankError
from unrank.methods import METHODS, make_method, settings_of, source_hash
from unrank.methods.cocol import Cocol
from unrank.methods.ssd import SelectiveDampening
from unrank.record import RENAMED_SETTINGS, current_settings

CODE = '''
from dataclasses import dataclass
from unrank.methods.finetune import Finetune

@dataclass(frozen=True)
class Other(Finetune):
    """{doc}"""
    name = "other"
    weight: float = {weight}
'''


@pytest.fixture(scope="module")
def shared() -> Collection:
    return collection_of(random_lists(4, queries=20, documents=30), 30)


@pytest.mark.parametrize(("old", "new"), RENAMED_SETTINGS["cocol"].items())
def test_a_former_name_of_a_setting_is_accepted(old: str, new: str) -> None:
    assert make_method("cocol", {old: "3"}) == make_method("cocol", {new: "3"})
    assert getattr(make_method("COCOL", {old: "3"}), new) == 3
    with pytest.raises(UnrankError, match=f"^{new} is given twice, once by its old name {old}: take one out"):
        make_method("cocol", {old: "3", new: "3"})


def test_former_names_are_those_of_settings_that_are_there_and_never_a_present_name() -> None:
    for name, renamed in RENAMED_SETTINGS.items():
        settings = set(settings_of(METHODS[name].method))
        assert set(renamed.values()) <= settings
        assert not set(renamed) & settings
    assert current_settings("finetune", {"held": "1"}) == {"held": "1"}
    with pytest.raises(UnrankError, match="unknown setting of finetune 'held'"):
        make_method("finetune", {"held": "1"})


def test_the_hash_of_a_methods_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes with the code alone, of the method and of what it builds on."""
    monkeypatch.syspath_prepend(tmp_path)
    hashes = []
    for number, (doc, weight) in enumerate([("One.", 1), ("Two.", 1), ("One.", 2)]):
        (tmp_path / f"other_{number}.py").write_text(CODE.format(doc=doc, weight=weight))
        hashes.append(source_hash(importlib.import_module(f"other_{number}").Other))
        del sys.modules[f"other_{number}"]
    assert hashes[0] == hashes[1] != hashes[2]
    assert len({source_hash(entry.method) for entry in METHODS.values()}) == len(METHODS)
    assert source_hash(Cocol) == source_hash(Cocol)
    typed = type("Typed", (Cocol,), {"__module__": "__no_module__"})
    assert source_hash(typed) is None


@pytest.mark.parametrize(
    "imported",
    ["import helper_{n}\n", "from helper_{n} import FACTOR\n", "def late():\n    from helper_{n} import FACTOR\n"],
)
def test_what_a_method_imports_from_beside_it_is_a_part_of_its_code(
    imported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    hashes = []
    for number, factor in enumerate((1.0, 1.0, -50.0)):
        source = imported.format(n="x") + CODE.format(doc="", weight=1.0)
        (tmp_path / "helper_x.py").write_text(f"import json\nimport torch\nFACTOR = {factor}\n")
        (tmp_path / f"mine_{number}.py").write_text(source)
        importlib.invalidate_caches()
        hashes.append(source_hash(importlib.import_module(f"mine_{number}").Other))
        for name in (f"mine_{number}", "helper_x"):
            sys.modules.pop(name, None)
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("name", ["anchors_per_pair", "disjoint_per_pair", "disjoint_per_epoch", "warm_up"])
def test_a_setting_may_be_zero_if_its_method_allows_it(name: str, shared: Collection) -> None:
    method = make_method("cocol", {name: "0", "epochs": "1", "learning_rate": "0.1"})
    original, student = random_table(shared, 0), random_table(shared, 0)
    phases = method.plan(task_of(shared, forgetting(shared, queries=[0]), original))
    assert [phase.name for phase in phases] == ["forget", "hold"][: 1 if name == "disjoint_per_epoch" else 2]
    for _ in fit(student, phases, method.schedule(0), TokenStore(student, shared), Runtime.on("cpu")):
        pass
    assert bool(torch.isfinite(student.table).all())
    assert not torch.equal(student.table, original.table)
    with pytest.raises(UnrankError, match=f"^{name} must be 0 or more and finite, not -1$"):
        make_method("cocol", {name: "-1"})


def test_each_method_says_its_limits() -> None:
    assert make_method("ssd", {"alpha": "0", "strength": "0"}) == SelectiveDampening(alpha=0, strength=0)
    for settings, problem in [
        ({"alpha": "inf"}, "alpha must be 0 or more and finite, not inf"),
        ({"alpha": "nan"}, "alpha must be 0 or more and finite, not nan"),
        ({"batch": "0"}, "batch must be more than 0 and finite, not 0"),
    ]:
        with pytest.raises(UnrankError, match=f"^{problem}$"):
            make_method("ssd", settings)

    @dataclass(frozen=True)
    class Between(SelectiveDampening):
        limits = MappingProxyType({"alpha": (0.0, 1.0)})

    assert Between(alpha=1).alpha == 1
    with pytest.raises(UnrankError, match=r"^alpha must be from 0 to 1, not 1.5$"):
        Between(alpha=1.5)


def test_a_draw_is_told_the_number_of_the_epoch(shared: Collection) -> None:
    told, ranker = [], random_table(shared, 0)

    def draw(generator: np.random.Generator, epoch: int) -> Samples:
        told.append(epoch)
        return Samples.of({"one": all_present(shared.pairs[:2])})

    phase = Phase("one", 2, draw, lambda scored: scored["one"].score.mean(), batch=2)
    for _ in fit(ranker, [phase], Schedule(3, 0.1), TokenStore(ranker, shared), Runtime.on("cpu")):
        pass
    assert told == [1, 2, 3]


def test_kept_pairs_are_drawn_from_the_sets_that_are_named(shared: Collection) -> None:
    partition = forgetting(shared, documents=[1, 5])
    task, generator = task_of(shared, partition, random_table(shared, 0)), np.random.default_rng(0)
    for sets, there in (
        (("entangled", "disjoint"), partition.retain),
        (("entangled",), partition.entangled),
        (("disjoint",), partition.disjoint),
    ):
        drawn, has = task.draw_kept(500, generator, sets)  # type: ignore[arg-type]
        assert has.all() and as_set(drawn) == as_set(there)
        assert as_set(task.kept(sets)) == as_set(there)  # type: ignore[arg-type]
    drawn, has = task.draw_kept(3, generator, ())
    assert drawn.shape == (3, 2) and not has.any()
