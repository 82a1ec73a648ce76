"""The audit: all tests of a ranker that is said to have forgotten, and what they come to together.

It takes any ranker, however it came to forget. Beside a retrained ranker each test can tell what is still remembered
and what was only hidden; without one it says what cannot be known. Its file names nothing that was removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from unrank.audit.case import Case, Thoroughness, open_case
from unrank.audit.displacement import displacement
from unrank.audit.forgetting import forgetting
from unrank.audit.membership import membership
from unrank.audit.noise import noise_floor
from unrank.audit.readings import Each
from unrank.audit.recovery import recovery
from unrank.audit.relearning import relearning
from unrank.audit.retention import retention
from unrank.audit.rewording import rewording
from unrank.audit.verdict import Finding, Verdict, worst
from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.disk import new_folder, write_json
from unrank.engine.checkpoint import digest
from unrank.engine.runtime import Device, Progress
from unrank.errors import UnrankError
from unrank.forgetting.hashes import recognised
from unrank.forgetting.target import check_measurable
from unrank.rankers.base import Ranker
from unrank.record import Record, requests_of, versions

AUDIT = "audit.json"
AUDIT_VERSION = 1

TESTS: dict[str, Callable[[Case], Finding]] = {
    "forgetting": forgetting,
    "retention": retention,
    "membership": membership,
    "recovery": recovery,
    "relearning": relearning,
    "displacement": displacement,
    "rewording": rewording,
}
OF_MEMORY = tuple(name for name in TESTS if name != "retention")
"""The tests of what is remembered, which the verdict goes by."""


@dataclass(frozen=True)
class Audit:
    """What each test found, and on what."""

    findings: dict[str, Finding]
    about: dict[str, Any]

    @property
    def verdict(self) -> Verdict:
        return worst(self.findings[name].verdict for name in OF_MEMORY)

    def to_json(self) -> dict[str, Any]:
        tests = {name: found.to_json() for name, found in self.findings.items()}
        return {"audit_version": AUDIT_VERSION, "verdict": str(self.verdict), **self.about, "tests": tests}

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
    record: Record | None = None,
    thoroughness: Thoroughness | None = None,
    seed: int = 0,
    device: Device = "auto",
    progress: Progress | None = None,
) -> Audit:
    """Test whether a ranker has forgotten a removal.

    `original` is the ranker before it forgot; `references` are rankers that were retrained without what is removed,
    each with a seed of its own; `record` is the ranker's record, if unrank made it: what it forgot before is not kept.
    """
    rankers = Each(ranker, original, tuple(references))
    _check_kinds(rankers)
    described = rankers.map(_described)
    _check_apart(described)
    started = perf_counter()
    thoroughness = thoroughness or Thoroughness()
    partition = make_partition(collection, removal, earlier=recognised(collection, requests_of(record)))
    check_measurable(collection, partition)
    case = open_case(rankers, collection, partition, thoroughness, seed, device, progress)
    findings = {}
    for name, test in TESTS.items():
        findings[name] = test(case)
        case.subjects.ranker.workspace.runtime.progress.say(f"{name}: {findings[name].verdict}")
    findings["noise_floor"] = noise_floor(findings, thoroughness.margin)
    about = {
        "collection": {"name": collection.name, "fingerprint": collection.fingerprint},
        "rankers": asdict(described),
        "removed": removal.counts,
        "sets": _counts(case),
        "thoroughness": asdict(thoroughness),
        "seed": seed,
        "seconds": perf_counter() - started,
        "device": case.subjects.ranker.workspace.runtime.name,
        "versions": versions(),
    }
    return Audit(findings, about)


def _check_kinds(rankers: Each[Ranker]) -> None:
    others = {"original": [rankers.original] if rankers.original else [], "reference": [*rankers.references]}
    for what, beside in others.items():
        for other in beside:
            if other.kind != rankers.ranker.kind:
                raise UnrankError(
                    f"the {what} is a {other.kind}, the ranker a {rankers.ranker.kind}: they cannot be compared"
                )


def _check_apart(described: Each[dict[str, str]]) -> None:
    """Who is compared with himself differs in nothing."""
    for place, reference in enumerate(described.references):
        others = {"ranker": described.ranker, "original": described.original} | {
            f"reference {number}": other for number, other in enumerate(described.references[:place], 1)
        }
        for name, other in others.items():
            if other == reference:
                raise UnrankError(f"reference {place + 1} is the {name} itself: name one that was retrained apart")


def _described(ranker: Ranker) -> dict[str, str]:
    """What a ranker is, and a hash of its weights by which it can be known again."""
    return {"kind": ranker.kind, "weights": digest(ranker.state_dict())}


def _counts(case: Case) -> dict[str, dict[str, int]]:
    """How many queries of each set were looked at, of how many."""
    return {
        name: {
            "pairs": len(pairs),
            "queries": len(np.unique(pairs[:, 0])),
            "queries_in_all": len(np.unique(case.whole[name][:, 0])),
        }
        for name, pairs in case.sets.items()
    }
