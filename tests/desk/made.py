"""Runs that were never run: their results in a ledger, for tests of what is written about them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.tiny import made_record
from unrank.audit.audit import DECIDING, TESTS
from unrank.audit.evaluation import evaluation
from unrank.audit.verdict import Verdict
from unrank.desk.ledger import Ledger
from unrank.desk.request import State
from unrank.desk.service import ServiceRanker, settle
from unrank.disk import folder_hash
from unrank.forgetting.outcome import ForgetState, Judgement, PairRanks

FILES = {"model.safetensors": "ab" * 32, "config.json": "cd" * 32, "1_Pooling/config.json": "ef" * 32}


def ranks(before: Sequence[int], after: Sequence[int], entries: int = 11, queries: int | None = None) -> PairRanks:
    def mrr(these: Sequence[int]) -> float:
        return sum(1 / rank for rank in these) / len(these)

    number = len(before) if queries is None else queries
    return PairRanks(number, tuple(before), tuple(after), (entries,) * len(before), mrr(before), mrr(after), 0.4)


def made_audit(verdict: str, words: str = "why") -> dict[str, Any]:
    figures = {"figure": 0.125, "low": 0.1, "high": 0.15, "threshold": 0.05, "queries": 40}
    margin = {"margin": 0.02, "low": -0.01, "high": 0.01, "needs": "", "passed": True}
    test = {"measures": "MRR", "verdict": str(verdict), "words": words, **figures}
    test |= {"equivalence": margin if verdict == Verdict.EQUIVALENT else None}
    tests = {name: {**test, "verdict": "kept"} if name == "retention" else test for name in TESTS}
    about = {"sets": {"forget": {"queries": 40}}, "collection": {"fingerprint": "78" * 32}}
    value = {"verdict": str(verdict), **about, "rankers": {"original": None, "references": []}, "tests": tests}
    return {**value, "evaluation": evaluation(value, DECIDING)}


def made_result(
    judged: Mapping[int, Judgement], verdict: str = Verdict.EQUIVALENT, copies: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the result of a run as the ledger stores it; without a new ranker if nothing was to forget."""
    nothing = all(one.state is ForgetState.NOTHING for one in judged.values())
    summary = {"mrr": 0.5, "low": 0.45, "high": 0.55, "queries": 4321}
    sets = dict.fromkeys(("forget", "entangled", "disjoint", "test"), summary)
    record = made_record().to_json() | {"target": 0.4, "target_name": "test-mrr", "before": sets, "after": sets}
    return {
        "record": None if nothing else record,
        "kept": {} if nothing else {"entangled": 0.99, "disjoint": 1.0, "test": 0.98},
        "audit": None if nothing else made_audit(verdict),
        "gates": [] if nothing else [{"name": "kept", "passed": True, "words": "4321 queries"}],
        "requests": {str(id): one.to_json() for id, one in judged.items()},
        "holders": [{"kind": "file", "path": path, "why": "holds a text"} for path in copies],
        "files": {"ranker": "12" * 32, "old ranker": "34" * 32},
        "ranker_files": FILES,
    }


def made_run(
    ledger: Ledger,
    judged: Mapping[int, Judgement],
    result: dict[str, Any] | None = None,
    original: Path | None = None,
    items: int | None = None,
    member: ServiceRanker | None = None,
    **options: object,
) -> None:
    """Write a run into a ledger, and settle its requests. `options` are more of what was asked of it."""
    named = {"queries": 0, "documents": items or len(judged), "pairs": 0}
    asked = {"requests": [*judged], "removed": named, "references": ["retrained"], "keep_at_least": 0.9}
    asked |= {"strict": False, "collection_fingerprint": "56" * 32, **options}
    if original is not None:
        asked |= {"ranker": str(original), "ranker_files": folder_hash(original)}
    written = json.dumps(result or made_result(judged))
    proof = {"result": hashlib.sha256(written.encode()).hexdigest()}
    with ledger.transaction():
        [[run]] = ledger.ask("SELECT coalesce(max(id), 0) + 1 FROM run")
        ledger.ask("INSERT INTO run VALUES (?, 'passed', '/srv/new', ?, ?)", [run, json.dumps(asked), written])
        ledger.write_of_run("passed", run, **proof)
        for id, one in judged.items():
            settle(ledger, id, State(one.state), run, member, **proof)
