"""Check which package may import which, by reading every import in the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import unrank

HOUSE = Path(unrank.__file__).parent

FLOORS = [
    {"errors"},
    {"disk", "plugins"},
    {"secret"},
    {"owner"},
    {"parse"},
    {"record"},
    {"journal"},
    {"collection"},
    {"rankers"},
    {"engine"},
    {"methods", "evaluation"},
    {"forgetting"},
    {"audit", "index"},
    {"bench"},
    {"report"},
    {"desk"},
    {"serve"},
    {"cli"},
]
"""From the ground up. A package imports from the floors below it, never from another package on its own floor."""
FLOOR = {room: number for number, floor in enumerate(FLOORS) for room in floor}

DOORS = {"__init__", "__main__"}
"""Modules that may import anything: the public names, and `python -m unrank`."""

UNSAFE_MODULES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "yaml"}
UNSAFE_CALLS = {
    "torch.load",
    "torch.save",
    "torch.jit.load",
    "torch.hub.load",
    "numpy.load",
    "np.load",
    "pandas.read_pickle",
}
UNSAFE_NAMES = {"eval", "exec", "__import__"}


@cache
def sources() -> list[Path]:
    return sorted(HOUSE.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def room_of(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield every imported name, including imports inside functions and under TYPE_CHECKING."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import hides which package is meant"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def rooms_known(tree: ast.Module) -> set[str]:
    """Return the packages that a file imports from; '' is `unrank` itself."""
    parts = [name.split(".") for name in imports(tree)]
    rooms = {".".join(names[1:2]) for names in parts if names[0] == "unrank"}
    return {room if room in FLOOR else "" for room in rooms}


def trespasses(room: str, known: set[str]) -> set[str]:
    return {other for other in known if other and other != room and FLOOR[other] >= FLOOR[room]}


def calls(tree: ast.Module) -> Iterator[str]:
    """Yield the name of every called function that may be unsafe."""
    ends = {name.rpartition(".")[2] for name in UNSAFE_CALLS | UNSAFE_NAMES}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=end) | ast.Name(id=end)) if end in ends:
                yield ast.unparse(node.func)


def named_values(tree: ast.Module) -> Iterator[tuple[str | None, ast.expr]]:
    """Yield every keyword argument and every dict entry with a constant key."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword):
            yield node.arg, node.value
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant):
                    yield str(key.value), value


def test_every_package_has_a_floor() -> None:
    assert {room_of(path) for path in sources()} - DOORS <= set(FLOOR)
    assert len(sources()) > 40


def test_imports_point_one_way() -> None:
    inside = [path for path in sources() if room_of(path) not in DOORS]
    found = {str(path.relative_to(HOUSE)): trespasses(room_of(path), rooms_known(parsed(path))) for path in inside}
    assert {path: rooms for path, rooms in found.items() if rooms} == {}


@pytest.mark.parametrize(
    ("room", "source", "wrong"),
    [
        ("engine", "from unrank.methods.base import Method", {"methods"}),
        ("methods", "from unrank.evaluation import scorecard", {"evaluation"}),
        ("evaluation", "import unrank.methods.cocol", {"methods"}),
        ("collection", "def f():\n    from unrank.rankers.base import Ranker", {"rankers"}),
        ("rankers", "if TYPE_CHECKING:\n    from unrank.engine.tokens import TokenStore", {"engine"}),
        ("errors", "from unrank import disk", {"disk"}),
        ("forgetting", "from unrank.methods import METHODS\nfrom unrank.collection.removal import Removal", set()),
        ("engine", "import unrank\nimport torch\nfrom unrank.engine.loop import fit", set()),
    ],
)
def test_a_wrong_import_would_be_found(room: str, source: str, wrong: set[str]) -> None:
    assert trespasses(room, rooms_known(ast.parse(source))) == wrong


def test_nothing_imports_the_command_line() -> None:
    for path in sources():
        if room_of(path) not in {"cli", "__main__"}:
            assert "cli" not in rooms_known(parsed(path)), path


def test_import_unrank_is_used_for_the_version_alone() -> None:
    """Any package could be reached through `import unrank`."""
    for path in sources():
        if room_of(path) in {"cli", *DOORS} or "" not in rooms_known(parsed(path)):
            continue
        used = {
            node.attr
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "unrank"
        }
        named = {name for name in imports(parsed(path)) if name.startswith("unrank.") and name.count(".") == 1}
        assert used | {name.removeprefix("unrank.") for name in named} <= {"__version__", *FLOOR}, path


def test_collections_and_records_are_read_without_torch() -> None:
    heavy = {"torch", "transformers", "sentence_transformers", "accelerate", "safetensors"}
    for path in sources():
        if room_of(path) in {"collection", "disk", "errors", "journal", "record", "report"}:
            assert not heavy & {name.split(".")[0] for name in imports(parsed(path))}, path


def test_torch_is_not_loaded_before_it_is_needed() -> None:
    modules = ["unrank", "unrank.methods", "unrank.rankers", "unrank.cli.main", "unrank.report.write"]
    modules += [f"unrank.collection.{path.stem}" for path in (HOUSE / "collection").glob("*.py")]
    script = "import importlib, sys\n" + "".join(f"importlib.import_module({name!r})\n" for name in modules)
    script += "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def unsafe(tree: ast.Module) -> set[str]:
    """Return the modules, calls and arguments of a file through which data could run code."""
    found = UNSAFE_MODULES & {part for name in imports(tree) for part in name.split(".")}
    found |= (UNSAFE_CALLS | UNSAFE_NAMES) & set(calls(tree))
    for name, value in named_values(tree):
        if name in ("trust_remote_code", "allow_pickle") and not (
            isinstance(value, ast.Constant) and value.value is False
        ):
            found.add(name)
    return found


def test_no_file_format_that_can_run_code_is_read() -> None:
    found = {str(path.relative_to(HOUSE)): unsafe(parsed(path)) for path in sources()}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("import pickle", {"pickle"}),
        ("from joblib import load", {"joblib"}),
        ("import torch\ntorch.load('weights.pt')", {"torch.load"}),
        ("eval('1')", {"eval"}),
        ("load(path, trust_remote_code=True)", {"trust_remote_code"}),
        ("options = {'allow_pickle': allowed}", {"allow_pickle"}),
        ("load(path, trust_remote_code=False, allow_pickle=False)", set()),
    ],
)
def test_an_unsafe_call_would_be_found(source: str, wrong: set[str]) -> None:
    assert unsafe(ast.parse(source)) == wrong


def test_every_file_has_a_docstring() -> None:
    for path in sources():
        if path.name != "__main__.py":
            assert ast.get_docstring(parsed(path)), path


def test_names_that_say_nothing_are_not_used() -> None:
    stems = {path.stem for path in sources()} | {path.name for path in HOUSE.rglob("*") if path.is_dir()}
    assert not stems & {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


def test_every_public_name_is_there() -> None:
    for name in unrank.__all__:
        assert getattr(unrank, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = unrank.nothing
