"""The pages of docs/, the README and the changelog: readable, linked, and true of the command line and of the tree."""

from __future__ import annotations

import importlib
import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.pages import ROOT, anchors, blocks, links, pages, read, shell_commands
from tests.test_architecture import FLOORS
from tests.tiny import make_collection
from unrank.cli.main import app, run
from unrank.collection.sources import SOURCES, Source

LONGEST_LINE = 160
LONGEST_PARAGRAPH = 6
SOURCE = ROOT / "src" / "unrank"
GLOSSARY = (
    "anchors", "audit", "certificate", "disjoint, D", "dual encoder", "entangled, E", "forget, F", "landing", "ledger",
    "ranker", "record", "recovery", "student", "target", "teacher", "test, T", "δ, delta",
)  # fmt: skip


@cache
def whole_command() -> Any:
    return typer.main.get_command(app)


def command(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that these words name, and the words that follow its name."""
    found, rest = whole_command(), words[1:]
    while rest and hasattr(found, "commands") and not rest[0].startswith("-"):
        assert rest[0] in found.commands, f"no such command: {' '.join(words)}"
        found, rest = found.commands[rest[0]], rest[1:]
    return found, rest


def unknown_flags(words: list[str]) -> set[str]:
    """Return the flags of these words that their command does not have."""
    found, rest = command(words)
    known = {"--help"}.union(*([*option.opts, *option.secondary_opts] for option in found.params))
    return {word.split("=")[0] for word in rest if re.match(r"--[a-z]", word)} - known


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in links(read(page)):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(read(target))):
            broken.append(link)
    return broken


def test_lines_and_paragraphs_are_short() -> None:
    prose = [(page, block) for page in pages() for block in blocks(read(page)) if block.kind == "prose"]
    long_lines = [(page.name, block.line) for page, block in prose if max(map(len, block.lines)) > LONGEST_LINE]
    long_paragraphs = [(page.name, block.line) for page, block in prose if len(block.lines) > LONGEST_PARAGRAPH]
    assert (long_lines, long_paragraphs) == ([], [])


def test_every_link_leads_somewhere() -> None:
    assert {page.name: broken for page in pages() if (broken := broken_links(page))} == {}


def test_every_command_and_flag_exists() -> None:
    told = [(page, words) for page in pages() for words in shell_commands(read(page), inline=True)]
    assert len(told) > 60
    assert [(page.name, " ".join(words)) for page, words in told if unknown_flags(words)] == []


def test_a_wrong_page_would_be_seen() -> None:
    text = "one\ntwo\n\n- three\n\n```sh\nunrank nothing --here\n```\n| a | b |\n\n[to](no/where.md)\n"
    kinds = [(block.kind, block.line, len(block.lines)) for block in blocks(text)]
    assert kinds == [("prose", 1, 2), ("prose", 4, 1), ("code", 7, 1), ("table", 9, 1), ("prose", 11, 1)]
    assert links(text) == ["no/where.md"]
    assert shell_commands(text) == [["unrank", "nothing", "--here"]]
    with pytest.raises(AssertionError, match="no such command"):
        command(["unrank", "nothing"])
    assert unknown_flags(["unrank", "forget", "a", "--here", "--target=1"]) == {"--here"}
    assert anchors("# What it is: a list\n") == {"what-it-is-a-list"}


def test_every_page_can_be_reached_from_the_start_page() -> None:
    reached, waiting = set[Path](), [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links(read(page))]
        waiting += [target for target in targets if target.suffix == ".md"]
    assert set((ROOT / "docs").rglob("*.md")) <= reached


def table(page: str, head: str) -> list[list[str]]:
    """Return the rows of the table whose first column has that heading."""
    found = next(block for block in blocks(read(ROOT / page)) if block.lines[0].startswith(f"| {head} |"))
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in found.lines[2:]]


def test_the_glossary_explains_the_terms() -> None:
    terms = [row[0] for row in table("docs/concepts.md", "term")]
    assert set(GLOSSARY) <= set(terms)
    assert terms == sorted(terms, key=lambda term: term.split(",")[-1].strip().lower() if "δ" in term else term.lower())


def diagrams(page: str) -> list[str]:
    return ["\n".join(block.lines) for block in blocks(read(ROOT / page)) if block.language == "mermaid"]


def test_the_picture_of_the_rooms_is_that_of_the_imports() -> None:
    rooms, _ = diagrams("docs/architecture.md")
    drawn = set(re.findall(r"^ *(\w+)(?:\[.*?\])? --> (\w+)", rooms, flags=re.MULTILINE))
    assert drawn == {(high, low) for lower, upper in pairwise(FLOORS) for high in upper for low in lower}


def test_the_way_of_the_data_names_classes_that_exist() -> None:
    _, way = diagrams("docs/architecture.md")
    classes = {name for path in SOURCE.rglob("*.py") for name in re.findall(r"^class (\w+)", read(path), re.MULTILINE)}
    drawn = set(re.findall(r"\b[A-Z][a-z]\w+", re.sub(r"\(\[.*?\]\)|flowchart LR", "", way)))
    assert len(drawn) > 8
    assert drawn <= classes


def test_the_example_of_the_concepts_is_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("docs/concepts.md", "removal")
    assert len(rows) == 2
    pairs = [re.findall(r"\((\w+),(\w+)\)", cell) for cell in rows[0][1:]]
    make_collection(tmp_path / "collection", sorted(pair for some in pairs for pair in some))
    for name, *sets in rows:
        kind, *ids = re.findall(r"\w+", name)
        (tmp_path / "removal.json").write_text(json.dumps({kind: ids}))
        capsys.readouterr()
        assert (
            run(["inspect", str(tmp_path / "collection"), "--removal", str(tmp_path / "removal.json"), "--json"]) == 0
        )
        told = json.loads(capsys.readouterr().out)
        for set_name, cell in zip(("forget", "entangled", "disjoint"), sets, strict=True):
            assert sorted(map(tuple, told[set_name])) == sorted(re.findall(r"\((\w+),(\w+)\)", cell))


def test_the_source_of_the_how_to_page_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = blocks(read(ROOT / "docs" / "how-to" / "add-a-source.md"))
    (code,) = ["\n".join(block.lines) for block in page if block.language == "python"]
    (tmp_path / "faq_reader.py").write_text(code, encoding="utf-8")
    lines = [f"what is number {number}\tit is the answer number {number}\n" for number in range(6)]
    (tmp_path / "faq.tsv").write_text("".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(SOURCES, "faq", Source("faq_reader", "read_faq", "questions and answers"))
    out = str(tmp_path / "out")
    assert run(["import", f"faq:{tmp_path / 'faq.tsv'}", "--candidates", "2", "--test-share", "0.4", "--out", out]) == 0
    assert run(["inspect", out]) == 0


def test_every_file_that_a_page_names_exists() -> None:
    """Of the project's own files. The log names files as they were."""
    named = re.compile(
        r"`(?:python )?((?:src|tests|runs|benchmarks|examples|grids|docs|rankers|engine|methods)/[\w./-]+\.\w+)"
    )
    for page in [page for page in pages() if page.name != "log.md"]:
        for name in named.findall(read(page)):
            assert (ROOT / name).exists() or (SOURCE / name).exists(), f"{page.name}: {name}"


def test_every_import_that_a_page_prints_works() -> None:
    lines = {
        line
        for page in pages()
        for block in blocks(read(page))
        if block.language == "python"
        for line in block.lines
        if re.match(r"from unrank[\w.]* import \w", line)
    }
    assert len(lines) > 4
    for line in lines:
        module, names = re.fullmatch(r"from (\S+) import (.+)", line).groups()  # type: ignore[union-attr]
        assert [name for name in names.split(", ") if not hasattr(importlib.import_module(module), name)] == [], line


def test_the_architecture_page_names_every_module() -> None:
    """`python -m tests.pages` writes the list anew."""
    named = set(re.findall(r"^ {2}([\w/]+\.py) ", read(ROOT / "docs" / "architecture.md"), flags=re.MULTILINE))
    there = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if not path.name.startswith("__")}
    assert (sorted(named - there), sorted(there - named)) == ([], [])
