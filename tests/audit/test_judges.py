"""Judges: prepared proxies that say which pairs they never saw, and those that had a share in a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.tiny import make_large_collection
from unrank.audit.audit import open_audit
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditOptions, Thoroughness
from unrank.audit.evidence import gather_evidence
from unrank.audit.judges import like, steered_by
from unrank.audit.per_example import per_example
from unrank.audit.plan import foresee, unseen_marks
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.engine.checkpoint import digest
from unrank.errors import UnrankError
from unrank.forgetting.prepared_proxies import ProxyOptions, prepare_proxies
from unrank.forgetting.train import Trained, train
from unrank.forgetting.validation import Base
from unrank.methods.retrain import Retrain
from unrank.rankers import load_ranker
from unrank.record import HeldOut, PlacesFound, Record

FOLDS = 3
BRIEF = Retrain(learning_rate=1e-3, epochs=1, negatives=1, batch=64)
REMOVED = Removal(documents=[f"doc{number}" for number in range(6)])


@dataclass(frozen=True)
class World:
    """A ranker, and a folder of its proxies."""

    collection: Collection
    trained: Trained
    base: Path
    proxies: Path

    def open(
        self, removal: Removal = REMOVED, record: Record | None = None, proxies: Path | None = None
    ) -> AuditContext:
        effort = Thoroughness(judged_pairs=30, judged_negatives=4)
        options = AuditOptions(effort, 0, "cpu", str(self.base), (str(proxies or self.proxies),))
        rankers = PerRanker(self.trained.ranker, None, ())
        return open_audit(rankers, self.collection, removal, record or self.trained.record, options)


@pytest.fixture(scope="module")
def proxied(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("judges")
    collection = make_large_collection(folder / "large")
    trained = train(collection, "bi-encoder", str(encoder), method=BRIEF)
    base = Base(trained.record.base, trained.record.base_digest, str(encoder))
    options = ProxyOptions(count=FOLDS, epochs=1, device="cpu")
    prepare_proxies(trained.ranker, collection, folder / "proxies", base, record=trained.record, options=options)
    return World(collection, trained, encoder, folder / "proxies")


def test_each_pair_is_judged_by_the_proxy_of_its_fold(proxied: World) -> None:
    context = proxied.open()
    assert len(context.proxies) == FOLDS and context.left_out == 0
    marks, forget = unseen_marks(context), context.sets["forget"]
    documents = context.collection.documents.ids(forget[:, 1])
    for fold, own in enumerate(marks, 1):
        assert own.tolist() == [HeldOut(FOLDS, fold).holds("document", id) for id in documents]
    evidence = gather_evidence(context)
    assert evidence.source == "reserved" and (evidence.unseen.never_saw.sum(axis=0) == 1).all()
    assert (evidence.kept.never_saw.sum(axis=0) == 1).all()
    found = per_example(context)
    assert found.details["judges"] == FOLDS and found.details["not_testable"] == 0
    assert 0 <= found.details["power_at_1_percent"] <= 1
    foreseen = foresee(context)
    assert foreseen.testable == len(forget) and foreseen.power is not None


def test_a_single_pair_is_tested_too(proxied: World) -> None:
    one = Removal(pairs=[proxied.collection.pair_ids(proxied.open().partition.disjoint[:1])[0]])
    found = per_example(proxied.open(one))
    assert found.details.get("pairs", 0) in (0, 1)
    assert found.words.startswith(("memory of 1 pair is found with a chance of ", "every judge saw all of the pairs"))


def test_what_steered_a_run_does_not_judge_it(proxied: World) -> None:
    weights = [digest(load_ranker(proxied.proxies / f"proxy-{fold}").state_dict()) for fold in (1, 2, 3)]
    places = PlacesFound(proxies=3, source="prepared", epochs=1, calibrated_on=0, spread=0.0, by=tuple(weights[:2]))
    record = replace(proxied.trained.record, places=places)
    assert steered_by(record) == set(weights[:2]) and steered_by(None) == frozenset()
    some = proxied.open(record=record)
    assert len(some.proxies) == 1 and some.left_out == 2
    none = proxied.open(record=replace(record, places=replace(places, by=tuple(weights))))
    found = per_example(none)
    assert (
        found.words.startswith("3 rankers had a share in the run and may not judge it") and foresee(none).power is None
    )


def test_a_folder_without_proxies_is_refused(proxied: World, tmp_path: Path) -> None:
    with pytest.raises(UnrankError, match="no proxies are there"):
        proxied.open(proxies=tmp_path)


def test_other_pairs_are_named_as_the_request_names_its_own(proxied: World) -> None:
    pairs = proxied.collection.pairs[:2]
    assert like(REMOVED, proxied.collection, pairs).documents and not like(REMOVED, proxied.collection, pairs).queries
    assert like(Removal(queries=["query1"]), proxied.collection, pairs).queries
    assert len(like(Removal(pairs=[("query1", "doc1")]), proxied.collection, pairs).pairs) == 2
