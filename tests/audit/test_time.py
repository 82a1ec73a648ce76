"""The time of an audit, before it is made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.audit.conftest import THOROUGHNESS, Open
from tests.table import TableRanker
from tests.tiny import make_bi_encoder
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditOptions, Judge, open_context
from unrank.audit.time import audit_time, texts_to_judge
from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.forgetting.estimate import Seconds
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker


def test_it_is_a_range_that_grows_with_the_rankers_and_the_work(
    dense: Collection, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work is compared at a fixed pace: that of so small a ranker differs from one trial to the next."""
    ranker = load_ranker(make_bi_encoder(encoder, tmp_path / "ranker"))
    before = {name: weight.clone() for name, weight in ranker.state_dict().items()}
    partition = make_partition(dense, Removal(documents=["doc1", "doc10"]))
    rankers: PerRanker[Ranker] = PerRanker(ranker, ranker, ())
    context = open_context(rankers, dense, partition, AuditOptions(device="cpu"))
    measured = audit_time(context)
    assert 0 < measured.low < measured.high
    assert all(weight.equal(before[name]) for name, weight in ranker.state_dict().items())
    for pace in ("seconds_per_text", "seconds_per_step", "seconds_per_epoch"):
        monkeypatch.setattr(f"unrank.audit.time.{pace}", lambda *_: Seconds(0.001, 0.002))
    references = (context.rankers.ranker,) * 48
    two, fifty = (
        audit_time(replace(context, rankers=replace(context.rankers, references=some))) for some in ((), references)
    )
    assert two.high < fifty.high
    brief = audit_time(replace(context, thoroughness=replace(THOROUGHNESS, relearning_steps=(1,))))
    assert brief.high < two.high


def test_it_reads_as_much_as_the_audit_does(open_world: Open, original: TableRanker) -> None:
    few, many = (audit_time(open_world(original, replace(THOROUGHNESS, queries=queries), 0)) for queries in (1, 1_000))
    assert few.low < many.high
    full = audit_time(open_world(original, replace(THOROUGHNESS, full=True), 0))
    assert full.high > many.high


def test_proxies_that_judge_are_counted(open_world: Open, original: TableRanker) -> None:
    context = open_world(original, with_references=0)
    scores = context.rankers.ranker.scores
    half = Judge(scores, lambda pairs: pairs[:, 0] % 2 == 0)
    none = Judge(scores, lambda pairs: pairs[:, 0] < 0)
    alone, with_half, with_both = (
        texts_to_judge(replace(context, proxies=proxies)) for proxies in ((), (half,), (half, none))
    )
    assert alone < with_half < 2 * alone and with_both == with_half  # one that saw all pairs is asked nothing
