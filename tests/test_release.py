"""The release: what is in the archives, and what fresh environments do with them (slow: each installs torch)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.pages import ROOT
from tests.release import build, extras, package_files, path_faults, read_wheel, source_faults, wheel_faults

PYTHONS = ("python3.11", "python3.12", "python3.13")
NO_NETWORK = """
import socket

def refuse(self, address, *rest):
    if self.family != socket.AF_UNIX:
        raise OSError(f"this test allows no network, and {address} was asked for")

socket.socket.connect = socket.socket.connect_ex = refuse
"""
IMPORT = """
import importlib, importlib.metadata, re, sys

homes = importlib.metadata.packages_distributions()
for asked in sys.argv[1:]:
    same = lambda name: re.sub(r"[-_.]+", "-", name).lower() == asked
    tops = [top for top, packages in homes.items() if any(map(same, packages)) and top.isidentifier()]
    assert tops, f"{asked} is not installed"
    failed = []
    for top in tops:
        try:
            importlib.import_module(top)
        except ImportError as error:
            failed.append(error)
    assert len(failed) < len(tops), failed
import unrank.cli.main
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))[0]


def new_environment(folder: Path, python: str, *asked: str) -> Path:
    """Make an empty virtual environment, install into it within the constraints, and return its interpreter."""
    found = folder / "bin" / "python"
    if uv := shutil.which("uv"):
        subprocess.run([uv, "venv", "--quiet", "--python", python, folder], check=True)
        install = [uv, "pip", "install", "--quiet", "--python", str(found)]
    else:
        subprocess.run([python, "-m", "venv", folder], check=True)
        install = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), *asked], check=True)
    return found


def clean_variables(folder: Path) -> dict[str, str]:
    """Return the environment of a process that reaches no network and knows nothing of this tree."""
    (folder / "offline").mkdir()
    (folder / "offline" / "sitecustomize.py").write_text(NO_NETWORK)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HF_", "VIRTUAL"))}
    return {**kept, "PYTHONPATH": str(folder / "offline"), "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}


def whole_wheel() -> dict[str, bytes]:
    """Return a wheel without faults: empty files and true metadata."""
    import unrank

    provided = "".join(f"Provides-Extra: {name}\n" for name in extras())
    summary = (
        "Make a trained neural ranker forget chosen queries or documents, leave the rest alone, and show that it did."
    )
    head = f"Name: unrank\nVersion: {unrank.__version__}\nSummary: {summary}\nRequires-Python: >=3.11\n"
    metadata = f"{head}License-Expression: Apache-2.0\nDescription-Content-Type: text/markdown\n{provided}\ntext\n"
    about = {"METADATA": metadata.encode(), "licenses/LICENSE": b"the licence"}
    return dict.fromkeys(package_files(), b"") | {f"unrank-1.dist-info/{name}": text for name, text in about.items()}


def test_a_wheel_with_a_fault_is_refused(tmp_path: Path) -> None:
    files, machine = whole_wheel(), ("/home/somebody",)
    assert wheel_faults(files, machine) == []
    without = {name: text for name, text in files.items() if name not in ("unrank/py.typed",)}
    assert wheel_faults(without, machine) == ["the wheel lacks unrank/py.typed"]
    assert wheel_faults({**files, "tests/data.zip": b""}, machine)[0].endswith("tests/data.zip")
    assert path_faults({"unrank/a.py": b"at /home/somebody/tree"}, machine) == [
        "unrank/a.py holds the path /home/somebody"
    ]
    metadata = {name: text.replace(b">=3.11", b">=3.9") for name, text in files.items()}
    assert wheel_faults(metadata, machine) == ["Requires-Python is >=3.9, not >=3.11"]
    with zipfile.ZipFile(tmp_path / "made.whl", "w") as archive:
        archive.writestr("unrank/py.typed", b"")
    assert read_wheel(tmp_path / "made.whl") == {"unrank/py.typed": b""}


def test_a_source_archive_has_the_package_and_no_test() -> None:
    names = ("LICENSE", "README.md", "CHANGELOG.md", "PKG-INFO", "pyproject.toml", "constraints.txt")
    files = dict.fromkeys([*names, *(f"src/{name}" for name in package_files())], b"")
    assert source_faults(files, ()) == []
    assert source_faults({**files, "tests/test_a.py": b""}, ()) == ["the source archive has a folder tests"]


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_the_wheel_runs_the_tiny_demo_without_a_network(wheel: Path, python: str, tmp_path: Path) -> None:
    if shutil.which(python) is None or subprocess.run([python, "--version"], check=False).returncode:
        pytest.skip(f"{python} is not installed")
    found = new_environment(tmp_path / "venv", python, str(wheel))
    command = [str(found.with_name("unrank")), "demo", "--tiny", "--out", str(tmp_path / "out"), "--device", "cpu"]
    variables = clean_variables(tmp_path)
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert "This was the tiny demo" in done.stdout
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("extra", sorted(extras()))
def test_every_extra_installs_and_imports_alone(wheel: Path, extra: str, tmp_path: Path) -> None:
    from packaging.requirements import Requirement

    found = new_environment(tmp_path / "venv", sys.executable, f"unrank[{extra}] @ {wheel.as_uri()}")
    needed = [Requirement(line) for line in extras()[extra]]
    names = [each.name.replace("_", "-").lower() for each in needed if each.marker is None or each.marker.evaluate()]
    done = subprocess.run(
        [found, "-c", IMPORT, *names], env=clean_variables(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
