"""The record of a run: everything needed to judge it, and nothing that was removed.

It is JSON beside the weights (`unrank.json`), with one line for each check in `history.jsonl`. Removed ids appear only
as hashes under the owner's key, which does not ship with the ranker: without the key nobody can test a guess.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar

import unrank
from unrank.disk import read_json, sha256, sha256_once, write_json
from unrank.errors import BadFile, UnrankError
from unrank.owner import OwnerKey, owner_key
from unrank.parse import WrongValue, parse

RECORD = "unrank.json"
RECORD_VERSION = 2
RECORD_VERSIONS = (1, 2)
"""The versions that are read. In version 2 removed ids are hashed under the owner's key, not with a salt."""
READS = " and ".join(map(str, RECORD_VERSIONS))
HISTORY = "history.jsonl"
MODEL_CARD = "README.md"
DETAILS = "details.json"
DETAILS_VERSION = 2
CELL = "cell.json"
CELL_FORMAT = 2
CELL_FORMATS = (1, 2)
"""The formats of `cell.json` that a report reads. Format 2 adds hashes of the code of method and training."""
RANKS = "ranks.json"
FORGET_LISTS = "forget.json"
"""The file of a cell with its scores and lists of the forget set. Cells of earlier versions have none."""

SETS = ("forget", "entangled", "disjoint", "test")
"""The four sets that every ranker is measured on."""
KEPT = SETS[1:]
MEASURED = (*SETS, "forget_full")

RETRAIN = "retrain"
"""The method after which a ranker never saw what was removed."""
LIBRARIES = ("torch", "transformers", "sentence-transformers", "accelerate", "numpy")
RENAMED_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "cocol": {
        "held": "anchors_per_pair",
        "held_disjoint": "disjoint_per_pair",
        "held_an_epoch": "disjoint_per_epoch",
        "looked_at": "negatives_seen",
        "least_steps": "min_steps",
    }
}
"""For each method the former names of its settings, and their names now. Commands, grids and records may use both."""
ROUNDING = 1e-9
MARGIN = 0.01
"""The share of the original's MRR on a kept set that a method may lose, if a grid says no other."""
CAME_BACK = 0.05
"""The most that the MRR of earlier requests may be above its target."""

Setting = bool | int | float | str
Value = TypeVar("Value")


class OtherVersion(BadFile):
    """A record that another version of unrank wrote."""


@dataclass(frozen=True)
class Said:
    """What a grid says about the comparison of its methods before they are run."""

    primary: str = ""
    """The method that is compared with all others, as tables name it."""
    margin: float | None = None
    """How much of the original's MRR a set may lose; `None` if nothing was said, so that the default counts."""


@dataclass(frozen=True)
class AdapterOf:
    """The ranker that an adapter is for. Without the adapter it remembers what was removed."""

    name: str
    digest: str
    """A hash of its files."""
    rank: int


@dataclass(frozen=True)
class SetSummary:
    """The metrics of one set: means over its queries, and the 95 % interval of the MRR."""

    mrr: float
    low: float
    high: float
    queries: int
    ndcg: float | None = field(default=None, metadata={"key": "ndcg@10"})

    def to_json(self) -> dict[str, float | None]:
        return {"mrr": self.mrr, "low": self.low, "high": self.high, "ndcg@10": self.ndcg, "queries": self.queries}


