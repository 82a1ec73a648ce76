"""States of frozen layers in the owner's kept state: the last layers of the next job begin with them.

On a CPU a job whose last layers alone move computes the states of the others once for each text (`rankers/layers.py`).
They stay the same from request to request, so they are kept with the tokens that they are of. They lie in files of a
few texts each, so that to add or erase some need not read and write all.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import torch

from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.engine.checkpoint import Arrays, digest
from unrank.engine.kept import KeptState
from unrank.engine.tokens import WORTH_KEEPING
from unrank.forgetting.workspace import Workspace
from unrank.rankers.base import DualEncoder, Ranker, Role
from unrank.rankers.fast.cpu import FrozenStates
from unrank.rankers.fast.encoder import FastEncoder

ROLES: tuple[Role, ...] = ("query", "document")
TEXTS_IN_FILE = 64
"""The most texts in a file: those whose rows, divided by this number, are the same."""


def restore_states(
    workspace: Workspace, ranker: Ranker, student: Ranker | None = None, states: FrozenStates | None = None
) -> None:
    """Take the states that a ranker's frozen layers give from the owner's kept state, if it has them.

    They are for the encoders of the ranker itself, or for those of a student that shares `states` with it. A side whose
    encoder uses none is left out, such as frozen documents.
    """
    reader = ranker if student is None else student
    for kept, role, encoder in _kept(workspace, ranker):
        assert isinstance(reader, DualEncoder)
        own = reader.fast_encoder(role)
        if own is None or own.frozen_states is None:
            continue
        known = own.frozen_states if states is None else states
        for name in kept.names(_name(workspace, ranker, role, encoder, known.frozen)):
            if (arrays := kept.load(name)) is not None:
                _take_in(workspace, role, known, arrays)


def _take_in(workspace: Workspace, role: Role, states: FrozenStates, arrays: Arrays) -> None:
    values, texts = torch.from_numpy(arrays["states"]), workspace.store.get(arrays["rows"], role)
    if np.array_equal(texts.lengths, arrays["lengths"]) and texts.lengths.sum() == len(values):
        states.take_in(texts, torch.split(values, texts.lengths.tolist()))


def knows_states(workspace: Workspace, ranker: Ranker, pairs: Pairs) -> bool:
    """Return whether the states of frozen layers of all texts of these pairs are kept."""
    found = _kept(workspace, ranker)
    return bool(found) and all(
        encoder.frozen_states is not None
        and encoder.frozen_states.has(workspace.store.get(np.unique(pairs[:, ROLES.index(role)]), role))
        for _, role, encoder in found
    )


def keep_states(workspace: Workspace, ranker: Ranker) -> None:
    """Keep the states of a ranker's frozen layers, if more are known than were kept before."""
    for kept, role, encoder in _kept(workspace, ranker):
        states, rows = encoder.frozen_states, workspace.store.known(role)
        if states is None:
            continue
        each = states.find(workspace.store.get(rows, role))
        there = np.flatnonzero([state is not None for state in each])
        name = _name(workspace, ranker, role, encoder, states.frozen)
        for part in np.unique(rows[there] // TEXTS_IN_FILE):
            places, file = there[rows[there] // TEXTS_IN_FILE == part], f"{name}{part}"
            if len(places) > (1 + WORTH_KEEPING) * kept.rows_in(file):
                values = [state for place in places if (state := each[place]) is not None]
                kept.save(file, _arrays(rows[places], values), workspace.runtime.progress.say)


def _arrays(rows: Rows, states: Sequence[torch.Tensor]) -> Arrays:
    lengths = np.array([len(state) for state in states], np.int64)
    return {"rows": rows, "lengths": lengths, "states": torch.cat([*states]).numpy()}


def _kept(workspace: Workspace, ranker: Ranker) -> list[tuple[KeptState, Role, FastEncoder]]:
    """Return the kept state and the encoder of each side of a dual encoder on a CPU; none if no states are kept."""
    cache = workspace.cache
    if not (isinstance(cache, KeptState) and isinstance(ranker, DualEncoder)):
        return []
    if workspace.runtime.device.type != "cpu" or ranker.tokens_fingerprint("document") is None:
        return []
    encoders = {role: ranker.fast_encoder(role) for role in ROLES}
    return [(cache, role, encoder) for role, encoder in encoders.items() if encoder is not None]


def _name(workspace: Workspace, ranker: Ranker, role: Role, encoder: FastEncoder, frozen: int) -> str:
    """Return what the names of states begin with: a hash of everything that they depend on."""
    assert isinstance(ranker, DualEncoder)
    settings, tokens = ranker.document_state()[1], ranker.tokens_fingerprint(role)
    facts = [ranker.kind, tokens, settings, frozen, workspace.runtime.name, torch.__version__]
    weights = digest(encoder.weights_before(frozen), json.dumps(facts, sort_keys=True, default=str))
    return f"states-{role}-{weights[:32]}-"
