"""The findings of an audit as claims, and what speaks against them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from unrank.audit.evaluation import EVALUATION, contradictions, evaluation, lists_of
from unrank.disk import fits

DECIDING = ("equivalence",)


def found(verdict: str, **changes: Any) -> dict[str, Any]:
    value = {"measures": "the forget MRR", "verdict": verdict, "words": "why", "figure": 0.5, "low": 0.4, "high": 0.6}
    return {**value, "queries": 40, "threshold": 0.05, "equivalence": None, **changes}


def made(**tests: dict[str, Any]) -> dict[str, Any]:
    ranker = {"kind": "bi-encoder", "weights": "ab" * 32}
    return {
        "verdict": "equivalent",
        "sets": {"forget": {"queries": 40}},
        "collection": {"fingerprint": "cd" * 32},
        "rankers": {"ranker": ranker, "original": ranker, "references": [ranker, ranker]},
        "tests": tests,
    }


def equal(low: float, high: float, margin: float = 0.02) -> dict[str, Any]:
    passed = -margin < low and high < margin
    verdict = "equivalent" if passed else "undecided"
    return found(verdict, equivalence={"margin": margin, "low": low, "high": high, "needs": "", "passed": passed})


def verdicts(audit: dict[str, Any]) -> dict[str, str]:
    return {name: one["verdict"] for name, one in audit["tests"].items()}


def test_a_ranker_that_is_equivalent_passes_every_claim() -> None:
    kept = found("kept", low=-0.02, high=0.03, threshold=0.02)
    audit = made(equivalence=equal(-0.01, 0.015), retention=kept, noise_floor=found("measured"))
    value = evaluation(audit, DECIDING)
    assert fits(json.loads(json.dumps(value)), EVALUATION)
    first, lower, upper, loss = value["claims"]
    assert (first["test"], first["comparator"], first["threshold"], first["value"]) == ("audit", "<", "1", "0")
    assert (lower["comparator"], lower["threshold"], lower["value"]) == (">", "-0.02", "-0.01")
    assert (upper["comparator"], upper["threshold"], upper["value"]) == ("<", "0.02", "0.015")
    assert (loss["test"], loss["comparator"], loss["threshold"], loss["value"]) == ("retention", ">=", "-0.02", "0.03")
    assert all(one["passed"] and one["sampleSize"] == 40 for one in value["claims"])
    result = value["testResult"]
    assert (result["result"], result["passedTests"]) == ("PASSED", ["equivalence", "retention"])
    assert [one["name"] for one in result["configuration"]] == ["collection", "original", "reference 1", "reference 2"]
    assert contradictions(value, "equivalent", verdicts(audit)) == []


@pytest.mark.parametrize(
    "tests",
    [
        {"equivalence": found("undecided", figure=None, queries=None)},  # nothing to compare with
        {"equivalence": equal(-0.03, 0.01)},
        {"equivalence": equal(-0.01, 0.01), "probe": found("still remembered")},
        {"equivalence": equal(-0.01, 0.01), "displacement": found("suppressed")},
        {"equivalence": equal(-0.01, 0.01), "retention": found("lost", high=-0.1)},
        {"equivalence": found("undecided"), "membership": found("equivalent")},
    ],
)
def test_whoever_asks_for_all_claims_is_not_misled(tests: dict[str, Any]) -> None:
    audit = made(**tests)
    value = evaluation(audit, DECIDING)
    assert not all(one["passed"] for one in value["claims"])
    assert value["testResult"]["result"] == "FAILED" and value["testResult"]["failedTests"]


@pytest.mark.parametrize(("high", "chance", "passed"), [(0.05, 0.5, True), (0.1, 0.5, False), (0.05, 0.04, False)])
def test_single_pairs_claim_that_few_are_remembered(high: float, chance: float, passed: bool) -> None:
    details = {"share_remembered": {"best": 0.0, "low": 0.0, "high": high}, "too_many": 0.1, "chance_of_honest": 0.05}
    verdict = "equivalent" if passed else "undecided"
    pairs = found(verdict, details=details, p_remembered=chance, p_suppressed=0.9)
    value = evaluation(made(equivalence=equal(-0.01, 0.01), per_example=pairs), (*DECIDING, "per_example"))
    own = [one for one in value["claims"] if one["test"] == "per_example"]
    assert len(own) == 3 and all(one["passed"] for one in own) == passed
    assert value["claims"][0]["passed"] == passed


def test_a_test_that_does_not_decide_claims_nothing() -> None:
    """The ranker is equivalent, whatever a test that can only convict could not show."""
    value = evaluation(made(equivalence=equal(-0.01, 0.01), membership=equal(-0.5, 0.5)), DECIDING)
    assert {one["test"] for one in value["claims"]} == {"audit", "equivalence"}
    assert all(one["passed"] for one in value["claims"]) and value["testResult"]["result"] == "WARNED"


def test_an_undecided_test_that_does_not_decide_is_a_warning() -> None:
    result = lists_of({"equivalence": "equivalent", "recovery": "undecided", "noise_floor": "measured"}, DECIDING)
    assert result == {
        "result": "WARNED",
        "passedTests": ["equivalence"],
        "warnedTests": ["recovery"],
        "failedTests": [],
        "undecidedTests": ["recovery"],
    }
    assert lists_of({"noise_floor": "measured"}, DECIDING)["result"] == "FAILED", "nothing was shown"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda value: value["claims"][1].update(value="-0.5"), "the claim of equivalence about the lower end"),
        (lambda value: value["claims"][1].update(value="much"), "the claim of equivalence about the lower end"),
        (lambda value: value["claims"][1].update(comparator="=="), "the claim of equivalence about the lower end"),
        (lambda value: value["claims"][0].update(passed=True), "the claim of audit about the number of tests"),
        (lambda value: value["testResult"].update(result="PASSED"), "the entry result of the test result"),
        (lambda value: value["testResult"].update(failedTests=[]), "the entry failedTests of the test result"),
    ],
)
def test_what_does_not_follow_is_found(change: Any, said: str) -> None:
    audit = made(equivalence=equal(-0.01, 0.01), displacement=found("suppressed"), recovery=found("undecided"))
    value = evaluation(audit, DECIDING)
    assert contradictions(value, "suppressed", verdicts(audit)) == []
    assert contradictions(value, "equivalent", verdicts(audit)) == ["the verdict 'equivalent'"]
    changed = copy.deepcopy(value)
    change(changed)
    assert any(line.startswith(said) for line in contradictions(changed, "suppressed", verdicts(audit)))