@dataclass(frozen=True)
class CollectionName:
    """The collection of a run."""

    name: str
    fingerprint: str = ""
    imported: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The kind of its source, and the options of its import; empty in records of earlier versions."""


@dataclass(frozen=True)
class Code:
    """The code that made a record."""

    package_sha256: str
    """A hash of every source file of the installed package."""
    commit: str | None = None
    """The commit of its repository; `None` if the package was not run from one, or if git is missing."""


@dataclass(frozen=True)
class LearningEpoch:
    """The time of one epoch of training on a device, and how it is known."""

    seconds: float
    how: str
    device: str = ""


@dataclass(frozen=True)
class HashedIds:
    """A number of ids, and their hashes; none if there was no key to hash them with."""

    count: int
    hashes: tuple[str, ...]


@dataclass(frozen=True)
class RemovedHashes:
    """A removal as counts and hashes of its ids."""

    salt: str
    """A random name of the run. Records of version 1 are hashed with it."""
    queries: HashedIds
    documents: HashedIds
    pairs: HashedIds
    key: str = ""
    """The public name of the owner's key that the ids are hashed with; empty in version 1, and if there was no key."""

    @property
    def counts(self) -> dict[str, int]:
        return {kind: getattr(self, kind).count for kind in ("queries", "documents", "pairs")}

    @property
    def hashed(self) -> bool:
        """Whether its ids can be recognised at all: there are hashes, or nothing was removed."""
        return all(ids.hashes or not ids.count for ids in (self.queries, self.documents, self.pairs))

    def without_hashes(self) -> RemovedHashes:
        """Return the counts alone."""
        queries, documents, pairs = (HashedIds(number, ()) for number in self.counts.values())
        return RemovedHashes("", queries, documents, pairs)


class ForgetState(StrEnum):
    """The outcome of a request."""

    FORGOTTEN = "forgotten"
    NOT_VERIFIABLE = "forgotten, not verifiable"
    NOT_CLEARED = "forgotten, weights not cleared"
    WHILE_ADAPTED = "forgotten while the adapter is on"
    NOT_FORGOTTEN = "not forgotten"
    NOTHING = "nothing to forget"


@dataclass(frozen=True)
class PreviousRequest(RemovedHashes):
    """A removal of an earlier run, the method of that run, and the target it was brought to."""

    by: str | None = None
    reached: bool | None = None
    """`None` if the method has no target."""
    target: float | None = None
    """`None` if nothing was brought to a target."""
    target_name: str | None = None
    state: str | None = None
    """The outcome of that run; `None` in older records, and if the ranker was retrained since."""

    @property
    def never_seen(self) -> bool:
        """Whether the ranker was trained without it since."""
        return self.by == RETRAIN

    @property
    def missed(self) -> bool:
        """Whether that run did not forget it."""
        return self.reached is False or self.state == ForgetState.NOT_FORGOTTEN


@dataclass(frozen=True)
class PreviousMrr:
    """The MRR of all that was removed by earlier requests, before and after a run."""

    before: float
    after: float
    above: float | None = None
    """How far the highest request is above its target; `None` if no request has one."""

    @property
    def came_back(self) -> bool:
        """Whether it rose: above a target or, if there is none, in this run."""
        return (self.after - self.before if self.above is None else self.above) > CAME_BACK

    def __str__(self) -> str:
        change = f"what was forgotten before had an MRR of {self.before:.3f}, now {self.after:.3f}"
        if self.above is None:
            return change
        side = "above" if self.above > 0 else "below"
        return f"{change}; the highest request is {abs(self.above):.3f} {side} its target"


@dataclass(frozen=True)
class Landing:
    """The place on the line between two sets of weights that a run ended at, its forget MRR, and the measurements."""

    share: float
    forget: float
    evaluations: int


@dataclass(frozen=True)
class Recovery:
    """The forget MRR before and after one epoch on the kept data; the reference's too, if there is one."""

    before: float
    after: float
    reference_before: float | None = None
    reference_after: float | None = None


@dataclass(frozen=True)
class Agreement:
    """How far two rankers agree on the forget set, query by query."""

    queries: int
    distance: float
    """The mean difference of the reciprocal ranks, without its sign."""
    low: float
    high: float
    """The 95 % interval of the distance."""
    correlation: float | None = None
    """Pearson's correlation of the reciprocal ranks; `None` if those of a ranker do not vary."""
    rank_biased_overlap: float | None = None
    """The mean over the lists of the forget queries; `None` if the lists are not known."""


@dataclass(frozen=True)
class ReferenceAgreement:
    """The agreement with a reference: of the original, and of the ranker after the run."""

    before: Agreement
    after: Agreement
    weights: str | None = None
    """A hash of the reference's weights; `None` in records of earlier versions."""


