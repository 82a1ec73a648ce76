"""Save a ranker and its record as one folder, with a model card."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unrank.disk import new_folder, regular_files, sha256
from unrank.errors import UnrankError
from unrank.forgetting.model_card import model_card
from unrank.rankers.adapter_folder import write_adapter
from unrank.rankers.base import Ranker
from unrank.rankers.lora import Adapter
from unrank.rankers.trial import note_own
from unrank.record import MODEL_CARD, Record


def save_ranker(
    ranker: Ranker, record: Record, out: Path, earlier_card: str = "", adapter: Adapter | None = None
) -> None:
    """Write the ranker and its record as one folder, whole or not at all; its card has an earlier one below.

    If the record is that of an adapter apart, the adapter is written in place of the ranker.
    """
    with new_folder(out) as folder, _plain_errors(out):
        if record.adapter is not None and adapter is not None:
            write_adapter(folder, ranker, adapter, record.adapter.name)
        else:
            ranker.save(folder)
        hashes = {str(path.relative_to(folder)): sha256(path) for path in regular_files(folder)}
        record.write(folder, hashes)
        (folder / MODEL_CARD).write_text(model_card(record, earlier_card), encoding="utf-8")
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
