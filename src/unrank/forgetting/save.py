"""Save a ranker and its record as one folder, with a model card."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unrank.disk import new_folder, regular_files, sha256
from unrank.errors import UnrankError
from unrank.rankers.base import Ranker
from unrank.rankers.trial import note_own
from unrank.record import MODEL_CARD, Record

TWO_TOWERS = (
    "Queries and documents have encoders of their own. `encode_query()` is for queries: its encoder has forgotten. "
    "`encode_document()` is for documents: its encoder is that of the original. Plain `encode()` names no side, "
    "so do not use it."
)


def save_ranker(ranker: Ranker, record: Record, out: Path) -> None:
    """Write the ranker and its record as one folder, whole or not at all."""
    with new_folder(out) as folder, _plain_errors(out):
        ranker.save(folder)
        hashes = {str(path.relative_to(folder)): sha256(path) for path in regular_files(folder)}
        record.write(folder, hashes)
        (folder / MODEL_CARD).write_text(model_card(record), encoding="utf-8")
        note_own(folder, hashes)


@contextmanager
def _plain_errors(out: Path) -> Iterator[None]:
    """Report a full disk in one line. Libraries in Rust raise another error with the system's words in its message."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) or "os error" in str(error):
            raise UnrankError(f"{out} cannot be written: {error}") from error
        raise


def model_card(record: Record) -> str:
    """Return a model card: the ranker, its method, counts of what was removed, and the metrics."""
    tags = {"cross-encoder": "text-ranking", "bi-encoder": "sentence-similarity"}
    tags |= dict.fromkeys(["colbert", "colbert-dot"], "feature-extraction")
    head = f"---\nlibrary_name: sentence-transformers\npipeline_tag: {tags.get(record.ranker, 'text-ranking')}\n---\n"
    lines = [f"# A {record.ranker}", "", f"Made by unrank with the method `{record.method}`."]
    if record.removed is not None:
        counts = ", ".join(f"{number} {kind}" for kind, number in record.removed.counts.items())
        how = "only as hashes under the owner's key" if record.removed.key else "in no form"
        lines += ["", f"Removed: {counts}. Their ids are recorded {how}."]
    if record.index_valid is not None:
        state = "still valid" if record.index_valid else "stale"
        lines += ["", f"Document vectors that were stored before are {state}."]
    if record.settings.get("freeze") == "documents":
        lines += ["", TWO_TOWERS]
    lines += ["", "| set | MRR before | MRR after | queries |", "| --- | --- | --- | --- |"]
    for name, after in record.after.items():
        shown = f"{record.before[name].mrr:.3f}" if name in record.before else ""
        lines.append(f"| {name} | {shown} | {after.mrr:.3f} | {after.queries} |")
    return head + "\n".join(lines) + "\n"
