"""Names of methods and settings: what users type, old names included, and the hash of a method's code."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from unrank.errors import UnrankError
from unrank.methods import METHODS, make_method, settings_of, source_hash
from unrank.methods.cocol import Cocol
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
