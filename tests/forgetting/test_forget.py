"""Forgetting on a tiny trained ranker: it stops where it should, lands, and leaves the original alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.forgetting.conftest import FAST
from unrank.collection.collection import Collection, Pairs
from unrank.collection.inspect import pair_ids
from unrank.collection.removal import Removal
from unrank.engine.runtime import Runtime
from unrank.errors import UnrankError
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.evaluate import evaluate
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.landing import MOST_EVALUATIONS, weights_of
from unrank.forgetting.mrr_estimator import LastMeasurement
from unrank.forgetting.options import Pace
from unrank.forgetting.target import tolerance
from unrank.forgetting.train import Trained, train
from unrank.methods.retrain import Retrain
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker
from unrank.record import RECORD, LearningEpoch, versions

KEYS = {
    "method", "settings", "target", "reached", "epochs", "seconds", "normalised_epoch", "total_time", "before", "after",
    "history", "versions", "hashes",
}  # fmt: skip
SETS = {"forget", "entangled", "disjoint", "test", "forget_full"}
HARD = replace(FAST, learning_rate=4e-3, warm_up=1)
ONE_EPOCH = Retrain(learning_rate=1e-3, epochs=1, negatives=2, batch=48)


def weights(ranker: Ranker) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in ranker.state_dict().items()}


def first_pairs(collection: Collection) -> list[tuple[str, str]]:
    return [(query, document) for query, document in pair_ids(collection, collection.pairs[:20])]


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


class Listener:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.begun: list[tuple[str, int]] = []
        self.steps = 0
        self.shares: list[float] = []

    def begin(self, what: str, steps: int) -> None:
        self.begun.append((what, steps))

    def advance(self, steps: int = 1) -> None:
        self.steps += steps

    def done(self, share: float) -> None:
        self.shares.append(share)

    def say(self, line: str) -> None:
        self.lines.append(line)


def test_it_reaches_the_target_and_lands_on_it(forgotten: Forgotten, target: float) -> None:
    assert forgotten.before.forget is not None
    assert forgotten.after.forget is not None
    near = tolerance(len(forgotten.after.forget.queries))
    assert forgotten.before.forget.mean > target + near
    assert forgotten.reached
    assert forgotten.target == target
    landing = forgotten.record.landing
    assert landing is not None
    assert forgotten.after.forget.mean <= target + near
    assert forgotten.after.forget.mean >= target - near or landing.evaluations == MOST_EVALUATIONS
    assert landing.forget == pytest.approx(forgotten.after.forget.mean)
    assert 0 < landing.share <= 1


def test_it_stops_at_the_first_check_that_is_at_or_below_the_target(forgotten: Forgotten, target: float) -> None:
    checks = [mrr for _, mrr in forgotten.record.path("forget")]
    assert checks[-1] <= target
    assert all(check > target for check in checks[:-1])
    assert [line.epoch for line in forgotten.record.history] == list(range(1, int(forgotten.record.epochs) + 1))


def test_what_it_reports_is_what_the_ranker_measures(
    forgotten: Forgotten, trained: Trained, dense: Collection, removal: Removal
) -> None:
    assert (
        evaluate(forgotten.ranker, dense, removal).to_json() == forgotten.after.to_json() == forgotten.record["after"]
    )
    assert (
        evaluate(trained.ranker, dense, removal).to_json() == forgotten.before.to_json() == forgotten.record["before"]
    )


def test_the_original_stays_as_it_was(trained: Trained, briefly: Callable[[Removal], Forgotten]) -> None:
    before, modes = weights(trained.ranker), [module.training for module in trained.ranker.modules()]
    result = briefly(Removal(queries=["query3"]))
    assert same(weights(trained.ranker), before)
    assert [module.training for module in trained.ranker.modules()] == modes
    assert all(weight.requires_grad and weight.grad is None for weight in trained.ranker.parameters())
    assert result.ranker is not trained.ranker
    assert not same(weights(result.ranker), before)


def test_the_same_seed_gives_the_same_weights(trained: Trained, dense: Collection, removal: Removal) -> None:
    method = replace(FAST, epochs=2)
    first, second, other = (
        weights(forget(trained.ranker, dense, removal, method=method, target=0.01, seed=seed).ranker)
        for seed in (3, 3, 4)
    )
    assert same(first, second)
    assert not same(first, other)


@pytest.mark.parametrize("kind", ["queries", "pairs"])
def test_queries_and_pairs_can_be_forgotten_too(
    trained: Trained, dense: Collection, removals: dict[str, Removal], kind: str
) -> None:
    result = forget(trained.ranker, dense, removals[kind], method=HARD, target="80%")
    assert result.before.forget is not None
    assert result.after.forget is not None
    assert result.target == pytest.approx(0.8 * result.before.forget.mean)
    assert result.reached
    assert result.after.forget.mean <= result.target + tolerance(len(result.after.forget.queries))


def test_a_target_that_is_met_already_changes_nothing(
    trained: Trained, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    result = forget(trained.ranker, dense, removal, target=1.0)
    assert result.reached
    assert (result.record.epochs, result.record.history, list(result.record.timing)) == (0, (), ["teacher"])
    assert result.record.normalised_epoch is None
    assert result.after.to_json() == result.before.to_json()
    assert set(result.kept.values()) == {1.0}
    result.save(tmp_path / "unchanged")
    assert same(weights(load_ranker(tmp_path / "unchanged")), weights(trained.ranker))


def test_a_budget_that_is_too_small_keeps_the_best_model(trained: Trained, dense: Collection, removal: Removal) -> None:
    result = forget(trained.ranker, dense, removal, method=replace(FAST, epochs=4), target=0.01)
    assert result.after.forget is not None
    assert not result.reached
    assert result.record.epochs == 4
    assert result.record.landing is None
    assert "landing" not in result.record.timing
    assert result.after.forget.mean == pytest.approx(min(mrr for _, mrr in result.record.path("forget")))


def test_a_single_pair_that_still_comes_first_is_not_forgotten(trained: Trained, dense: Collection) -> None:
    """However few queries there are, the tolerance must not let a rank of 1 pass for forgotten."""
    cards = ((pair, evaluate(trained.ranker, dense, Removal(pairs=[pair])).forget) for pair in first_pairs(dense))
    pair = next(pair for pair, card in cards if card is not None and card.mean == 1)
    still = replace(FAST, learning_rate=1e-9, epochs=1)
    result = forget(trained.ranker, dense, Removal(pairs=[pair]), method=still, target=0.55)
    assert result.after.forget is not None
    assert result.after.forget.mean == 1
    assert not result.reached
    result = forget(trained.ranker, dense, Removal(pairs=[pair]), method=HARD, target=0.55)
    assert result.after.forget is not None
    assert result.after.forget.mean <= 0.5
    assert result.reached


def test_the_best_model_need_not_be_the_last(
    trained: Trained, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks are made to say that the second of four epochs was the best."""
    seen: list[dict[str, torch.Tensor]] = []
    said = iter([0.8, 0.5, 0.7, 0.6])

    def noted(student: Ranker) -> dict[str, torch.Tensor]:
        seen.append(weights_of(student))
        return seen[-1]

    monkeypatch.setattr("unrank.forgetting.mrr_estimator.MrrEstimator.estimate", lambda *_: next(said))
    monkeypatch.setattr("unrank.forgetting.run.weights_of", noted)
    monkeypatch.setattr("unrank.forgetting.stopping.weights_of", noted)
    result = forget(trained.ranker, dense, removal, method=replace(FAST, epochs=4), target=0.01)
    assert len(seen) == 1 + 4  # the start, and each check
    assert same(weights_of(result.ranker), seen[2])


