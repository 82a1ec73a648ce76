"""The whole audit: on a tiny encoder that has learned its data by heart, and what it leaves on disk."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unrank
from tests.audit.conftest import SHOWS_NOTHING, THOROUGHNESS
from tests.table import TableRanker
from tests.tiny import made_record, make_collection
from unrank.audit.audit import AUDIT, DECIDING, OF_MEMORY, TESTS, Audit, audit_ranker, open_audit
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditOptions
from unrank.audit.evaluation import contradictions
from unrank.audit.verdict import DIFFERENT, Verdict
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.errors import UnrankError
from unrank.forgetting.previous_requests import hashed
from unrank.forgetting.train import train
from unrank.methods.finetune import Finetune
from unrank.methods.retrain import Retrain
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker
from unrank.record import SETS, PreviousRequest

BY_HEART = Retrain(learning_rate=3e-3, epochs=30, enough=0.98, negatives=2, batch=120)
BRIEF = replace(
    THOROUGHNESS, recovery=Finetune(learning_rate=3e-4, epochs=1, negatives=1, batch=60), relearning_rate=3e-4
)


@dataclass(frozen=True)
class Encoded:
    """A collection of random texts, in which nothing can be known that was not learned, and who learned what."""

    collection: Collection
    removal: Removal
    original: Ranker
    retrained: list[Ranker]
    base: Path

    def audit(self, ranker: Ranker) -> Audit:
        return audit_ranker(
            ranker,
            self.collection,
            self.removal,
            original=self.original,
            references=self.retrained[1:],
            thoroughness=BRIEF,
            base=str(self.base),
        )


@pytest.fixture(scope="module")
def encoded(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Encoded:
    generator = random.Random(5)
    documents = [f"doc{number}" for number in range(40)]
    pairs = [(f"query{number}", generator.choice(documents)) for number in range(60)]
    tests = [(f"test{number}", generator.choice(documents)) for number in range(30)]
    collection = make_collection(tmp_path_factory.mktemp("encoded") / "random", pairs, tests, candidates=8)
    removal = Removal.sample(collection, "documents", 0.4)

    def trained(removed: Removal | None, seed: int) -> Ranker:
        return train(collection, "bi-encoder", str(encoder), removed, method=BY_HEART, seed=seed).ranker

    return Encoded(collection, removal, trained(None, 0), [trained(removal, seed) for seed in (1, 2, 3)], encoder)


@pytest.mark.slow
def test_what_was_learned_by_heart_is_still_remembered(encoded: Encoded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unrank.evaluation.bootstrap.RESAMPLES", 1_000)  # with few, no chance is small enough for Holm
    found = encoded.audit(encoded.original)
    assert found.verdict is Verdict.REMEMBERED
    by_mrr = ("forgetting", "recovery", "relearning", "rewording", "other_forms", "membership", "displacement")
    assert {name: found.findings[name].verdict for name in by_mrr} == dict.fromkeys(by_mrr, Verdict.REMEMBERED)
    assert not any(found.findings[name].verdict is Verdict.EQUIVALENT for name in OF_MEMORY if name != "weights")


@pytest.mark.slow
def test_a_retrained_ranker_passes(encoded: Encoded) -> None:
    """So few queries acquit nobody, and convict no honest ranker either."""
    found = encoded.audit(encoded.retrained[0])
    assert found.verdict not in DIFFERENT
    assert not any(one.verdict in DIFFERENT for one in found.findings.values())


@pytest.fixture(scope="module")
def passed(
    world: Collection, removal: Removal, original: TableRanker, retrained: TableRanker, references: list[TableRanker]
) -> Audit:
    return table_audit(world, removal, retrained, original, references)


@pytest.fixture(scope="module")
def audited(passed: Audit) -> dict[str, Any]:
    return passed.to_json()


def table_audit(
    world: Collection,
    removal: Removal,
    ranker: Ranker,
    original: Ranker | None,
    references: list[TableRanker],
    **more: Any,
) -> Audit:
    given = {"original": original, "references": references, "thoroughness": THOROUGHNESS, **more}
    return audit_ranker(ranker, world, removal, **given)


def test_its_keys_stay(audited: dict[str, Any], removal: Removal) -> None:
    assert list(audited) == [
        "audit_version", "verdict", "words", "collection", "rankers", "removed", "sets", "thoroughness", "seed",
        "seconds", "device", "versions", "tests", "evaluation",
    ]  # fmt: skip
    assert list(audited["tests"]) == [*TESTS, "noise_floor"]
    for found in audited["tests"].values():
        assert list(found) == [
            "measures", "verdict", "words", "figure", "low", "high", "queries", "threshold", "original", "references",
            "gap", "noise_floor", "power", "p_remembered", "p_suppressed", "equivalence", "details",
        ]  # fmt: skip
    assert audited["removed"] == {"queries": 0, "documents": len(removal.documents), "pairs": 0}
    assert list(audited["sets"]) == list(SETS)
    assert audited["tests"]["noise_floor"]["verdict"] == "measured"
    verdicts = {name: found["verdict"] for name, found in audited["tests"].items()}
    assert contradictions(audited["evaluation"], audited["verdict"], verdicts) == []
    assert audited["evaluation"]["sampleSize"] == audited["sets"]["forget"]["queries"]
    assert all(claim["passed"] for claim in audited["evaluation"]["claims"]) == (audited["verdict"] == "equivalent")
    assert len({str(one) for one in [audited["rankers"]["original"], *audited["rankers"]["references"]]}) == 3


@pytest.mark.slow
def test_the_same_seed_gives_the_same_audit(
    audited: dict[str, Any],
    world: Collection,
    removal: Removal,
    original: TableRanker,
    retrained: TableRanker,
    references: list[TableRanker],
) -> None:
    again = table_audit(world, removal, retrained, original, references).to_json()
    assert {**again, "seconds": 0} == {**audited, "seconds": 0}
    other = table_audit(world, removal, retrained, original, references, seed=1).to_json()
    assert other["tests"] != audited["tests"]


def test_its_file_names_nothing_that_was_removed(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    removal = Removal.sample(dense, "documents", 0.4)
    result = audit_ranker(create_ranker("bi-encoder", str(encoder), 0), dense, removal, thoroughness=BRIEF)
    result.save(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [AUDIT]
    written = (tmp_path / "out" / AUDIT).read_text()
    assert json.loads(written) == json.loads(json.dumps(result.to_json()))
    rows = dense.documents.rows(removal.documents)
    for removed in [*removal.documents, *dense.documents.texts(rows)]:
        assert f'"{removed}"' not in written and removed not in written.replace("documents", "")


def test_alone_it_says_what_cannot_be_known(world: Collection, removal: Removal, retrained: TableRanker) -> None:
    alone = table_audit(world, removal, retrained, None, [])
    assert alone.verdict is Verdict.UNDECIDED
    silent = ("weights", *SHOWS_NOTHING)
    assert all(found.verdict is Verdict.UNDECIDED for name, found in alone.findings.items() if name not in silent)
    assert all(alone.findings[name].figure is not None for name in OF_MEMORY if name not in (*silent, *DECIDING))
    assert all(alone.findings[name].words.startswith("not tested: ") for name in SHOWS_NOTHING)


def test_what_is_kept_does_not_decide_what_is_remembered(passed: Audit) -> None:
    assert passed.verdict is Verdict.EQUIVALENT
    for said in (Verdict.UNDECIDED, Verdict.LOST):
        retention = replace(passed.findings["retention"], verdict=said)
        assert replace(passed, findings=passed.findings | {"retention": retention}).verdict is Verdict.EQUIVALENT


def test_large_sets_are_sampled_and_it_says_so(
    world: Collection, removal: Removal, original: TableRanker, retrained: TableRanker, references: list[TableRanker]
) -> None:
    some = replace(THOROUGHNESS, queries=12)
    found = table_audit(world, removal, retrained, original, references, thoroughness=some)
    assert all(counts["queries"] == 12 < counts["queries_in_all"] for counts in found.about["sets"].values())
    assert found.about["thoroughness"]["queries"] == 12


def test_what_training_left_out_is_not_compared_with_the_original(
    world: Collection, original: TableRanker, retrained: TableRanker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never saw that either, so to be as high as it is no sign of memory."""
    rows = np.arange(12)
    monkeypatch.setattr("unrank.audit.audit.reserved_queries", lambda _: rows)
    left_out = Removal(queries=world.queries.ids(rows))
    record = replace(made_record(world.fingerprint), reserved=len(left_out.queries))
    options = AuditOptions(THOROUGHNESS, device="cpu")
    for known, compared in ((record, False), (replace(record, reserved=0), True)):
        context = open_audit(PerRanker(retrained, original, ()), world, left_out, known, options)
        assert (context.rankers.original is not None) is compared


