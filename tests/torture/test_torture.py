"""The short form of the torture; `make torture` is the long one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture.job import MODULES


def test_every_module_that_the_jobs_import_is_there() -> None:
    assert [name for name in MODULES if importlib.util.find_spec(name) is None] == []


@pytest.mark.torture
def test_a_killed_job_ends_with_the_same_weights() -> None:
    command = [sys.executable, "-m", "tests.torture", "--jobs", "1", "--only", "forget bi-encoder cocol", "--no-faults"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "1 jobs ended" in done.stdout
    assert "1 bit-identical, 0 corrupt folders, 0 lost records, 0 left behind" in done.stdout
