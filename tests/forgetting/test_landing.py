"""Landing on a ranker with one weight, whose measure is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from unrank.engine.distributed import ProcessGroup
from unrank.engine.runtime import Silence
from unrank.engine.training_state import Interval
from unrank.forgetting.landing import MOST_EVALUATIONS, Ends, land, put_weights, weights_of
from unrank.forgetting.stopping import StoppingRule
from unrank.forgetting.workspace import Clock
from unrank.rankers.base import Ranker, Role
from unrank.rankers.tokens import Tokens
from unrank.record import Landing

NEAR = 0.003
START, END = 2.0, 4.0


class OneWeight(Ranker):
    """The weight goes from 2, where training was above the target, to 4, where it has crossed it."""

    kind = "one-weight"

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight, dtype=torch.float64))
        self.frozen = nn.Parameter(torch.tensor(7.0), requires_grad=False)

    @classmethod
    def create(cls, base: str | None) -> Self:
        raise NotImplementedError

    @classmethod
    def load(cls, folder: Path) -> Self:
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    def tokenize(self, texts: object, role: Role) -> Tokens:
        raise NotImplementedError

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        raise NotImplementedError


def landed(measure: Callable[[float], float], target: float, near: float = NEAR) -> tuple[Landing, OneWeight, int]:
    """Land where `measure` is a function of how far along the line the weight lies, from 0 to 1."""
    ranker = OneWeight(START)
    above = weights_of(ranker)
    with torch.no_grad():
        ranker.weight.fill_(END)
    calls = 0

    def share() -> float:
        return (ranker.weight.item() - START) / (END - START)

    class Counted:
        exact = True

        def measure(self) -> float:
            nonlocal calls
            calls += 1
            return measure(round(share(), 14))

        estimate = measure_again = measure

    landing = land(ranker, above, Ends(measure(0.0), measure(1.0), measured=True), target, near, Counted())
    assert share() == pytest.approx(landing.share, abs=1e-12)  # the weights lie where it was reported,
    assert measure(round(landing.share, 14)) == pytest.approx(landing.forget, abs=1e-9)  # measure what was reported,
    assert landing.evaluations == calls <= MOST_EVALUATIONS  # and took as long
    assert ranker.frozen.item() == 7.0
    return landing, ranker, calls


def falling(share: float) -> float:
    return 0.9 - 0.7 * share


def steps(*edges: tuple[float, float]) -> Callable[[float], float]:
    """A measure that has each value from its share on."""
    return lambda share: [value for start, value in edges if share >= start][-1]


@pytest.mark.parametrize("target", [0.21, 0.3, 0.45, 0.5, 0.7, 0.899])
def test_a_falling_measure_is_met(target: float) -> None:
    landing, _, calls = landed(falling, target)
    assert abs(landing.forget - target) <= NEAR
    assert calls <= 9


@given(target=st.floats(0.21, 0.89), bend=st.floats(0.5, 5))
def test_any_smooth_fall_is_met(target: float, bend: float) -> None:
    landing, _, _ = landed(lambda share: 0.9 - 0.7 * share**bend, target)
    assert abs(landing.forget - target) <= NEAR


@given(target=st.floats(0.3, 0.8), waves=st.integers(1, 6), height=st.floats(0, 0.5))
def test_a_measure_that_goes_up_and_down_is_met(target: float, waves: int, height: float) -> None:
    def wavy(share: float) -> float:
        return 0.9 - 0.7 * share + height * math.sin(2 * math.pi * waves * share)

    landing, _, _ = landed(wavy, target, near=0.01)
    assert landing.forget <= target + 0.01


def test_where_it_ends_on_the_target_nothing_is_measured() -> None:
    landing, ranker, calls = landed(falling, 0.201)
    assert (landing.share, calls) == (1.0, 0)
    assert ranker.weight.item() == END


def test_a_measure_that_jumps_over_the_target_ends_below_it() -> None:
    landing, ranker, calls = landed(steps((0, 0.9), (0.4, 0.2)), 0.5)
    assert landing.forget == 0.2
    assert calls == MOST_EVALUATIONS
    assert ranker.weight.item() == END  # no point on the way was nearer


def test_of_several_jumps_the_nearest_below_is_taken() -> None:
    landing, _, _ = landed(steps((0, 0.9), (0.2, 0.7), (0.3, 0.45), (0.6, 0.3), (0.9, 0.1)), 0.5)
    assert landing.forget == 0.45
    assert 0.3 <= landing.share < 0.6


def test_a_jump_onto_the_target_is_taken() -> None:
    landing, _, _ = landed(steps((0, 0.9), (0.26, 0.5), (0.27, 0.2)), 0.5)
    assert landing.forget == 0.5


@example(values=[0.9999999999999999, 1.0, 1.0, 1.0, 1.0, 0.5], last=0.1, near=0.003)
@given(
    values=st.lists(st.floats(0.01, 1), min_size=1, max_size=8),
    last=st.floats(0.01, 0.5),
    near=st.sampled_from([0.003, 0.05]),
)
def test_it_never_ends_above_the_target_by_more_than_the_tolerance(
    values: list[float], last: float, near: float
) -> None:
    """Whatever the measure does on the way: it was at or below the target at the end, so that is the worst case."""
    edges = [*((number / 9, value) for number, value in enumerate(values)), (0.95, last)]
    landing, _, _ = landed(steps(*edges), 0.5, near)
    assert landing.forget <= 0.5 + near
    assert abs(landing.forget - 0.5) <= max(near, 0.5 - last)


def test_weights_are_copies() -> None:
    ranker = OneWeight(START)
    held = weights_of(ranker)
    with torch.no_grad():
        ranker.weight.fill_(END)
    assert float(held["weight"]) == START
    assert "frozen" not in held
    put_weights(ranker, held)
    assert ranker.weight.item() == START
    put_weights(ranker, held, {"weight": torch.tensor(END, dtype=torch.float64)}, 0.25)
    assert ranker.weight.item() == 2.5
    assert float(held["weight"]) == START


def test_estimates_that_are_off_by_the_same_everywhere_cost_two_measurements() -> None:
    """The first shows how far they are off, the second is right."""
    ranker = OneWeight(START)
    above = weights_of(ranker)
    with torch.no_grad():
        ranker.weight.fill_(END)

    class Biased:
        exact = False
        measured, apart = 0, 0.05

        def value(self) -> float:
            return falling((ranker.weight.item() - START) / (END - START))

        def measure(self) -> float:
            self.measured, self.apart = self.measured + 1, 0.0
            return self.value()

        measure_again = measure

        def estimate(self) -> float:
            return self.value() + self.apart

    estimator = Biased()
    landing = land(ranker, above, Ends(falling(0), falling(1), measured=True), 0.5, NEAR, estimator)
    assert abs(landing.forget - 0.5) <= NEAR
    assert estimator.measured == landing.evaluations == 2


class Misled:
    """Estimates that are too high, the more so the further the weight has gone."""

    exact = False

    def __init__(self, ranker: OneWeight, value: Callable[[float], float], bias: float) -> None:
        self._ranker, self._value, self._bias = ranker, value, bias
        self.apart, self.went_far = 0.0, False

    @property
    def _share(self) -> float:
        return float((self._ranker.weight.detach() - START) / (END - START))

    def measure(self) -> float:
        self.apart = -self._bias * self._share
        return self._value(self._share)

    measure_again = measure

    def go_far(self) -> None:
        self.went_far = True

    def estimate(self) -> float:
        return self._value(self._share) + self._bias * self._share + self.apart


@given(target=st.floats(0.25, 0.85), bend=st.floats(0.5, 3), bias=st.floats(0, 0.6))
def test_estimates_that_mislead_cost_measurements_and_no_more(target: float, bend: float, bias: float) -> None:
    def value(share: float) -> float:
        return float(0.9 - 0.7 * share**bend)

    ranker = OneWeight(START)
    above = weights_of(ranker)
    with torch.no_grad():
        ranker.weight.fill_(END)
    landing = land(
        ranker, above, Ends(value(0), value(1) + bias, measured=False), target, NEAR, Misled(ranker, value, bias)
    )
    assert abs(landing.forget - target) <= NEAR
    assert value((ranker.weight.item() - START) / (END - START)) == pytest.approx(landing.forget)


def test_a_line_that_lies_below_the_target_is_left() -> None:
    """Its start was above the target by an estimate alone."""
    ranker = OneWeight(START)
    above = weights_of(ranker)
    with torch.no_grad():
        ranker.weight.fill_(END)

    def value(share: float) -> float:
        return 0.45 - 0.3 * share

    landing = land(ranker, above, Ends(0.55, 0.2, measured=False), 0.5, NEAR, Misled(ranker, value, 0.1))
    assert landing == Landing(0.0, 0.45, 3)
    assert ranker.weight.item() == START


class Told:
    """Measurements one after another, and estimates that say nothing."""

    exact = False

    def __init__(self, *measured: float) -> None:
        self._measured = iter(measured)

    def measure(self) -> float:
        return next(self._measured)

    def measure_again(self) -> float:
        return self.measure()

    def estimate(self) -> float:
        return 0.5


@pytest.mark.parametrize(
    ("ends", "measured", "evaluations", "share", "forget"),
    [
        ((0.55, 0.2), (0.4, 0.7, 0.501), 3, None, 0.501),  # .1 lower than said, so the start may be: it is not
        ((0.55, 0.2), (0.4, 0.502), 2, 0.0, 0.502),  # the start is the target
        ((0.55, 0.2), (0.47, 0.45, 0.46), 3, None, 0.47),  # after two below it is asked, and lies further below
        ((0.55, 0.2), (0.6, 0.45, 0.501), 3, None, 0.501),  # one was above, so the start need not be asked
        ((0.9, 0.45), (0.58, 0.52), 2, 1.0, 0.52),  # .08 higher than said, so the end may be above: it is
        ((0.9, 0.45), (0.58, 0.498), 2, 1.0, 0.498),  # the end is the target
        ((0.9, 0.45), (0.58, 0.47, 0.501), 3, None, 0.501),  # the end is below indeed: the search goes on above it
        ((0.9, 0.2), (0.51, 0.52, 0.51), 3, 1.0, 0.51),  # after two above it is asked, and lies above
    ],
)
def test_an_end_that_is_in_doubt_is_measured(
    ends: tuple[float, float], measured: tuple[float, ...], evaluations: int, share: float | None, forget: float
) -> None:
    ranker = OneWeight(START)
    above = weights_of(ranker)
    with torch.no_grad():
        ranker.weight.fill_(END)
    landing = land(ranker, above, Ends(*ends, measured=False), 0.5, NEAR, Told(*measured))
    assert (landing.forget, landing.evaluations) == (forget, evaluations)
    assert share is None or (landing.share == share and ranker.weight.item() == START + share * (END - START))


def test_the_search_goes_on_from_what_the_start_measured() -> None:
    ranker = OneWeight(START)
    above = weights_of(ranker)
    with torch.no_grad():
        ranker.weight.fill_(END)
    asked: list[float] = []

    class Watched(Told):
        def measure(self) -> float:
            asked.append((ranker.weight.item() - START) / (END - START))
            return super().measure()

    land(ranker, above, Ends(0.55, 0.2, measured=False), 0.5, NEAR, Watched(0.47, 0.45, 0.9, 0.2, 0.5))
    assert asked[2] == 0.0
    low, high = asked[1], asked[3]
    assert asked[4] < high and asked[3] < low  # between the start and the lowest that was below


def steered(bias: float, epochs: int = 10) -> tuple[OneWeight, StoppingRule, Landing | None]:
    """Ten epochs from 2 to 4, in which the MRR falls from .9 to .2; .5 is asked for, by estimates that mislead."""
    ranker = OneWeight(START)
    workspace = SimpleNamespace(
        runtime=SimpleNamespace(progress=Silence(), processes=ProcessGroup(), wait=lambda: None)
    )

    def run() -> Iterator[Interval]:
        for epoch in range(1, epochs + 1):
            with torch.no_grad():
                ranker.weight.add_((END - START) / 10)
            yield Interval(float(epoch), 1.0, 1, 1, {})

    rule = StoppingRule(
        ranker,
        workspace,  # type: ignore[arg-type]
        Misled(ranker, falling, bias),  # type: ignore[arg-type]
        target=0.5,
        near=NEAR,
        clock=Clock(workspace.runtime),
        watched=0,
        minutes=None,
        begin=(falling(0), weights_of(ranker)),
        forget=falling(0),
    )
    landing = rule.follow(run())
    assert falling((ranker.weight.item() - START) / (END - START)) == pytest.approx(rule.forget)
    return ranker, rule, landing


def test_a_run_that_was_below_the_target_before_its_estimates_said_so_is_brought_back_too() -> None:
    _, rule, landing = steered(bias=0.3)
    assert falling((float(rule.above[1]["weight"]) - START) / (END - START)) < 0.5 - NEAR  # it was too late
    assert landing is not None and abs(rule.forget - 0.5) <= NEAR
    assert rule.estimator.went_far  # type: ignore[attr-defined]  # so that all is measured again


def test_a_run_that_never_saw_itself_below_the_target_is_brought_back_too() -> None:
    """At the end the estimates say .6 where .2 is measured."""
    _, rule, landing = steered(bias=0.4)
    assert min(line.forget or 0.0 for line in rule.history) > 0.5
    assert landing is not None and abs(rule.forget - 0.5) <= NEAR
    assert rule.estimator.went_far  # type: ignore[attr-defined]


def test_a_landing_that_failed_is_remembered_as_the_best() -> None:
    """Three epochs, the last of which is taken to have crossed the target; measured, it has not."""
    _, rule, landing = steered(bias=-0.9, epochs=3)
    assert landing is None and (rule.history[-1].forget or 1) < 0.45
    assert rule.forget == pytest.approx(falling(0.3))


def test_a_run_that_its_estimates_saw_below_the_target_too_soon_goes_on() -> None:
    _, rule, landing = steered(bias=-0.5)
    assert (rule.history[3].forget or 1) < 0.5 - NEAR and falling(0.4) > 0.5 + NEAR  # it was too soon
    assert not rule.estimator.went_far  # type: ignore[attr-defined]
    assert landing is not None and abs(rule.forget - 0.5) <= NEAR
