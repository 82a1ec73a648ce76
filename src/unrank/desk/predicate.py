"""The content of a certificate, as its JSON holds it: the predicate of the signed statement.

`certificate.py` fills it, and the page shows it.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from unrank.desk.commitment import Commitment


class WorstPair(TypedDict):
    """The pair that is ranked highest now; with places, the one that is highest above its own."""

    before: int
    after: int
    entries: int
    place: NotRequired[int]


class OwnFigures(TypedDict):
    """The judgement of the request by its own pairs. Ranks are sorted, so that they name no pair."""

    state: str
    words: NotRequired[str]
    """Left out if the run took other requests too."""
    pairs: int
    queries: int
    ranks_before: list[int]
    ranks_after: list[int]
    list_lengths: list[int]
    least_ranks: NotRequired[list[int]]
    """The best rank that each pair may have; empty if the target is a mean."""
    places: NotRequired[list[int]]
    """The rank of each pair's place; empty if the target is another one."""
    may_exceed: NotRequired[int]
    """The number of pairs that may be ranked better than that, by chance."""
    mrr_before: float
    mrr_after: float
    target: float
    """The MRR that these queries should fall to; with places, that of the places."""
    worst: WorstPair | None
    changed: int
    unmoved: int


class SubstituteFigures(TypedDict):
    """Where substitutes of removed documents stand, over the pairs whose document has one."""

    pairs: int
    mrr: float
    median_rank: float
    first: int
    above: int


class StandingSubstitutes(TypedDict):
    """The same before and after a run."""

    before: SubstituteFigures
    after: SubstituteFigures


class OwnSubstitutes(TypedDict):
    """The substitutes of a request: how many take no place, and where the others stand."""

    left_out: int
    stand: StandingSubstitutes | None


class SetFigures(TypedDict):
    """The MRR of one set, with the 95 % interval of the MRR now."""

    before: float
    after: float
    low: float
    high: float
    queries: NotRequired[int]
    """Left out if it would tell of other requests."""


class Measured(TypedDict):
    """The measurements of a run."""

    request: OwnFigures
    sets: dict[str, SetFigures]
    kept: dict[str, float]
    substitutes: NotRequired[OwnSubstitutes]
    """Left out if the request names none."""


class TestFinding(TypedDict):
    """The finding of one test of the audit. If the run took other requests too, only its verdict is given."""

    verdict: str
    measures: NotRequired[str]
    figure: NotRequired[float | None]
    low: NotRequired[float | None]
    high: NotRequired[float | None]
    threshold: NotRequired[float | None]
    queries: NotRequired[int | None]
    words: NotRequired[str]


class Claim(TypedDict):
    """A claim that a program can check: a value on one side of a threshold. Numbers are decimal strings."""

    test: str
    metric: str
    comparator: str
    threshold: str
    value: str
    passed: bool
    sampleSize: int | None


class Evaluation(TypedDict):
    """The findings of the audit in the terms of in-toto. If the run took other requests too, there are no claims."""

    sampleSize: NotRequired[int]
    claims: list[Claim]
    testResult: dict[str, object]


class Audited(TypedDict):
    """The verdict of the audit, and the finding of each test."""

    verdict: str
    tests: dict[str, TestFinding]
    evaluation: NotRequired[Evaluation | None]
    """`None` if an earlier version made the audit; not in certificates before version 3."""


class PlacesPart(TypedDict):
    """How places were found. Figures of all pairs of the run are left out if it took other requests too."""

    proxies: int
    source: str
    epochs: int
    calibrated_on: int
    calibrated_by: NotRequired[str | None]
    spread: NotRequired[float]
    above: NotRequired[float | None]
    level: NotRequired[float]
    mrr: NotRequired[float]
    distance_before: NotRequired[float | None]
    distance_after: NotRequired[float | None]
    by: NotRequired[list[str]]


class Done(TypedDict):
    """How a ranker was made to forget. Without a new ranker, the fields of its record are left out, but its target."""

    method: NotRequired[str]
    settings: NotRequired[dict[str, object]]
    target: NotRequired[float]
    """Left out if it is a figure of other requests too."""
    target_name: NotRequired[str]
    epochs: NotRequired[float]
    seconds: NotRequired[float]
    seed: NotRequired[int]
    device: NotRequired[str]
    index_valid: NotRequired[bool | None]
    versions: NotRequired[dict[str, str]]
    collection: str
    references: int
    keep_at_least: float | None
    strict: bool
    copies: dict[str, int]
    vocabulary: str | None
    never_seen: NotRequired[bool]
    """Whether the record of the old ranker, with its owner's seal, shows that it was trained without the request."""
    unknown_references: NotRequired[int]
    """The number of references of which no record shows what they were trained on."""
    unseen_measured: NotRequired[bool]
    """Whether there was a target of what the ranker never saw; if not, no target shows forgetting."""
    places: NotRequired[PlacesPart]
    """Left out if the target is another one."""


class RankerPart(TypedDict):
    """The part of a certificate about one ranker."""

    name: str | None
    state: str
    in_service_since: str | None
    settled: str
    run: int
    requests: int
    alone: bool
    """Whether the run forgot what this request names, and nothing else."""
    done: Done
    measured: Measured
    audited: Audited | None
    gates: dict[str, bool]
    copies: dict[str, int | None]
    files: dict[str, str | None]


class Closing(TypedDict):
    """When the request was closed, and the number of places of each kind that held it."""

    at: str
    deleted: NotRequired[dict[str, int]]
    left: NotRequired[dict[str, int]]
    reason: NotRequired[str]
    not_checked: NotRequired[dict[str, int]]


class RequestPart(TypedDict):
    """The request, without the names of anything."""

    id: int
    received: str
    due: str
    basis: str
    closing: Closing | None
    named: dict[str, int]
    substitutes: NotRequired[int]
    """The number of documents for which it names another one; left out if there is none."""
    commitment: Commitment


class EntryPart(TypedDict):
    """An entry of the history without its details."""

    number: int
    at: str
    event: str
    hash: str


class HistoryPart(TypedDict):
    """The end of the ledger's history, and the entries about the request."""

    entries: int
    last_hash: str
    of_request: list[EntryPart]


class Predicate(TypedDict):
    """The content of a certificate."""

    certificate_version: int
    made: str
    made_by: str
    state: str
    request: RequestPart
    rankers: list[RankerPart]
    also_delete: list[str]
    not_claimed: list[str]
    history: HistoryPart
