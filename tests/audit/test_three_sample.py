"""The three-sample test and equivalence: planted samples whose truth is known, and rankers that are tables."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tests.audit.conftest import LEARNED, THOROUGHNESS, learned
from tests.table import TableRanker
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditOptions, Judge, Marks, open_context
from unrank.audit.equivalence import equivalence, needed_for_margins, say_margins, within
from unrank.audit.evidence import gather_evidence
from unrank.audit.margins import Equivalence, Margin, SaidMargins, draw_margin
from unrank.audit.samples import LISTS, RANKS, SCORES, Sample, mean_by_query, samples
from unrank.audit.three_sample import place, three_sample
from unrank.audit.verdict import Verdict
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition
from unrank.evaluation.measure import Floats
from unrank.rankers.base import Ranker

QUERIES, JUDGES, EFFECT = 200, 5, 2.0


def planted(seed: int, memory: float, judges: int = JUDGES, level: float = 0.0, size: Floats | float = 1.0) -> Sample:
    """Noise around each query's own value; the original adds its memory, and the ranker a share of as much.

    A query's noise and memory are of its size.
    """
    generator = np.random.default_rng(seed)
    truth = generator.normal(size=QUERIES)

    def noisy(more: float = 0.0) -> Floats:
        return np.asarray(truth + (more + generator.normal(size=QUERIES)) * size)

    never_saw = np.array([noisy() for _ in range(judges)])
    return Sample(noisy(memory * EFFECT + level), noisy(EFFECT), never_saw)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, -0.5])
def test_a_place_is_the_share_of_the_way(share: float) -> None:
    places = [place(planted(seed, share), None, 0) for seed in range(30)]
    found, expected = np.array([one.share.value for one in places]), share * EFFECT**2 / (EFFECT**2 + 1)
    assert found.mean() == pytest.approx(expected, abs=0.02), "the original's own noise is a part of the way"
    assert np.mean([one.error for one in places]) == pytest.approx(found.std(), rel=0.5)
    if share == 0:
        assert np.mean([min(one.p_above, one.p_below) < 0.025 for one in places]) <= 0.1
    else:
        assert all(min(one.p_above, one.p_below) < 1e-3 for one in places)
        assert all((one.p_above < one.p_below) == (share > 0) for one in places)


def test_the_error_of_a_place_holds_where_few_queries_decide() -> None:
    """Four queries in 200, as with reciprocal ranks: a ranker's own values say too little about its error there."""
    size = np.where(np.arange(QUERIES) < 4, 1.0, 0.02)
    places = [place(planted(seed, 0.0, size=size), None, 0) for seed in range(150)]
    assert np.median([one.error for one in places]) == pytest.approx(
        np.std([one.share.value for one in places]), rel=0.15
    )


def test_the_original_itself_is_at_one_and_noise_between_trainings_counts() -> None:
    sample = planted(0, 1.0)
    assert sample.original is not None
    sample = replace(sample, ranker=sample.original)
    assert place(sample, None, 0).share.value == pytest.approx(1.0)
    levels = np.linspace(-1, 1, JUDGES)[:, None] + np.zeros((JUDGES, 50))
    assert place(sample, Sample(sample.ranker, None, levels), 0).error > 2 * place(sample, None, 0).error


def test_a_margin_is_what_two_honest_rankers_rarely_exceed() -> None:
    """By theory: two means of 50 values of variance 1 differ by less than 1.96 √(2/50) in 95 of 100 draws."""
    values = np.random.default_rng(0).normal(size=(6, 4_000))
    found = draw_margin(values, 50, 0)
    assert found.margin == pytest.approx(1.96 * math.sqrt(2 / 50), rel=0.1)
    assert found.noise == pytest.approx(math.sqrt(1 / 50), rel=0.1)
    partly = np.where(np.random.default_rng(1).random(values.shape) < 0.5, np.nan, values)
    assert draw_margin(partly, 50, 0).margin == pytest.approx(1.96 * math.sqrt(2 / 25), rel=0.1)


def test_two_one_sided_tests_of_honest_and_other_rankers() -> None:
    """Honest rankers pass in most cases; those that are two margins away never do."""
    said = Margin(1.96 * math.sqrt(2 / QUERIES), math.sqrt(1 / QUERIES))
    honest = [within(planted(seed, 0.0), said).passed for seed in range(100)]
    assert np.mean(honest) > 0.85
    away = [within(planted(seed, 0.0, level=2 * said.margin), said) for seed in range(100)]
    assert not any(one.passed for one in away) and any(one.needs == "" for one in away)


