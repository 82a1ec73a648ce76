"""Task negation: which weights are shown at a pause, that training goes on from its own, and where a run lands."""

from __future__ import annotations

import copy

import torch

from tests.table import TableRanker, as_set, forgetting, random_table, task_of
from tests.tiny import made_record
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.engine.loop import Schedule, fit
from unrank.engine.runtime import Runtime
from unrank.engine.tokens import TokenStore
from unrank.forgetting.forget import forget
from unrank.methods.task_negation import TaskNegation

TIMED = made_record("none", Runtime.on("cpu").name)


def test_the_weights_by_hand(shared: Collection) -> None:
    """At each pause the student is θ₀ − λ·(θ_F − θ₀), whatever was shown before."""
    partition = forgetting(shared, queries=[0, 1, 2])
    original, method = random_table(shared, 0, values=3), TaskNegation(strength=0.5)
    task = task_of(shared, partition, original)

    def steps(student: TableRanker):  # type: ignore[no-untyped-def]
        return fit(student, method.plan(task), Schedule(3, 0.1), TokenStore(student, shared), Runtime.on("cpu"))

    trained, shown = copy.deepcopy(original), copy.deepcopy(original)
    learned = [trained.table.detach().clone() for _ in steps(trained)]
    negated = [shown.table.detach().clone() for _ in method.walk(shown, steps(shown))]
    assert len(learned) == len(negated) == 3
    for after, given in zip(learned, negated, strict=True):
        assert torch.allclose(given, original.table - 0.5 * (after - original.table), atol=1e-5)
    rows = partition.forget[:, 0], partition.forget[:, 1]
    assert (learned[-1] - original.table)[rows].min() > 0 > (negated[-1] - original.table)[rows].max()
    touched = as_set((learned[-1] != original.table).nonzero().numpy())
    assert not touched & as_set(partition.retain)


def test_a_run_lands_on_its_target_and_touches_no_kept_pair(shared: Collection) -> None:
    ranker = random_table(shared, 0, values=3)
    with torch.no_grad():
        ranker.table[shared.pairs[:, 0], shared.pairs[:, 1]] += 2.0
    queries = [0, 1, 2, 3]
    method = TaskNegation(learning_rate=0.5, epochs=20)
    removal = Removal(queries=[f"q{row}" for row in queries])
    result = forget(ranker, shared, removal, method=method, target=0.6, device="cpu", record=TIMED)
    assert isinstance(result.ranker, TableRanker) and result.after.forget is not None
    assert result.reached and result.after.forget.mean <= 0.6 < result.before.forget.mean  # type: ignore[union-attr]
    changed = {query for query, _ in as_set((result.ranker.table != ranker.table).nonzero().numpy())}
    assert changed and changed <= set(queries)
