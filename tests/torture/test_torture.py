"""The short form of the torture; `make torture` is the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.torture
def test_a_killed_job_ends_with_the_same_weights() -> None:
    command = [sys.executable, "-m", "tests.torture", "--jobs", "1", "--only", "forget bi-encoder cocol", "--no-faults"]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "1 jobs ended" in done.stdout
    assert "1 bit-identical, 0 corrupt folders, 0 lost records, 0 left behind" in done.stdout
