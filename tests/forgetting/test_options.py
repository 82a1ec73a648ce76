"""Options: one frozen set for Python and for the command, whose flags are made from its fields."""

from __future__ import annotations

from dataclasses import fields

import pytest

from unrank.audit.audit import audit_ranker
from unrank.cli.main import run
from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.errors import UnknownName, UnrankError
from unrank.forgetting.evaluate import evaluate
from unrank.forgetting.forget import forget
from unrank.forgetting.options import ForgetOptions, Pace, change
from unrank.forgetting.train import Trained, TrainOptions, train
from unrank.methods.cocol import Cocol
from unrank.methods.retrain import Retrain
from unrank.record import Record


def test_keywords_change_the_options() -> None:
    options = ForgetOptions(seed=3).changed(target=0.45, pace=Pace(check_every=2, watch=7))
    assert (options.seed, options.target, options.check_every, options.minutes, options.watch) == (3, 0.45, 2, None, 7)
    assert options.changed(check_recovery=True).recovery, "its old name"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"targt": 0.5}, "unknown option of forget 'targt': did you mean 'target'?"),
        ({"minutes": 0}, "minutes must be more than 0, not 0"),
        ({"check_every": -1}, "check-every must be more than 0, not -1"),
        ({"seed": -1}, "the seed -1 is out of range"),
        ({"seed": "x"}, "the seed must be a whole number, not 'x'"),
        ({"measure": -1}, "measure must be at least 0, not -1"),
        ({"keep_at_least": "x"}, r"--keep-at-least x is outside \(0, 1\]"),
        ({"follow": "q1"}, r"follow must be a list, not one text: \['q1'\]"),
        ({"method": 5}, "a method is a name, or one that make_method returned, not 5"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(UnrankError, match=said):
        ForgetOptions().changed(**wrong)


def test_forget_refuses_a_keyword_it_does_not_know(trained: Trained, dense: Collection, removal: Removal) -> None:
    with pytest.raises(UnknownName, match="did you mean 'train_layers'"):
        forget(trained.ranker, dense, removal, train_layer=1)


def test_what_is_no_ranker_no_collection_and_no_removal_is_refused(trained: Trained, dense: Collection) -> None:
    for given, said in (
        (("bi", dense), "a ranker is needed, as load_ranker returns it, not 'bi'"),
        ((trained.ranker, "col"), "a collection is needed, as open_collection returns it, not 'col'"),
        ((trained.ranker, dense, {"documents": []}), "a removal is needed"),
    ):
        with pytest.raises(UnrankError, match=said):
            evaluate(*given)
    with pytest.raises(UnrankError, match="a collection is needed"):
        train("col", "bi-encoder")  # type: ignore[arg-type]
    with pytest.raises(UnrankError, match="a record is needed, as read_record returns it, not 'bi'"):
        evaluate(trained.ranker, dense, record="bi")  # type: ignore[arg-type]


def test_no_device_of_another_name_is_taken(trained: Trained, dense: Collection) -> None:
    with pytest.raises(UnknownName, match="unknown device 'tpu'"):
        evaluate(trained.ranker, dense, device="tpu")  # type: ignore[arg-type]


def test_a_negative_measure_drops_no_queries(trained: Trained, dense: Collection) -> None:
    with pytest.raises(UnrankError, match="measure must be at least 0, not -1"):
        evaluate(trained.ranker, dense, measure=-1)


def test_train_has_options_and_keywords(dense: Collection) -> None:
    with pytest.raises(UnknownName, match=r"unknown option of train 'sede': did you mean 'seed'\?"):
        train(dense, "bi-encoder", sede=1)
    options = TrainOptions(Retrain(epochs=2), seed=3)
    assert change(options, {"seed": 4, "fast": False}, "train") == TrainOptions(Retrain(epochs=2), 4, fast=False)


@pytest.mark.slow
def test_options_and_keywords_give_the_same_run(trained: Trained, dense: Collection, removal: Removal) -> None:
    method = Cocol(learning_rate=1e-3, batch=16, epochs=1)
    one = forget(trained.ranker, dense, removal, ForgetOptions(method=method, target=0.2), seed=4)
    other = forget(trained.ranker, dense, removal, method=method, target=0.2, seed=4, known=trained.record)
    assert _without_times(one.record) == _without_times(other.record)
    assert other.record.learning_epoch == trained.record.learning_epoch, "known is the old name of record"


def test_keywords_of_before_still_work(trained: Trained, dense: Collection, removal: Removal) -> None:
    made = forget(trained.ranker, dense, removal, method=Cocol(epochs=1, batch=16), target=0.9, known=trained.record)
    known = {**made.record}
    assert known == made.record.to_json() and "after" in made.record and made.record.get("nothing") is None
    other = Removal(documents=["doc10"])
    assert len(make_partition(dense, other, earlier=removal).previous)
    given = evaluate(trained.ranker, dense, other, known=known)
    assert given.mrrs == evaluate(trained.ranker, dense, other, record=made.record).mrrs
    assert given.mrrs != evaluate(trained.ranker, dense, other).mrrs, "the record counts"
    again = forget(trained.ranker, dense, other, method=Cocol(epochs=1), target=0.9, known=known, before=given)
    assert again.before is given
    with pytest.raises(UnrankError, match="did you mean 'thoroughness'"):
        audit_ranker(trained.ranker, dense, other, known=known, thoroughnes=1)


def _without_times(record: Record) -> list[object]:
    return [record[key] for key in ("method", "settings", "seed", "target", "epochs", "before", "after", "landing")]


def test_every_field_is_a_flag_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["forget", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for field in fields(ForgetOptions):
        flag = field.metadata.get("flag", f"--{field.name.replace('_', '-')}")
        assert flag.replace("/", " / ") in shown
        assert field.metadata["help"].split(";")[0][:40] in shown.replace("- ", "-"), flag
