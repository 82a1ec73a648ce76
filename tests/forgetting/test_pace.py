"""How a run is watched, how long it may take, where it may go, and what comes back of what it forgot."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.forgetting.conftest import FAST
from tests.forgetting.test_forget import HARD, ONE_EPOCH, same, weights
from tests.table import Listed, TableRanker, collection_of, random_lists, random_table
from tests.tiny import made_record
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.engine.loop import Schedule, fit
from unrank.engine.runtime import Runtime
from unrank.engine.samples import Phase
from unrank.errors import UnrankError
from unrank.evaluation.agreement import agreement
from unrank.evaluation.scorecard import Evaluator
from unrank.forgetting.evaluate import evaluate
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.options import Pace
from unrank.forgetting.target import OF_REFERENCE, check_target, tolerance
from unrank.forgetting.train import RECOVERY, Trained, recovery, train
from unrank.forgetting.workspace import Workspace
from unrank.methods.finetune import Finetune
from unrank.methods.neggrad import NegGrad
from unrank.methods.retrain import Retrain
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.bi_encoder import BiEncoderRanker
from unrank.record import Record

OUT_OF_REACH = 0.01


@pytest.fixture(scope="module")
def retrained(encoder: Path, dense: Collection, removal: Removal) -> Trained:
    return train(dense, "bi-encoder", str(encoder), removal, method=ONE_EPOCH)


def test_checks_within_an_epoch(trained: Trained, dense: Collection, removal: Removal) -> None:
    method = replace(FAST, epochs=1)
    result = forget(trained.ranker, dense, removal, method=method, target=OUT_OF_REACH, pace=Pace(check_every=2))
    steps = sum(-(-len(pairs) // FAST.batch) for pairs in _phases(dense, removal))
    epochs = [line.epoch for line in result.record.history]
    assert epochs == pytest.approx([*(done / steps for done in range(2, steps, 2)), 1.0], abs=1e-4)
    assert len(epochs) > 1
    assert sum(line.seconds for line in result.record.history) == pytest.approx(result.record.timing["steps"])
    assert result.record.epochs == 1
    assert not result.reached


def test_a_run_stops_at_a_check_within_an_epoch(trained: Trained, dense: Collection, removal: Removal) -> None:
    result = forget(trained.ranker, dense, removal, method=HARD, target="90%", pace=Pace(check_every=1))
    assert result.reached
    assert 0 < result.record.epochs < 1
    assert result.record.landing is not None
    assert result.after.forget is not None
    assert result.after.forget.mean <= result.target + tolerance(len(result.after.forget.queries))
    assert [mrr <= result.target for _, mrr in result.record.path("forget")] == [
        *[False] * (len(result.record.history) - 1),
        True,
    ]


def _phases(collection: Collection, removal: Removal) -> list[Pairs]:
    partition = make_partition(collection, removal)
    return [partition.forget, partition.disjoint]


def _plan(trained: Trained, collection: Collection, removal: Removal) -> Sequence[Phase]:
    workspace = Workspace.open(trained.ranker, collection, make_partition(collection, removal), "cpu")
    return FAST.plan(workspace.task(trained.ranker))


def test_a_budget_in_minutes_ends_with_the_best_model(trained: Trained, dense: Collection, removal: Removal) -> None:
    """Where time is up, not where an epoch is."""
    pace = Pace(minutes=1e-6)
    result = forget(trained.ranker, dense, removal, method=FAST, target=OUT_OF_REACH, pace=pace)
    assert not result.reached
    assert (len(result.record.history), result.record.landing) == (1, None)
    steps = sum(-(-phase.size // phase.batch) for phase in _plan(trained, dense, removal))
    assert steps > 1
    assert result.record.epochs == pytest.approx(1 / steps, abs=1e-4), (
        "it stops where time is up, not where an epoch is"
    )
    assert result.after.forget is not None
    assert result.after.forget.mean == pytest.approx(result.record.history[0].forget)
    assert result.record.seconds > 6e-5


def test_a_budget_that_suffices_changes_nothing(
    trained: Trained, dense: Collection, removal: Removal, forgotten: Forgotten, target: float
) -> None:
    result = forget(trained.ranker, dense, removal, method=FAST, target=target, pace=Pace(minutes=600))
    assert same(weights(result.ranker), weights(forgotten.ranker))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"minutes": 0}, "minutes must be more than 0, not 0"),
        ({"minutes": -1.5}, "minutes must be more than 0, not -1.5"),
        ({"minutes": float("nan")}, "minutes must be more than 0, not nan"),
        ({"check_every": 0}, "check-every must be more than 0, not 0"),
        ({"check_every": -3}, "check-every must be more than 0, not -3"),
    ],
)
def test_a_budget_of_zero(given: dict[str, float], problem: str) -> None:
    with pytest.raises(UnrankError, match=problem):
        Pace(**given)  # type: ignore[arg-type]


def test_retrain_is_not_steered(trained: Trained, dense: Collection, removal: Removal, encoder: Path) -> None:
    with pytest.raises(UnrankError, match="retrain has no target to stop at: it takes no --check-every and no"):
        forget(trained.ranker, dense, removal, method=ONE_EPOCH, base=str(encoder), pace=Pace(minutes=1))


@pytest.mark.parametrize("target", OF_REFERENCE)
def test_destinations_are_measured_on_the_reference(
    trained: Trained, retrained: Trained, dense: Collection, removal: Removal, target: str
) -> None:
    before, method = weights(retrained.ranker), replace(FAST, epochs=1)
    result = forget(trained.ranker, dense, removal, method=method, target=target, reference=retrained.ranker)
    card = evaluate(retrained.ranker, dense, removal)
    assert card.forget is not None and card.test is not None
    expected = {"destination-1": card.forget.mean, "destination-2": card.test.mean, "destination-3": card.test.mean / 2}
    assert result.target == pytest.approx(expected[target])
    assert (result.record.target_name, result.record.target) == (target, result.target)
    assert same(weights(retrained.ranker), before)


def test_a_destination_without_a_reference(trained: Trained, dense: Collection, removal: Removal) -> None:
    for target in OF_REFERENCE:
        with pytest.raises(UnrankError, match=f"the target '{target}' is measured on a retrained ranker: name it with"):
            forget(trained.ranker, dense, removal, target=target)


def test_a_reference_of_another_kind(trained: Trained, dense: Collection, removal: Removal, encoder: Path) -> None:
    other = create_ranker("cross-encoder", str(encoder), 0)
    with pytest.raises(UnrankError, match="the reference is a cross-encoder, the ranker a bi-encoder: they cannot be"):
        forget(trained.ranker, dense, removal, target="destination-1", reference=other)


def test_a_target_that_no_check_can_measure() -> None:
    collection = collection_of([Listed([0]), Listed([1], [2]), Listed([2], [1], test=True)], 3)
    removal = Removal(queries=["q0"])
    partition = make_partition(collection, removal)
    for target in ("unseen", "50%", 0.5):
        with pytest.raises(UnrankError, match="no forget query has a candidate beside its relevant documents"):
            check_target(target, collection, partition)
    with pytest.raises(UnrankError, match="no forget query has a candidate"):
        forget(random_table(collection, 0), collection, removal, method=FAST)
    check_target("unseen", collection, make_partition(collection, Removal(queries=["q1"])))


def test_recovery_and_agreement_are_measured_on_copies(
    trained: Trained, retrained: Trained, dense: Collection, removal: Removal
) -> None:
    before = weights(trained.ranker), weights(retrained.ranker)
    method = replace(FAST, epochs=1)
    plain = forget(trained.ranker, dense, removal, method=method, target=OUT_OF_REACH)
    result = forget(
        trained.ranker,
        dense,
        removal,
        method=method,
        target=OUT_OF_REACH,
        reference=retrained.ranker,
        check_recovery=True,
    )
    assert plain.record.recovery is None
    assert same(weights(trained.ranker), before[0])
    assert same(weights(retrained.ranker), before[1])
    assert same(weights(result.ranker), weights(plain.ranker))
    found, card = result.record.recovery, evaluate(retrained.ranker, dense, removal)
    assert found is not None and result.after.forget is not None and card.forget is not None
    assert found.before == pytest.approx(result.after.forget.mean)
    assert found.reference_before == pytest.approx(card.forget.mean)
    for ranker, after in ((result.ranker, found.after), (retrained.ranker, found.reference_after)):
        assert after == pytest.approx(by_hand(ranker, dense, removal))
    assert "recovery" not in result.record.timing
    theirs = card.forget_figures
    assert theirs is not None and result.record.agreement is not None
    for measured, kept in (
        (result.before, result.record.agreement.before),
        (result.after, result.record.agreement.after),
    ):
        assert measured.forget_figures is not None
        assert kept == agreement(measured.forget_figures, theirs)
    again = Record.of(json.loads(json.dumps(result.record.to_json())))
    assert again is not None and again.agreement == result.record.agreement
    assert plain.record.agreement is None and "agreement" not in plain.record, "there was no reference"


def by_hand(ranker: Ranker, collection: Collection, removal: Removal) -> float:
    """The forget MRR after an epoch of fine-tuning on what is kept."""
    pupil = copy.deepcopy(ranker)
    workspace = Workspace.open(pupil, collection, make_partition(collection, removal), "cpu")
    recipe = Finetune(learning_rate=3e-5, epochs=1, negatives=1, batch=256)
    list(fit(pupil, recipe.plan(workspace.task(pupil)), Schedule(1, 3e-5), workspace.store, workspace.runtime))
    card = evaluate(pupil, collection, removal)
    assert card.forget is not None
    return card.forget.mean


def test_the_recipe_of_recovery() -> None:
    assert Finetune(learning_rate=3e-5, epochs=1, negatives=1, batch=256) == RECOVERY


def test_what_is_gone_for_good_does_not_come_back() -> None:
    """The scores of removed queries are weights of their own: an epoch on others cannot touch them."""
    collection = collection_of(random_lists(4), 14)
    partition = make_partition(collection, Removal(queries=["q0", "q1"]))
    ranker, reference = random_table(collection, 0, values=3), random_table(collection, 1, values=3)
    workspace = Workspace.open(ranker, collection, partition, "cpu")
    for weight in ranker.parameters():
        weight.requires_grad_(False)  # as a run with frozen layers leaves it
    mrr = workspace.evaluator.forget_mrr(workspace.scorer(ranker))
    found = recovery(ranker, mrr, reference, workspace, seed=0)
    evaluator = Evaluator(collection, partition)
    mrr, of_reference = (evaluator.forget_mrr(workspace.scorer(one)) for one in (ranker, reference))
    assert (found.before, found.after) == (mrr, mrr)
    assert (found.reference_before, found.reference_after) == (of_reference, of_reference)
    alone = recovery(ranker, mrr, None, workspace, seed=0)
    assert (alone.reference_before, alone.reference_after) == (None, None)
    assert torch.equal(ranker.table, random_table(collection, 0, values=3).table)


@pytest.mark.parametrize("which", ["head", "all-but-embeddings"])
def test_layers_by_name(trained: Trained, dense: Collection, removal: Removal, which: str) -> None:
    layers = {"head": "head", "all-but-embeddings": "all-but-embeddings"}
    method = replace(FAST, epochs=1)
    result = forget(trained.ranker, dense, removal, method=method, target=OUT_OF_REACH, train_layers=layers[which])
    before, after = weights(trained.ranker), weights(result.ranker)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    in_encoder = {name for name in moved if ".encoder.layer." in name}
    assert moved
    assert not any("embeddings" in name for name in moved)
    assert {"layer.0." in name for name in in_encoder} == (set() if which == "head" else {True, False})
    assert result.record.settings["train_layers"] == which
    assert evaluate(result.ranker, dense, removal).to_json() == result.after.to_json()


def test_a_ranker_without_a_head(encoder: Path, dense: Collection, removal: Removal, tmp_path: Path) -> None:
    """BERT brings a pooler that no score of a mean of tokens depends on: that is no head."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    partition = [Transformer(str(encoder)), Pooling(32, "mean")]
    SentenceTransformer(modules=partition).save(str(tmp_path / "plain"))
    ranker = load_ranker(tmp_path / "plain")
    assert isinstance(ranker, BiEncoderRanker)
    with pytest.raises(UnrankError, match="this bi-encoder has no head: no trained weight comes after the layers"):
        forget(ranker, dense, removal, target=0.5, train_layers="head")


