"""The docs site: it is built offline, without a warning, and has the public names (slow; needs `unrank[docs]`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import unrank
from tests.pages import ROOT, read

API = read(ROOT / "docs" / "site" / "api.rst")


def test_the_reference_names_everything_that_is_public() -> None:
    assert [name for name in unrank.__all__ if f":: unrank.{name}\n" not in API] == []


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="make docs installs it")
    pytest.importorskip("furo")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", str(ROOT / "docs" / "site")]
    made = subprocess.run([*command, str(ROOT / "docs"), str(tmp_path)], capture_output=True, text=True, check=False)
    assert (made.returncode, made.stderr) == (0, "")
    assert "unrank.forget" in read(tmp_path / "site" / "api.html")
    page = read(tmp_path / "index.html")
    assert 'src="http' not in page and "@import url(http" not in page
