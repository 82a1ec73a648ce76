"""Erasing the names of a request from what runs have stored: options, places and results may hold paths that name it.

A part of a path that names an item is replaced by a sign. What a run measured stays as it is.

>>> names = Names([Item(document="d5", document_text="Mr Quixote owns a windmill")])
>>> names.erased("/srv/d5/mr-quixote-owns.txt"), names.erased("/srv/abcd5e/ranker"), names.erased("d5 of d50")
('/srv/…/…', '/srv/abcd5e/ranker', '… of d50')
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from unrank.desk.ledger import Ledger
from unrank.desk.paths import names_item
from unrank.desk.request import Item

ERASED = "…"


class Names:
    """The ids and texts of items, in the forms that a path or a line may hold."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = items = list(items)
        ids = {id for item in items for id in (item.query, item.document) if id}
        texts = {text for item in items for text in (item.query_text, item.document_text) if text and text.strip()}
        self._ids = _any_of(ids)
        self._ids_in_lines = _any_of({id for id in ids if not id.isdecimal()})
        self._whole_texts = _any_of(texts)

    def erased(self, line: str) -> str:
        """Return a line without the names. A number that is an id is erased from paths only: lines hold figures."""
        line = self._whole_texts.sub(ERASED, line)
        if "/" in line:
            return "/".join(ERASED if self._is_named(part) else part for part in line.split("/"))
        return self._ids_in_lines.sub(ERASED, line)

    def erased_json(self, value: Any) -> Any:
        """Return a JSON value without the names. Its keys are the program's own."""
        if isinstance(value, str):
            return self.erased(value)
        if isinstance(value, list):
            return [self.erased_json(part) for part in value]
        if isinstance(value, dict):
            return {key: self.erased_json(part) for key, part in value.items()}
        return value

    def erased_files(self, files: Mapping[str, str]) -> dict[str, str]:
        """Return files and their hashes; a file whose path has a name in it is numbered instead."""
        return {
            name if self.erased(f"/{name}") == f"/{name}" else f"{ERASED} {number}": hashed
            for number, (name, hashed) in enumerate(files.items(), 1)
        }

    def _is_named(self, part: str) -> bool:
        """Tell if a part of a path holds an id, even a short number, or words of a text."""
        return bool(self._ids.search(part)) or names_item(part, self._items)


def erase_from_runs(ledger: Ledger, names: Names) -> None:
    """Erase names from the rows of all runs, in the transaction that closes their request."""
    for id, out, asked, result in ledger.ask("SELECT id, out, asked, result FROM run"):
        row = [names.erased(out), _rewritten(asked, names), result and _rewritten(result, names)]
        if row != [out, asked, result]:
            ledger.ask("UPDATE run SET out = ?, asked = ?, result = ? WHERE id = ?", [*row, id])
            ledger.write_of_run("erased", id, result=row[2] and hashlib.sha256(row[2].encode()).hexdigest())


def result_hash(ledger: Ledger, run: int) -> str | None:
    """Return the hash of a run's result by the history; `None` if it records none."""
    entries = ledger.ask("SELECT details FROM history WHERE event LIKE 'run %' ORDER BY number DESC")
    found = (json.loads(details) for (details,) in entries)
    return next((one["result"] for one in found if one["run"] == run and one.get("result")), None)


def _rewritten(written: str, names: Names) -> str:
    """Return JSON without the names; the very same text if there are none."""
    value: dict[str, Any] = json.loads(written)
    erased = names.erased_json(value)
    if "ranker_files" in value and "ranker" not in value.get("files", {"ranker": ""}):  # not a ranker of this program
        erased["ranker_files"] = names.erased_files(value["ranker_files"])
    return written if erased == value else json.dumps(erased, ensure_ascii=False, sort_keys=True)


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of names that stand by themselves, not within a longer word or number."""
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    either = "|".join(map(re.escape, longest_first))
    return re.compile(rf"(?<![^\W_])(?:{either})(?![^\W_])", re.IGNORECASE) if longest_first else re.compile(r"(?!)")
