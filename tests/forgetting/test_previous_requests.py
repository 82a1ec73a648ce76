"""Request after request: what was forgotten before stays so, and is asked for by hashes alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.forgetting.conftest import FAST
from tests.forgetting.test_forget import ONE_EPOCH, same, weights
from tests.table import as_set
from tests.tiny import made_record
from unrank.cli.closing import closing
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition, make_partition, named
from unrank.collection.removal import Removal
from unrank.errors import BadFile
from unrank.evaluation.scorecard import Evaluator
from unrank.forgetting import previous_requests
from unrank.forgetting.evaluate import evaluate
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.previous_requests import (
    PreviousRanks,
    RequestRanks,
    hashed,
    not_recognised,
    previous_removals,
    recognised,
    recognised_of_each,
    was_trained_on,
)
from unrank.forgetting.train import Trained, train
from unrank.forgetting.workspace import Workspace
from unrank.methods.task import Negatives
from unrank.owner import owner_key
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker
from unrank.record import (
    RECORD,
    RETRAIN,
    HashedIds,
    LearningEpoch,
    PreviousMrr,
    Record,
    RemovedHashes,
    forgotten_requests,
    measured_epoch,
    read_record,
    requests_of,
)

OUT_OF_REACH = 0.01
BRIEF = replace(FAST, epochs=1)


def known_of(folder: Path) -> Record:
    known = read_record(folder)
    assert known is not None
    return known


@pytest.fixture(scope="module")
def first(forgotten: Forgotten, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ranker that has forgotten eight documents, as a folder."""
    folder = tmp_path_factory.mktemp("requests") / "first"
    forgotten.save(folder)
    return folder


@pytest.fixture(scope="module")
def once(first: Path) -> Ranker:
    return load_ranker(first)


@pytest.fixture(scope="module")
def later() -> Removal:
    return Removal(queries=["query10", "query11"])


@pytest.fixture(scope="module")
def second(first: Path, once: Ranker, dense: Collection, later: Removal) -> Forgotten:
    return forget(once, dense, later, method=BRIEF, target=OUT_OF_REACH, record=known_of(first))


@pytest.fixture(scope="module")
def partition(dense: Collection, removal: Removal, later: Removal) -> Partition:
    """What the second request comes to."""
    return make_partition(dense, later, previous=removal)


