"""SSD: the formula by hand, what importance is measured on, and that no target steers it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.table import Listed, TableRanker, as_set, collection_of, forgetting, random_lists, random_table, task_of
from tests.tiny import made_record
from unrank.collection.removal import Removal
from unrank.engine.loop import squared_gradients
from unrank.engine.runtime import Runtime
from unrank.engine.tokens import TokenStore
from unrank.errors import UnrankError
from unrank.forgetting.forget import forget
from unrank.forgetting.options import Pace
from unrank.methods import make_method
from unrank.methods.ssd import SelectiveDampening


@pytest.mark.parametrize(
    ("settings", "of_forget", "of_all", "becomes"),
    [
        ({}, 20.0, 1.0, 2.0 / 20),
        ({}, 10.0, 1.0, 2.0),  # not more than alpha times as important
        ({}, 9.0, 1.0, 2.0),
        ({"alpha": 5.0}, 9.0, 1.0, 2.0 / 9),
        ({"strength": 3.0}, 20.0, 1.0, 2.0 * 3 / 20),
        ({"strength": 50.0}, 20.0, 1.0, 2.0),  # never made larger
        ({}, 0.0, 0.0, 2.0),
        ({}, 0.0, 1.0, 2.0),
        ({}, 1.0, 0.0, 0.0),
    ],
)
def test_the_formula_by_hand(settings: dict[str, Any], of_forget: float, of_all: float, becomes: float) -> None:
    given = (torch.tensor([value, 0.0]) for value in (of_forget, of_all))
    edited = SelectiveDampening(**settings).edit(torch.tensor([2.0, -3.0]), list(given))
    assert edited.tolist() == pytest.approx([becomes, -3.0])


def test_importance_by_hand() -> None:
    """One pair with one negative: the gradient of softplus(1 − s⁺ + s⁻) is ∓sigmoid(1 − s⁺ + s⁻)."""
    collection = collection_of([Listed([0], [1]), Listed([1], [2]), Listed([2], [0], test=True)], 3)
    table = [[2.0, 0.0, 0.0], [0.0, 0.5, 1.0], [0.0, 0.0, 0.0]]
    ranker = TableRanker(table)
    partition = forgetting(collection, queries=[0])
    task, importance = task_of(collection, partition, ranker), {}
    for compared_with in ("all", "kept"):
        for phase in SelectiveDampening(compared_with=compared_with).plan(task):
            measured = squared_gradients(ranker, phase, 0, TokenStore(ranker, collection), Runtime.on("cpu"))
            importance[phase.name] = measured["table"]
    of_forget, of_all, of_kept = importance.values()
    first, second = (1 / (1 + np.exp(-gap)) for gap in (1 - 2.0, 1 - 0.5 + 1.0))
    assert of_forget.tolist() == [pytest.approx([first**2, first**2, 0]), [0, 0, 0], [0, 0, 0]]
    half = [(value / 2) ** 2 for value in (first, second)]  # one batch of two triples, and its mean loss
    assert of_kept.tolist() == [[0, 0, 0], pytest.approx([0, second**2, second**2]), [0, 0, 0]]
    assert of_all.tolist() == [pytest.approx([half[0], half[0], 0]), pytest.approx([0, half[1], half[1]]), [0, 0, 0]]
    assert all(weight.grad is None for weight in ranker.parameters())
    assert ranker.table.tolist() == table


def test_batches_of_sixteen_and_the_mean_over_them() -> None:
    collection = collection_of(random_lists(4, queries=40, documents=30), 30)
    ranker = random_table(collection, 0, values=3)
    partition = forgetting(collection, queries=list(range(20)))
    task = task_of(collection, partition, ranker)
    forget_phase, whole = make_method("ssd", preset="paper").plan(task)
    _, kept = SelectiveDampening().plan(task)
    assert as_set(kept.draw(np.random.default_rng(0), 1).pairs[:, 0]) == as_set(partition.retain)
    assert (forget_phase.batch, whole.batch) == (16, 16)
    samples = forget_phase.draw(np.random.default_rng(0), 1)
    assert as_set(samples.pairs[:, 0]) == as_set(partition.forget)
    assert as_set(whole.draw(np.random.default_rng(0), 1).pairs[:, 0]) == as_set(collection.pairs)

    generator = np.random.default_rng(3)
    drawn = forget_phase.draw(generator, 1)
    order = generator.permutation(len(drawn))
    assert len(order) > 32
    expected = torch.zeros_like(ranker.table)
    batches = [order[start : start + 16] for start in range(0, len(order), 16)]
    for batch in batches:
        pairs = torch.from_numpy(drawn.pairs[batch])
        scores = ranker.table[pairs[..., 0], pairs[..., 1]]
        loss = torch.nn.functional.softplus(1 - scores[:, 0] + scores[:, 1]).mean()
        [gradient] = torch.autograd.grad(loss, ranker.table)
        expected = expected + gradient.square() / len(batches)
    measured = squared_gradients(ranker, forget_phase, 3, TokenStore(ranker, collection), Runtime.on("cpu"))["table"]
    assert torch.allclose(measured, expected)


def test_only_what_matters_more_to_the_forget_pairs_is_dampened_and_no_target_is_known() -> None:
    """Every score is a weight of its own, so those of kept pairs matter to no forget pair."""
    collection = collection_of(random_lists(4, queries=40, documents=30), 30)
    ranker = random_table(collection, 0)
    with torch.no_grad():
        ranker.table.add_(1.0)
    partition = forgetting(collection, queries=[0, 1])
    removal = Removal(queries=["q0", "q1"])
    result = forget(ranker, collection, removal, method=SelectiveDampening(), target=0.5, device="cpu", record=TIMED)
    assert isinstance(result.ranker, TableRanker)
    changed = as_set(torch.nonzero(result.ranker.table != ranker.table).numpy())
    assert changed
    assert {query for query, _ in changed} <= {0, 1}
    assert not changed & as_set(partition.retain)
    record = result.record
    assert (record.reached, result.reached, record.landing, record.epochs) == (None, True, None, 1)
    assert record.timing.keys() == {"teacher", "steps", "checks"}


def test_every_round_measures_and_dampens_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no kept importance below the line a weight is 0 after a round, so a fixed factor shows the rounds."""
    collection = collection_of(random_lists(4), 14)
    ranker, seen = random_table(collection, 0), []

    def halve(self: SelectiveDampening, weight: torch.Tensor, importance: list[torch.Tensor]) -> torch.Tensor:
        seen.append([measured.sum().item() for measured in importance])
        return weight / 2

    monkeypatch.setattr(SelectiveDampening, "edit", halve)
    method = SelectiveDampening()
    result = forget(ranker, collection, Removal(queries=["q0"]), method=method, target=0.5, device="cpu", record=TIMED)
    assert isinstance(result.ranker, TableRanker)
    assert torch.equal(result.ranker.table, ranker.table / 2**5)
    assert len(seen) == method.rounds == 5 and seen[0] != seen[1]
    assert make_method("ssd", preset="paper") == SelectiveDampening(compared_with="all", rounds=1)


def test_a_quarter_of_the_pairs_is_at_most_four_times_as_important_as_all_of_them() -> None:
    """If kept pairs do not need a weight at all: so the printed comparison, with alpha 10, dampens nothing."""
    of_forget = torch.tensor([8.0])
    as_printed, as_released = make_method("ssd", preset="paper"), SelectiveDampening()
    assert isinstance(as_printed, SelectiveDampening)
    assert as_printed.edit(torch.tensor([2.0]), [of_forget, of_forget / 4]).tolist() == [2.0]
    assert as_released.edit(torch.tensor([2.0]), [of_forget, torch.tensor([0.0])]).tolist() == [0.0]


def test_it_has_no_pace() -> None:
    collection = collection_of(random_lists(4), 14)
    for pace in (Pace(check_every=1), Pace(minutes=1)):
        with pytest.raises(UnrankError, match="ssd has no target to stop at"):
            forget(
                random_table(collection, 0),
                collection,
                Removal(queries=["q0"]),
                method=SelectiveDampening(),
                target=0.5,
                pace=pace,
            )


TIMED = made_record("none", Runtime.on("cpu").name)
"""What a table ranker's record would say: no recipe trains one."""
