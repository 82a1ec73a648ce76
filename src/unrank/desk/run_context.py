"""The context of a run: its rankers, collection and batch, its target, and what is known of its references."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from unrank.audit.context import AuditOptions, Thoroughness
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.desk.batch import Batch
from unrank.desk.history_index import Json
from unrank.desk.request import removal_of
from unrank.desk.run_options import RunOptions
from unrank.disk import folder_hash
from unrank.engine.checkpoint import digest
from unrank.engine.runtime import Runtime
from unrank.errors import UnrankError
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.previous_requests import was_trained_on
from unrank.forgetting.provenance import (
    Reference,
    base_saw,
    check_other_weights,
    check_retrain_base,
    unknown_provenance,
)
from unrank.forgetting.proxies import check_proxies, tells_places
from unrank.forgetting.target import ALSO_PLACES, OF_REFERENCE, PLACES, TEST_MRR, resolve_target
from unrank.forgetting.validation import check_base, check_request, find_base
from unrank.forgetting.workspace import Workspace, usual_measure
from unrank.methods.base import Method
from unrank.rankers import load_ranker, record_of
from unrank.rankers.base import Ranker
from unrank.record import RETRAIN, Record, sealed_by_owner

DESTINATION = OF_REFERENCE[0]


@dataclass(frozen=True)
class RunContext:
    """Everything that a run uses. Rankers are loaded when they are first needed."""

    options: RunOptions
    target: str
    default_target: str
    """The target that shows forgetting: places or, if those are not asked for, a mean of what was never seen."""
    collection: Collection
    batch: Batch
    record: Record | None
    """The original's record."""
    doubts: tuple[str, ...]
    """For each reference whose provenance is unknown: why. The words name no path, which may tell what is removed."""

    @classmethod
    def of(cls, options: RunOptions, batch: Batch, collection: Collection, record: Record | None) -> RunContext:
        """Choose the target by what is known of the references; refuse one that saw what is removed."""
        facts = (collection, batch.removal, record, options.forget.base)
        reasons = [unknown_provenance(name, *facts) for name in options.references]
        doubts = tuple(f"reference {number}: provenance unknown: {why}" for number, why in enumerate(reasons, 1) if why)
        seen = DESTINATION if options.references and not doubts else TEST_MRR
        target = options.target or PLACES
        if target in (PLACES, ALSO_PLACES):  # a method that stops by its own measure needs no places
            target = PLACES if options.forget.method_for(None).run_kind == "steered" else seen
        default = PLACES if target == PLACES else seen
        return cls(replace(options, target=target), target, default, collection, batch, record, doubts)

    @cached_property
    def original(self) -> Ranker:
        return load_ranker(self.options.ranker, self.options.fast)

    @cached_property
    def references(self) -> list[Ranker]:
        return [load_ranker(name, self.options.fast) for name in self.options.references]

    @property
    def reference(self) -> Reference:
        """The first reference. It also tells the places, if two others are left to judge or if nothing else can."""
        if not self.references:
            return Reference()
        record = record_of(self.options.references[0])
        base = find_base(self.original, self.method, self.options.forget.base, self.record)
        known = self.has_known_references and (self.target != PLACES or tells_places(len(self.references), base))
        return Reference(self.references[0], known, record)

    @property
    def has_known_references(self) -> bool:
        """Whether there are references, and the records of all show that they never saw what is removed."""
        return bool(self.options.references) and not self.doubts

    @cached_property
    def never_seen(self) -> list[int]:
        """The requests that the ranker was trained without, as its record shows, which this owner sealed.

        Its base must be known, and no record may leave open whether that saw them. If the target is not places, they
        are judged by it all the same.
        """
        if self.target != PLACES or self.record is None or not sealed_by_owner(self.options.ranker):
            return []
        base = find_base(self.original, self.method, self.options.forget.base, self.record).place

        def never_saw(removal: Removal) -> bool:
            trained = was_trained_on(self.collection, self.record, removal)
            return trained is False and base_saw(base, self.collection, removal) is False

        return [id for id, items in self.batch.items.items() if never_saw(removal_of(items))]

    @cached_property
    def forget_options(self) -> ForgetOptions:
        """How the original is made to forget."""
        given = self.options.forget
        measure, least = usual_measure(self.original, given.device), self.options.keep_at_least
        return replace(given, target=self.target, measure=measure, keep_at_least=least)

    @property
    def audit_options(self) -> AuditOptions:
        """How the new ranker is audited."""
        given, effort = self.options.forget, Thoroughness(queries=self.options.audit_queries)
        return AuditOptions(effort, given.seed, given.device, given.base, self.options.audit_proxies)

    @property
    def method(self) -> Method:
        return self.forget_options.method_for(self.original.kind)

    @property
    def asked(self) -> Json:
        """Everything that the result depends on; an interrupted run is recognised by it."""
        return self.options.asked(self.batch, self.collection)

    @cached_property
    def inputs(self) -> dict[str, object]:
        """Digests of everything that the new ranker is made from."""
        base = find_base(self.original, self.method, self.options.forget.base, self.record)
        return {
            "ranker": folder_hash(Path(self.options.ranker)),
            "weights": digest(self.original.state_dict()),
            "collection": self.collection.fingerprint,
            "references": [digest(reference.state_dict()) for reference in self.references],
            "base": base.digest if base.place else None,
        }

    def audit_inputs(self, out: Path) -> dict[str, object]:
        """Return digests of everything that the audit of the new ranker in a folder is made from."""
        judges = [folder_hash(Path(folder)) for folder in self.options.audit_proxies]
        return {"audited ranker": folder_hash(out), **self.inputs, **({"audit_proxies": judges} if judges else {})}

    def check(self) -> None:
        """Refuse a run that cannot work before anything is written to the ledger."""
        if self.doubts and (self.options.strict or self.target in OF_REFERENCE):
            asks = "--strict" if self.options.strict else f"--target {self.target}"
            raise UnrankError(f"{asks} needs references that never saw what is removed; {self.doubts[0]}")
        partition, options = self.batch.partition(self.collection), self.forget_options
        Runtime.on(options.device)
        workspace = Workspace.open(self.original, self.collection, partition, options.device)
        compared: list[Ranker | None] = [*self.references]
        for reference in compared or [None]:
            check_request(workspace, self.original, self.method, options, reference)
        check_base(self.original.kind, options.base)
        base = find_base(self.original, self.method, options.base, self.record)
        if base.place and self.target == PLACES:
            check_other_weights(self.original.kind, base.place, self.options.ranker)
        if options.proxies and self.target == PLACES:
            check_proxies(Path(options.proxies), self.original.kind, base.digest, self.collection.fingerprint)
        for folder in self.options.audit_proxies:
            check_proxies(Path(folder), self.original.kind, base.digest, self.collection.fingerprint)
        if self.method.name == RETRAIN:
            check_retrain_base(self.original.kind, base.place, self.options.ranker, self.collection, self.batch.removal)

    def targets(self, workspace: Workspace, before: Scorecard) -> tuple[float, float | None]:
        """Return the forget MRR that the target means, and that of the default; `None` if that cannot be measured."""
        default = None if self.default_target == TEST_MRR and before.test is None else self.default_target
        both = [self._number(name, workspace, before) for name in (self.target, default) if name is not None]
        return both[0], both[1] if default is not None else None

    def _number(self, target: str, workspace: Workspace, before: Scorecard) -> float:
        if target == DESTINATION:
            return workspace.evaluator.forget_mrr(workspace.scorer(self.references[0].to(workspace.runtime.device)))
        compared = workspace.scorecard(self.references[0]) if target in OF_REFERENCE else None
        return resolve_target(target, before, compared)
