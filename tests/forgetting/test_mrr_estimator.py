"""The estimator on lists with known scores."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.table import Listed, collection_of, forgetting
from unrank.collection.collection import Collection, Pairs
from unrank.evaluation.scorecard import Evaluator, Scorer
from unrank.forgetting import mrr_estimator as module
from unrank.forgetting.mrr_estimator import MrrEstimator, highest_rows, sampled_rows

LISTS, NEGATIVES = 40, 12


@pytest.fixture(scope="module")
def collection() -> Collection:
    """Each query has one relevant document and negatives that no other has."""
    size = NEGATIVES + 1
    return collection_of([Listed([row * size], range(row * size + 1, (row + 1) * size)) for row in range(LISTS)], 1_000)


@pytest.fixture(scope="module")
def evaluator(collection: Collection) -> Evaluator:
    return Evaluator(collection, forgetting(collection, queries=range(30)))


def scorer(seed: int, learned: float) -> Scorer:
    """Random scores, and so much more for what is relevant."""
    table = np.random.default_rng(seed).random(1_000).astype(np.float32)
    table[:: NEGATIVES + 1] += np.float32(learned)

    def score(pairs: Pairs) -> NDArray[np.float32]:
        values: NDArray[np.float32] = table[pairs[:, 1]]
        return values

    return score


@pytest.fixture
def smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUERIES", 10)
    monkeypatch.setattr(module, "CANDIDATES", 4)


class Counting:
    """A student that can be exchanged, and counts the pairs it is asked for."""

    def __init__(self, score: Scorer) -> None:
        self.score, self.asked = score, 0

    def __call__(self, pairs: Pairs) -> NDArray[np.float32]:
        self.asked += len(pairs)
        return self.score(pairs)


def test_a_short_job_is_always_measured(evaluator: Evaluator) -> None:
    estimator = MrrEstimator(evaluator, scorer(0, 0.5), scorer(1, 0.1))
    assert estimator.exact
    assert estimator.estimate() == estimator.measure() == evaluator.forget_mrr(scorer(1, 0.1))


def estimator_of(evaluator: Evaluator, original: Scorer, student: Scorer) -> MrrEstimator:
    estimator = MrrEstimator(evaluator, original, student)
    estimator.begin(evaluator.forget_mrr(original))
    return estimator


@pytest.mark.usefixtures("smaller")
def test_of_the_original_the_estimate_is_the_measure(evaluator: Evaluator) -> None:
    original, student = Counting(scorer(0, 0.4)), Counting(scorer(0, 0.4))
    estimator = MrrEstimator(evaluator, original, student)
    assert original.asked == 10 * (NEGATIVES + 1)  # the lists of some queries, and no others
    estimator.begin(evaluator.forget_mrr(original.score))
    assert not estimator.exact
    assert estimator.estimate() == pytest.approx(evaluator.forget_mrr(original.score))
    assert student.asked <= 10 * (4 + 1)


@pytest.mark.usefixtures("smaller")
def test_a_measurement_sets_the_estimate_right(evaluator: Evaluator) -> None:
    student = Counting(scorer(0, 0.4))
    estimator = estimator_of(evaluator, scorer(0, 0.4), student)
    student.score = scorer(3, 0.0)
    wrong, true = estimator.estimate(), evaluator.forget_mrr(student.score)
    assert wrong != pytest.approx(true)
    assert estimator.measure() == true
    assert estimator.estimate() == pytest.approx(true)


@pytest.mark.usefixtures("smaller")
@pytest.mark.parametrize("relevant", [1, 6])
def test_the_part_holds_the_forget_pairs_and_the_best_of_the_others(relevant: int) -> None:
    """A query with more forget pairs than candidates are looked at is judged by negatives all the same."""
    size = relevant + NEGATIVES
    lists = [
        Listed(range(row * size, row * size + relevant), range(row * size + relevant, (row + 1) * size))
        for row in range(12)
    ]
    evaluator = Evaluator(collection_of(lists, 1_000), forgetting(collection_of(lists, 1_000), queries=range(12)))
    pairs, forget = evaluator.forget_lists(), evaluator.partition.forget
    rows = sampled_rows(pairs, forget)
    assert len(np.unique(pairs[rows, 0])) == 10
    scores = np.random.default_rng(0).random(len(rows)).astype(np.float32)
    scores[rows < len(forget)] += 1  # as a ranker has them that has learned
    telling = highest_rows(pairs[rows], scores, rows < len(forget))
    for query in np.unique(pairs[rows, 0]):
        mine = telling[pairs[rows[telling], 0] == query]
        others = mine[rows[mine] >= len(forget)]
        every = scores[(pairs[rows, 0] == query) & (rows >= len(forget))]
        assert len(mine) == len(others) + relevant
        assert sorted(scores[others]) == sorted(every)[-4:]


@pytest.mark.usefixtures("smaller")
def test_what_fell_below_all_that_is_looked_at_is_taken_to_have_fallen_further(evaluator: Evaluator) -> None:
    """Of 12 negatives 4 are looked at. Below them a document stands at place 5 to 13, not at 5."""
    original, student = scorer(0, 0.4), Counting(scorer(0, 0.4))
    estimator = estimator_of(evaluator, original, student)
    student.score = scorer(0, -9.0)
    assert evaluator.forget_mrr(student.score) == pytest.approx(1 / 13)
    assert estimator.estimate() - estimator.apart == pytest.approx(sum(1 / place for place in range(5, 14)) / 9)


@pytest.fixture
def many() -> Evaluator:
    """Enough forget queries for a sample of their lists, each with candidates of its own."""
    size = NEGATIVES * 4 + 1
    lists = [Listed([row * size], range(row * size + 1, (row + 1) * size)) for row in range(80)]
    collection = collection_of(lists, 80 * size)
    return Evaluator(collection, forgetting(collection, queries=range(79)))


def scored(evaluator: Evaluator, seed: int, learned: float) -> Scorer:
    pairs = evaluator.forget_lists()
    table = np.random.default_rng(seed).random((pairs.max() + 1,)).astype(np.float32)
    table[evaluator.partition.forget[:, 1]] += np.float32(learned)

    def score(pairs: Pairs) -> NDArray[np.float32]:
        values: NDArray[np.float32] = table[pairs[:, 1]]
        return values

    return score


@pytest.mark.usefixtures("smaller")
def test_near_what_was_measured_less_is_asked_for(many: Evaluator) -> None:
    student = Counting(scored(many, 0, 0.4))
    estimator = estimator_of(many, scored(many, 0, 0.4), student)
    estimator.measure()
    student.score, student.asked = scored(many, 0, 0.3), 0
    assert estimator.measure_again() == many.forget_mrr(student.score)
    assert 0 < student.asked < 0.5 * len(many.forget_lists())
    estimator.go_far()
    student.asked = 0
    assert estimator.measure_again() == many.forget_mrr(student.score)
    assert student.asked == len(many.forget_lists())


@pytest.mark.usefixtures("smaller")
def test_of_few_queries_or_before_any_measurement_all_is_measured(evaluator: Evaluator, many: Evaluator) -> None:
    for some, measured in ((evaluator, True), (many, False)):
        student = Counting(scored(some, 0, 0.2))
        estimator = estimator_of(some, scored(some, 0, 0.4), student)
        if measured:
            estimator.measure()
        student.asked = 0
        assert estimator.measure_again() == some.forget_mrr(student.score)
        assert student.asked == len(some.forget_lists())


@pytest.mark.usefixtures("smaller")
@pytest.mark.parametrize(
    ("queries", "documents", "encoded", "exact", "saves"),
    [
        (99, 9_000, (), False, True),  # every pair is read
        (99, 48, (), False, True),
        (99, 9_000, (0, 1), False, True),  # texts are encoded, and each list has its own
        (99, 48, (0, 1), False, False),  # all lists have the same
        (29, 48, (0, 1), True, False),  # and there are so few that an estimate takes most of them
        (99, 48, (0,), False, False),  # queries alone are encoded: an estimate takes some, a measurement all
    ],
)
def test_what_an_estimate_and_another_measurement_save(
    queries: int, documents: int, encoded: tuple[int, ...], exact: bool, saves: bool
) -> None:
    lists = [
        Listed([row % 9], [9 + (row * 48 + place) % documents for place in range(48)]) for row in range(queries + 1)
    ]
    collection = collection_of(lists, 9 + documents)
    evaluator = Evaluator(collection, forgetting(collection, queries=range(queries)))
    student = Counting(scored(evaluator, 0, 0.2))
    estimator = MrrEstimator(evaluator, scored(evaluator, 0, 0.4), student, encoded)
    assert estimator.exact == exact
    estimator.measure()
    student.asked = 0
    estimator.measure_again()
    assert (student.asked < len(evaluator.forget_lists())) == saves