def test_kept_is_what_is_left_of_each_set(forgotten: Forgotten) -> None:
    before, after = forgotten.before.summary, forgotten.after.summary
    names = {"entangled", "disjoint", "test"}
    assert forgotten.kept == {name: pytest.approx(after[name].mrr / before[name].mrr) for name in names}


def test_kept_leaves_out_a_set_that_is_empty_or_had_nothing(forgotten: Forgotten) -> None:
    assert forgotten.before.test is not None
    nothing = replace(forgotten.before.test, mean=0.0)
    without = replace(forgotten, before=replace(forgotten.before, disjoint=None, test=nothing))
    assert set(without.kept) == {"entangled"}


def test_the_record_has_what_was_promised(forgotten: Forgotten, dense: Collection, target: float) -> None:
    record = replace(forgotten.record, versions=versions(), hashes={"model.safetensors": "0"}).to_json()
    assert record.keys() >= KEYS
    assert record["method"] == "cocol"
    assert record["settings"]["learning_rate"] == 1e-3
    assert (record["target"], record["reached"]) == (target, True)
    assert record["epochs"] == len(record["history"]) > 0
    assert record["before"].keys() == record["after"].keys() == SETS
    named = record["collection"]
    assert (named["name"], named["fingerprint"]) == (dense.name, dense.fingerprint)
    assert record["hashes"] == {"model.safetensors": "0"}
    assert {"unrank", "python", "torch", "transformers", "sentence-transformers"} <= record["versions"].keys()
    assert torch.__version__.startswith(record["versions"]["torch"])  # torch adds its build, which a wheel may not name
    assert all(line.keys() >= {"epoch", "seconds", "forget", "losses"} for line in record["history"])


