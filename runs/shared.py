"""What the runs share: plain progress, records a line each, and tables in Markdown."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unrank.engine.runtime import Silence
from unrank.forgetting.record import Record

WORD_RANKERS = ("duet", "match-pyramid")


class Lines(Silence):
    """Progress as plain lines: this runs where nobody watches."""

    def say(self, line: str) -> None:
        print(f"  {line}", flush=True)


def keep(out: Path, *records: Record) -> None:
    """Records, one a line, with the counts of what was removed in place of its hashes."""
    with (out / "records.jsonl").open("a", encoding="utf-8") as file:
        for record in records:
            value: dict[str, Any] = record.to_json({})
            removed = value["removed"] or {}
            value["removed"] = {name: part["count"] for name, part in removed.items() if name != "salt"}
            file.write(json.dumps(value) + "\n")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]


def show(lines: Sequence[str], out: Path) -> None:
    (out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines), flush=True)


def parser(description: str | None, rankers: Sequence[str]) -> argparse.ArgumentParser:
    """What every run is told: a collection, where to write, which rankers, and what they start from."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("collection", type=Path)
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--rankers", nargs="+", default=rankers)
    made.add_argument("--base", help="the encoder of the transformer rankers")
    made.add_argument("--words", help="the word vectors of the others")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--device", default="auto")
    return made


def base_of(kind: str, arguments: argparse.Namespace) -> str | None:
    base: str | None = arguments.words if kind in WORD_RANKERS else arguments.base
    return base
