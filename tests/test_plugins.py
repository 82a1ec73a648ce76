"""Methods, rankers and sources of other packages: found by entry points, refused by name when they cannot be used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from unrank.cli.main import run
from unrank.collection.sources import CATALOGUE as SOURCES
from unrank.collection.sources import parse_source, read_source
from unrank.errors import UnknownName, UnrankError
from unrank.methods import CATALOGUE as METHODS
from unrank.methods import make_method
from unrank.rankers import CATALOGUE as RANKERS
from unrank.rankers import ranker_class, ranker_kind

Install = Callable[[str, str, str], str]

METHOD = '''"""Goes on training, gently. More of it."""
from dataclasses import dataclass
from unrank.methods.finetune import Finetune

@dataclass(frozen=True)
class Gentle(Finetune):
    name = "gentle"
    weight: float = 0.5
'''
SOURCE = '''from unrank.collection.sources.source import Raw

def read_nothing(location: str, test_split: str | None) -> Raw:
    """A source that is empty."""
    return Raw(location, lambda: (), lambda: (), {})
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a package of one module on the search path, as an installer would, with these entry points."""
    installed = []

    def put(package: str, code: str, points: str) -> str:
        site = tmp_path / package
        described = site / f"{package}-1.0.dist-info"
        described.mkdir(parents=True)
        (site / f"{package}.py").write_text(code)
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (described / "entry_points.txt").write_text(points)
        monkeypatch.syspath_prepend(site)
        installed.append(package)
        return package

    yield put
    for package in installed:
        sys.modules.pop(package, None)


def test_a_method_of_another_package_is_found_by_its_name(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("gentle_package", METHOD, "[unrank.methods]\ngentle = gentle_package:Gentle\n")
    assert METHODS.names()[-1] == "gentle"
    assert "gentle_package" not in sys.modules  # it is imported when its name is looked up
    assert make_method("Gentle", {"weight": "0.25"}).name == "gentle"
    assert METHODS.package_of("gentle") == "gentle_package"
    assert METHODS.package_of("cocol") is None
    with pytest.raises(UnknownName, match="unknown setting of gentle 'wait': did you mean 'weight'"):
        make_method("gentle", {"wait": "1"})
    with pytest.raises(UnknownName, match="unknown method 'gentel': did you mean 'gentle'"):
        make_method("gentel")
    assert run(["list", "methods"]) == 0
    shown = capsys.readouterr().out
    assert "gentle          Goes on training, gently. More of it (from the package gentle_package)" in shown
    assert "--set weight=0.5" in shown


def test_a_source_of_another_package(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("empty_package", SOURCE, "[unrank.sources]\nempty = empty_package:read_nothing\n")
    assert parse_source("empty:here") == ("empty", "here")
    with pytest.raises(UnrankError, match="the source 'empty' needs a location"):
        parse_source("empty")
    assert read_source("empty:here").name == "here"
    assert run(["list", "sources"]) == 0
    assert "empty:          A source that is empty (from the package empty_package)" in capsys.readouterr().out
    assert SOURCES.names()[:2] == ["beir", "trec"]


@pytest.mark.parametrize(
    ("code", "point", "reason"),
    [
        ("import no_such_module", "Gentle", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", "Gentle", "ZeroDivisionError: division by zero"),
        ("this is no Python", "Gentle", "SyntaxError"),
        (METHOD, "Missing", "AttributeError"),
        ("Gentle = 3", "Gentle", "its entry point names neither a Method class nor a MethodEntry"),
        (METHOD.replace('"gentle"', '"other"'), "Gentle", "its entry point says 'gentle' and its class 'other'"),
    ],
)
def test_a_broken_package_is_named_in_one_line_and_harms_nobody_else(
    install: Install, capsys: pytest.CaptureFixture[str], code: str, point: str, reason: str
) -> None:
    install("broken_package", code, f"[unrank.methods]\ngentle = broken_package:{point}\n")
    with pytest.raises(UnrankError) as caught:
        make_method("gentle")
    message = str(caught.value)
    assert message.startswith(f"the method 'gentle' of the package broken_package cannot be used: {reason}")
    assert message.endswith("; repair or uninstall the package") and "\n" not in message
    assert make_method("cocol").name == "cocol"
    assert run(["list", "methods"]) == 0
    shown = capsys.readouterr().out
    assert message in shown and "cocol " in shown


def test_a_name_that_is_taken_is_refused(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("first", METHOD, "[unrank.methods]\ncocol = first:Gentle\ngentle = first:Gentle\ncf = first:Gentle\n")
    install("second", METHOD, "[unrank.methods]\ngentle = second:Gentle\n")
    with pytest.raises(UnrankError, match=r"^the method 'cocol' comes with unrank and with first: uninstall first, or"):
        make_method("cocol")
    with pytest.raises(UnrankError, match=r"^the method 'gentle' comes with first and with second: uninstall second"):
        make_method("gentle")
    for word in ("cf", "finetune"):  # an alias of unrank's own is taken too
        with pytest.raises(UnrankError, match=r"^the method 'cf' comes with unrank and with first"):
            make_method(word)
    assert make_method("neggrad").name == "neggrad"
    assert run(["list", "methods"]) == 0
    assert "the method 'cocol' comes with unrank and with first" in capsys.readouterr().out


def test_a_ranker_that_is_none(install: Install) -> None:
    install("no_ranker", METHOD, "[unrank.rankers]\ngentle = no_ranker:Gentle\n")
    assert RANKERS.names()[-1] == "gentle"
    with pytest.raises(UnrankError, match="the ranker 'gentle' of the package no_ranker cannot be used: its entry"):
        ranker_kind("gentle")
    assert ranker_class("bertdot").kind == "bi-encoder"
    assert (RANKERS.get("bertdot"), RANKERS.get(None), RANKERS.get("")) == (None, None, None)