@dataclass(frozen=True)
class SubstituteSummary:
    """Where the documents stand that should take the place of removed ones, over the forget pairs that have one."""

    pairs: int
    mrr: float
    median_rank: float
    first: int
    """The number of substitutes that are ranked first."""
    above: int
    """The number of substitutes with a higher score than the document that they replace."""

    def __str__(self) -> str:
        return f"median rank {self.median_rank:g}, MRR {self.mrr:.3f}, {self.above:,} above the removed document"


@dataclass(frozen=True)
class Substituted:
    """The substitutes before and after a run."""

    before: SubstituteSummary
    after: SubstituteSummary


@dataclass(frozen=True)
class PairRank:
    """The rank of one pair in its list before and after a run, and the number of entries of that list."""

    before: int
    after: int
    entries: int
    place: int | None = None
    """The rank of its place; `None` if the target is another one."""

    def __str__(self) -> str:
        place = "" if self.place is None else f", place {self.place}"
        return f"rank {self.before} of {self.entries} before, rank {self.after} now{place}"

    @property
    def order(self) -> tuple[float, int, int]:
        """The worst pair has the least: the one highest above its place or, without places, the highest one."""
        below = 0.0 if self.place is None else 1 / self.place - 1 / self.after
        return below, self.after, self.before


@dataclass(frozen=True)
class PairRanks:
    """The ranks of a request's pairs before and after a run, pair by pair, sorted so that they name no pair.

    The rank of a pair is that among the negatives of its query; a tie counts for the pair.
    """

    queries: int
    ranks_before: tuple[int, ...]
    ranks_after: tuple[int, ...]
    list_lengths: tuple[int, ...]
    mrr_before: float
    """The mean over the request's own queries of the best pair's reciprocal rank."""
    mrr_after: float
    target: float
    """The MRR that these queries should fall to."""
    least_ranks: tuple[int, ...] = ()
    """The best rank that each pair may have; empty if the target is a mean."""
    places: tuple[int, ...] = ()
    """The rank of each pair's place; empty if the target is another one."""
    may_exceed: int = 0
    """The number of pairs that may be ranked better than that: so many of as many unseen pairs would be."""

    def __post_init__(self) -> None:
        sizes = {len(self.ranks_before), len(self.ranks_after), len(self.list_lengths)}
        if len(sizes) > 1 or any(len(goal) not in (0, *sizes) for goal in (self.least_ranks, self.places)):
            raise WrongValue("not every pair has a rank before, a rank after and the length of its list")
        if any(not 1 <= rank <= pair.entries for pair in self.each for rank in (pair.before, pair.after)):
            raise WrongValue("a pair has a rank that its list does not have")

    @property
    def pairs(self) -> int:
        return len(self.ranks_before)

    @property
    def each(self) -> list[PairRank]:
        places = self.places or (None,) * self.pairs
        ranks = zip(self.ranks_before, self.ranks_after, self.list_lengths, places, strict=True)
        return [PairRank(*one) for one in ranks]

    @property
    def worst(self) -> PairRank | None:
        """The pair that is ranked highest now, with places the one highest above its own; `None` if there is none."""
        return min(self.each, key=lambda pair: pair.order, default=None)

    @property
    def changed(self) -> int:
        """The number of pairs whose rank is another one now."""
        return sum(pair.after != pair.before for pair in self.each)

    @property
    def had_to_fall(self) -> list[bool]:
        """For each pair, whether it was ranked above the target."""
        if self.least_ranks:
            return [before < least for before, least in zip(self.ranks_before, self.least_ranks, strict=True)]
        return [1 / before > self.target + ROUNDING for before in self.ranks_before]

    @property
    def unmoved(self) -> int:
        """The number of pairs that were ranked above the target and are ranked no lower now."""
        return sum(had and pair.after <= pair.before for had, pair in zip(self.had_to_fall, self.each, strict=True))

    @property
    def too_high(self) -> int:
        """The number of pairs that are ranked better than the best rank they may have."""
        ranks = zip(self.ranks_after, self.least_ranks, strict=False)  # there may be no such rank
        return sum(after < least for after, least in ranks)

    def to_json(self) -> dict[str, object]:
        found = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        worst = self.worst and {name: rank for name, rank in vars(self.worst).items() if rank is not None}
        return {**found, "pairs": self.pairs, "worst": worst, "changed": self.changed, "unmoved": self.unmoved}