@pytest.mark.parametrize("at_once", [3, previous_requests.AT_ONCE])
@pytest.mark.parametrize("kind", ["documents", "queries", "pairs"])
def test_earlier_removals_are_recognised_by_their_hashes(
    dense: Collection,
    golden: Collection,
    removals: dict[str, Removal],
    kind: str,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(previous_requests, "AT_ONCE", at_once)
    removed = hashed(removals[kind])
    assert recognised(dense, [removed]) == removals[kind]
    assert recognised(golden, [removed]) == Removal()
    other = hashed(Removal(queries=["query20"]))
    assert recognised(dense, [removed, other]) == removals[kind] | Removal(queries=["query20"])
    assert recognised_of_each(dense, [other, removed]) == [Removal(queries=["query20"]), removals[kind]]
    assert recognised(dense, []) == Removal()


def salted(removal: Removal, salt: str = "5a17") -> RemovedHashes:
    """A removal as records of version 1 hold it."""

    def hashes(items: Sequence[object]) -> HashedIds:
        texts = (hashlib.sha256(f"{salt}:{json.dumps(item)}".encode()).hexdigest()[:32] for item in items)
        return HashedIds(len(items), tuple(sorted(texts)))

    return RemovedHashes(salt, hashes(removal.queries), hashes(removal.documents), hashes(removal.pairs))


def test_salted_hashes_of_earlier_versions_are_recognised(dense: Collection, removals: dict[str, Removal]) -> None:
    old, new = removals["pairs"], removals["documents"]
    both = [salted(old), hashed(new), salted(new, "other")]
    assert recognised_of_each(dense, both) == [old, new, new]


def test_the_key_of_another_owner_is_named(
    dense: Collection, removal: Removal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = made_record(dense.fingerprint, removed=hashed(removal))
    never_saw = replace(known, method=RETRAIN)
    assert not_recognised(known) is None
    assert was_trained_on(dense, never_saw, removal) is False
    assert known.removed is not None
    monkeypatch.setenv("UNRANK_STATE", str(tmp_path / "another"))
    for _ in range(2):  # without any key, then with another one
        said = not_recognised(known)
        assert said is not None and "cannot be recognised here" in said
        assert known.removed.key in said and "UNRANK_STATE" in said
        assert recognised(dense, requests_of(known)) == Removal()
        assert was_trained_on(dense, never_saw, removal) is None
        assert owner_key(make=True) is not None
    assert not_recognised(replace(known, removed=salted(removal))) is None


def test_a_pair_was_not_seen_if_its_query_or_its_document_was_not(dense: Collection) -> None:
    (query, document), (other, another) = (dense.pair_ids(dense.pairs[[row]])[0] for row in (0, -1))
    for removed in (Removal(queries=[query]), Removal(documents=[document])):
        record = replace(made_record(dense.fingerprint, removed=hashed(removed)), method=RETRAIN)
        assert was_trained_on(dense, record, Removal(pairs=[(query, document)])) is False
        assert was_trained_on(dense, record, Removal(pairs=[(other, another)]))
        assert was_trained_on(dense, record, Removal([query], [document])), "one of the two was seen"


def test_without_a_state_folder_there_are_counts_alone(
    dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRANK_STATE", "/dev/null/nowhere")
    removed = hashed(removal)
    assert (removed.counts, removed.key) == (removal.counts, "")
    assert not any(ids.hashes for ids in (removed.queries, removed.documents, removed.pairs))
    said = not_recognised(made_record(dense.fingerprint, removed=removed))
    assert said is not None and said.endswith("written without an owner's key and holds counts alone")


def test_they_are_neither_kept_nor_asked_for(dense: Collection, removal: Removal, partition: Partition) -> None:
    gone = as_set(make_partition(dense, removal).forget)
    assert as_set(partition.previous) == gone - as_set(partition.forget)
    assert as_set(partition.previous)
    assert not gone & as_set(partition.retain)
    assert as_set(partition.forget) | as_set(partition.retain) | as_set(partition.previous) == as_set(dense.pairs)
    assert set(dense.documents.rows(removal.documents, "")) <= set(partition.documents.tolist())


def test_they_are_no_negatives(dense: Collection, removal: Removal, partition: Partition) -> None:
    removed = dense.documents.rows(removal.documents, "")
    negatives = Negatives(dense, partition.documents)
    queries = np.repeat(dense.training_queries, 50)
    drawn, has = negatives.draw(queries, np.random.default_rng(0))
    assert not np.isin(drawn[has, 1], removed).any()


def test_they_are_in_no_list_that_measures_what_is_kept(
    dense: Collection, removal: Removal, partition: Partition
) -> None:
    """However high an earlier document scores, nothing kept falls behind it."""
    removed = dense.documents.rows(removal.documents, "")

    def score(pairs: Pairs) -> Any:
        return ((pairs[:, 0] * 31 + pairs[:, 1] * 17) % 101).astype(np.float32)

    def loud(pairs: Pairs) -> Any:
        return score(pairs) + 1000 * np.isin(pairs[:, 1], removed)

    plain, shouting = (Evaluator(dense, partition).scorecard(scorer) for scorer in (score, loud))
    for name in ("entangled", "disjoint", "test"):
        assert getattr(plain, name).reciprocal.tolist() == getattr(shouting, name).reciprocal.tolist()
    alone = make_partition(dense, Removal(queries=["query10", "query11"]))
    without = Evaluator(dense, alone).scorecard(loud)
    assert without.test is not None and shouting.test is not None
    assert without.test.mean != shouting.test.mean


def test_they_are_reported_and_passed_along(
    second: Forgotten,
    first: Path,
    once: Ranker,
    dense: Collection,
    removal: Removal,
    partition: Partition,
    tmp_path: Path,
) -> None:
    known = known_of(first)
    assert known.removed_before == ()
    told = {name: known[name] for name in ("target", "target_name", "state")} | {"by": "cocol", "reached": True}
    assert second.record["removed_before"] == [known["removed"] | told]
    evaluator = Evaluator(dense, partition)
    second.save(tmp_path / "second")
    reloaded = load_ranker(tmp_path / "second")
    gone = dense.pairs[named(dense, removal)[0]]
    (before, _), (after, now) = (
        [ranks.mean() for ranks in evaluator.reciprocals_of_each(score, [partition.previous, gone], forget=True)]
        for score in (_scorer(ranker, dense, partition) for ranker in (once, reloaded))
    )
    assert second.record.earlier is not None
    assert second.record["earlier"] == {
        "before": pytest.approx(before, abs=1e-6),
        "after": pytest.approx(after, abs=1e-6),
        "above": pytest.approx(now - known["target"], abs=1e-6),
    }
    third = forget(
        reloaded,
        dense,
        Removal(queries=["query20"]),
        method=BRIEF,
        target=OUT_OF_REACH,
        record=known_of(tmp_path / "second"),
    )
    assert [run.salt for run in third.record.removed_before] == [
        known["removed"]["salt"],
        second.record["removed"]["salt"],
    ]
    assert [run.target for run in third.record.removed_before] == [known["target"], OUT_OF_REACH]
    everything = recognised(dense, requests_of(third.record))
    assert everything.documents == recognised(dense, [known.removed] if known.removed else []).documents
    assert everything.queries == ("query10", "query11", "query20")


def _scorer(ranker: Ranker, collection: Collection, partition: Partition) -> Any:
    return Workspace.open(ranker, collection, partition, "cpu").scorer(ranker)


def test_to_evaluate_the_ranker_measures_what_its_record_says(
    second: Forgotten, dense: Collection, later: Removal, tmp_path: Path
) -> None:
    second.save(tmp_path / "second")
    again = evaluate(load_ranker(tmp_path / "second"), dense, later, record=known_of(tmp_path / "second"))
    assert again.to_json() == second.record["after"]
    assert evaluate(second.ranker, dense, later).to_json() != second.record["after"], (
        "without its record it cannot know"
    )


def test_no_id_is_in_any_file(second: Forgotten, removal: Removal, later: Removal, tmp_path: Path) -> None:
    second.save(tmp_path / "second")
    written = [
        path.read_text() for path in (tmp_path / "second").rglob("*") if path.suffix in (".json", ".jsonl", ".md")
    ]
    assert len(written) > 3
    for id in (*removal.documents, *later.queries):
        assert not any(f'"{id}"' in text or f" {id}" in text for text in written), id


@pytest.mark.parametrize(
    ("after", "above", "told"), [(0.26, None, True), (0.24, None, False), (0.26, 0.04, False), (0.2, 0.06, True)]
)
def test_what_comes_back_is_told(second: Forgotten, after: float, above: float | None, told: bool) -> None:
    """Above the target that it was brought to, or since the run began where there was none."""
    assert not second.came_back
    record = replace(second.record, earlier=PreviousMrr(0.2, after, above))
    assert replace(second, record=record).came_back is told


def test_the_line_on_earlier_requests_names_the_highest() -> None:
    line = "what was forgotten before had an MRR of 0.200, now 0.240"
    assert str(PreviousMrr(0.2, 0.24)) == line
    assert str(PreviousMrr(0.2, 0.24, -0.001)) == f"{line}; the highest request is 0.001 below its target"
    assert str(PreviousMrr(0.2, 0.24, 0.02)) == f"{line}; the highest request is 0.020 above its target"


@pytest.mark.parametrize(
    ("target", "above", "queries"),
    [(0.3, 0.3875, {0, 2, 3}), (0.5, 0.1875, {0, 2}), (0.75, -0.0625, {0}), (0.9, -0.2125, set[int]())],
)
def test_as_many_pairs_fall_again_as_it_takes(target: float, above: float, queries: set[int]) -> None:
    """Those that stand highest, until it would be .15 below the target."""
    pairs = np.array([[0, 5], [0, 6], [1, 5], [2, 5], [3, 7]])
    ranks = RequestRanks(pairs, target, np.array([1.0, 0.25, 1.0, 0.5]))
    assert ranks.above == pytest.approx(above)
    assert as_set(ranks.risen) == {pair for pair in as_set(pairs) if pair[0] in queries}


def test_a_large_request_is_held_nearer_to_its_target() -> None:
    """The more queries, the less a run sways their mean."""
    pairs = np.array([[query, 0] for query in range(400)])
    ranks = RequestRanks(pairs, 0.5, np.repeat([1.0, 0.0], 200))
    assert len(ranks.risen) == pytest.approx(0.3 / 20 * 400, abs=1)


@pytest.mark.parametrize(("goal", "rises"), [(OUT_OF_REACH, True), (1.0, False)])
def test_what_has_risen_is_set_apart(
    first: Path, once: Ranker, dense: Collection, partition: Partition, goal: float, rises: bool
) -> None:
    workspace = Workspace.open(once, dense, partition, "cpu")
    runs = previous_removals(dense, replace(known_of(first), target=goal))
    ranks = PreviousRanks.measure(workspace.scorer(once), runs, dense, workspace.evaluator)
    apart = ranks.with_risen(partition, dense)
    assert as_set(apart.previous) | as_set(apart.risen) == as_set(partition.previous)
    assert not as_set(apart.previous) & as_set(apart.risen)
    assert bool(len(apart.risen)) is rises


def test_what_has_risen_is_brought_down(first: Path, once: Ranker, dense: Collection, later: Removal) -> None:
    """A run whose record says that it went lower than it did is brought lower by the next one."""
    known, method = known_of(first), replace(FAST, epochs=3)
    held, lower = (
        forget(
            once, dense, later, method=method, target=OUT_OF_REACH, record=replace(known, target=target)
        ).record.earlier
        for target in (1.0, OUT_OF_REACH)
    )
    assert held is not None and lower is not None and held.after is not None
    assert lower.after is not None and lower.after < held.after


@pytest.mark.parametrize("method", ["cocol", "finetune", "amnesiac", "neggrad", "ssd", "bad-teacher", "npo"])
def test_a_removal_that_is_fulfilled_changes_nothing(
    method: str, first: Path, once: Ranker, dense: Collection, removal: Removal, target: float, encoder: Path
) -> None:
    """Whatever the method: the ranker is still what cocol made."""
    known = known_of(first)
    result = forget(once, dense, removal, method=method, target=target, record=known, base=str(encoder), seed=3)
    assert result.fulfilled
    assert result.reached
    assert (result.record.epochs, result.record.history) == (0, ())
    assert (result.record.method, result.record.settings) == ("cocol", known["settings"])
    assert same(weights(result.ranker), weights(once))
    assert result.after.to_json() == result.before.to_json()


def test_who_asks_to_train_anew_gets_it(
    first: Path, once: Ranker, dense: Collection, removal: Removal, encoder: Path
) -> None:
    """However well another method has forgotten it. After that there is nothing to do at any target."""
    known = known_of(first)
    anew = forget(once, dense, removal, method=ONE_EPOCH, target=1.0, record=known, base=str(encoder))
    assert not anew.fulfilled
    assert anew.record.method == "retrain"
    assert not same(weights(anew.ranker), weights(once))
    known = anew.record
    for method in (ONE_EPOCH, BRIEF):
        again = forget(anew.ranker, dense, removal, method=method, target=0.05, record=known, base=str(encoder))
        assert again.fulfilled
        assert again.record.method == "retrain"
    short = forget(once, dense, removal, method=BRIEF, target=OUT_OF_REACH, record=known_of(first))
    assert not short.fulfilled


def test_the_target_of_another_removal_says_nothing(
    first: Path, once: Ranker, dense: Collection, removal: Removal, later: Removal
) -> None:
    """That others were brought to 60 % does not mean that these were, though the last run had that target."""
    known = known_of(first)
    other = forget(once, dense, later, method=BRIEF, target="60%", record=known)
    after = replace(other.record, target=1.0)
    assert after.removed_before[0].target_name != "60%"
    assert forget(other.ranker, dense, later, method=BRIEF, target="60%", record=after).fulfilled
    assert not forget(other.ranker, dense, removal, method=BRIEF, target="60%", record=after).fulfilled


def test_a_part_of_it_is_fulfilled_too_and_more_is_not(
    first: Path, once: Ranker, dense: Collection, removal: Removal, target: float
) -> None:
    more = removal | Removal(queries=["query10"])
    result = forget(once, dense, more, method=BRIEF, target=OUT_OF_REACH, record=known_of(first))
    assert not result.fulfilled
    assert result.record.epochs == 1
    part = Removal(documents=removal.documents[:2])
    assert forget(once, dense, part, method=BRIEF, target=1.0, record=known_of(first)).fulfilled


def test_to_forget_more_than_before_is_no_fulfilled_request(
    first: Path, once: Ranker, dense: Collection, removal: Removal
) -> None:
    result = forget(once, dense, removal, method=BRIEF, target=OUT_OF_REACH, record=known_of(first))
    assert not result.fulfilled
    assert not same(weights(result.ranker), weights(once))


def test_a_target_of_the_same_name_is_the_one_that_was_reached(
    first: Path, once: Ranker, dense: Collection, removal: Removal
) -> None:
    """`60%` of what is left would be less each time; it was reached when it was asked for."""
    known = replace(known_of(first), target_name="60%")
    assert forget(once, dense, removal, method=BRIEF, target="60%", record=known).fulfilled
    assert not forget(once, dense, removal, method=BRIEF, target="50%", record=known).fulfilled


def test_a_request_that_fell_short_goes_on(trained: Trained, dense: Collection, removal: Removal) -> None:
    short = forget(trained.ranker, dense, removal, method=BRIEF, target=OUT_OF_REACH)
    assert not short.reached
    known = short.record
    again = forget(short.ranker, dense, removal, method=BRIEF, target=OUT_OF_REACH, record=known)
    assert not again.fulfilled
    assert again.record.epochs == 1


def test_what_was_not_forgotten_is_not_forgotten_by_asking_again(
    trained: Trained, dense: Collection, removal: Removal
) -> None:
    """The mean is at a target of the user's own, above what unseen queries have; nothing is left to do for it."""
    first = forget(trained.ranker, dense, removal, method=BRIEF, target="100%", record=trained.record)
    assert first.reached and first.state == "not forgotten"
    assert not forgotten_requests(first.record), "a search for copies lists the ranker"
    again = forget(first.ranker, dense, removal, method=BRIEF, target="100%", record=first.record)
    assert again.fulfilled and again.state == "not forgotten" and not again.record.epochs
    assert "no weight was changed, and" in again.judgement.why
    assert "has forgotten all of it before" not in closing(again, None)


def test_who_was_trained_without_it_has_nothing_to_forget(encoder: Path, dense: Collection, removal: Removal) -> None:
    retrained = train(dense, "bi-encoder", str(encoder), removal, method=ONE_EPOCH)
    known = retrained.record
    assert forget(retrained.ranker, dense, removal, target=OUT_OF_REACH, record=known).fulfilled


def test_without_a_record_nothing_is_known(once: Ranker, dense: Collection, later: Removal) -> None:
    result = forget(once, dense, later, method=BRIEF, target=OUT_OF_REACH)
    assert result.record.removed_before == ()
    assert result.record.earlier is None


@pytest.mark.parametrize(
    "record",
    [
        [],
        "text",
        {"removed": 3},
        {"removed": {"salt": "x"}},
        {"removed_before": [{"salt": "x", "queries": 1}]},
        {"removed_before": 5},
        {"collection": "nfcorpus"},
        {"target": "unseen"},
    ],
    ids=json.dumps,
)
def test_a_damaged_record(record: Any, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(json.dumps(record))
    with pytest.raises(BadFile, match=r"damaged record: .*, so what the ranker has forgotten is not known"):
        read_record(tmp_path)
    assert read_record(tmp_path / "nowhere") is None


def test_an_epoch_is_known_where_it_was_measured() -> None:
    known = made_record("f", "a")
    assert measured_epoch(known, "f", "a") == LearningEpoch(1.0, "measured", "a")
    for record, fingerprint, device in ((known, "g", "a"), (known, "f", "b"), (None, "f", "a")):
        assert measured_epoch(record, fingerprint, device) is None
