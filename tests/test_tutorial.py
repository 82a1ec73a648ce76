"""The tutorial: its commands follow from each other, and run as they are printed.

`python -m tests.test_tutorial FOLDER` runs them in an empty folder and writes their output into the page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from tests.pages import ROOT, blocks, read, shell_commands
from unrank.errors import UnrankError
from unrank.rankers.encoder import default_encoder

PAGE = ROOT / "docs" / "tutorial.md"
MASKED = re.compile(
    r"\b[hp][0-9a-f]{12}\b|takes (between|about|up to) .* here|"
    r"(\d+ (h|min) )?\d+(\.\d+)? (h|min|s)\b|[-+]?\d+([.,]\d+)*"
)
MADE = {"pydocs", "ranker", "removal.json", "clean", "report.html"}


def commands() -> list[list[str]]:
    return shell_commands(read(PAGE))


def transcript(folder: Path) -> Iterator[tuple[list[str], int, str]]:
    """Run the commands in a folder; yield each with its exit code and what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"}
    for words in commands():
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1_800,
            check=False,
        )
        yield words, done.returncode, done.stdout


def shape(lines: Iterable[str]) -> list[str]:
    """Return what an output says, in order, without numbers, times and ids: these differ between machines.

    >>> shape(["epoch 1: MRR 0.756", "epoch 2: MRR 0.797", "2 epochs in 5 min 4 s", "in 41 s", "no id p104c5e42b888"])
    ['epoch #: MRR #', '# epochs in #', 'in #', 'no id #']
    """
    masked = [" ".join(MASKED.sub("#", line).split()) for line in lines]
    return [line for line, _ in groupby(line for line in masked if line)]


def shown() -> list[Sequence[str]]:
    """Return the output of each command as the page has it."""
    code = [block for block in blocks(read(PAGE)) if block.kind == "code"]
    return [after.lines for _, after in pairwise(code) if after.language == "text"]


def refresh(folder: Path) -> None:
    """Write the output of every command into the block of text that follows it."""
    outputs = iter([output for _, _, output in transcript(folder)])
    lines, replacing = list[str](), False
    for line in read(PAGE).splitlines():
        if line == "```text":
            lines += [line, *(printed.rstrip() for printed in next(outputs).rstrip().splitlines())]
            replacing = True
        elif line == "```" or not replacing:
            lines.append(line)
            replacing = False
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_each_command_uses_what_an_earlier_one_made() -> None:
    there = set[str]()
    for words in commands():
        out = words[words.index("--out") + 1] if "--out" in words else None
        assert (set(words) & MADE) - {out, words[1]} <= there, words
        assert out not in there
        there |= {out} if out is not None else set()
    assert there == MADE


def test_every_command_shows_its_output() -> None:
    code = [block for block in blocks(read(PAGE)) if block.kind == "code"]
    asked = [line for block in code if block.language == "sh" for line in block.lines if line.startswith("unrank ")]
    assert len(shown()) == len(asked) == len(commands()) == 7
    assert all(map(shape, shown()))


@pytest.mark.slow
def test_the_whole_tutorial(tmp_path: Path) -> None:
    """Some minutes on two cores: it trains a ranker and makes it forget. The page shows what the commands print."""
    try:
        default_encoder()
    except UnrankError as error:
        pytest.skip(str(error))
    for (words, code, output), lines in zip(transcript(tmp_path), shown(), strict=True):
        assert code == 0, (words, output)
        assert shape(output.splitlines()) == shape(lines), f"python -m {__name__} FOLDER writes the page anew"
    assert {path.name for path in tmp_path.iterdir()} == MADE


if __name__ == "__main__":
    refresh(Path(sys.argv[1]))
