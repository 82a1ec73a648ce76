"""Methods, rankers and sources of other packages: found by entry points, refused by name when they cannot be used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.table import forgetting, random_table, task_of
from tests.tiny import make_bi_encoder
from unrank.cli.main import run
from unrank.collection.collection import Collection, open_collection
from unrank.collection.sources import CATALOGUE as SOURCES
from unrank.collection.sources import parse_source, read_source
from unrank.errors import UnknownName, UnrankError
from unrank.methods import CATALOGUE as METHODS
from unrank.methods import make_method
from unrank.methods.watched import watched_plan
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
        ("exit(0)", "Gentle", "SystemExit: 0"),
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


LEARNER = """
from dataclasses import dataclass
import torch
from unrank.engine.samples import Phase, Samples, all_present
from unrank.methods.base import Method

@dataclass(frozen=True)
class Odd(Method):
    "Odd."
    name = "odd"

    def plan(self, task):
        def draw(generator, epoch):
            {draw}
            return Samples.of({{"forget": all_present(task.partition.forget)}}, task.teacher)

        def loss(scored):
            {loss}
            return scored["forget"].height.relu().mean()

        {plan}
        return [Phase("push", len(task.partition.forget), draw, loss, batch=16)]
"""
FINE = {"draw": "pass", "loss": "pass", "plan": "pass"}


@pytest.mark.parametrize(
    ("place", "code", "reason"),
    [
        ("loss", "raise KeyError('x')", "KeyError: 'x'"),
        ("loss", "return None", "TypeError: the loss of the phase 'push' is None, and not a tensor of one number"),
        ("loss", "return 1.5", "TypeError: the loss of the phase 'push' is 1.5, and not a tensor of one number"),
        (
            "loss",
            "return torch.zeros(2)",
            "TypeError: the loss of the phase 'push' is a tensor of 2 numbers, and not a tensor of one number",
        ),
        ("loss", "exit(0)", "SystemExit: 0"),
        ("draw", "return []", "TypeError: the phase 'push' drew [], and no Samples"),
        ("draw", "return Samples.of({})", "ValueError: need at least one array to stack"),
        (
            "draw",
            "return Samples.of({'forget': (task.partition.forget, task.partition.forget[:, 0] < 0)}, task.teacher)",
            "ValueError: the phase 'push' drew a sample without any pair",
        ),
        ("plan", "1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_method_that_fails_is_named_with_its_package(
    install: Install,
    capsys: pytest.CaptureFixture[str],
    golden: Collection,
    encoder: Path,
    tmp_path: Path,
    place: str,
    code: str,
    reason: str,
) -> None:
    install("odd_package", LEARNER.format(**FINE | {place: code}), "[unrank.methods]\nodd = odd_package:Odd\n")
    ranker, out = make_bi_encoder(encoder, tmp_path / "ranker"), tmp_path / "out"
    command = ["forget", ranker, golden.folder, "--query", "q4", "--method", "odd", "--target", "50%", "--out", out]
    code_of_exit = run([*map(str, command), "--set", "epochs=1", "--quiet"])
    shown = capsys.readouterr().err.strip().splitlines()
    line = f"unrank: the method 'odd' of the package odd_package failed: {reason}; repair or uninstall the package"
    assert (code_of_exit, shown[-1]) == (2, f"{line} (UNRANK_DEBUG=1 shows where)")
    assert not any("Traceback" in line for line in shown) and not out.exists()


def test_memory_that_runs_out_in_a_plugin_is_no_fault_of_it(install: Install) -> None:
    install("odd_package", LEARNER.format(**FINE), "[unrank.methods]\nodd = odd_package:Odd\n")
    with pytest.raises(torch.OutOfMemoryError), METHODS.blamed("odd", (torch.OutOfMemoryError,)):
        raise torch.OutOfMemoryError
    for error in (MemoryError(), FileNotFoundError("x"), UnrankError("give another target"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, METHODS.blamed("odd"):
            raise error
        assert caught.value is error


def test_a_method_of_unrank_is_not_watched(install: Install, golden: Collection) -> None:
    install("odd_package", LEARNER.format(**FINE), "[unrank.methods]\nodd = odd_package:Odd\n")
    task = task_of(golden, forgetting(golden, queries=[0]), random_table(golden, 0))
    for name, where in (("scrub", "unrank.methods.scrub"), ("odd", "unrank.methods.watched")):
        assert {phase.loss.__module__ for phase in watched_plan(make_method(name), task)} == {where}


READER = """
from unrank.collection.sources.source import Judgement, Raw, Text

def read(location, test_split):
    documents = [Text("d1", "a heap"), Text("d2", "a tree")]
    queries = [Text("q1", "what is a heap")]
    judged = [Judgement("q1", "d1", 1), ("q1", "d2", 0)]
    {code}
    return Raw("odd", lambda: queries, lambda: documents, {{"train": lambda: judged}})
"""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("return None", "ValueError: it returned None, which is not a Raw with a name"),
        ("exit(0)", "SystemExit: 0"),
        (
            "judged.append(Judgement('q1', 'd2', 100_000))",
            "ValueError: the grade 100000 of document 'd2' for query 'q1' is not a whole number from -32768 to 32767",
        ),
        (
            "judged.append(Judgement('q1', 'd2', 0.5))",
            "ValueError: the grade 0.5 of document 'd2' for query 'q1' is not a whole number from -32768 to 32767",
        ),
        (
            "documents.append(Text('d3', 7))",
            "ValueError: Text(id='d3', text=7): an id or a text that is not a str of UTF-8",
        ),
        (
            "queries.append(Text('q2', chr(0xD800)))",
            "ValueError: Text(id='q2', text='\\ud800'): an id or a text that is not a str of UTF-8",
        ),
        (
            "judged = [7]",
            "TypeError: unrank.collection.sources.source.Judgement() argument after * must be an iterable",
        ),
        ("return Raw('odd', lambda: queries, lambda: 1 / 0, {})", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_source_that_fails_is_named_with_its_package(
    install: Install, capsys: pytest.CaptureFixture[str], tmp_path: Path, code: str, reason: str
) -> None:
    install("odd_package", READER.format(code=code), "[unrank.sources]\nodd = odd_package:read\n")
    assert run(["import", "odd:here", "--candidates", "1", "--out", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"unrank: the source 'odd' of the package odd_package failed: {reason}")
    assert shown.endswith("; repair or uninstall the package (UNRANK_DEBUG=1 shows where)\n")
    assert shown.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_source_that_is_right_is_read(install: Install, tmp_path: Path) -> None:
    install("odd_package", READER.format(code="pass"), "[unrank.sources]\nodd = odd_package:read\n")
    assert run(["import", "odd:here", "--candidates", "1", "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert open_collection(tmp_path / "out").grades.tolist() == [1, 0]


def test_the_traceback_of_a_plugin_is_shown_to_who_asks(
    install: Install, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("odd_package", READER.format(code="1 / 0"), "[unrank.sources]\nodd = odd_package:read\n")
    monkeypatch.setenv("UNRANK_DEBUG", "1")
    assert run(["import", "odd:here", "--out", str(tmp_path / "out")]) == 2
    assert "odd_package.py" in capsys.readouterr().err


def test_a_call_of_exit_is_no_success(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrank.cli.main.say", lambda *_: sys.exit(0))
    assert run(["list", "methods", "--quiet"]) == 1
    assert capsys.readouterr().err == "unrank: a package that was used called exit before the command was done\n"
