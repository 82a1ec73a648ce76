"""The audit: all tests of a ranker that should have forgotten something, and their verdict together.

It takes any ranker, whatever made it forget. Compared with a retrained ranker, each test can tell what is still
remembered and what was only hidden. Without one it can at best say that something is still remembered. Its file names
nothing that was removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from unrank.audit.comparison import Json, PerRanker
from unrank.audit.context import AuditContext, AuditOptions, open_context
from unrank.audit.equivalence import equivalence
from unrank.audit.evaluation import evaluation
from unrank.audit.judges import load_judges, steered_by
from unrank.audit.membership import membership
from unrank.audit.mrr_tests import forgetting, noise_floor, retention
from unrank.audit.other_forms import other_forms
from unrank.audit.per_example import PER_EXAMPLE, per_example
from unrank.audit.probe import PROBE, probe
from unrank.audit.rank_agreement import displacement
from unrank.audit.recovery_test import recovery
from unrank.audit.relearning import relearning
from unrank.audit.rewording import paraphrases, rewording
from unrank.audit.three_sample import three_sample
from unrank.audit.verdict import Finding, Verdict, corrected, overall
from unrank.audit.weights import WEIGHTS, weights
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition, make_partition, reserved_documents, reserved_queries
from unrank.collection.removal import Removal
from unrank.disk import new_folder, write_json
from unrank.engine.checkpoint import digest
from unrank.engine.runtime import Progress
from unrank.errors import UnrankError, count
from unrank.forgetting.options import change
from unrank.forgetting.previous_requests import not_recognised, recognised
from unrank.forgetting.target import check_measurable
from unrank.forgetting.validation import Base, check_base, remembered_base
from unrank.rankers import base_hash
from unrank.rankers.base import Ranker
from unrank.record import Record, requests_of, reserved_in, versions

AUDIT = "audit.json"
AUDIT_VERSION = 2

TESTS: dict[str, Callable[[AuditContext], Finding]] = {
    PER_EXAMPLE: per_example,
    "forgetting": forgetting,
    "three_sample": three_sample,
    "equivalence": equivalence,
    "retention": retention,
    "membership": membership,
    "recovery": recovery,
    "relearning": relearning,
    "displacement": displacement,
    "rewording": rewording,
    "paraphrases": paraphrases,
    "other_forms": other_forms,
    WEIGHTS: weights,
    PROBE: probe,
}
OF_MEMORY = tuple(name for name in TESTS if name != "retention")
"""The tests of memory, which decide the verdict."""
DECIDING = ("equivalence", PER_EXAMPLE)
"""The tests that decide between *equivalent* and *undecided* if no test finds a difference: their margins are known
beforehand. The others can convict a ranker, and cannot acquit it."""


@dataclass(frozen=True)
class Audit:
    """The finding of each test, and what was tested."""

    findings: dict[str, Finding]
    about: Json

    @property
    def verdict(self) -> Verdict:
        return self._overall[0]

    @property
    def words(self) -> str:
        """The reason for the verdict: that of the first test that says so."""
        return self._overall[1]

    @property
    def _overall(self) -> tuple[Verdict, str]:
        return overall({name: self.findings[name] for name in OF_MEMORY}, DECIDING)

    def to_json(self) -> Json:
        tests = {name: found.to_json() for name, found in self.findings.items()}
        said = {"audit_version": AUDIT_VERSION, "verdict": str(self.verdict), "words": self.words}
        value = {**said, **self.about, "tests": tests}
        return {**value, "evaluation": evaluation(value, DECIDING)}

    def save(self, out: str | Path) -> None:
        """Write a folder that holds `audit.json`."""
        with new_folder(Path(out)) as folder:
            write_json(folder / AUDIT, self.to_json())


def audit_ranker(
    ranker: Ranker,
    collection: Collection,
    removal: Removal,
    *,
    original: Ranker | None = None,
    references: Sequence[Ranker] = (),
    record: Record | Mapping[str, object] | None = None,
    progress: Progress | None = None,
    options: AuditOptions | None = None,
    **changes: Any,
) -> Audit:
    """Test whether a ranker has forgotten a removal.

    `original` is the ranker before it forgot. `references` are rankers that were retrained without what is removed,
    each with another seed. `record` is the ranker's record, if unrank made it: earlier requests in it do not count as
    kept. `changes` are fields of `AuditOptions`: `thoroughness`, `seed`, `device`, `base` and `proxies`.
    """
    record = Record.of(changes.pop("known", record))  # its old name
    options = change(options or AuditOptions(), changes, "audit_ranker")
    rankers = PerRanker(ranker, original, tuple(references))
    return audit_opened(open_audit(rankers, collection, removal, record, options, progress), removal)


def audit_opened(context: AuditContext, removal: Removal) -> Audit:
    """Run all tests; that of single pairs comes first."""
    started = perf_counter()
    say = context.rankers.ranker.workspace.runtime.progress.say
    findings = {}
    for name, test in TESTS.items():
        findings[name] = test(context)
        why = f"; {findings[name].words}" if name == PER_EXAMPLE else ""
        say(f"{name}: {findings[name].verdict}{why}")
    findings |= corrected({name: findings[name] for name in OF_MEMORY})
    findings["noise_floor"] = noise_floor(findings, context.thoroughness.margin)
    return Audit(findings, _about(context, removal, perf_counter() - started))


def open_audit(
    rankers: PerRanker[Ranker],
    collection: Collection,
    removal: Removal,
    record: Record | None,
    options: AuditOptions,
    progress: Progress | None = None,
) -> AuditContext:
    """Open the rankers of an audit. References and proxies that had a share in the run are left out."""
    base = _base(rankers.ranker.kind, record, options)
    _check_kinds(rankers)
    described = rankers.map(_described)
    _check_apart(described)
    steered = steered_by(record)
    weights = zip(rankers.references, described.references, strict=True)
    apart = tuple(reference for reference, about in weights if about["weights"] not in steered)
    previous, reserve = recognised(collection, requests_of(record)), reserved_in(record, collection.fingerprint)
    partition = make_partition(collection, removal, previous=previous, reserve=bool(reserve))
    check_measurable(collection, partition)
    never = bool(reserve) and rankers.original is not None and _was_reserved(collection, partition)
    rankers = replace(rankers, original=None) if never else rankers
    options, judging = replace(options, base=base.place), replace(rankers, references=apart)
    context = open_context(judging, collection, partition, options, progress)
    folders = [Path(folder) for folder in options.proxies]
    judges = load_judges(folders, context.rankers.ranker, removal, base.digest, steered)
    left_out = judges.steered + len(rankers.references) - len(apart)
    say = context.rankers.ranker.workspace.runtime.progress.say
    if never:
        say("training left out all that is removed, as the record shows: it is not compared with the original")
    if left_out:
        say(f"{count(left_out, 'ranker')} had a share in the run: not used to judge it")
    if warning := not_recognised(record):
        say(warning)
    recorded = base.is_named_by(record)
    return replace(context, base_recorded=recorded, proxies=judges.proxies, left_out=left_out)


def _was_reserved(collection: Collection, partition: Partition) -> bool:
    """Return whether training left out every pair to forget, because its query or its document is reserved."""
    forget = partition.forget
    left_out = np.isin(forget[:, 0], reserved_queries(collection))
    left_out |= np.isin(forget[:, 1], reserved_documents(collection))
    return bool(left_out.all())


def _base(kind: str, record: Record | None, options: AuditOptions) -> Base:
    """Return the model that a ranker was trained from: the one that is given, or the one that its record leads to."""
    if options.base is not None:
        check_base(kind, options.base)
        return Base(digest=base_hash(kind, options.base), place=options.base)
    return remembered_base(kind, record) if record is not None else Base()


def _about(context: AuditContext, removal: Removal, seconds: float) -> Json:
    """Return what was tested, with which effort, and where."""
    return {
        "collection": {"name": context.collection.name, "fingerprint": context.collection.fingerprint},
        "rankers": asdict(context.rankers.map(lambda one: _described(one.ranker))),
        "removed": removal.counts,
        "sets": _counts(context),
        "thoroughness": asdict(context.thoroughness),
        "seed": context.seed,
        "seconds": seconds,
        "device": context.rankers.ranker.workspace.runtime.name,
        "versions": versions(),
    }


def _check_kinds(rankers: PerRanker[Ranker]) -> None:
    others = {"original": [rankers.original] if rankers.original else [], "reference": [*rankers.references]}
    for what, rankers_of in others.items():
        for other in rankers_of:
            if other.kind != rankers.ranker.kind:
                raise UnrankError(
                    f"the {what} is a {other.kind}, the ranker a {rankers.ranker.kind}: they cannot be compared"
                )


def _check_apart(described: PerRanker[dict[str, str]]) -> None:
    """Refuse a reference that is the ranker, the original or another reference: nothing would differ."""
    for place, reference in enumerate(described.references):
        others = {"ranker": described.ranker, "original": described.original} | {
            f"reference {number}": other for number, other in enumerate(described.references[:place], 1)
        }
        for name, other in others.items():
            if other == reference:
                raise UnrankError(f"reference {place + 1} is the {name} itself: name another retrained ranker")


def _described(ranker: Ranker) -> dict[str, str]:
    """Return the kind of a ranker and a hash of its weights."""
    return {"kind": ranker.kind, "weights": digest(ranker.state_dict())}


def _counts(context: AuditContext) -> dict[str, dict[str, int]]:
    """Count the pairs and queries of each set that were tested, and the queries that it has."""
    return {
        name: {
            "pairs": len(pairs),
            "queries": len(np.unique(pairs[:, 0])),
            "queries_in_all": len(np.unique(context.whole[name][:, 0])),
        }
        for name, pairs in context.sets.items()
    }
