"""The command line answers at once: what is slow to import is imported when it is needed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

import unrank
from unrank.cli.main import app, run

SLOW = ("torch", "transformers", "sentence_transformers", "accelerate", "pyarrow", "bm25s", "numpy")
COMMANDS = [str(command.name) for command in app.registered_commands]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, env=environment)


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_of(*arguments: str) -> tuple[str, float]:
    before = cpu_of_children()
    said = python(*arguments).stdout
    return said, cpu_of_children() - before


def test_help_answers_in_half_a_second() -> None:
    """Half a second of CPU time in one of five calls, or on a slow machine five times what its parser takes to load."""
    for _ in range(5):
        said, seconds = cpu_of("-m", "unrank", "--help")
        assert "Usage: unrank" in said
        if seconds < max(0.5, 5 * cpu_of("-c", "import typer, rich.console")[1]):
            return
    pytest.fail(f"the last of five calls took {seconds:.2f} s of CPU time")


@pytest.mark.parametrize("module", ["unrank", "unrank.cli.main", "unrank.rankers", "unrank.methods"])
def test_nothing_slow_is_imported_before_it_is_needed(module: str) -> None:
    said = python("-c", f"import sys, {module}; print([name for name in {SLOW} if name in sys.modules])")
    assert said.stdout.strip() == "[]"


def test_a_command_ends_without_a_look_for_garbage() -> None:
    """Among all objects of torch and its libraries that look takes a second."""
    code = (
        "import atexit, gc, sys; from unrank.cli.main import main; sys.argv = ['unrank', '--version']; "
        "atexit.register(lambda: print(gc.get_freeze_count() >= len(gc.get_objects()))); main()"
    )
    assert python("-c", code).stdout.splitlines()[-1] == "True"


@pytest.mark.slow
def test_the_collection_needs_no_torch() -> None:
    code = "import sys, unrank; unrank.open_collection; unrank.Removal; unrank.partition; unrank.import_collection"
    said = python("-c", f"{code}; print([name for name in ('torch', 'transformers') if name in sys.modules])")
    assert said.stdout.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert run([command, "--help"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert f"Usage: unrank {command}" in said.out
    assert "--help" in said.out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr() == (f"unrank {unrank.__version__}\n", "")


def test_the_public_names_are_listed() -> None:
    assert set(unrank.__all__) <= set(dir(unrank))
    assert "__version__" in dir(unrank)


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    said = capsys.readouterr().out
    assert {"import", "inspect", "find", "split", "train", "forget", "evaluate", "list", "demo"} <= {*COMMANDS}
    assert all(f"\n  {command} " in said for command in COMMANDS)


def test_a_system_without_file_locks_gets_one_line() -> None:
    code = "import runpy, sys; sys.modules['fcntl'] = None; runpy.run_module('unrank', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("unrank: unrank needs the file locks of Linux or macOS")
    assert done.stderr.count("\n") == 1 and "WSL" in done.stderr
