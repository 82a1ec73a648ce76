"""Build the wheel and the source archive from the last commit, and check what is in them.

`python -m tests.release OUT` does both, and exits with 1 if anything is wrong. It needs the package `build`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

from tests.pages import ROOT

LARGEST = 3 << 20
"""The most bytes of an archive."""
SOURCE_FILES = {"LICENSE", "README.md", "CHANGELOG.md", "PKG-INFO", "pyproject.toml", "constraints.txt"}
SOURCE_FOLDERS = {"src"}

Files = dict[str, bytes]
"""From the name of a file in an archive to its content."""


def project() -> dict[str, object]:
    """Return the table `project` of pyproject.toml."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert isinstance(found, dict)
    return found


def extras() -> dict[str, list[str]]:
    """Return the extras of pyproject.toml with their requirements."""
    found = project()["optional-dependencies"]
    assert isinstance(found, dict)
    return found


def package_files() -> set[str]:
    """Return the names of all files that the package must have."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
    source = ROOT / "src"
    modules = {str(path.relative_to(source)) for path in (source / "unrank").rglob("*.py")}
    return modules | {f"unrank/{name}" for name in table["unrank"]}


def read_wheel(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def read_source_archive(path: Path) -> Files:
    """Return the files of a source archive, without the folder that holds them all."""
    found: Files = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            opened = archive.extractfile(member)
            if opened is not None:
                found[member.name.partition("/")[2]] = opened.read()
    return found


def wheel_faults(files: Files, machine: tuple[str, ...]) -> list[str]:
    """Return what is wrong with a wheel."""
    package = {name for name in files if name.startswith("unrank/")}
    rest = sorted(name for name in set(files) - package if not re.match(r"unrank-[^/]+\.dist-info/", name))
    faults = [f"the wheel has a file beside the package: {name}" for name in rest]
    faults += [f"the wheel lacks {name}" for name in sorted(package_files() - package)]
    faults += [f"the wheel has a file that the package does not: {name}" for name in sorted(package - package_files())]
    faults += [] if any(name.endswith("/licenses/LICENSE") for name in files) else ["the wheel has no licence"]
    described = [content for name, content in files.items() if name.endswith(".dist-info/METADATA")]
    return faults + metadata_faults(described[0] if described else b"") + path_faults(files, machine)


def metadata_faults(content: bytes) -> list[str]:
    """Return what the metadata of a wheel say otherwise than pyproject.toml."""
    found, wanted = message_from_bytes(content), project()
    import unrank

    expected = {
        "Name": wanted["name"],
        "Version": unrank.__version__,
        "Summary": wanted["description"],
        "Requires-Python": wanted["requires-python"],
        "License-Expression": wanted["license"],
        "Description-Content-Type": "text/markdown",
    }
    faults = [f"{key} is {found[key]}, not {value}" for key, value in expected.items() if found[key] != value]
    missing = sorted(set(extras()) - set(found.get_all("Provides-Extra", [])))
    return faults + [f"the extra {name} is missing" for name in missing]


def source_faults(files: Files, machine: tuple[str, ...]) -> list[str]:
    """Return what is wrong with a source archive."""
    folders = {name.partition("/")[0] for name in files if "/" in name}
    faults = [f"the source archive lacks {name}" for name in sorted(SOURCE_FILES - set(files))]
    faults += [f"the source archive has a folder {name}" for name in sorted(folders - SOURCE_FOLDERS)]
    missing = sorted(name for name in package_files() if f"src/{name}" not in files)
    return faults + [f"the source archive lacks src/{name}" for name in missing] + path_faults(files, machine)


def path_faults(files: Files, machine: tuple[str, ...]) -> list[str]:
    """Return the files that hold a path of the machine that they were made on."""
    return [
        f"{name} holds the path {path}" for name, text in files.items() for path in machine if path.encode() in text
    ]


def build(out: Path) -> tuple[Path, Path]:
    """Build both archives from the last commit; return the wheel and the source archive."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), str(tree)], check=True)
        subprocess.run([sys.executable, "-m", "build", "--outdir", str(out), str(tree)], check=True, stdout=sys.stderr)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


def main(out: Path) -> int:
    """Build and check; print what is wrong, or the names and sizes of the archives."""
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True).stdout
    if changed:
        print(
            "the tree has changes that are in no commit: commit them first, because the archives are made of the last"
        )
        return 1
    if out.exists() and any(out.iterdir()):
        print(f"{out} is not empty: delete it first")
        return 1
    wheel, source = build(out)
    machine = (str(ROOT), str(Path.home()))
    faults = wheel_faults(read_wheel(wheel), machine) + source_faults(read_source_archive(source), machine)
    faults += [f"{path.name} is too large" for path in (wheel, source) if path.stat().st_size > LARGEST]
    for line in faults or [f"{path}: {path.stat().st_size:,} bytes, checked" for path in (wheel, source)]:
        print(line)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