@dataclass(frozen=True)
class Check:
    """One line of the history: a check of a run, or an epoch of training."""

    epoch: float
    seconds: float = 0.0
    learned: float | None = None
    """The MRR on a sample of the training queries."""
    forget: float | None = None
    measured: bool | None = None
    """Whether the forget MRR was measured; otherwise it was estimated."""
    losses: Mapping[str, float] = field(default_factory=dict)
    entangled: float | None = None
    disjoint: float | None = None
    test: float | None = None
    distance: float | None = None
    """How far the forget pairs are from their places; `None` if the target is another one."""
    steps: int | None = None
    """The steps since the check before; `None` in records of earlier versions."""

    def to_json(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of_json(cls, lines: Iterable[Mapping[str, object]]) -> list[Check]:
        """Return the history that a checkpoint holds."""
        return [parse(cls, line, "history") for line in lines]


@dataclass(frozen=True)
class Cleared:
    """The rows of the vocabulary that removed texts touch and no kept text does, and what was done about them."""

    rows: int
    reset: int
    """The rows whose values were changed."""
    left: int
    """The rows that could not be set."""
    how: str


@dataclass(frozen=True)
class Entries:
    """The mean number of entries of a document's vector that are not zero, on a sample of documents."""

    after: float
    before: float | None = None
    """`None` in the record of a training."""


@dataclass(frozen=True)
class HeldOut:
    """The part of a collection that a proxy never saw: one of several folds of its queries and of its documents.

    A hash of seed and id gives the fold of a query or of a document, so the record names none of them.
    """

    folds: int
    fold: int
    """From 1 to the number of folds."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.fold <= self.folds:
            raise WrongValue(f"held_out names fold {self.fold} of {self.folds}")

    def __str__(self) -> str:
        return f"fold {self.fold} of {self.folds} by seed {self.seed}"

    def holds(self, kind: Literal["query", "document"], id: str) -> bool:
        """Return whether an id is in the fold.

        >>> [HeldOut(3, fold).holds("query", "q1") for fold in (1, 2, 3)]
        [False, True, False]
        """
        hashed = hashlib.sha256(f"{self.seed}:{kind}:{id}".encode()).digest()
        return int.from_bytes(hashed[:8]) % self.folds == self.fold - 1


@dataclass(frozen=True)
class PlacesFound:
    """How the places of the forget pairs were found, and how far the pairs are from them."""

    proxies: int
    source: str
    """`made` on the spot, `prepared`, both (`prepared and made`), `reference`; or `estimated` without a proxy."""
    epochs: int
    """The epochs that a proxy was trained for; the most, if there are several."""
    calibrated_on: int
    """The number of unseen pairs that places were calibrated on, or tried on if they were made; 0 if there are none."""
    spread: float
    """How far above its place an unseen pair stands, as a share of the range of its list: one standard deviation."""
    level: float = 1.0
    """How much of the way margins were mapped to the original's level: less than 1 if much is removed."""
    calibrated_by: str | None = None
    """The queries of those pairs: `reserved` ones, or `openings`, which were made of the first words of documents."""
    above: float | None = None
    """The share of unseen pairs that are ranked higher than their places allow; `None` if places were tried on none."""
    mrr: float = 0.0
    """The forget MRR of a ranker that has every pair at its place."""
    distance_before: float | None = None
    """The mean distance of the queries' reciprocal ranks from those of their places."""
    distance_after: float | None = None
    by: tuple[str, ...] = ()
    """Hashes of the weights of the rankers that gave them: these do not judge the run."""


@dataclass(frozen=True)
class WholeIndexRanks:
    """The ranks of a set of pairs among all documents of an index: for each query, that of its first document."""

    mrr: float
    """A query whose documents are not in the index counts 0."""
    median_rank: float | None
    """Of the queries whose documents are in the index; `None` if there is none."""
    first_ten: int
    """The number of queries that have a document of the set among the first ten."""
    queries: int
    not_in_index: int
    """The number of queries none of whose documents is in the index."""


@dataclass(frozen=True)
class WholeIndex:
    """The forget pairs over a whole index, before and after."""

    documents: int
    before: WholeIndexRanks
    after: WholeIndexRanks


@dataclass(frozen=True)
class Seal:
    """The owner's keyed hash of a record, and the public name of the key."""

    key: str
    mac: str


@dataclass(frozen=True)
class Record(Mapping[str, Any]):
    """Settings, seeds, versions, hashes, times, metrics before and after, history.

    As a mapping it is its JSON form, for scripts that know its keys.
    """

    ranker: str
    method: str
    settings: Mapping[str, Setting]
    collection: CollectionName
    epochs: float
    seconds: float
    """All that the method took: teacher scores, steps, checks and landing."""
    timing: Mapping[str, float]
    learning_epoch: LearningEpoch
    after: Mapping[str, SetSummary]
    """A set without a query is left out."""
    history: tuple[Check, ...]
    base: str | None = None
    seed: int = 0
    device: str = ""
    before: Mapping[str, SetSummary] = field(default_factory=dict)
    """Empty in the record of a training."""
    set_queries: Mapping[str, int] = field(default_factory=dict)
    """The number of queries of each kept set; the metrics have the number of those measured."""
    target: float | None = None
    target_name: str | None = None
    reached: bool | None = None
    landing: Landing | None = None
    state: str | None = None
    """The state of the request, as `unrank forget` prints it; `None` in records of earlier versions."""
    pairs: PairRanks | None = None
    """The ranks of the forget pairs before and after; `None` in records of earlier versions."""
    removed: RemovedHashes | None = None
    removed_before: tuple[PreviousRequest, ...] = ()
    """Removals of earlier runs, in their order. They must stay forgotten."""
    earlier: PreviousMrr | None = None
    recovery: Recovery | None = None
    agreement: ReferenceAgreement | None = None
    """`None` if there was no reference, and in records of earlier versions."""
    deterministic: bool = False
    """Whether another run on the same machine gives the same bits. On a CPU it always does."""
    index_valid: bool | None = None
    """Whether stored document vectors of the original stay valid; `None` if the ranker stores none."""
    versions: Mapping[str, str] = field(default_factory=dict)
    code: Code | None = None
    """`None` in records of earlier versions."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """A hash of each file of the ranker."""
    base_digest: str | None = None
    """A hash of the base's files, by which it is found again."""
    cleared: Cleared | None = None
    """`None` in version 1, and in the record of a training."""
    reserved: int | None = None
    """The number of queries that training left out; `None` if that is not known, as in records of earlier versions."""
    held_out: HeldOut | None = None
    """The part of the collection that a proxy never saw; `None` if the ranker is no prepared proxy."""
    places: PlacesFound | None = None
    """`None` if the target is another one."""
    substitutes: Substituted | None = None
    """`None` if no removed document has a substitute."""
    whole_index: WholeIndex | None = None
    """`None` if no index was named."""
    entries: Entries | None = None
    """`None` if the vectors of documents are not sparse."""
    adapter: AdapterOf | None = None
    """`None` if the folder holds a whole ranker."""
    lineage: str | None = None
    """A hash of the weights of the first original, by which its anchor file is found; `None` if it has none."""
    seal: Seal | None = None
    """`None` in version 1, and if there was no key."""
    record_version: int = RECORD_VERSION

    @classmethod
    def read(cls, folder: str | Path) -> Record | None:
        """Return the record beside a ranker's weights; `None` if unrank did not write them."""
        path = Path(folder) / RECORD
        return cls.parse(read_json(path), path) if path.is_file() else None

    @classmethod
    def of(cls, value: Record | Mapping[str, object] | None) -> Record | None:
        """Return a record that may be given as its JSON form."""
        if value is None or isinstance(value, Record):
            return value
        if not isinstance(value, Mapping):
            raise UnrankError(f"a record is needed, as read_record returns it, not {value!r}")
        return cls.parse(dict(value), Path(RECORD))

    @classmethod
    def parse(cls, value: Any, path: Path) -> Record:
        """Return the record in a JSON value; `path` is its file, for the error."""
        found = value.get("record_version") if isinstance(value, dict) else None
        if found is not None and found not in RECORD_VERSIONS:
            raise OtherVersion(path, f"record version {found}, this unrank reads {READS}")
        try:
            return _checked(value)
        except WrongValue as error:
            raise BadFile(
                path,
                f"damaged record: {error}, so what the ranker has forgotten is not known; "
                "restore the file from a copy, or remove it",
            ) from error

    def write(self, folder: Path, hashes: Mapping[str, str]) -> None:
        """Write the record and its history, with today's versions, the hashes of the files beside them, and a seal."""
        today = replace(self, versions=versions(), code=installed_code(), hashes=hashes)
        whole = replace(today, seal=None, record_version=RECORD_VERSION).to_json()
        key = owner_key(make=True)
        write_json(folder / RECORD, whole | {"seal": asdict(_seal(whole, key))} if key else whole)
        lines = "".join(json.dumps(check.to_json()) + "\n" for check in self.history)
        (folder / HISTORY).write_text(lines, encoding="utf-8")

    def to_json(self) -> dict[str, Any]:
        found = _plain(self) | {"set_queries": dict(self.set_queries) or None}
        for side, metrics in (("before", self.before), ("after", self.after)):
            found[side] = {name: found[side].get(name) for name in MEASURED} if metrics else None
        found |= {"normalised_epoch": self.normalised_epoch, "total_time": self.total_time}
        return {key: found[key] for key in KEYS if found[key] is not None or key not in ADDED}

    def __getitem__(self, key: str) -> Any:
        """Return one value of the JSON form."""
        return self.to_json()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_json())

    def __len__(self) -> int:
        return len(self.to_json())

    @property
    def changed(self) -> bool:
        """Whether the run changed any weight."""
        return bool(self.epochs) or bool(self.cleared and self.cleared.reset)

    @property
    def rows_left(self) -> int:
        """The rows of the vocabulary that only removed texts touch and that could not be cleared."""
        return self.cleared.left if self.cleared else 0

    @property
    def normalised_epoch(self) -> float | None:
        """The mean epoch, in epochs of training."""
        return self.timing.get("steps", 0.0) / self.epochs / self.learning_epoch.seconds if self.epochs else None

    @property
    def total_time(self) -> float:
        """The time of the run, in epochs of training."""
        return self.seconds / self.learning_epoch.seconds

    @property
    def kept(self) -> dict[str, float]:
        """The share of its MRR that each kept set still has."""
        before, after = ({name: metrics.mrr for name, metrics in of.items()} for of in (self.before, self.after))
        return shares_kept(before, after)

    @property
    def gap(self) -> float | None:
        """The distance of the forget MRR from the target."""
        return None if self.target is None else abs(self.after["forget"].mrr - self.target)

    @property
    def met(self) -> float | None:
        """The epoch of the first check with a forget MRR at the target or below."""
        if self.target is None:
            return None
        return next((epoch for epoch, mrr in self.path("forget") if mrr <= self.target), None)

    @property
    def recovered(self) -> float | None:
        """The forget MRR after one epoch on the kept data; `None` if it was not measured."""
        return self.recovery.after if self.recovery else None

    @property
    def removed_counts(self) -> dict[str, int]:
        """The number of queries, documents and pairs that were removed."""
        return self.removed.counts if self.removed else {}

    def path(self, name: str) -> list[tuple[float, float]]:
        """Return the epoch and the MRR of a set for each check that measured it."""
        measured = [(check.epoch, getattr(check, name)) for check in self.history]
        return [(float(epoch), float(mrr)) for epoch, mrr in measured if mrr is not None]


