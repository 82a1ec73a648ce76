"""The places of a run, kept until each request is judged by them.

They lie in the private folder of the run, beside its checkpoints, and never in the folder of the ranker. The ledger
has the hash of their file. The result of a request has sorted ranks, which name no pair.
"""

from __future__ import annotations

from pathlib import Path

from unrank.collection.collection import Pairs
from unrank.desk.ledger import Ledger
from unrank.desk.run_ledger import UnfinishedRun, last_step
from unrank.disk import PLACES_FILE, beside, sha256
from unrank.engine.checkpoint import Checkpoint
from unrank.errors import UnrankError
from unrank.forgetting.places import Places


def keep_places(out: Path, places: Places | None) -> dict[str, str]:
    """Write the places of a run into its private folder; return the hash of the file, if there are places."""
    if places is None:
        return {}
    path = beside(out) / PLACES_FILE
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    places.state().save(path)
    return {"places": sha256(path)}


def kept_places(ledger: Ledger, run: UnfinishedRun, pairs: Pairs) -> Places | None:
    """Return the places that a run brought its forget pairs to; `None` if its target was another one."""
    last, path = last_step(ledger, run, "ranker"), beside(run.out) / PLACES_FILE
    if last is None or last.places is None:
        return None
    state = Checkpoint.load(path) if path.is_file() and sha256(path) == last.places else None
    if state is None or len(state.tensors["ranks"]) != len(pairs):
        raise UnrankError(f"{path} is gone or was changed since this run wrote it: remove {run.out}, and run again")
    return Places.of(pairs, state)