def test_what_is_missing_is_said() -> None:
    def at(gap: float, judges: int = 2) -> Equivalence:
        return within(Sample(np.full(100, gap), None, np.zeros((judges, 100))), Margin(0.1, 0.05))

    assert at(0.0).passed and at(0.0).needs == ""
    assert at(0.06).needs == "3 more references or proxies"
    assert at(0.06, judges=5).passed
    assert at(0.098).needs.endswith(" more queries")
    assert at(0.2).needs == "" and not at(0.2).passed, "more of anything would not make it equivalent"


def test_margins_are_read_as_they_were_written() -> None:
    said = SaidMargins({RANKS: Margin(0.1, 0.04)}, 30, 200, "test", 3)
    assert SaidMargins.of(said.to_json()) == said
    assert str(said) == (
        "equivalent within reciprocal ranks 0.100; draws of 30 queries from 200 that nobody saw, "
        "3 rankers that never saw the request"
    )


def test_means_by_query() -> None:
    pairs = np.array([[4, 0], [2, 0], [4, 1]])
    assert mean_by_query(pairs, np.array([[1.0, 5.0, 3.0], [np.nan, 5.0, 3.0]])).tolist() == [[5.0, 2.0], [5.0, 3.0]]


def opened(
    world: Collection, partition: Partition, ranker: Ranker, original: Ranker | None, references: int
) -> AuditContext:
    others = tuple[Ranker, ...](learned(world, partition.retain, 100 + seed) for seed in range(references))
    rankers = PerRanker[Ranker](ranker, original, others)
    return open_context(rankers, world, partition, AuditOptions(THOROUGHNESS, device="cpu"))


def test_who_is_who(
    world: Collection, partition: Partition, original: TableRanker, retrained: TableRanker, blocked: TableRanker
) -> None:
    for ranker, verdict, equal in (
        (original, Verdict.REMEMBERED, Verdict.UNDECIDED),
        (retrained, Verdict.MEASURED, Verdict.EQUIVALENT),
        (blocked, Verdict.SUPPRESSED, Verdict.UNDECIDED),
    ):
        context = opened(world, partition, ranker, original, 4)
        found, same = three_sample(context), equivalence(context)
        assert (found.verdict, same.verdict) == (verdict, equal), found.words + same.words
        assert set(found.details) == {RANKS, SCORES, LISTS}
        assert same.details["said_beforehand"] is False
        before = replace(context.rankers, ranker=context.rankers.references[0])
        said = replace(context, said=say_margins(replace(context, rankers=before)))
        again = equivalence(said)
        assert again.details["said_beforehand"] is True
        assert again.details["margins"] == same.details["margins"], "no audited ranker is needed"


def test_too_little_to_tell(world: Collection, partition: Partition, original: TableRanker) -> None:
    for references in (0, 1):
        context = opened(world, partition, original, original, references)
        assert say_margins(context) is None
        more = "1 more reference or proxy" if references else "2 more references or proxies"
        needed = f"needs {more} that never saw it"
        assert equivalence(context).verdict is Verdict.UNDECIDED and equivalence(context).words == needed
        assert three_sample(context).words == f"not tested: {needed}"
        assert no_margins(context) == needed
        steered = replace(context, left_out=3)
        assert equivalence(steered).words == f"{needed}; those at hand had a share in the run"
    assert "no original" in three_sample(opened(world, partition, original, None, 2)).words


def test_margins_take_pairs_that_no_ranker_saw(world: Collection, partition: Partition, original: TableRanker) -> None:
    """More references would not help."""
    context = opened(world, partition, original, original, 2)
    evidence = gather_evidence(context)
    seen = replace(evidence, unseen=evidence.unseen.some(np.zeros(len(evidence.unseen.pairs), np.bool_)))
    assert needed_for_margins(context, seen).startswith("needs pairs that no ranker saw")


def no_margins(context: AuditContext) -> str:
    return needed_for_margins(context, gather_evidence(context))


def outside(fold: int, pairs: Pairs) -> Marks:
    return np.asarray(pairs[:, 0] % 3 != fold % 3)


def test_proxies_judge_the_pairs_that_they_never_saw(
    world: Collection, partition: Partition, original: TableRanker, retrained: TableRanker
) -> None:
    """They know less than the ranker; once at its level, they tell the original from a retrained one."""
    weak = [learned(world, partition.retain, 200 + seed, LEARNED / 2) for seed in range(6)]
    for ranker, verdict in ((original, Verdict.REMEMBERED), (retrained, Verdict.MEASURED)):
        context = opened(world, partition, ranker, original, 0)
        scorers = [opened(world, partition, one, original, 0).rankers.ranker.scores for one in weak]
        judges = [Judge(score, partial(outside, fold)) for fold, score in enumerate(scorers)]
        context = replace(context, proxies=tuple(judges))
        evidence = gather_evidence(context)
        found = samples(context, evidence, evidence.forget)
        assert set(found) == {RANKS, SCORES} and found[SCORES].judges == pytest.approx(4.0)
        assert three_sample(context).verdict is verdict
