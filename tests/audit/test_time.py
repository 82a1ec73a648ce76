"""The time of an audit, before it is made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.audit.conftest import THOROUGHNESS
from tests.table import TableRanker
from tests.tiny import make_bi_encoder
from unrank.audit.time import audit_time
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition, make_partition
from unrank.collection.removal import Removal
from unrank.forgetting.workspace import Workspace
from unrank.rankers import load_ranker


def test_it_is_a_range_that_grows_with_the_rankers_and_the_work(
    dense: Collection, encoder: Path, tmp_path: Path
) -> None:
    ranker = load_ranker(make_bi_encoder(encoder, tmp_path / "ranker"))
    before = {name: weight.clone() for name, weight in ranker.state_dict().items()}
    workspace = Workspace.open(ranker, dense, make_partition(dense, Removal(documents=["doc1", "doc10"])), "cpu")
    two, five = (audit_time(workspace, ranker, rankers) for rankers in (2, 50))
    assert 0 < two.low < two.high and two.high < five.high
    brief = audit_time(workspace, ranker, 2, replace(THOROUGHNESS, relearning_steps=(1,)))
    assert brief.high < two.high
    assert all(weight.equal(before[name]) for name, weight in ranker.state_dict().items())


def test_it_reads_as_much_as_the_audit_does(world: Collection, partition: Partition, original: TableRanker) -> None:
    workspace = Workspace.open(original, world, partition, "cpu")
    few, many = (audit_time(workspace, original, 1, replace(THOROUGHNESS, queries=queries)) for queries in (1, 1_000))
    assert few.low < many.high
    full = audit_time(workspace, original, 1, replace(THOROUGHNESS, full=True))
    assert full.high > many.high
