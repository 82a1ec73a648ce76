"""Packages that are imported at the first use of one of their names."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from unrank.cli.late import late, packages_distributions
from unrank.engine.optimizer import AdamW

PACKAGE = """
VALUE = 3

class Base:
    name = "base"

def double(number):
    return 2 * number
"""
USER = """
from slow_package import Base, double
from slow_package.inner import other
import slow_package

def is_base(one):
    return isinstance(one, Base), isinstance(one, slow_package.Base)
"""


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "slow_package"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    (package / "inner.py").write_text("def other():\n    return 'inner'\n")
    (tmp_path / "slow_user.py").write_text(USER)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("slow_package", "slow_package.inner", "slow_user"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_late_package_is_imported_at_first_use(slow: Path) -> None:
    with late(["slow_package", "not_installed_package"]):
        import slow_user  # type: ignore[import-not-found]

        assert slow_user.is_base(3) == (False, False)
        with pytest.raises(ImportError):
            __import__("not_installed_package")
    assert "slow_package" not in sys.modules
    assert slow_user.is_base(3) == (False, False)
    assert "slow_package" not in sys.modules  # nothing can be of a class that nobody imported
    assert slow_user.other() == "inner"
    assert slow_user.double(4) == 8
    import slow_package  # type: ignore[import-not-found]

    assert slow_package.VALUE == 3
    assert slow_user.is_base(slow_package.Base()) == (True, True)
    assert slow_user.Base.name == "base"


def test_a_class_of_a_late_one_is_of_its_own(slow: Path) -> None:
    with late(["slow_package"]):
        import slow_user

        class Derived(slow_user.Base):  # type: ignore[misc]
            pass

        assert (slow_user.Base | None) is not None
    assert Derived.name == "base"
    assert slow_user.is_base(Derived()) == (True, True)
    assert issubclass(Derived, sys.modules["slow_package"].Base)


def test_what_was_imported_before_is_left(slow: Path) -> None:
    import slow_package

    with late(["slow_package"]):
        import slow_user
    assert slow_user.double is slow_package.double


def test_a_module_of_a_package_can_be_late_and_stay_so(slow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    with late([], ["slow_package.inner"]):
        import slow_package
    import slow_package.inner  # type: ignore[import-not-found]
    from slow_package.inner import other

    assert slow_package.VALUE == 3
    assert "inner" not in vars(slow_package.inner).get("__file__", "")
    assert other() == "inner"
    assert sys.modules["slow_package.inner"].__file__ is not None
    assert slow_package.inner is sys.modules["slow_package.inner"]


def test_a_late_mark_marks_nothing(slow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrank.cli.late.MARKS", {"slow_package.double"})
    with late(["slow_package"]):
        import slow_user
    assert slow_user.double(len) is len
    assert "slow_package" not in sys.modules
    assert slow_user.double(4) == 8
    assert slow_user.double("a") == "aa"


def test_the_distributions_of_packages_are_those_that_python_finds() -> None:
    expected = metadata.packages_distributions()
    found = packages_distributions()
    assert {name: {*found[name]} for name in expected} == {name: {*names} for name, names in expected.items()}


MODELS = (
    "import transformers.models as it; print(sorted(it._class_to_module.items()), sorted(it._object_missing_backend))"
)


@pytest.mark.slow
def test_the_table_of_models_is_that_of_transformers() -> None:
    usual = f"import transformers.modeling_utils, transformers.masking_utils, sentence_transformers; {MODELS}"
    late_one = f"from unrank.cli.late import import_libraries; import_libraries(); {MODELS}"
    said = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True) for code in (usual, late_one)]
    assert said[0].stdout == said[1].stdout


def test_a_request_imports_no_compiler(ranker: Path, collection: Path, removal: Path, tmp_path: Path) -> None:
    """Neither torch's and its algebra, nor the tensors on several machines, nor the packages of trainers."""
    command = ["unrank", "forget", *map(str, (ranker, collection)), "--removal", str(removal)]
    command += ["--out", str(tmp_path / "out"), "--target", "0.1", "--set", "epochs=1", "--device", "cpu", "--quiet"]
    code = (
        f"import atexit, sys; sys.argv = {command}; from unrank.cli.late import STAY, UNUSED; "
        "atexit.register(lambda: print([name for name in (*STAY, *UNUSED, 'pandas') "
        "if getattr(sys.modules.get(name), '__file__', None)])); from unrank.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    assert eval(done.stdout.splitlines()[-1]) == []


def test_what_stays_late_can_be_used() -> None:
    code = (
        "from unrank.cli.late import import_libraries; import_libraries(); import pyarrow, pandas, sympy, torch; "
        "table = pyarrow.table({'a': [1, 2]}); assert table.column('a').to_numpy().sum() == 3; "
        "assert not getattr(pandas, '__file__', None); frame = table.to_pandas(); "
        "assert isinstance(frame, pandas.DataFrame) and int(pyarrow.table(frame).column('a')[1]) == 2; "
        "torch.arange(3, device='meta'); weight = torch.ones(2, requires_grad=True); "
        "torch.autograd.grad((2 * weight,), (weight,), (torch.ones(2),)); assert not getattr(sympy, '__file__', None); "
        "torch.arange(3, device='meta') + 1; x = sympy.Symbol('x'); assert sympy.diff(x**2, x) == 2 * x; "
        "from torch.fx.experimental.symbolic_shapes import ShapeEnv, sym_eq; assert ShapeEnv() and sym_eq(2, 2); "
        "double = torch.compile(lambda x: 2 * x, backend='eager'); assert double(torch.ones(2)).sum() == 4"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PLUGIN = """
import pandas as pd
import sympy
from pandas import NA
from pandas.errors import EmptyDataError
"""
ASKED = """
import io, sys
from unrank.cli.main import main
sys.argv = ["unrank", "list", "methods", "--quiet"]
try:
    main()
except SystemExit as end:
    assert not end.code
from unrank.cli.late import import_libraries
import_libraries()
import other_package as plugin, pyarrow
pyarrow.array(["a"])
try:
    plugin.pd.read_csv(io.StringIO(""))
except plugin.EmptyDataError:
    pass
assert plugin.pd.Series(["a", plugin.NA]).isna().sum() == 1 and type(plugin.pd.DataFrame()) is plugin.pd.DataFrame
assert pyarrow.array([plugin.NA, "x"], from_pandas=True).to_pylist() == [None, "x"]
assert plugin.sympy.sin(plugin.sympy.pi) == 0
"""


def test_nothing_is_late_for_a_plugin(tmp_path: Path) -> None:
    """A stand-in is not the thing itself: `is pandas.NA` is false of it, and pyarrow would remember it."""
    described = tmp_path / "other-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[unrank.methods]\nother = other_package:Other\n")
    (tmp_path / "other_package.py").write_text(PLUGIN)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_names_of_a_late_module_are_its_own_once_it_is_imported(slow: Path) -> None:
    with late(["slow_package"]):
        import slow_user

        module = slow_user.slow_package
        assert module.Base is not None and slow_user.double(4) == 8
    assert module.Base is sys.modules["slow_package"].Base
    assert not hasattr(module, "nothing")


def test_plain_sizes_are_answered_without_the_compiler(slow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrank.cli.late.PLAIN", {"slow_package.double": lambda *sizes: sizes == (True,)})
    with late(["slow_package"]):
        import slow_user
    assert (slow_user.double(True), slow_user.double((2, 3))) == (True, False)
    assert "slow_package" not in sys.modules
    assert slow_user.double(4.0) == 8


@pytest.mark.parametrize("fused", [False, True])
def test_an_optimiser_without_the_compiler_takes_the_same_steps(fused: bool) -> None:
    """To the bit, with its hooks, and from its own state too."""
    ends = list[torch.Tensor]()
    for kind in (AdamW, torch.optim.AdamW):
        torch.manual_seed(0)
        model, hooked = torch.nn.Linear(8, 8), list[int]()
        optimizer = kind(model.parameters(), lr=0.1, weight_decay=0.0, fused=fused)
        optimizer.register_step_pre_hook(lambda *_: hooked.append(1))  # noqa: B023 - called within this turn
        for _ in range(4):
            optimizer.load_state_dict(optimizer.state_dict())
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().sum().backward()
            optimizer.step()
        assert len(hooked) == 4
        ends.append(torch.cat([weight.detach().flatten() for weight in model.parameters()]))
    assert torch.equal(*ends)


def test_libraries_are_imported_without_what_no_ranker_needs() -> None:
    code = (
        "import gc, sys; from unrank.cli.late import UNUSED, import_libraries; import_libraries(); "
        "frozen = gc.get_freeze_count(); assert gc.isenabled() and frozen > 50_000; "
        "import_libraries(); assert gc.get_freeze_count() == frozen; "
        "import unrank.forgetting.forget, unrank.rankers.cross_encoder, unrank.rankers.bi_encoder; "
        "assert 'sentence_transformers' in sys.modules; print([name for name in UNUSED if name in sys.modules]); "
        "import numpy; from sklearn.metrics import roc_curve; from sentence_transformers.util import similarity; "
        "print(float(similarity.pairwise_distances(numpy.ones((1, 2)), numpy.zeros((1, 2)))[0, 0]) > 1)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["[]", "True"]
