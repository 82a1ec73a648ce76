"""CoCoL: what it draws, what it leaves out, and how its settings are read."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.table import Listed, TableRanker, as_set, collection_of, forgetting, random_lists, random_table, task_of
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition, split_pairs
from unrank.engine.loop import Schedule, batches_of, fit
from unrank.engine.runtime import Runtime
from unrank.engine.samples import Phase, Samples, Scored
from unrank.engine.tokens import TokenStore
from unrank.engine.training_state import Interval
from unrank.errors import UnknownName, UnrankError
from unrank.methods import make_method, settings_of
from unrank.methods.cocol import ALL, MIN_DISJOINT, Cocol
from unrank.methods.task import EarlierPlaces, Task

PUSHED, PARTNER, NEGATIVE, KEPT, KEPT_NEGATIVE, EARLIER = range(6)
REMOVALS: dict[str, dict[str, list[int]]] = {
    "queries": {"queries": [0, 1, 2, 3]},
    "documents": {"documents": [1, 5, 9]},
}


@pytest.fixture(scope="module")
def shared() -> Collection:
    return collection_of(random_lists(4, queries=20, documents=30), 30)


def plan(collection: Collection, partition: Partition, method: Cocol) -> list[Phase]:
    return list(method.plan(task_of(collection, partition, random_table(collection, 0))))


def draws(phase: Phase, times: int = 20) -> list[Samples]:
    return [phase.draw(np.random.default_rng(seed), 1) for seed in range(times)]


def role(samples: list[Samples], number: int) -> Pairs:
    """All pairs that were drawn for a role."""
    return np.concatenate([one.pairs[one.present[:, number], number] for one in samples])


def negatives_of(collection: Collection, partition: Partition) -> set[tuple[int, int]]:
    listed = as_set(collection.negatives.pairs(np.arange(len(collection.queries))))
    return {(query, document) for query, document in listed if document not in partition.documents}


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_forget_step_draws_five_roles(shared: Collection, removal: str) -> None:
    partition = forgetting(shared, **REMOVALS[removal])
    drawn = draws(plan(shared, partition, Cocol(min_steps=1))[0])
    negatives = negatives_of(shared, partition)
    for samples in drawn:
        assert samples.pairs.shape == (len(partition.forget), 5, 2)
        assert samples.present.shape == (len(partition.forget), 5)
        assert samples.pairs[:, PUSHED].tolist() == partition.forget.tolist()
        assert samples.present[:, [PUSHED, KEPT]].all()
        for pairs, present in zip(samples.pairs, samples.present, strict=True):
            pushed, partner, negative, kept, kept_negative = (tuple(pair) for pair in pairs.tolist())
            partners = {pair for pair in as_set(partition.entangled) if pair[0] == pushed[0] or pair[1] == pushed[1]}
            assert present[PARTNER] == bool(partners)
            assert not present[PARTNER] or partner in partners
            assert not present[NEGATIVE] or (negative[0] == pushed[0] and negative in negatives)
            assert not present[KEPT_NEGATIVE] or (kept_negative[0] == kept[0] and kept_negative in negatives)
    assert as_set(role(drawn, KEPT)) <= as_set(partition.retain)
    assert as_set(role(drawn, KEPT)) & as_set(partition.entangled)
    assert as_set(role(drawn, KEPT)) & as_set(partition.disjoint)


def test_draws_differ_by_generator_and_reach_all_there_is(shared: Collection) -> None:
    partition = forgetting(shared, **REMOVALS["documents"])
    phase = plan(shared, partition, Cocol())[0]
    one, again, other = (phase.draw(np.random.default_rng(seed), 1) for seed in (0, 0, 1))
    assert np.array_equal(one.pairs, again.pairs)
    assert not np.array_equal(one.pairs, other.pairs)
    many = draws(phase, 100)
    forget_queries = set(partition.forget[:, 0].tolist())
    reached = as_set(role(many, NEGATIVE))
    assert reached == {pair for pair in negatives_of(shared, partition) if pair[0] in forget_queries}
    assert as_set(role(many, KEPT)) == as_set(partition.retain)


def test_the_teacher_sees_what_is_drawn(shared: Collection) -> None:
    partition = forgetting(shared, **REMOVALS["queries"])
    ranker = random_table(shared, 0)
    for phase in Cocol().plan(task_of(shared, partition, ranker)):
        samples = phase.draw(np.random.default_rng(0), 1)
        assert samples.teacher is not None
        drawn = samples.pairs[samples.present]
        scores = ranker.table.detach().numpy()[drawn[:, 0], drawn[:, 1]]
        assert samples.teacher.score[samples.present].tolist() == scores.tolist()
        assert (samples.teacher.list_min[samples.present] <= scores).all()
        assert all(np.isfinite(values).all() and values.shape == samples.present.shape for values in samples.teacher)


@pytest.mark.parametrize("removal", REMOVALS)
def test_the_second_phase_holds_disjoint_pairs(shared: Collection, removal: str) -> None:
    partition = forgetting(shared, **REMOVALS[removal])
    _, hold = plan(shared, partition, Cocol(disjoint_per_epoch=ALL))
    for samples in draws(hold):
        assert samples.pairs.shape == (len(partition.disjoint), 2, 2)
        assert sorted(samples.pairs[:, 0].tolist()) == sorted(partition.disjoint.tolist())
        here = samples.present[:, 1]
        assert samples.present[:, 0].all()
        assert samples.pairs[here, 1, 0].tolist() == samples.pairs[here, 0, 0].tolist()
        assert as_set(samples.pairs[here, 1]) <= negatives_of(shared, partition)


def test_an_epoch_holds_as_many_disjoint_pairs_as_it_forgets_and_other_ones_each_time(
    shared: Collection,
) -> None:
    partition = forgetting(shared, **REMOVALS["queries"])
    few, twice = Cocol(min_steps=1), Cocol(min_steps=1, disjoint_per_epoch=2)
    assert len(partition.disjoint) > 2 * len(partition.forget)
    for method, held in ((few, len(partition.forget)), (twice, 2 * len(partition.forget))):
        _, hold = plan(shared, partition, method)
        drawn = [as_set(samples.pairs[:, 0]) for samples in draws(hold)]
        assert {len(pairs) for pairs in drawn} == {hold.size} == {held}
        assert len(set(map(frozenset, drawn))) > 1
    _, hold = plan(shared, partition, Cocol(disjoint_per_epoch=ALL))
    assert hold.size == len(partition.disjoint)


def test_no_test_query_is_ever_drawn(shared: Collection) -> None:
    partition = forgetting(shared, **REMOVALS["documents"])
    tests = set(shared.test_queries.tolist())
    for phase in plan(shared, partition, Cocol()):
        for samples in draws(phase, 5):
            assert not tests & set(samples.pairs[samples.present][:, 0].tolist())


def test_the_papers_anchors_are_partners_alone(shared: Collection) -> None:
    partition = forgetting(shared, **REMOVALS["documents"])
    forget, hold = plan(shared, partition, Cocol(anchors="paper", min_steps=1))
    assert (forget.name, hold.name) == ("forget", "hold")
    assert draws(forget, 1)[0].pairs.shape == (len(partition.forget), 2, 2)


def test_joint_has_one_phase_and_needs_wide_anchors(shared: Collection) -> None:
    partition = forgetting(shared, **REMOVALS["documents"])
    assert [phase.name for phase in plan(shared, partition, Cocol(phases="joint"))] == ["forget"]
    with pytest.raises(UnrankError, match="phases=joint needs anchors=wide"):
        Cocol(phases="joint", anchors="paper")
    with pytest.raises(UnrankError, match="phases=joint needs anchors=wide"):
        make_method("cocol", {"phases": "joint", "anchors": "paper"})


@pytest.mark.parametrize("removal", REMOVALS)
def test_without_the_entangled(shared: Collection, removal: str) -> None:
    partition = forgetting(shared, **REMOVALS[removal])
    forget, _ = plan(shared, partition, Cocol(without_entangled=True))
    drawn = draws(forget)
    assert len(role(drawn, PARTNER)) == 0
    assert as_set(role(drawn, KEPT)) == as_set(partition.disjoint)


@pytest.mark.parametrize("removal", REMOVALS)
def test_without_the_disjoint(shared: Collection, removal: str) -> None:
    partition = forgetting(shared, **REMOVALS[removal])
    phases = plan(shared, partition, Cocol(without_disjoint=True))
    assert [phase.name for phase in phases] == ["forget"]
    assert as_set(role(draws(phases[0]), KEPT)) <= as_set(partition.entangled)
    assert len(role(draws(phases[0]), PARTNER)) > 0
    both = plan(shared, partition, Cocol(without_disjoint=True, without_entangled=True))
    samples = draws(both[0], 1)[0]
    assert not samples.present[:, [PARTNER, KEPT, KEPT_NEGATIVE]].any()
    assert np.isfinite(run(shared, partition, Cocol(without_disjoint=True, without_entangled=True))[1].losses["forget"])


def run(collection: Collection, partition: Partition, method: Cocol, epochs: int = 1) -> tuple[TableRanker, Interval]:
    original = random_table(collection, 0)
    student = copy.deepcopy(original)
    store = TokenStore(student, collection)
    schedule = Schedule(epochs, 5.0)
    phases = method.plan(task_of(collection, partition, original))
    return student, list(fit(student, phases, schedule, store, Runtime.on("cpu")))[-1]


ODD = {
    "nothing entangled": ([Listed([0], [1, 2]), Listed([1], [2, 3]), Listed([2], [0])], [True, False, False]),
    "nothing disjoint": ([Listed([0, 1], [2, 3]), Listed([0], [2])], [True, False, False]),
    "a single pair": ([Listed([0, 1], [2]), Listed([0], [3]), Listed([3], [1])], [True, False, False, False]),
    "no negatives": ([Listed([0]), Listed([0, 1]), Listed([2])], [True, False, False, False]),
}


@pytest.mark.parametrize("scale", ["range", "paper"])
@pytest.mark.parametrize("odd", ODD)
def test_odd_removals_work(odd: str, scale: Any) -> None:
    lists, marked = ODD[odd]
    collection = collection_of(lists, 4)
    partition = split_pairs(collection.pairs, np.array(marked))
    student, epoch = run(collection, partition, Cocol(scale=scale))
    assert torch.isfinite(student.table).all()
    assert all(np.isfinite(loss) for loss in epoch.losses.values())


def test_a_removed_document_that_was_the_only_negative_leaves_none() -> None:
    collection = collection_of([Listed([0], [1]), Listed([1], [0]), Listed([0], [2])], 3)
    partition = forgetting(collection, documents=[1])
    forget, _ = plan(collection, partition, Cocol())
    drawn = draws(forget)
    assert as_set(role(drawn, NEGATIVE)) == {(1, 0)}
    assert as_set(role(drawn, KEPT)) == {(0, 0), (2, 0)}
    assert as_set(role(drawn, KEPT_NEGATIVE)) == {(2, 2)}


def test_forgotten_pairs_fall_and_the_rest_stays(shared: Collection) -> None:
    partition = forgetting(shared, **REMOVALS["documents"])
    original = random_table(shared, 0)
    student, _ = run(shared, partition, Cocol(batch=8), epochs=12)
    moved = (student.table - original.table).detach()
    fallen = moved[partition.forget[:, 0], partition.forget[:, 1]]
    assert fallen.min() < -100 and fallen.max() <= 0  # those that are the lowest of their list have nowhere to fall
    assert moved[partition.retain[:, 0], partition.retain[:, 1]].abs().mean() < 15


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Cocol()),
        ({"scale": "paper", "epochs": "3"}, Cocol(scale="paper", epochs=3)),
        ({"learning_rate": "1e-4", "batch": "8"}, Cocol(learning_rate=1e-4, batch=8)),
        ({"without_entangled": "true"}, Cocol(without_entangled=True)),
        ({"without_disjoint": "True", "without_entangled": "FALSE"}, Cocol(without_disjoint=True)),
    ],
)
def test_settings_are_read(settings: dict[str, str], expected: Cocol) -> None:
    assert make_method("cocol", settings) == expected
    assert make_method("COCOL", settings) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"anchor": "wide"},
            "unknown setting of cocol 'anchor': did you mean 'anchors'\\? known are learning_rate, epo",
        ),
        ({"zzz": "1"}, "unknown setting of cocol 'zzz': known are"),
        ({"scale": "rang"}, "unknown value of scale 'rang': did you mean 'range'\\? known are range, paper"),
        ({"scale": "Paper"}, "unknown value of scale 'Paper': did you mean 'paper'"),
        ({"without_disjoint": "yes"}, "without_disjoint is true or false, not 'yes'"),
        ({"without_disjoint": "1"}, "without_disjoint is true or false, not '1'"),
        ({"epochs": "many"}, "epochs takes a whole number, not 'many'"),
        ({"epochs": "2.5"}, "epochs takes a whole number, not '2.5'"),
        ({"epochs": ""}, "epochs takes a whole number, not ''"),
        ({"epochs": "0"}, "epochs must be more than 0 and finite, not 0"),
        ({"batch": "-4"}, "batch must be more than 0 and finite, not -4"),
        ({"learning_rate": "fast"}, "learning_rate takes a number, not 'fast'"),
        ({"learning_rate": "0"}, "learning_rate must be more than 0 and finite, not 0"),
        ({"learning_rate": "nan"}, "learning_rate must be more than 0 and finite, not nan"),
        ({"learning_rate": "inf"}, "learning_rate must be more than 0 and finite, not inf"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UnrankError, match=message) as caught:
        make_method("cocol", settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["coco", "", "cocol "])
def test_methods_that_there_are_not(name: str) -> None:
    with pytest.raises(UnknownName, match="unknown method"):
        make_method(name)


def test_all_settings_are_known_by_type() -> None:
    kinds = settings_of(Cocol)
    assert kinds["learning_rate"] is float
    assert kinds["epochs"] is kinds["batch"] is int
    assert kinds["without_entangled"] is bool
    assert set(kinds) == {setting.name for setting in fields(Cocol)}


@pytest.mark.parametrize("held", [1, 2, 4])
def test_more_kept_pairs_may_be_held(shared: Collection, held: int) -> None:
    """Two more roles for each: a kept pair, and a negative of its query."""
    partition = forgetting(shared, **REMOVALS["documents"])
    phase = plan(shared, partition, Cocol(anchors_per_pair=held, min_steps=1))[0]
    [samples] = draws(phase, 1)
    assert samples.pairs.shape == (len(partition.forget), 3 + 2 * held, 2)
    for number in range(held):
        kept, negative = samples.pairs[:, 3 + 2 * number], samples.pairs[:, 4 + 2 * number]
        has = samples.present[:, 4 + 2 * number]
        assert as_set(kept) <= as_set(partition.retain)
        assert as_set(negative[has]) <= negatives_of(shared, partition)
        assert kept[has, 0].tolist() == negative[has, 0].tolist()
    if held > 1:
        assert samples.pairs[:, 3].tolist() != samples.pairs[:, 5].tolist()


def test_the_loss_of_a_forget_step_by_hand(shared: Collection) -> None:
    """Ranges of 10, the lowest score 2; one forget pair at 7; partner, negative and kept pair moved by 1, 2 and 3."""
    phase = plan(shared, forgetting(shared, queries=[0]), Cocol())[0]
    score, teacher = torch.tensor([[7.0, 4.0, 3.0, 9.0, 0.0]]), torch.tensor([[9.0, 5.0, 5.0, 6.0, 0.0]])
    present = torch.tensor([[True, True, True, True, False]])
    low, span = torch.full((1, 5), 2.0), torch.full((1, 5), 10.0)
    roles = ("forget", "partner", "negative", "kept_1", "kept_1_negative")
    assert phase.loss(Scored(roles, score, present, teacher, low, span)).item() == pytest.approx(0.5 + 0.1 + 0.2 + 0.3)


def after_requests(collection: Collection, risen: list[int]) -> Partition:
    """Queries 0 and 1 are to be forgotten, 2, 3 and 4 have been; the pairs of some of them have to fall again."""
    whole = forgetting(collection, queries=[0, 1, 2, 3, 4])
    now, again = (np.isin(whole.forget[:, 0], queries) for queries in ([0, 1], risen))
    sets = [whole.forget[chosen] for chosen in (now, ~now & ~again, again)]
    return replace(whole, forget=sets[0], previous=sets[1], risen=sets[2])


def places(samples: Samples, number: int) -> dict[str, Any]:
    """Where the teacher and the lowest of the query are, for each pair of a role."""
    assert samples.teacher is not None
    return {name: getattr(samples.teacher, name)[:, number] for name in ("score", "list_min")}


def test_what_was_forgotten_before_is_held_where_it_is(shared: Collection) -> None:
    """Beside all other pairs and with a negative, in both phases, whatever the ablation leaves out."""
    partition, ranker = after_requests(shared, risen=[]), random_table(shared, 0)
    task = task_of(shared, partition, ranker)
    for phase, earlier in zip(Cocol().plan(task), (EARLIER, 2), strict=True):
        for samples in draws(phase, 3):
            assert as_set(samples.pairs[:, earlier]) == as_set(partition.previous)
            assert samples.present[:, earlier].all() and samples.pairs.shape[1] == earlier + 2
            place = places(samples, earlier)["score"]
            assert place.tolist() == task.teacher.scores(samples.pairs[:, earlier]).tolist()
        assert as_set(role(draws(phase), earlier + 1)) <= negatives_of(shared, partition)
    drawn = draws(plan(shared, partition, Cocol())[0])
    assert not as_set(role(drawn, KEPT)) & as_set(partition.previous)
    [alone] = plan(shared, partition, Cocol(without_entangled=True, without_disjoint=True))
    assert len(role(draws(alone), KEPT)) == 0
    assert as_set(role(draws(alone), EARLIER)) == as_set(partition.previous)
    for phase in plan(shared, partition, Cocol(anchors="paper")):
        assert not as_set(draws(phase, 1)[0].pairs) & as_set(partition.previous)


def earlier_at(scores: NDArray[np.float32], away: int | None = None) -> EarlierPlaces:
    """Return earlier places with these scores; one of the pairs may be away from its place."""
    ranks, requests = np.isfinite(scores).astype(np.int64), np.zeros(len(scores), np.int64)
    return EarlierPlaces(scores, ranks, np.arange(len(scores)) == away, requests)


def test_a_pair_that_is_away_from_its_place_is_drawn_more_often(shared: Collection) -> None:
    partition, ranker = after_requests(shared, risen=[]), random_table(shared, 0)
    task = task_of(shared, partition, ranker)
    places = earlier_at(task.teacher.scores(partition.previous), away=0)
    task = replace(task, earlier_places=places, wanted=task.teacher.scores(partition.forget), pulls_up=True)
    drawn = [samples for phase in Cocol().plan(task) for samples in draws(phase, 20)]
    pairs = np.concatenate([samples.pairs[:, samples.roles.index("placed")] for samples in drawn])
    share = (pairs == partition.previous[0]).all(1).mean()
    others = len(partition.previous)
    assert share == pytest.approx(0.5 + 0.5 / others, abs=0.05) and as_set(pairs) == as_set(partition.previous)


def test_a_pair_that_was_forgotten_before_is_pulled_to_its_place_from_either_side(shared: Collection) -> None:
    """With a hard negative; a pair without a place stays, and one that has risen falls."""
    partition, ranker = after_requests(shared, risen=[4]), random_table(shared, 0)
    task = task_of(shared, partition, ranker)
    before = task.teacher.scores(partition.previous)
    wanted = np.where(partition.previous[:, 0] == 2, before + 300, np.nan).astype(np.float32)
    task = replace(task, earlier_places=earlier_at(wanted), wanted=task.teacher.scores(partition.forget), pulls_up=True)
    place = {tuple(pair): score for pair, score in zip(partition.previous.tolist(), wanted, strict=True)}
    for phase in Cocol().plan(task):
        for samples in draws(phase, 3):
            assert samples.teacher is not None
            placed, earlier = (samples.roles.index(name) for name in ("placed", "earlier"))
            has = samples.present[:, placed]
            assert (has ^ samples.present[:, earlier]).all() and has.any()
            assert set(samples.pairs[has, placed, 0].tolist()) == {2}
            assert set(samples.pairs[~has, earlier, 0].tolist()) <= {3, 4}
            for pair, score in zip(samples.pairs[has, placed], samples.teacher.score[has, placed], strict=True):
                assert score == place[tuple(pair.tolist())]
    for apart in (300.0, -300.0):
        moved = np.where(np.isfinite(wanted), before + apart, np.nan).astype(np.float32)
        raised = replace(task, earlier_places=earlier_at(moved))
        student = copy.deepcopy(ranker)
        list(fit(student, Cocol().plan(raised), Schedule(2, 10.0), TokenStore(student, shared), Runtime.on("cpu")))
        rows = partition.previous[np.isfinite(wanted)]
        rise = (student.table - ranker.table)[rows[:, 0], rows[:, 1]].detach() / apart
        assert rise.min() > 0.3, "all of them came nearer to their places"


def test_what_is_kept_comes_back_to_the_first_original(shared: Collection) -> None:
    """The teacher has drifted from it. The margins that it lost come back, and the level of each list stays."""
    partition, first = after_requests(shared, risen=[]), random_table(shared, 0)
    drifted = copy.deepcopy(first)
    with torch.no_grad():
        drifted.table.add_(500 + 60 * torch.randn(first.table.shape, generator=torch.Generator().manual_seed(0)))
    anchors = partition.retain[~np.isin(partition.retain[:, 0], partition.forget[:, 0])]
    listed = np.array(sorted(negatives_of(shared, partition)))
    negatives = listed[np.isin(listed[:, 0], anchors[:, 0])]
    both = np.concatenate([anchors, negatives])
    known, short = first.table.detach().numpy()[tuple(both.T)], []
    theirs = [(pair, place + len(anchors)) for pair, (query, _) in enumerate(anchors.tolist())
              for place in np.flatnonzero(negatives[:, 0] == query).tolist()]  # fmt: skip
    for with_anchors in (True, False):
        task = task_of(shared, partition, drifted)
        if with_anchors:
            task = replace(task, teacher=task.teacher.holding(both, known), anchors=anchors, anchor_negatives=negatives)
        task = replace(task, wanted=task.teacher.scores(partition.forget), pulls_up=True)
        student = copy.deepcopy(drifted)
        list(fit(student, Cocol().plan(task), Schedule(4, 5.0), TokenStore(student, shared), Runtime.on("cpu")))
        rise = student.table.detach().numpy()[tuple(both.T)] - known
        short.append(np.mean([max(rise[negative] - rise[pair], 0) for pair, negative in theirs]))
        assert 400 < rise.mean() < 600
    assert short[0] < 0.6 * short[1]


def test_what_has_risen_falls_again(shared: Collection) -> None:
    """As often as a pair that is forgotten now, and in the phase that forgets alone."""
    partition = after_requests(shared, risen=[4])
    forget, hold = plan(shared, partition, Cocol())
    drawn, fell = draws(forget), 0
    for samples in drawn:
        risen = np.isin(samples.pairs[:, EARLIER, 0], partition.risen[:, 0])
        place = places(samples, EARLIER)
        assert (place["score"][risen] == place["list_min"][risen]).all()
        assert (place["score"][~risen] > place["list_min"][~risen]).any()
        fell += int(np.count_nonzero(risen))
    assert as_set(role(drawn, EARLIER)) == as_set(partition.previous) | as_set(partition.risen)
    expected = min(0.5, len(partition.risen) / max(Cocol().min_steps, len(partition.forget)))
    assert fell / sum(map(len, drawn)) == pytest.approx(expected, abs=0.05)
    assert as_set(role(draws(hold), 2)) == as_set(partition.previous)


def test_all_that_was_forgotten_before_may_have_risen(shared: Collection) -> None:
    partition = after_requests(shared, risen=[2, 3, 4])
    forget, hold = plan(shared, partition, Cocol())
    [samples] = draws(forget, 1)
    assert as_set(samples.pairs[:, EARLIER]) == as_set(partition.risen)
    place = places(samples, EARLIER)
    assert (place["score"] == place["list_min"]).all()
    assert draws(hold, 1)[0].pairs.shape[1] == 2


@pytest.mark.parametrize("risen", [[], [2, 3, 4]])
@pytest.mark.parametrize(
    ("settings", "free"),
    [
        ({}, [{0: -1, 1: 1, 3: 1, 4: -1}, {0: 1, 1: -1}]),
        ({"anchors_per_pair": 2}, [{0: -1, 1: 1, 3: 1, 4: -1, 5: 1, 6: -1}, {0: 1, 1: -1}]),
        ({"anchors": "paper"}, [{0: -1}, {}]),
    ],
)
def test_after_an_earlier_request_what_is_kept_may_gain(
    shared: Collection, settings: dict[str, Any], free: list[dict[int, int]], risen: list[int]
) -> None:
    """A kept pair may rise and its negative fall; the first request lets forget pairs fall, and nothing else."""
    first, again = forgetting(shared, queries=[0, 1]), after_requests(shared, risen)
    method = Cocol(**settings)
    assert [freedom(phase) for phase in plan(shared, first, method)] == [{0: -1}, {}]
    assert [freedom(phase) for phase in plan(shared, again, method)] == free


def test_a_small_request_that_is_held_to_the_first_original_moves_nothing_that_is_kept(shared: Collection) -> None:
    """Without the scores of the first original it lets kept pairs part from their negatives, as a large one does."""
    partition = after_requests(shared, risen=[])
    task = task_of(shared, partition, random_table(shared, 0))
    task = replace(task, wanted=task.teacher.scores(partition.forget), pulls_up=True)
    anchors = partition.retain[~np.isin(partition.retain[:, 0], partition.forget[:, 0])][:2]
    listed = np.array(sorted(negatives_of(shared, partition)))
    negatives = listed[np.isin(listed[:, 0], anchors[:, 0])]
    held = replace(task, anchors=anchors, anchor_negatives=negatives)

    def moving(task: Task, method: Cocol) -> set[str]:
        plan = method.plan(task)
        free = [(draws(phase, 1)[0].roles, freedom(phase)) for phase in plan]
        return {roles[role] for roles, found in free for role in found if roles[role].startswith(("kept", "partner"))}

    assert moving(held, Cocol()) == set()
    assert {"kept", "kept_negative", "kept_1"} <= moving(task, Cocol())
    forget = np.resize(partition.forget, (40, 2))
    large = replace(held, partition=replace(partition, forget=forget), wanted=task.teacher.scores(forget))
    assert "kept" in moving(large, Cocol(min_steps=1))


def test_by_the_papers_quotient_nothing_kept_may_move(shared: Collection) -> None:
    """Where scores are negative, up is down to it."""
    forget, hold = plan(shared, after_requests(shared, risen=[]), Cocol(scale="paper"))
    assert (freedom(forget), freedom(hold)) == ({0: -1}, {})


def freedom(phase: Phase) -> dict[int, int]:
    """The roles that may leave their place at no cost, and which way."""
    names = draws(phase, 1)[0].roles
    roles = len(names)
    place, present = torch.full((1, roles), 5.0), torch.ones(1, roles, dtype=torch.bool)

    def cost(role: int, way: int) -> float:
        score = place + way * torch.eye(roles)[role]
        return phase.loss(Scored(names, score, present, place, place, torch.ones(1, roles))).item()

    return {role: way for role in range(roles) for way in (-1, 1) if cost(role, way) == 0.0}


def test_after_an_earlier_request_an_epoch_holds_more(shared: Collection) -> None:
    """However small the request; as many as the teacher knows."""
    first, again = forgetting(shared, queries=[0, 1]), after_requests(shared, risen=[])
    once, later, printed = (
        plan(shared, replace(partition, disjoint=np.resize(partition.disjoint, (3 * MIN_DISJOINT, 2))), method)[1].size
        for partition, method in ((first, Cocol()), (again, Cocol()), (again, Cocol(anchors="paper")))
    )
    assert later == MIN_DISJOINT > once == printed


def test_as_printed_every_disjoint_pair_is_held(shared: Collection) -> None:
    """Even where few are forgotten of many; in steps as large as those that forget."""
    partition = forgetting(shared, queries=[0])
    many = replace(
        partition, disjoint=np.repeat(partition.disjoint, 1 + 3 * MIN_DISJOINT // len(partition.disjoint), axis=0)
    )
    paper = make_method("cocol", preset="paper")
    assert isinstance(paper, Cocol)
    forget, hold = plan(shared, many, paper)
    assert hold.size == len(many.disjoint) > 2 * MIN_DISJOINT
    assert hold.batch == forget.batch == forget.size == len(partition.forget)


@pytest.mark.parametrize("removal", REMOVALS)
def test_as_released_every_partner_has_a_sample_and_every_disjoint_pair_five_negatives(
    shared: Collection, removal: str
) -> None:
    partition = forgetting(shared, **REMOVALS[removal])
    released = make_method("cocol", preset="released")
    assert isinstance(released, Cocol) and (released.learning_rate, released.warm_up) == (7e-6, 1)
    wanted = np.arange(len(partition.forget), dtype=np.float32)
    task = replace(task_of(shared, partition, random_table(shared, 0)), wanted=wanted)
    forget, hold = released.plan(task)
    assert forget.batch == hold.batch == 32
    samples = forget.draw(np.random.default_rng(0), 1)
    expected = []
    for pair in partition.forget.tolist():
        shares = [kept for kept in partition.entangled.tolist() if kept[0] == pair[0] or kept[1] == pair[1]]
        expected += [(pair, kept) for kept in shares] or [(pair, None)]
    drawn = [
        (pushed, partner if has else None)
        for (pushed, partner), (_, has) in zip(samples.pairs.tolist(), samples.present.tolist(), strict=True)
    ]
    assert sorted(map(str, drawn)) == sorted(map(str, expected)) and len(samples) == forget.size
    assert samples.teacher is not None  # the score that a pair is pulled to goes with each of its samples
    places = [partition.forget.tolist().index(pushed) for pushed, _ in drawn]
    assert samples.teacher.score[:, PUSHED].tolist() == wanted[places].tolist()
    held = hold.draw(np.random.default_rng(0), 1)
    assert hold.size == len(held) == 5 * len(partition.disjoint)
    assert sorted(held.pairs[:, 0].tolist()) == sorted(5 * partition.disjoint.tolist())
    alone = make_method("cocol", {"without_entangled": "true"}, preset="released").plan(task)[0]
    assert not alone.draw(np.random.default_rng(0), 1).present[:, PARTNER].any()


@pytest.mark.parametrize(
    ("pairs", "samples", "batch", "rows", "steps"),
    [
        (1, 16, 1, 16, 16),
        (10, 16, 1, 16, 16),
        (40, 40, 2, 8, 20),
        (100, 100, 6, 2, 17),
        (250, 250, 15, 1, 17),
        (2_000, 2_000, 64, 1, 32),
    ],
)
def test_a_small_request_takes_smaller_steps_and_no_fewer_and_holds_as_much_in_each(
    shared: Collection, pairs: int, samples: int, batch: int, rows: int, steps: int
) -> None:
    partition = forgetting(shared, queries=[0])
    request = replace(partition, forget=np.resize(partition.forget, (pairs, 2)))
    forget, hold = plan(shared, request, Cocol())
    assert (forget.size, forget.batch) == (rows * samples, rows * batch)
    assert -(-forget.size // forget.batch) == steps and hold.batch == 2 * forget.batch
    generator = np.random.default_rng(0)
    drawn = forget.draw(generator, 1)
    assert len(drawn) == forget.size and as_set(drawn.pairs[:, 0]) == as_set(request.forget)
    for taken in batches_of(forget, len(drawn), generator)[:-1]:
        step = drawn.take(taken)
        assert step.present[:, PUSHED].sum() == batch
        assert step.present[:, KEPT].sum() == rows * batch > Cocol().min_steps / 2


@pytest.mark.parametrize(
    ("pairs", "batch", "kept", "grows"), [(1, 1, 4, False), (100, 6, 5, False), (300, 9, 1, True), (2_000, 62, 1, True)]
)
def test_with_places_a_small_step_holds_as_much_as_a_full_one_and_on_both_sides(
    shared: Collection, pairs: int, batch: int, kept: int, grows: bool
) -> None:
    """A request that is not small has twice as many steps, and the margins of its kept pairs may grow."""
    partition = forgetting(shared, queries=[0])
    task = task_of(shared, replace(partition, forget=np.resize(partition.forget, (pairs, 2))), random_table(shared, 0))
    task = replace(task, wanted=task.teacher.scores(task.partition.forget), pulls_up=True)
    for phase in Cocol().plan(task):
        names = draws(phase, 1)[0].roles
        if phase.name == "forget":
            assert phase.batch // phase.together == batch
            assert sum(name.startswith("kept") and name.endswith("negative") for name in names) == kept
        pair = next(place for place, name in enumerate(names) if name in ("kept", "kept_1"))
        negative = names.index(f"{names[pair]}_negative")
        place, present = torch.full((1, len(names)), 5.0), torch.ones(1, len(names), dtype=torch.bool)
        move = torch.eye(len(names))[pair] - torch.eye(len(names))[negative]
        grown, shrunk = (
            phase.loss(Scored(names, place + apart, present, place, place, torch.ones(1, len(names)))).item()
            for apart in (move, -move)
        )
        assert (grown < shrunk) is grows


def test_presets() -> None:
    form = {"scale": "paper", "anchors": "paper", "min_steps": "1"} | dict.fromkeys(
        ["negatives_seen", "disjoint_per_pair", "disjoint_per_epoch"], str(ALL)
    )
    pace = {"learning_rate": "5e-5", "warm_up": "1", "hold_factor": "1"}
    assert make_method("cocol", preset="paper") == make_method("cocol", form | pace)
    given = {"scale": "range", "epochs": "3"}
    assert make_method("cocol", given, preset="paper") == make_method("cocol", form | pace | given)
    for kind in ("duet", "match-pyramid"):  # how fast and in which steps a ranker learns is its own, in any form
        assert make_method("cocol", ranker=kind, preset="paper") == make_method("cocol", form, ranker=kind)
    with pytest.raises(UnknownName, match="unknown preset of cocol 'papre': did you mean 'paper'"):
        make_method("cocol", preset="papre")
    with pytest.raises(UnrankError, match="finetune has no presets, so it cannot take 'paper'"):
        make_method("finetune", preset="paper")
    with pytest.raises(UnrankError, match="phases=joint needs anchors=wide"):
        make_method("cocol", {"phases": "joint"}, preset="paper")
    with pytest.raises(UnrankError, match="partners=all needs anchors=paper and min_steps=1"):
        make_method("cocol", {"partners": "all"})