def test_the_times_add_up(forgotten: Forgotten) -> None:
    record = forgotten.record
    assert record.timing.keys() == {"teacher", "steps", "checks", "landing"}
    assert sum(record.timing.values()) == pytest.approx(record.seconds)
    assert sum(line.seconds for line in record.history) == pytest.approx(record.timing["steps"])
    epoch = record.learning_epoch.seconds
    assert record.total_time == pytest.approx(record.seconds / epoch)
    assert record.normalised_epoch == pytest.approx(record.timing["steps"] / record.epochs / epoch)


def test_a_known_learning_epoch_of_the_same_device_is_used(
    trained: Trained, dense: Collection, removal: Removal
) -> None:
    known = trained.record.learning_epoch
    assert known.how == "measured"
    result = forget(trained.ranker, dense, removal, target=1.0, device="cpu", record=trained.record)
    assert result.record.learning_epoch == known


@pytest.mark.parametrize("known", [None, LearningEpoch(2.0, "measured", "another machine")])
def test_an_unknown_one_is_estimated_and_said_to_be(
    trained: Trained,
    dense: Collection,
    removal: Removal,
    known: LearningEpoch | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unrank.forgetting.train.TIMED_STEPS", 3)
    monkeypatch.setattr("unrank.forgetting.train.WARM_UP", {"cpu": 1})
    before = weights(trained.ranker)
    record = replace(trained.record, learning_epoch=known) if known else None
    result = forget(trained.ranker, dense, removal, target=1.0, device="cpu", record=record)
    estimated = result.record.learning_epoch
    assert estimated.how == "timed on 3 steps"
    assert estimated.device == result.record.device == Runtime.on("cpu").name
    assert 0 < estimated.seconds < 60
    assert same(weights(trained.ranker), before)


def test_test_mrr_is_what_the_original_reaches_on_test_queries(
    trained: Trained, dense: Collection, removal: Removal
) -> None:
    result = forget(trained.ranker, dense, removal, method=replace(FAST, epochs=1), target="test-mrr")
    assert result.before.test is not None
    assert result.target == result.before.test.mean
    assert (result.record.target_name, result.record.target) == ("test-mrr", result.target)


def test_without_test_queries_test_mrr_means_nothing(trained: Trained, golden: Collection) -> None:
    removal = Removal(queries=["q1"])
    with pytest.raises(UnrankError, match="none is there or none is left"):
        forget(trained.ranker, golden, removal, target="test-mrr")
    with pytest.raises(UnrankError, match="or test queries to estimate places by: name it with --base"):
        forget(trained.ranker, golden, removal)
    result = forget(trained.ranker, golden, removal, target=1.0)
    assert result.after.test is None
    assert "test" not in result.kept


def test_retrain_needs_the_model_that_training_began_with(
    trained: Trained, dense: Collection, removal: Removal
) -> None:
    with pytest.raises(UnrankError, match=r"retrain needs the model .* trained from: name it with --base"):
        forget(trained.ranker, dense, removal, method="retrain", target=0.01)


def test_nothing_is_retrained_from_the_ranker_itself(
    trained: Trained, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    """It would begin with what it has to forget, and so would a proxy."""
    for name in ("ranker", "copy"):
        trained.save(tmp_path / name)
    ranker, base = load_ranker(tmp_path / "ranker"), str(tmp_path / "copy")
    with pytest.raises(UnrankError, match=r"--base .*copy was trained on what is removed, as its record says"):
        forget(ranker, dense, removal, method=ONE_EPOCH, base=base)
    (tmp_path / "copy" / RECORD).unlink()
    for method in (ONE_EPOCH, FAST):
        with pytest.raises(UnrankError, match=r"--base .*copy holds the weights of .*ranker itself, which it has to"):
            forget(ranker, dense, removal, method=method, base=base)


def test_retrain_is_training_on_what_is_kept(
    trained: Trained, dense: Collection, removal: Removal, encoder: Path
) -> None:
    """Whatever the target is: it is the yardstick, and does not steer."""
    result = forget(trained.ranker, dense, removal, method=ONE_EPOCH, target=1.0, base=str(encoder), seed=5)
    again = train(dense, "bi-encoder", str(encoder), removal, method=ONE_EPOCH, seed=5)
    assert result.record.epochs == 1
    assert result.record.landing is None
    assert same(weights(result.ranker), weights(again.ranker))
    assert result.after.to_json() == again.after.to_json()


def test_watching_measures_what_must_stay(trained: Trained, dense: Collection, removal: Removal) -> None:
    heard = Listener()
    method = replace(FAST, epochs=1)
    result = forget(trained.ranker, dense, removal, method=method, target=0.01, pace=Pace(watch=1000), progress=heard)
    line, after = result.record.history[0], result.after.summary
    watched = {name: getattr(line, name) for name in ("entangled", "disjoint", "test")}
    assert watched == {name: pytest.approx(after[name].mrr) for name in watched}
    assert len(heard.lines) == 1
    assert "epoch 1: forget MRR" in heard.lines[0]
    assert "entangled" in heard.lines[0]
    assert [what for what, _ in heard.begun if what.startswith("epoch")] == ["epoch 1: forget", "epoch 1: hold"]
    assert sum(steps for _, steps in heard.begun) == heard.steps


def test_a_removal_that_the_collection_does_not_know_costs_no_work(trained: Trained, dense: Collection) -> None:
    with pytest.raises(UnrankError, match="1 document id not in the collection: 'nobody'"):
        forget(trained.ranker, dense, Removal(documents=["nobody"]))
    with pytest.raises(UnrankError, match="names no query, no document and no pair"):
        forget(trained.ranker, dense, Removal())


def test_scores_that_are_not_finite_are_an_error(trained: Trained, dense: Collection, removal: Removal) -> None:
    broken = copy.deepcopy(trained.ranker)
    with torch.no_grad():
        next(broken.parameters()).fill_(np.nan)
    with pytest.raises(UnrankError, match="scores that are not finite"):
        forget(broken, dense, removal)


def test_frozen_layers_do_not_move(trained: Trained, dense: Collection, removal: Removal) -> None:
    result = forget(trained.ranker, dense, removal, method=replace(FAST, epochs=1), target=0.01, train_layers=1)
    before, after = weights(trained.ranker), weights(result.ranker)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert not any("layer.0." in name or "embeddings" in name for name in moved)
    assert result.record.settings["train_layers"] == 1


def test_nothing_is_left_to_rank_against(trained: Trained, golden: Collection) -> None:
    kept = set(golden.pairs[golden.pairs[:, 0] == 4, 1].tolist())
    others = [row for row in range(len(golden.documents)) if row not in kept]
    with pytest.raises(UnrankError, match="every negative of the kept queries"):
        forget(trained.ranker, golden, Removal(documents=golden.documents.ids(others)), target=0.5)


def test_what_was_reached_is_what_is_measured_in_full(
    trained: Trained, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gauge that sees every ranker on the target does not make it so."""
    for ask in ("estimate", "measure", "measure_again"):
        monkeypatch.setattr(f"unrank.forgetting.mrr_estimator.MrrEstimator.{ask}", lambda *_: 0.1)
    result = forget(trained.ranker, dense, removal, method=replace(FAST, epochs=1), target=0.1)
    assert result.after.forget is not None and result.after.forget.mean > 0.2
    assert result.record.landing is not None or result.record.history[-1].forget == 0.1
    assert result.record.reached is False and not result.reached


def test_a_landing_that_scored_a_part_came_to_what_all_of_it_measures(
    trained: Trained, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[bool] = []
    rescore = LastMeasurement.now

    def counted(lists: LastMeasurement, score: Scorer) -> NDArray[np.float32]:
        def asked(pairs: Pairs) -> NDArray[np.float32]:
            parts.append(len(pairs) < len(lists.pairs))
            return score(pairs)

        return rescore(lists, asked)

    for name, value in {"FEW": 1, "WORTH": 0.9, "NEAREST": 2, "SPREAD": 1}.items():
        monkeypatch.setattr(f"unrank.forgetting.mrr_estimator.{name}", value)
    monkeypatch.setattr("unrank.forgetting.mrr_estimator.NEAREST", 2)
    monkeypatch.setattr("unrank.forgetting.mrr_estimator.SPREAD", 1)
    monkeypatch.setattr("unrank.forgetting.unlearn.encoded_sides", lambda *_: ())  # as if pairs were read together
    monkeypatch.setattr(LastMeasurement, "now", counted)
    for target in ("70%", "50%", "30%"):
        result = forget(trained.ranker, dense, removal, method=HARD, target=target)
        assert result.after.forget is not None and result.record.landing is not None
        assert result.record.landing.forget == pytest.approx(result.after.forget.mean)
    assert any(parts)
