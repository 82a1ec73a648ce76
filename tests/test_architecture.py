"""The rooms of the house: who may know whom, held by reading every import in the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import unrank

HOUSE = Path(unrank.__file__).parent

FLOORS = [
    {"errors"},
    {"disk", "formats"},
    {"collection"},
    {"rankers"},
    {"engine"},
    {"methods", "evaluation"},
    {"forgetting"},
    {"audit"},
    {"bench"},
    {"report"},
    {"desk"},
    {"cli"},
]
"""From the ground up. A room knows the floors below it, and no other room on its own."""
FLOOR = {room: number for number, floor in enumerate(FLOORS) for room in floor}

DOORS = {"__init__", "__main__"}
"""They lead anywhere: the public names, and `python -m unrank`."""

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


def sources() -> list[Path]:
    return sorted(HOUSE.rglob("*.py"))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def room_of(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def imports(tree: ast.Module) -> Iterator[str]:
    """Every imported module, wherever the import stands: in a function, or for type checkers only, as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import hides which room is meant"
            yield from (f"{node.module}.{name.name}" for name in node.names)


def rooms_known(tree: ast.Module) -> set[str]:
    """The rooms that a file imports from; '' is the house itself."""
    parts = [name.split(".") for name in imports(tree)]
    rooms = {".".join(names[1:2]) for names in parts if names[0] == "unrank"}
    return {room if room in FLOOR else "" for room in rooms}


def trespasses(room: str, known: set[str]) -> set[str]:
    return {other for other in known if other and other != room and FLOOR[other] >= FLOOR[room]}


def calls(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            yield ast.unparse(node.func)


def named_values(tree: ast.Module) -> Iterator[tuple[str | None, ast.expr]]:
    """What is given by name, to a call or in a dict."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword):
            yield node.arg, node.value
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant):
                    yield str(key.value), value


def test_every_room_has_its_floor() -> None:
    assert {room_of(path) for path in sources()} - DOORS <= set(FLOOR)
    assert len(sources()) > 40


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(HOUSE)))
def test_imports_point_one_way(path: Path) -> None:
    if room_of(path) not in DOORS:
        assert trespasses(room_of(path), rooms_known(parsed(path))) == set()


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
def test_a_wrong_turn_would_be_seen(room: str, source: str, wrong: set[str]) -> None:
    assert trespasses(room, rooms_known(ast.parse(source))) == wrong


def test_nobody_knows_the_door() -> None:
    for path in sources():
        if room_of(path) not in {"cli", "__main__"}:
            assert "cli" not in rooms_known(parsed(path)), path


def test_only_the_record_asks_the_house_itself_and_for_its_version_alone() -> None:
    """Through `import unrank` every room could be reached."""
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
        if room_of(path) in {"collection", "disk", "errors", "report"}:
            assert not heavy & {name.split(".")[0] for name in imports(parsed(path))}, path


def test_torch_is_not_loaded_before_it_is_needed() -> None:
    modules = ["unrank", "unrank.methods", "unrank.rankers", "unrank.cli.main", "unrank.report.write"]
    modules += [f"unrank.collection.{path.stem}" for path in (HOUSE / "collection").glob("*.py")]
    script = "import importlib, sys\n" + "".join(f"importlib.import_module({name!r})\n" for name in modules)
    script += "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(HOUSE)))
def test_nothing_that_can_run_code_is_read(path: Path) -> None:
    tree = parsed(path)
    assert not UNSAFE_MODULES & {part for name in imports(tree) for part in name.split(".")}
    assert not (UNSAFE_CALLS | UNSAFE_NAMES) & set(calls(tree))
    for name, value in named_values(tree):
        if name in ("trust_remote_code", "allow_pickle"):
            assert isinstance(value, ast.Constant)
            assert value.value is False


def test_every_file_says_what_it_is() -> None:
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
