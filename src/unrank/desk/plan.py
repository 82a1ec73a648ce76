"""The plan: what a run would change, what it can show, and how long it would take, before anything is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unrank.audit.plan import AuditPlan, plan_before
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows
from unrank.desk.batch import Batch
from unrank.desk.copies import Copy, find_copies, not_searched, of_other_collections
from unrank.desk.gates import RequestPairs
from unrank.errors import count
from unrank.evaluation.bootstrap import MIN_QUERIES
from unrank.forgetting.estimate import Seconds, estimate
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.outcome import ForgetState, too_few
from unrank.forgetting.provenance import unknown_provenance
from unrank.forgetting.proxies import Foreseen, foresee_proxies, remembered_proxies, tells_places
from unrank.forgetting.target import PLACES
from unrank.forgetting.train import recipe_of
from unrank.forgetting.validation import find_base
from unrank.forgetting.workspace import Workspace, usual_measure
from unrank.methods.retrain import Retrain
from unrank.rankers.base import Ranker
from unrank.record import Record, measured_epoch

SHOWN = 5


@dataclass(frozen=True)
class Plan:
    """The changes and the times of a run."""

    batch: Batch
    partition: Partition
    overlaps: list[tuple[int, int, int]]
    noticing: int
    """The number of kept queries, of training and of test, with a removed document in their lists."""
    examples: list[str]
    copies: list[Copy]
    not_searched: list[Copy]
    """Files in which a search for texts finds nothing, and rankers whose records are of another collection."""
    seconds: dict[str, Seconds]
    """The time with each method, without the audit."""
    audit: AuditPlan
    """The time of the audit, and what it can find."""
    prospects: Mapping[int, Prospect]
    """The evidence that the run can give for each request."""
    proxies: Foreseen | None = None
    """How places would be found; `None` if the target is another one."""


@dataclass(frozen=True)
class Prospect:
    """The best state that a run can have for one request, and why the result cannot be verified, if it cannot."""

    pairs: int
    queries: int
    lacks: tuple[str, ...]
    """Empty if it may be verified; that is for the audit of the run to say."""
    apart: bool = False
    """Whether the run would write an adapter apart."""

    def __str__(self) -> str:
        size = f"{count(self.pairs, 'pair')} of {count(self.queries, 'query')}"
        if self.apart:
            return f"{size}: the result will be '{ForgetState.WHILE_ADAPTED}' at best, and cannot be closed"
        other = "unless there is nothing to forget, the result will be"
        if not self.lacks:
            return f"{size}: {other} '{ForgetState.FORGOTTEN}' at best, if the audit says 'equivalent'"
        return f"{size}: {other} '{ForgetState.NOT_VERIFIABLE}' at best: {'; '.join(self.lacks)}"


def make_plan(
    ranker: Ranker,
    collection: Collection,
    batch: Batch,
    record: Record | None,
    look: Sequence[Path],
    ledger: Path,
    options: ForgetOptions,
    references: Sequence[str] = (),
    judges: Sequence[str] = (),
) -> Plan:
    """Find what a run changes and can show, and how long it takes with an audit against these references.

    `judges` are folders of proxies for the audit.
    """
    partition = batch.partition(collection)
    noticing = queries_that_notice(collection, partition, batch.removal)
    measure = usual_measure(ranker, options.device)
    workspace = Workspace.open(ranker, collection, partition, options.device, measure=measure)
    workspace = replace(workspace, removal=batch.removal)
    cocol = replace(options, method="cocol")
    base = find_base(ranker, cocol.method_for(ranker.kind), options.base, record)
    unknown = [unknown_provenance(name, collection, batch.removal, record, options.base) for name in references]
    known = bool(references) and not any(unknown) and tells_places(len(references), base)
    given = Path(options.proxies) if options.proxies else None
    proxies = foresee_proxies(workspace, ranker.kind, base, given=given, known_reference=known)
    steers = proxies.reference and options.target == PLACES
    audit = plan_before(workspace, ranker, references[int(steers) :], judges, base.digest)
    compared = (bool(proxies.number) and options.target == PLACES) or (bool(references) and not any(unknown))
    seconds = {
        "cocol": estimate(workspace, ranker, cocol, base=base.place, record=record, proxies=proxies),
        "retrain": _retraining(ranker, workspace, record, options),
    }
    return Plan(
        batch,
        partition,
        batch.overlaps(collection),
        len(noticing),
        collection.queries.texts(noticing[:SHOWN]),
        find_copies([*look, *remembered_proxies()], batch.all_items, collection, ledger),
        [*of_other_collections(look, [collection]), *not_searched(look)],
        seconds,
        audit,
        prospects(collection, batch, audit, unknown, compared=compared, apart=options.saved_as == "adapter"),
        proxies if options.target == PLACES else None,
    )


def prospects(
    collection: Collection,
    batch: Batch,
    audit: AuditPlan,
    doubts: Sequence[str],
    *,
    compared: bool = True,
    apart: bool = False,
) -> dict[int, Prospect]:
    """Say beforehand what a run can show for each request. `doubts` are empty for references of known provenance.

    `compared` is whether a known reference or a proxy stands beside the pairs: a request of few queries needs one.
    """
    lacks = [f"reference {number}: provenance unknown: {why}" for number, why in enumerate(doubts, 1) if why]
    if audit.margins is None:
        lacks.append(audit.words[1])
    elif audit.single.power is None:
        lacks.append(str(audit.single))

    def prospect(own: Pairs) -> Prospect:
        queries = len(np.unique(own[:, 0]))
        few = [] if compared or queries >= MIN_QUERIES else [too_few(queries)]
        return Prospect(len(own), queries, (*few, *lacks), apart)

    return {id: prospect(own) for id, own in RequestPairs.of(collection, batch.items).of_request.items()}


def queries_that_notice(collection: Collection, partition: Partition, removal: Removal) -> Rows:
    """Return the kept queries whose lists lose a document, or hold one that is forgotten for another query.

    Documents of earlier requests have left the lists already.
    """
    gone = np.union1d(collection.documents.rows(removal.documents), partition.forget[:, 1])
    noticing = []
    for lists in (collection.relevant, collection.negatives):
        rows = np.repeat(np.arange(len(lists.counts)), lists.counts)
        noticing.append(np.unique(rows[np.isin(lists.values, gone)]))
    return np.setdiff1d(np.union1d(*noticing), partition.queries)


def _retraining(ranker: Ranker, workspace: Workspace, record: Record | None, options: ForgetOptions) -> Seconds:
    """Return the time of a retraining: from the measured time of an epoch, if there is one, else from a few steps."""
    recipe = recipe_of(ranker.kind)
    measured = measured_epoch(record, workspace.collection.fingerprint, workspace.runtime.name)
    if measured:
        least, most = training_epochs(record, recipe)
        return Seconds(measured.seconds, measured.seconds).times(least, most)
    anew = replace(options, method=recipe, settings={}, adapt=None, saved_as="merged")
    return estimate(workspace, ranker, anew, record=record)


def training_epochs(record: Record | None, recipe: Retrain) -> tuple[float, float]:
    """Return the fewest and the most epochs that a training takes.

    If the ranker's own training stopped because it had learned enough, both are its number of epochs. Otherwise a
    training may take as many epochs as the recipe allows.
    """
    if record is None or record.method != recipe.name:
        return 1, recipe.epochs
    learned = record.history[-1].learned if record.history else None
    if learned is not None and learned >= recipe.enough:
        return record.epochs, record.epochs
    return min(record.epochs, recipe.epochs), max(record.epochs, recipe.epochs)
