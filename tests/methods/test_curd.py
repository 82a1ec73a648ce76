"""CuRD: its loss by hand, what it draws, what it does, and that it needs substitutes."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.table import Listed, TableRanker, as_set, collection_of, forgetting, random_table, task_of
from tests.tiny import made_record
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.collection.removal import Removal
from unrank.engine.loop import Schedule, fit
from unrank.engine.runtime import Runtime
from unrank.engine.samples import Scored
from unrank.engine.tokens import TokenStore
from unrank.errors import UnrankError
from unrank.forgetting.forget import forget
from unrank.methods import make_method
from unrank.methods.curd import Corrective

TIMED = made_record("none", Runtime.on("cpu").name)


@pytest.fixture(scope="module")
def partition(shared: Collection) -> Partition:
    return replace(forgetting(shared, documents=[1, 5]), substitutes={1: 0})


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        # Heights, in units of a range of 4 above 1: the forget pairs are at 1 and 0, the first was at 1.5, its
        # substitute is at .5; the kept pair has come down from 1 to .5 and its negative has risen from 0 to .25.
        (None, (1 + 0) / 2 + (1.5 - 0.5) + 0.5 + 0.25),
        ("paper", (4 + 0) / 2 + (5 * 7 - 3) + (2 * 5 - 3) + (2 - 1)),
    ],
)
def test_the_loss_by_hand(shared: Collection, partition: Partition, preset: str | None, expected: float) -> None:
    [phase] = make_method("curd", {"negatives": "1"}, preset=preset).plan(
        task_of(shared, partition, random_table(shared, 0))
    )
    score = torch.tensor([[5.0, 3.0, 3.0, 2.0], [1.0, 9.0, 9.0, 9.0]])
    teacher = torch.tensor([[7.0, 1.0, 5.0, 1.0], [7.0, 1.0, 1.0, 1.0]])
    present = torch.tensor([[True] * 4, [True, False, False, False]])
    roles = ("forget", "substitute", "kept", "kept_1")
    scored = Scored(roles, score, present, teacher, torch.full((2, 4), 1.0), torch.full((2, 4), 4.0))
    assert phase.loss(scored).item() == pytest.approx(expected)


def test_what_is_drawn(shared: Collection, partition: Partition) -> None:
    """A substitute stands beside each pair whose document has one, and is nobody's negative in that list."""
    [phase] = Corrective().plan(task_of(shared, partition, random_table(shared, 0)))
    raised = {(int(query), 0) for query, document in partition.forget if document == 1}
    for seed in range(20):
        samples = phase.draw(np.random.default_rng(seed), 1)
        assert samples.roles == ("forget", "substitute", "kept", "kept_1", "kept_2")
        assert samples.pairs[:, 0].tolist() == partition.forget.tolist()
        assert samples.present[:, 1].tolist() == (partition.forget[:, 1] == 1).tolist()
        assert as_set(samples.pairs[:, 1][samples.present[:, 1]]) == raised
        assert as_set(samples.pairs[:, 2]) <= as_set(partition.retain)
        assert not as_set(samples.pairs[:, 3:][samples.present[:, 3:]]) & raised


def test_removed_documents_fall_and_substitutes_rise(shared: Collection, partition: Partition) -> None:
    original = random_table(shared, 0, values=3)
    with torch.no_grad():
        original.table[shared.pairs[:, 0], shared.pairs[:, 1]] += 4.0
    student, method = copy.deepcopy(original), Corrective()
    plan = method.plan(task_of(shared, partition, original))
    for _ in fit(student, plan, Schedule(60, 0.1), TokenStore(student, shared), Runtime.on("cpu")):
        pass
    before, after = original.table.detach(), student.table.detach()
    old, (new, has) = partition.forget, partition.substitute_pairs
    assert (after - before)[old[:, 0], old[:, 1]].max() < -1
    risen, were = after[new[has, 0], new[has, 1]], before[old[has, 0], old[has, 1]]
    assert (risen >= were - 0.2).all() and (risen > before[new[has, 0], new[has, 1]] - 1e-6).all()
    assert (after - before)[partition.retain[:, 0], partition.retain[:, 1]].min() > -0.2


def test_a_run_records_where_the_substitute_stands() -> None:
    """Document 0 answers both queries; document 3, the last of their lists, has to take its place."""
    lists = [Listed([0], [1, 2, 3]), Listed([0, 4], [1, 2, 3]), Listed([5], [1, 2]), Listed([1], [2], test=True)]
    collection = collection_of(lists, 6)
    table = np.tile([9.0, 4.0, 3.0, 1.0, 9.0, 9.0], (4, 1))
    removal = Removal(documents=["d0"], substitutes={"d0": "d3"})
    method = Corrective(learning_rate=0.5, epochs=20)
    result = forget(TableRanker(table), collection, removal, method=method, target=0.26, device="cpu", record=TIMED)
    found = result.record.substitutes
    assert found is not None and result.before.substitutes == found.before and result.after.substitutes == found.after
    assert (found.before.pairs, found.before.median_rank) == (2, 3.0) and found.before.mrr == pytest.approx(1 / 3)
    assert (found.before.first, found.before.above) == (0, 0)
    assert (found.after.median_rank, found.after.mrr, found.after.first, found.after.above) == (1.0, 1.0, 2, 2)
    assert result.record.to_json()["substitutes"]["after"]["mrr"] == 1.0
    assert type(result.record).of(result.record.to_json()).substitutes == found  # type: ignore[union-attr]


def test_it_needs_substitutes(shared: Collection) -> None:
    with pytest.raises(UnrankError, match=r"^curd needs substitutes: name them in the file of --removal"):
        forget(random_table(shared, 0), shared, Removal(documents=["d1"]), method="curd", target=0.5, record=TIMED)
