"""Prepared proxies: what they never saw is in their records, and nobody can claim more."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from unrank.collection.collection import Collection
from unrank.collection.partition import whole_partition
from unrank.collection.removal import Removal
from unrank.disk import sha256
from unrank.errors import UnrankError
from unrank.forgetting import proxies
from unrank.forgetting.prepared_proxies import REPLACED, Prepared, ProxyOptions, check_count, prepare_proxies
from unrank.forgetting.previous_requests import hashed, was_trained_on
from unrank.forgetting.provenance import Reference, unknown_provenance
from unrank.forgetting.proxies import Foreseen, Proxy, find_proxies, foresee_proxies, gather_proxies, proxy_of
from unrank.forgetting.train import Trained
from unrank.forgetting.validation import Base
from unrank.forgetting.workspace import Workspace
from unrank.record import RECORD, HeldOut, Record

FOLDS = 3


@dataclass(frozen=True)
class World:
    """A ranker, its collection and its base, and a folder of proxies."""

    collection: Collection
    original: Trained
    base: Base
    out: Path

    def prepare(self, record: Record | None = None, **changes: object) -> Prepared:
        options = replace(ProxyOptions(count=FOLDS, epochs=1, device="cpu"), **changes)  # type: ignore[arg-type]
        record = record or self.original.record
        return prepare_proxies(
            self.original.ranker, self.collection, self.out, self.base, record=record, options=options
        )

    def workspace(self, removal: Removal) -> Workspace:
        ranker, record = self.original.ranker, self.original.record
        return Workspace.for_removal(ranker, self.collection, removal, record, device="cpu")

    def find(self, removal: Removal, digest: str | None = None, given: Path | None = None) -> list[Proxy]:
        ranker, workspace = self.original.ranker, self.workspace(removal)
        return find_proxies(workspace, ranker, digest or self.base.digest, given)

    def folder(self, fold: int) -> Path:
        return self.out / f"proxy-{fold}"

    def weights(self, fold: int) -> list[str]:
        return [sha256(path) for path in sorted(self.folder(fold).rglob("*.safetensors"))]


@pytest.fixture(scope="module")
def world(large: Collection, learned: Trained, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    base = Base(learned.record.base, learned.record.base_digest, str(encoder))
    made = World(large, learned, base, tmp_path_factory.mktemp("proxies") / "proxies")
    assert made.prepare().made == [1, 2, 3]
    return made


def fold_of(kind: str, id: str) -> int:
    return next(fold for fold in range(1, FOLDS + 1) if HeldOut(FOLDS, fold).holds(kind, id))  # type: ignore[arg-type]


def test_a_request_finds_the_proxies_that_never_saw_it(world: World) -> None:
    [found] = world.find(Removal(documents=["doc1"]))
    assert found.source == "prepared" and found.epochs == 1 and found.never_saw.all()
    mixed = Removal(documents=[f"doc{i}" for i in range(6)])
    proxies, forget = world.find(mixed), world.workspace(mixed).partition.forget
    assert np.array_equal(sum(proxy.never_saw.astype(int) for proxy in proxies), np.ones(len(forget)))
    for removal, made in ((Removal(documents=["doc1"]), False), (mixed, False)):
        foreseen = foresee_proxies(world.workspace(removal), "bi-encoder", world.base, given=world.out)
        assert foreseen == Foreseen(len(world.find(removal)), made=made), "their records tell"
    record = Record.read(world.folder(2))
    assert record is not None and record.held_out == HeldOut(FOLDS, 2) and record.reserved == 30
    for id in ("doc1", "doc2", "doc3", "doc4"):
        saw = was_trained_on(world.collection, record, Removal(documents=[id]))
        assert saw is (fold_of("document", id) != 2)


def test_a_pair_was_not_seen_without_its_query_or_its_document(world: World) -> None:
    query, document = world.collection.pair_ids(world.collection.pairs[40:41])[0]
    folds = {fold_of("query", query), fold_of("document", document)}
    assert len(world.find(Removal(pairs=[(query, document)]))) == len(folds)
    removal = Removal(queries=[query], documents=[document])
    [row] = np.flatnonzero((world.workspace(removal).partition.forget == world.collection.pairs[40]).all(1))
    assert sum(proxy.never_saw[row] for proxy in world.find(removal)) == (len(folds) == 1)


def test_a_folder_that_does_not_fit_is_refused(world: World, tmp_path: Path) -> None:
    document = next(f"doc{i}" for i in range(60) if fold_of("document", f"doc{i}") == 2)
    removal, path = Removal(documents=[document]), world.folder(3) / RECORD
    with pytest.raises(UnrankError, match="no proxies are there"):
        world.find(removal, given=tmp_path)
    with pytest.raises(UnrankError, match="base of the ranker"):
        world.find(removal, "another", world.out)
    written = path.read_text()
    claimed = json.loads(written)
    claimed["held_out"]["fold"] = 2
    try:
        path.write_text(json.dumps(claimed))
        with pytest.raises(UnrankError, match=r"proxy-3: its record does not have this owner's seal"):
            world.find(removal, given=world.out)
        assert len(world.find(removal)) == 1  # a remembered one is left out
        claimed["held_out"]["fold"] = FOLDS + 1
        path.write_text(json.dumps(claimed))
        with pytest.raises(UnrankError, match="held_out names fold 4 of 3"):
            world.find(removal, given=world.out)
    finally:
        path.write_text(written)
    trained_here = replace(world.base, place=str(world.folder(1)))
    with pytest.raises(UnrankError, match="was trained on this collection, as its record says"):
        prepare_proxies(world.original.ranker, world.collection, tmp_path / "none", trained_here)
    with pytest.raises(UnrankError, match=r"holds out fold 1 of 3 by seed 0, not fold 1 of 2 by seed 0"):
        world.prepare(count=2)


def test_more_folds_than_there_is_to_hold_out_are_refused_at_once(world: World) -> None:
    most = len(world.collection.training_queries) + len(world.collection.documents)
    check_count(most, world.collection)
    with pytest.raises(UnrankError, match=f"has {most} training queries and documents in all, so some would hold out"):
        check_count(most + 1, world.collection)
    with pytest.raises(UnrankError, match=r"10,000,000,000 proxies: .* choose fewer"):
        world.prepare(count=10**10)


def test_only_proxies_that_saw_a_request_are_trained_again(world: World) -> None:
    assert world.prepare().kept == [1, 2, 3]
    removal = Removal(documents=["doc1"])
    own, before = fold_of("document", "doc1"), {fold: world.weights(fold) for fold in (1, 2, 3)}
    seconds = {fold: Record.read(world.folder(fold))["seconds"] for fold in before}  # type: ignore[index]
    forgot = replace(world.original.record, method="cocol", removed=hashed(removal))
    with pytest.raises(UnrankError, match=r"2 of 3 proxies .* give --rebuild"):
        world.prepare(forgot)
    done = world.prepare(forgot, rebuild=True)
    assert done.kept == [own] and len(done.rebuilt) == 2 and done.seconds > 0
    for fold, weights in before.items():
        record = Record.read(world.folder(fold))
        assert record is not None and was_trained_on(world.collection, record, removal) is False
        assert (world.weights(fold) == weights) is (fold == own)
        assert (record.timing.get(REPLACED) == seconds[fold]) is (fold != own)
    assert len(world.find(removal)) == 2, "two steer a run, the third may judge it"
    assert len(world.find(removal, given=world.out)) == 3
    assert world.prepare(forgot).kept == [1, 2, 3]


def test_a_known_reference_is_a_proxy_and_a_proxy_is_no_reference(world: World) -> None:
    removal = Removal(documents=["doc5"])
    workspace, record = world.workspace(removal), world.original.record
    found = proxy_of(Reference(world.original.ranker, known=True, record=record), workspace)
    assert found is not None and found.source == "reference" and found.epochs == 1 and found.reserves
    assert proxy_of(Reference(world.original.ranker), workspace) is None
    folder = str(world.folder(fold_of("document", "doc5")))
    assert "it is a proxy" in unknown_provenance(folder, world.collection, removal, record, None)


def test_one_more_proxy_is_trained_if_prepared_ones_saw_a_pair(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = whole_partition(world.collection, reserve=True).retain
    query, document = next(
        pair
        for pair in world.collection.pair_ids(kept)
        if pair[1] != "doc1" and fold_of("query", pair[0]) != fold_of("document", pair[1])
    )
    ranker, made = world.original.ranker, Proxy(world.original.ranker, np.ones(1, bool), "made", 2)
    monkeypatch.setattr(proxies, "make_proxy", lambda *given: made)

    def sources(removal: Removal, base: Base) -> list[str]:
        return [proxy.source for proxy in gather_proxies(world.workspace(removal), ranker, base, seed=0)]

    assert {*sources(Removal(documents=["doc2"]), world.base)} == {"prepared"}
    elsewhere = replace(world.base, digest="another")
    assert sources(Removal(documents=["doc2"]), elsewhere) == ["made"]
    assert sources(Removal(documents=["doc2"]), replace(elsewhere, place=None)) == []
    assert sources(Removal(queries=[query], documents=[document]), world.base)[-1] == "made"
