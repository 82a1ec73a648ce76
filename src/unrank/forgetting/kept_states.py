"""States of frozen layers in the owner's kept state: the last layers of the next job begin with them.

On a CPU a job whose last layers alone move computes the states of the others once for each text (`rankers/layers.py`).
They stay the same from request to request, so they are kept with the tokens that they are of.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import torch

from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.engine.checkpoint import digest
from unrank.engine.kept import KeptState
from unrank.engine.tokens import WORTH_KEEPING
from unrank.forgetting.workspace import Workspace
from unrank.rankers.base import DualEncoder, Ranker, Role
from unrank.rankers.fast.cpu import FrozenStates

ROLES: tuple[Role, ...] = ("query", "document")


def restore_states(workspace: Workspace, ranker: Ranker) -> None:
    """Take the states of a ranker's frozen layers from the owner's kept state, if it has them."""
    found = _kept(workspace, ranker)
    if found is None:
        return
    kept, states = found
    for role in ROLES:
        arrays = kept.load(_name(workspace, ranker, states, role))
        if arrays is None:
            continue
        rows, values = arrays["rows"], torch.from_numpy(arrays["states"])
        texts = workspace.store.get(rows, role)
        if np.array_equal(texts.lengths, arrays["lengths"]) and texts.lengths.sum() == len(values):
            states.take_in(texts, torch.split(values, texts.lengths.tolist()))


def knows_states(workspace: Workspace, ranker: Ranker, pairs: Pairs) -> bool:
    """Return whether the states of frozen layers of all texts of these pairs are known."""
    found = _kept(workspace, ranker)
    return found is not None and all(
        found[1].has(workspace.store.get(np.unique(pairs[:, side]), role)) for side, role in enumerate(ROLES)
    )


def keep_states(workspace: Workspace, ranker: Ranker) -> None:
    """Keep the states of a ranker's frozen layers, if more are known than were kept before."""
    found = _kept(workspace, ranker)
    if found is None:
        return
    kept, states = found
    for role in ROLES:
        rows = workspace.store.known(role)
        each = states.find(workspace.store.get(rows, role))
        there = np.array([state is not None for state in each], bool)
        name = _name(workspace, ranker, states, role)
        if np.count_nonzero(there) > (1 + WORTH_KEEPING) * kept.rows_in(name):
            values = [state for state in each if state is not None]
            kept.save(name, _arrays(rows[there], values), workspace.runtime.progress.say)


def _arrays(rows: Rows, states: Sequence[torch.Tensor]) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    lengths = np.array([len(state) for state in states], np.int64)
    return {"rows": rows, "lengths": lengths, "states": torch.cat([*states]).numpy()}


def _kept(workspace: Workspace, ranker: Ranker) -> tuple[KeptState, FrozenStates] | None:
    """Return the kept state and the states of a dual encoder on a CPU; `None` if it has none, or none are kept."""
    cache, encoders = workspace.cache, ranker.fast_encoders
    if not isinstance(cache, KeptState) or not isinstance(ranker, DualEncoder) or len(encoders) != 1:
        return None
    states = encoders[0].frozen_states
    if states is None or workspace.runtime.device.type != "cpu" or ranker.tokens_fingerprint("document") is None:
        return None
    return cache, states


def _name(workspace: Workspace, ranker: Ranker, states: FrozenStates, role: Role) -> str:
    """Return the name of states: a hash of everything that they depend on."""
    assert isinstance(ranker, DualEncoder)
    [encoder] = ranker.fast_encoders
    settings, tokens = ranker.document_state()[1], ranker.tokens_fingerprint(role)
    facts = [ranker.kind, tokens, settings, states.frozen, workspace.runtime.name, torch.__version__]
    weights = encoder.weights_before(states.frozen)
    return f"states-{role}-{digest(weights, json.dumps(facts, sort_keys=True, default=str))[:32]}"
