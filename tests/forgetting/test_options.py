"""Options are given as one object, by keywords, or both; a wrong keyword is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from unrank.audit.audit import audit_ranker
from unrank.collection.collection import Collection
from unrank.errors import UnrankError
from unrank.forgetting.forget import forget
from unrank.forgetting.options import ForgetOptions, Pace, change
from unrank.forgetting.train import TrainOptions, train
from unrank.methods.retrain import Retrain


@pytest.mark.parametrize("function", [forget, train, audit_ranker])
def test_an_unknown_keyword_is_refused_in_one_line(function: Callable[..., Any], dense: Collection) -> None:
    message = f"unknown option of {function.__name__} 'sede': did you mean 'seed'[?] known are [^\n]*seed"
    with pytest.raises(UnrankError, match=message):
        function(dense, "bi-encoder", None, sede=1)


def test_keywords_change_the_options_that_are_given() -> None:
    options = TrainOptions(method=Retrain(epochs=2), seed=3)
    assert change(options, {"seed": 4, "fast": False}, "train") == TrainOptions(Retrain(epochs=2), 4, fast=False)
    paced = ForgetOptions(seed=1).changed(pace=Pace(check_every=5), check_recovery=True)
    assert (paced.seed, paced.check_every, paced.recovery) == (1, 5, True)