KEYS = (
    *("record_version", "ranker", "base", "method", "settings", "seed", "collection", "epochs", "seconds", "timing"),
    *(
        "learning_epoch",
        "device",
        "after",
        "history",
        "before",
        "set_queries",
        "target",
        "target_name",
        "reached",
        "landing",
        "state",
        "pairs",
    ),
    *("removed", "removed_before", "earlier", "recovery", "agreement", "deterministic", "index_valid"),
    *("normalised_epoch", "total_time", "versions", "code", "hashes", "base_digest", "cleared", "reserved", "held_out"),
    *("places", "substitutes", "whole_index", "adapter", "lineage", "seal"),
)
"""The order of the keys in the file."""
ADDED = (
    *("state", "pairs", "agreement", "base_digest", "cleared", "reserved", "held_out", "places", "substitutes"),
    *("whole_index", "adapter", "lineage", "seal", "code"),
)
"""Keys that records of earlier versions lack. They are left out if there is nothing to write."""


def sealed_by_owner(folder: str | Path) -> bool:
    """Return whether the owner of this machine's key sealed the record of a ranker, and every file is as it was then.

    It is `False` if there is no key here, or no record or seal there.
    """
    folder, key = Path(folder), owner_key()
    path = folder / RECORD
    if key is None or not path.is_file():
        return False
    value = read_json(path)
    record = Record.parse(value, path)
    if record.seal is None or not hmac.compare_digest(_seal(value, key).mac.encode(), record.seal.mac.encode()):
        return False
    files = {str(file.relative_to(folder)): file for file in folder.rglob("*") if not file.is_dir()}
    for name in (RECORD, HISTORY, MODEL_CARD):
        files.pop(name, None)
    return record.hashes.keys() == files.keys() and all(
        file.is_file() and sha256_once(file) == record.hashes[name] for name, file in files.items()
    )


