"""Evaluation results: the findings of an audit as claims that other programs can check.

A claim has the fields of in-toto's proposed predicate `eval-result`: a metric, a comparator, a threshold, whether it
passed, and the size of the sample. It also has the value, so that anybody can compute again whether it passed. Numbers
are decimal strings, which no reader rounds. The tests that acquit a ranker make claims, and so does retention. The
first claim is about all tests: it fails unless the ranker is shown to be equivalent and nothing was lost. So a program
that asks for all claims to pass is not misled by tests that could not tell and claim nothing.

The verdicts are also given as in-toto's predicate `test-result`. A test is passed if it shows equivalence, or that
nothing else was lost. It is failed if it shows a difference or a loss, or if the verdict depends on it and it is
undecided. Other undecided tests are warned: they found no difference, and do not show that there is none.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from unrank.audit.comparison import Json
from unrank.audit.verdict import DIFFERENT, Verdict

COMPARE = {"<": operator.lt, ">": operator.gt, ">=": operator.ge}
PASSED = (Verdict.EQUIVALENT, Verdict.KEPT)
FAILED = (*DIFFERENT, Verdict.LOST)
LISTS = {"failedTests": "FAILED", "warnedTests": "WARNED", "passedTests": "PASSED"}
"""The lists of a test result, the worst first, and the result if a list is the first that names a test."""
IN_ALL, RETENTION = "audit", "retention"
WORDS = ("test", "metric", "comparator", "threshold", "value")
CLAIM = {**dict.fromkeys(WORDS, str), "passed": bool, "sampleSize": (int, None)}
EVALUATION = {"claims": [CLAIM], "testResult": {"result": str} | {name: [str] for name in (*LISTS, "undecidedTests")}}
"""The form of an evaluation."""


def evaluation(audit: Mapping[str, Any], deciding: Sequence[str]) -> Json:
    """Return the evaluation results of an audit file. `deciding` names the tests that *equivalent* depends on."""
    tests, queries = audit["tests"], audit["sets"]["forget"]["queries"]
    lists = lists_of({name: found["verdict"] for name, found in tests.items()}, deciding)
    failed = "the number of tests that show a difference or a loss, or that should acquit and are undecided"
    claims = [claim(IN_ALL, failed, "<", 1, len(lists["failedTests"]), queries)]
    claims += [one for name in (*deciding, RETENTION) if name in tests for one in _claims(name, tests[name])]
    return {"sampleSize": queries, "claims": claims, "testResult": {**lists, "configuration": _configuration(audit)}}


def lists_of(verdicts: Mapping[str, str], deciding: Sequence[str]) -> Json:
    """Return the result, and the tests that are passed, warned, failed and undecided. Some have no such verdict."""
    undecided = [name for name, verdict in verdicts.items() if verdict == Verdict.UNDECIDED]
    convicted = [name for name, verdict in verdicts.items() if verdict in FAILED]
    failed = [*convicted, *(name for name in undecided if name in deciding)]
    lists = {
        "passedTests": [name for name, verdict in verdicts.items() if verdict in PASSED],
        "warnedTests": [name for name in undecided if name not in failed],
        "failedTests": failed,
    }
    return {"result": _result(lists), **lists, "undecidedTests": undecided}


def _result(lists: Mapping[str, Sequence[str]]) -> str:
    """Return the result of the worst list that names a test. If no test could tell, the result is no pass."""
    return next((result for name, result in LISTS.items() if lists[name]), "FAILED")


def _configuration(audit: Mapping[str, Any]) -> list[Json]:
    """Return the collection and the rankers that the audited one was compared with, each with a digest."""
    rankers = audit["rankers"]
    others = {"original": rankers["original"]} if rankers["original"] else {}
    others |= {f"reference {number}": one for number, one in enumerate(rankers["references"], 1)}
    collection = {"name": "collection", "digest": {"sha256": audit["collection"]["fingerprint"]}}
    return [collection, *({"name": name, "digest": {"weights": one["weights"]}} for name, one in others.items())]


def _claims(name: str, found: Mapping[str, Any]) -> Iterator[Json]:
    """Yield what a test claims. A test that nothing was compared with claims nothing."""
    measures, queries, details = found["measures"], found["queries"], found.get("details", {})
    if share := details.get("share_remembered"):
        largest = "the largest share of the pairs that may be remembered"
        yield claim(name, largest, "<", details["too_many"], share["high"], queries)
        for side in ("remembered", "suppressed"):
            chance = f"the chance that a ranker that never saw it looks as {side} as this one"
            yield claim(name, chance, ">=", details["chance_of_honest"], found[f"p_{side}"], queries)
    elif equal := found["equivalence"]:
        end = f"the {{}} end of the 90 % interval of {measures}"
        yield claim(name, end.format("lower"), ">", -equal["margin"], equal["low"], queries)
        yield claim(name, end.format("upper"), "<", equal["margin"], equal["high"], queries)
    elif found["verdict"] in (Verdict.KEPT, Verdict.LOST):
        upper = f"the upper end of the 95 % interval of {measures}"
        yield claim(name, upper, ">=", -found["threshold"], found["high"], queries)


def claim(test: str, metric: str, comparator: str, threshold: float, value: float, queries: int | None) -> Json:
    """Return a claim that a value is on one side of a threshold."""
    return {
        "test": test,
        "metric": metric,
        "comparator": comparator,
        "threshold": decimal(threshold),
        "value": decimal(value),
        "passed": bool(COMPARE[comparator](value, threshold)),
        "sampleSize": queries,
    }


def decimal(value: float) -> str:
    """Write a number in full, without an exponent.

    >>> decimal(0.02), decimal(-1e-7), decimal(1), float(decimal(1 / 3)) == 1 / 3
    ('0.02', '-0.0000001', '1', True)
    """
    return f"{Decimal(repr(value)):f}"


def contradictions(found: Mapping[str, Any], verdict: str, verdicts: Mapping[str, str]) -> list[str]:
    """Return what an evaluation says that does not follow from its own figures, or from the verdicts beside it."""
    shown = [one for one in DIFFERENT if one in verdicts.values()]
    agrees = verdict == shown[0] if shown else verdict in (Verdict.EQUIVALENT, Verdict.UNDECIDED)
    wrong = [] if agrees else [f"the verdict {verdict!r}"]
    wrong += [f"the claim of {one['test']} about {one['metric']}" for one in found["claims"] if not _follows(one)]
    result = found["testResult"]
    deciding = [name for name in result["failedTests"] if verdicts.get(name) == Verdict.UNDECIDED]
    said = lists_of(verdicts, deciding)
    return wrong + [
        f"the entry {name} of the test result" for name in said if sorted(result[name]) != sorted(said[name])
    ]


def _follows(one: Mapping[str, Any]) -> bool:
    """Return whether a claim passed as its value, comparator and threshold say."""
    try:
        compare, value, threshold = COMPARE[one["comparator"]], Decimal(one["value"]), Decimal(one["threshold"])
        return bool(bool(compare(value, threshold)) == one["passed"])
    except (KeyError, InvalidOperation):
        return False
