"""Read Markdown pages of this project: paragraphs, links, and the commands that they tell people to type."""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^\s*```(\w*)")
ITEM = re.compile(r"^\s*([-*]|\d+\.)\s")
LINK = re.compile(r"\]\(([^)\s]+)\)")
INLINE = re.compile(r"`(unrank [^`]+)`")


@dataclass(frozen=True)
class Block:
    """Lines that belong together: a paragraph, a list item, a table, a heading, or a block of code."""

    kind: str  # prose, table, heading, code
    language: str  # of code; empty for anything else
    line: int  # of the page, from 1
    lines: tuple[str, ...]


def pages() -> list[Path]:
    """Return every page of prose: the two at the root, and all of docs/."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(text: str) -> Iterator[Block]:
    """Split a page into its blocks, in order."""
    lines, language, kind, start, number = list[str](), "", "prose", 1, 0

    def finish() -> Iterator[Block]:
        if lines:
            yield Block(kind, language, start, tuple(lines))
        lines.clear()

    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if kind == "code":
            if fence:
                yield from finish()
                kind, language = "prose", ""
            else:
                lines.append(line)
            continue
        new = (
            "code" if fence else "table" if line.lstrip().startswith("|") else "heading" if line[:1] == "#" else "prose"
        )
        if not line.strip() or new != kind or new == "heading" or ITEM.match(line):
            yield from finish()
            start = number
        kind = new
        if fence:
            language, start = fence[1], number + 1
        elif line.strip():
            start = start if lines else number
            lines.append(line)
    assert kind != "code", f"a block of code that begins in line {start} has no end"
    yield from finish()


def shell_commands(text: str, inline: bool = False) -> list[list[str]]:
    """Return the words of every command of `unrank` in shell blocks, and with `inline` also those in the prose."""
    found = [
        line
        for block in blocks(text)
        if block.kind == "code" and block.language in ("sh", "")
        for line in "\n".join(block.lines).replace("\\\n", " ").splitlines()
    ]
    if inline:
        found += [
            span for block in blocks(text) if block.kind != "code" for span in INLINE.findall(" ".join(block.lines))
        ]
    words = [shlex.split(line, comments=True) for line in found if re.match(r"(torchrun|accelerate|unrank) ", line)]
    return [line[line.index("unrank") :] for line in words]


def links(text: str) -> list[str]:
    """Return the targets of all links and images that lead to a file of this project."""
    prose = "\n".join(line for block in blocks(text) if block.kind != "code" for line in block.lines)
    return [target for target in LINK.findall(prose) if not target.startswith(("http://", "https://", "mailto:"))]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = [block.lines[0].lstrip("#").strip() for block in blocks(text) if block.kind == "heading"]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def module_list(rooms: list[str]) -> str:
    """Return every module with the first sentence of its docstring: those at the root, then room by room."""
    source, lines = ROOT / "src" / "unrank", ["src/unrank/"]
    for folder in [source, *(source / room for room in rooms if (source / room).is_dir())]:
        files = sorted(folder.glob("*.py") if folder == source else folder.rglob("*.py"))
        lines += [""] * (folder != source)
        for path in [path for path in files if not path.name.startswith("__")]:
            summary = (ast.get_docstring(ast.parse(read(path))) or "").split("\n\n")[0].replace("\n", " ")
            sentence = re.split(r"(?<=\.)\s", summary)[0].rstrip(".")
            lines.append(f"  {path.relative_to(source)!s:<34} {textwrap.shorten(sentence, 110, placeholder=' …')}")
    return "\n".join(lines)


def refresh() -> None:
    """Write the list of modules into the architecture page."""
    from tests.test_architecture import FLOORS

    rooms = [room for floor in FLOORS for room in sorted(floor)]
    page = ROOT / "docs" / "architecture.md"
    head, old, rest = read(page).partition("```\nsrc/unrank/\n")
    assert old, "the page has no block that begins with src/unrank/"
    page.write_text(f"{head}```\n{module_list(rooms)}\n{rest[rest.index('```') :]}", encoding="utf-8")


if __name__ == "__main__":
    refresh()
