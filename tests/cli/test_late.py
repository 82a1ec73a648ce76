"""Packages that are imported at the first use of one of their names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from unrank.cli.late import late

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
