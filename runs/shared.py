"""What the runs share: plain progress, records a line each, and tables in Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unrank.engine.runtime import Silence
from unrank.forgetting.record import Record


class Lines(Silence):
    """Progress as plain lines: this runs where nobody watches."""

    def say(self, line: str) -> None:
        print(f"  {line}", flush=True)


def keep(out: Path, *records: Record) -> None:
    """Records without the hashes of what was removed, one a line."""
    with (out / "records.jsonl").open("a", encoding="utf-8") as file:
        for record in records:
            value: dict[str, Any] = record.to_json({})
            value.pop("removed")
            file.write(json.dumps(value) + "\n")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]


def show(lines: Sequence[str], out: Path) -> None:
    (out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines), flush=True)