def test_a_fresh_start_knows_nothing_of_the_originals_layers(
    trained: Trained, dense: Collection, removal: Removal, encoder: Path
) -> None:
    """What frozen layers make of a text is shared with the original only where they are its own."""
    method = Retrain(learning_rate=1e-3, epochs=1, negatives=1, batch=48)
    result = forget(trained.ranker, dense, removal, method=method, base=str(encoder), train_layers=1, target=0.5)
    assert evaluate(result.ranker, dense, removal).to_json() == result.after.to_json()
    assert evaluate(trained.ranker, dense, removal).to_json() == result.before.to_json()


@pytest.mark.parametrize("pace", [Pace(), Pace(check_every=1)], ids=["by epochs", "by steps"])
def test_a_run_without_a_sample_says_that_it_went_nowhere(pace: Pace) -> None:
    """The only negative of the forget pair's query is removed too, so that no triple can be drawn."""
    collection = collection_of([Listed([0], [1]), Listed([2], [0]), Listed([2], [0], test=True)], 3)
    ranker = TableRanker([[2.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    removal = Removal(pairs=[("q0", "d0")], documents=["d1"])
    timed = made_record("none", Runtime.on("cpu").name)
    method = NegGrad(epochs=2)
    result = forget(ranker, collection, removal, method=method, target=0.1, device="cpu", record=timed, pace=pace)
    assert result.record.reached is False
    assert result.after.to_json() == result.before.to_json()