def _seal(value: Mapping[str, object], key: OwnerKey) -> Seal:
    """Return the seal of a record's JSON form: a keyed hash of its canonical text without the seal."""
    rest = {name: part for name, part in value.items() if name != "seal"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return Seal(key.name, key.mac("record", canonical.encode()))


def read_record(folder: str | Path) -> Record | None:
    """Return the record beside a ranker's weights; `None` if unrank did not write them."""
    return Record.read(folder)


def read_run(folder: Path) -> Record:
    """Return the record of a run that forgot something; refuse the record of a training."""
    return run_of(read_json(folder / RECORD), folder / RECORD)


def run_of(value: Any, path: Path) -> Record:
    """Return the record of a run from its JSON form; refuse the record of a training. `path` is for the error."""
    record = Record.parse(value, path)
    if not record.before or record.removed is None:
        raise BadFile(path, "a record of training: nothing was forgotten in it; name what 'unrank forget' wrote")
    return record


def requests_of(record: Record | None) -> tuple[PreviousRequest, ...]:
    """Return all removals that a ranker was asked to forget, run by run, its last run included.

    A retrained ranker saw nothing of what was removed before its training.
    """
    if record is None:
        return ()
    runs = record.removed_before
    if record.removed is not None:
        target, name = (record.target, record.target_name) if record.changed else (None, None)
        parts = {each.name: getattr(record.removed, each.name) for each in fields(RemovedHashes)}
        last = PreviousRequest(
            **parts, by=record.method, reached=record.reached, target=target, target_name=name, state=record.state
        )
        runs = (*runs, last)
    if record.method == RETRAIN:
        return tuple(replace(run, by=RETRAIN, reached=None, state=None) for run in runs)
    return runs


def forgotten_requests(record: Record | None) -> tuple[PreviousRequest, ...]:
    """Return the requests of a ranker without those that were not forgotten."""
    return tuple(run for run in requests_of(record) if not run.missed)


def measured_epoch(record: Record | None, fingerprint: str, device: str) -> LearningEpoch | None:
    """Return the time of an epoch of training if it was measured on this collection and device."""
    if record is None or record.collection.fingerprint != fingerprint or record.learning_epoch.device != device:
        return None
    return record.learning_epoch


def reserved_in(record: Record | None, fingerprint: str) -> int | None:
    """Return how many queries of this collection the training of a ranker left out; `None` if that is not known."""
    return record.reserved if record is not None and record.collection.fingerprint == fingerprint else None


def current_settings(method: str, settings: Mapping[str, Value]) -> dict[str, Value]:
    """Return a method's settings under their present names.

    >>> current_settings("cocol", {"held": 2, "batch": 8})
    {'anchors_per_pair': 2, 'batch': 8}
    """
    renamed = RENAMED_SETTINGS.get(method, {})
    for old, new in renamed.items():
        if old in settings and new in settings:
            raise UnrankError(f"{new} is given twice, once by its old name {old}: take one out")
    return {renamed.get(name, name): value for name, value in settings.items()}


def shares_kept(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the share of its MRR that each kept set still has; a set whose MRR was 0 is left out.

    >>> shares_kept({"forget": 0.8, "disjoint": 0.5, "test": 0.0}, {"forget": 0.1, "disjoint": 0.4, "test": 0.0})
    {'disjoint': 0.8}
    """
    return {name: after[name] / before[name] for name in KEPT if before.get(name, 0.0) > 0}


def versions() -> dict[str, str]:
    """Return the versions of everything that a figure may depend on."""
    ours = {"unrank": unrank.__version__, "python": platform.python_version()}
    return ours | {name: version_of(name) for name in LIBRARIES}


@cache
def version_of(library: str) -> str:
    """Return the version of a library, which is looked up once in a process: it takes milliseconds."""
    return version(library)


@cache
def installed_code() -> Code:
    """Return the code of the installed package: a hash of its source files, and its commit if git knows it."""
    package = Path(__file__).parent
    hashed = hashlib.sha256()
    for path in sorted(package.rglob("*.py"), key=lambda path: path.relative_to(package).as_posix()):
        hashed.update(f"{path.relative_to(package).as_posix()} {sha256(path)}\n".encode())
    return Code(hashed.hexdigest(), _commit(package))


def _commit(package: Path) -> str | None:
    """Return the commit of the repository that the package's files belong to; `None` if they belong to none."""
    for command in (["ls-files", "--error-unmatch", "record.py"], ["rev-parse", "HEAD"]):
        try:
            done = subprocess.run(
                ["git", "-C", package, *command], capture_output=True, text=True, timeout=10, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
    return done.stdout.strip()


def _checked(value: Any) -> Record:
    """Return a JSON value as a record; refuse one whose parts contradict each other."""
    record: Record = parse(Record, value)
    if value.get("record_version") is None:
        raise WrongValue("record_version is missing")
    if not record.learning_epoch.seconds > 0:
        raise WrongValue("learning_epoch.seconds is not above 0")
    if record.before and ("forget" not in record.before or set(record.before) != set(record.after)):
        raise WrongValue("before and after do not have the same sets")
    return replace(
        record,
        settings=current_settings(record.method, record.settings),
        target_name=current_target(record.target_name),
        removed_before=tuple(
            replace(each, target_name=current_target(each.target_name)) for each in record.removed_before
        ),
    )


def current_target(name: str | None) -> str | None:
    """Return the name today of a target in a record: what `unseen` meant once is now called `test-mrr`."""
    return "test-mrr" if name == "unseen" else name


def _plain(value: Any) -> Any:
    """Return a value as JSON: dataclasses as objects, tuples as lists."""
    if isinstance(value, SetSummary | Check | PairRanks):
        return value.to_json()
    if is_dataclass(value):
        found = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
        if isinstance(value, PreviousRequest) and value.target is None:
            del found["target"], found["target_name"]
        if isinstance(value, RemovedHashes) and not value.key:
            del found["key"]
        if isinstance(value, CollectionName) and not value.imported:
            del found["imported"]
        return found
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value
