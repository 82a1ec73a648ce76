"""The record of a run: all that is needed to judge it, and nothing that was removed.

It is JSON beside the weights (`unrank.json`), with one line a check in `history.jsonl`. Removed ids are there
only as salted hashes: whoever knows an id can check whether it is among them, and nobody can read it off.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import unrank
from unrank.disk import new_folder, read_json, sha256, write_json
from unrank.errors import BadFile, UnrankError
from unrank.formats import HISTORY, RECORD, RECORD_VERSION
from unrank.rankers.base import Ranker

ANEW = "retrain"
"""The method after which a ranker never saw what was removed."""
LIBRARIES = ("torch", "transformers", "sentence-transformers", "accelerate", "numpy")


@dataclass(frozen=True)
class Record:
    """Settings, seeds, versions, hashes, times, scorecards before and after, history."""

    ranker: str
    base: str | None
    method: str
    settings: dict[str, Any]
    seed: int
    collection: dict[str, str]
    epochs: float
    seconds: float
    """All that the method took: teacher scores, steps, checks and landing."""
    timing: dict[str, float]
    learning_epoch: dict[str, Any]
    """What an epoch of training takes on this device, and how that is known."""
    device: str
    after: dict[str, Any]
    history: list[dict[str, Any]]
    before: dict[str, Any] | None = None
    set_queries: dict[str, int] | None = None
    """How many queries each kept set has; the scorecards say how many were measured."""
    target: float | None = None
    target_name: str | None = None
    reached: bool | None = None
    landing: dict[str, Any] | None = None
    removed: dict[str, Any] | None = None
    removed_before: list[dict[str, Any]] = field(default_factory=list)
    """What earlier runs removed, in their order: it must stay forgotten."""
    earlier: dict[str, float | None] | None = None
    """The MRR of what was removed before, before and after this run, and how far its highest is above its target."""
    recovery: dict[str, float | None] | None = None
    deterministic: bool = False
    """Whether a run on the same machine would have given the same bits; on a processor it always does."""
    index_valid: bool | None = None
    """Whether document vectors that were stored with the original stay valid; None where none are stored."""

    @property
    def normalised_epoch(self) -> float | None:
        """The mean epoch, in epochs of training."""
        return self.timing.get("steps", 0.0) / self.epochs / self.learning_epoch["seconds"] if self.epochs else None

    @property
    def total_time(self) -> float:
        """All of it, in epochs of training."""
        return self.seconds / float(self.learning_epoch["seconds"])

    def to_json(self, hashes: dict[str, str]) -> dict[str, Any]:
        ratios = {"normalised_epoch": self.normalised_epoch, "total_time": self.total_time}
        return {"record_version": RECORD_VERSION, **asdict(self), **ratios, "versions": versions(), "hashes": hashes}


def versions() -> dict[str, str]:
    """Of all that a figure may depend on."""
    ours = {"unrank": unrank.__version__, "python": platform.python_version()}
    return ours | {name: version(name) for name in LIBRARIES}


def removed_before(known: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a ranker with this record has been made to forget, run by run: hashes, by which method, and down to which
    target. One that was trained anew saw nothing of what was removed before that."""
    runs = list(known.get("removed_before", []))
    if known.get("removed"):
        told = {"by": known.get("method"), "reached": known.get("reached")}
        if known.get("epochs"):  # else nothing was brought to a target
            told |= {name: known.get(name) for name in ("target", "target_name")}
        runs.append(known["removed"] | told)
    return [run | {"by": ANEW, "reached": None} for run in runs] if known.get("method") == ANEW else runs


def forgotten_before(known: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same without the runs that fell short of their target: what they removed is not forgotten."""
    return [run for run in removed_before(known) if run.get("reached") is not False]


def measured_epoch(known: Mapping[str, Any], fingerprint: str, device: str) -> dict[str, Any] | None:
    """What an epoch of training took, if that was measured on this collection and device."""
    epoch: dict[str, Any] = known.get("learning_epoch") or {}
    same = (known.get("collection") or {}).get("fingerprint") == fingerprint
    return epoch if same and epoch.get("device") == device else None


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record beside a ranker's weights, if unrank wrote them."""
    path = folder / RECORD
    if not path.is_file():
        return None
    record = read_json(path)
    if not isinstance(record, dict) or not _is_whole(record):
        raise BadFile(path, "damaged, so what the ranker has forgotten is not known; mend it, or take it away")
    return record


def _is_whole(record: dict[str, Any]) -> bool:
    """Whether what later runs go by can be read."""
    try:
        for run in removed_before(record):
            _ = run["salt"], [set(run[kind]["hashes"]) for kind in ("queries", "documents", "pairs")]
            if not isinstance(run.get("target") or 0.0, float):
                return False
    except (KeyError, TypeError, AttributeError):
        return False
    objects = [record.get(name) or {} for name in ("collection", "learning_epoch")]
    return all(isinstance(value, dict) for value in objects) and isinstance(record.get("target") or 0.0, float)


def save_ranker(ranker: Ranker, record: Record, out: Path) -> None:
    """Write the ranker and its record as one folder, whole or not at all."""
    with new_folder(out) as folder, _told_plainly(out):
        ranker.save(folder)
        hashes = {str(path.relative_to(folder)): sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}
        write_json(folder / RECORD, record.to_json(hashes))
        (folder / HISTORY).write_text("".join(json.dumps(line) + "\n" for line in record.history), encoding="utf-8")
        (folder / "README.md").write_text(model_card(record), encoding="utf-8")


@contextmanager
def _told_plainly(out: Path) -> Iterator[None]:
    """What libraries in Rust make of a full disk is no OSError; the system's own words are in their message."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) or "os error" in str(error):
            raise UnrankError(f"{out} cannot be written: {error}") from error
        raise


def model_card(record: Record) -> str:
    """A model card that says what the ranker is and what was done to it, in counts."""
    tags = {"cross-encoder": "text-ranking", "bi-encoder": "sentence-similarity", "colbert": "feature-extraction"}
    head = f"---\nlibrary_name: sentence-transformers\npipeline_tag: {tags.get(record.ranker, 'text-ranking')}\n---\n"
    lines = [f"# A {record.ranker}", "", f"Made by unrank with the method `{record.method}`."]
    if record.removed is not None:
        counts = ", ".join(f"{record.removed[kind]['count']} {kind}" for kind in ("queries", "documents", "pairs"))
        lines += ["", f"Removed: {counts}. Their ids are recorded only as salted hashes."]
    if record.index_valid is not None:
        state = "still valid" if record.index_valid else "stale"
        lines += ["", f"Document vectors that were stored before are {state}."]
    lines += ["", "| set | MRR before | MRR after | queries |", "| --- | --- | --- | --- |"]
    for name, after in record.after.items():
        if after is not None:
            before = (record.before or {}).get(name)
            shown = f"{before['mrr']:.3f}" if before else ""
            lines.append(f"| {name} | {shown} | {after['mrr']:.3f} | {after['queries']} |")
    return head + "\n".join(lines) + "\n"