def test_what_was_forgotten_before_is_not_kept(world: Collection, removal: Removal, retrained: TableRanker) -> None:
    now, before = Removal(documents=removal.documents[:9]), Removal(documents=removal.documents[9:])
    plain = table_audit(world, now, retrained, None, [])
    known = table_audit(
        world,
        now,
        retrained,
        None,
        [],
        record=made_record(removed=hashed(now), removed_before=(PreviousRequest(**vars(hashed(before))),)),
    )
    assert known.about["sets"]["forget"] == plain.about["sets"]["forget"]
    kept = [found.findings["recovery"].details["pairs"] for found in (plain, known)]
    assert kept[1] < kept[0]


@pytest.mark.parametrize("what", ["original", "reference"])
def test_another_kind_of_ranker_is_refused(
    world: Collection, removal: Removal, retrained: TableRanker, encoder: Path, what: str
) -> None:
    other = create_ranker("bi-encoder", str(encoder), 0)
    beside: dict[str, Any] = {"original": None, "references": []}
    beside |= {"original": other} if what == "original" else {"references": [other]}
    with pytest.raises(UnrankError, match=f"the {what} is a bi-encoder, the ranker a table: they cannot be compared"):
        table_audit(world, removal, retrained, **beside)


def test_a_ranker_is_known_again_by_its_weights(world: Collection, removal: Removal, original: TableRanker) -> None:
    def weights(ranker: Ranker) -> str:
        brief = replace(THOROUGHNESS, queries=3)
        described = table_audit(world, removal, ranker, None, [], thoroughness=brief).about["rankers"]["ranker"]
        return str(described["weights"])

    scaled = copy.deepcopy(original)
    scaled.register_buffer("scale", torch.tensor(2.0))
    assert weights(original) == weights(copy.deepcopy(original))
    assert len({weights(original), weights(scaled)}) == 2


def test_the_public_name() -> None:
    assert unrank.audit_ranker is audit_ranker
    assert unrank.Audit is Audit
