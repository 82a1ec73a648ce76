"""Forgetting: validate the request, run the method until the forget MRR is at the target, assess, and record.

The original is never changed. A method that cannot reach the target within its budget keeps its best model and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs
from unrank.collection.removal import Removal
from unrank.disk import follows
from unrank.engine.checkpoint import Cache, digest
from unrank.engine.kept import KeptState
from unrank.engine.memory import check_room
from unrank.engine.resume import ResumableRun
from unrank.engine.runtime import Progress, deterministic
from unrank.engine.teacher import Teacher
from unrank.errors import listed
from unrank.evaluation.agreement import agreement
from unrank.evaluation.scorecard import Scorecard, Scorer
from unrank.forgetting.anchor_file import AnchorUpdate
from unrank.forgetting.anchors import is_first, make_lists, make_places
from unrank.forgetting.followed_lists import find_queries
from unrank.forgetting.kept_states import keep_states
from unrank.forgetting.model_card import earlier_card
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.outcome import Findings, ForgetState, Judgement, judge, ranks_of
from unrank.forgetting.places import Places
from unrank.forgetting.previous_requests import PreviousRanks, covers, hashed, was_trained_on
from unrank.forgetting.progress import journal_names, listening, recording
from unrank.forgetting.provenance import Reference
from unrank.forgetting.proxies import Proxy
from unrank.forgetting.run import Outcome
from unrank.forgetting.save import save_ranker
from unrank.forgetting.target import default_mrr, tolerance
from unrank.forgetting.train import recovery
from unrank.forgetting.unlearn import Request, Unlearned, unlearn, validate
from unrank.forgetting.validation import adapter_of, layers_of
from unrank.forgetting.workspace import Workspace, check_given
from unrank.rankers.base import Ranker
from unrank.rankers.layers import release
from unrank.rankers.lora import Adapter
from unrank.record import (
    RETRAIN,
    Entries,
    PlacesFound,
    PreviousMrr,
    Record,
    Recovery,
    ReferenceAgreement,
    Substituted,
    requests_of,
    reserved_in,
    shares_kept,
)


@dataclass(frozen=True)
class Forgotten:
    """A ranker that has forgotten, its metrics before and after, and its record."""

    ranker: Ranker
    before: Scorecard
    after: Scorecard
    target: float
    reached: bool
    record: Record
    judgement: Judgement
    fulfilled: bool = False
    """Whether earlier runs had brought all of it to the target, so that nothing was done."""
    limited: str = ""
    """Why the run ended before its target, if more would have been lost than allowed."""
    places: Places | None = None
    """The places of the forget pairs; `None` if the target is another one."""
    anchors: AnchorUpdate | None = None
    """What changes in the anchor file when the run is recorded; `None` if there is no such file to be."""
    card: str = ""
    """What is kept of the original's model card."""
    adapter: Adapter | None = None
    """The adapter that was trained; it is merged into the ranker. `None` if all weights were trained."""
    teachers: tuple[Teacher, ...] = ()
    """The scores of the original and of this ranker that were computed in the run."""

    @property
    def kept(self) -> dict[str, float]:
        """The share of its MRR that each kept set still has."""
        return shares_kept(self.before.mrrs, self.after.mrrs)

    @property
    def came_back(self) -> bool:
        """Whether what was forgotten before has risen again."""
        return self.record.earlier is not None and self.record.earlier.came_back

    @property
    def state(self) -> ForgetState:
        """The state of the request."""
        return self.judgement.state

    @property
    def tolerance(self) -> float:
        """The distance above the target that still counts as reached."""
        assert self.after.forget is not None
        return tolerance(len(self.after.forget.queries))

    def save(self, out: str | Path) -> None:
        """Write the ranker and its record, and before them the anchor file in the owner's state folder."""
        self.write_anchors()
        save_ranker(self.ranker, self.record, Path(out), self.card, self.adapter)

    def write_anchors(self) -> None:
        """Write the anchor file, so that a later request on this ranker holds to its first original."""
        if self.anchors is not None:
            self.anchors.write()


@dataclass(frozen=True)
class Assessment:
    """The measurements after a run."""

    after: Scorecard
    outcome: Outcome
    earlier: PreviousMrr | None
    recovered: Recovery | None
    agreement: ReferenceAgreement | None = None
    """`None` if there is no reference."""
    scored: Teacher | None = None
    """The scores of the student; `None` if it is the original still."""


def forget(
    ranker: Ranker,
    collection: Collection,
    removal: Removal,
    options: ForgetOptions | None = None,
    *,
    reference: Ranker | Reference | None = None,
    record: Record | Mapping[str, object] | None = None,
    progress: Progress | None = None,
    run: ResumableRun | None = None,
    cache: Cache | None = None,
    **changes: Any,
) -> Forgotten:
    """Make a copy of a ranker that has forgotten, to the degree that the target says.

    `changes` are fields of `ForgetOptions`, such as `method="cocol"` or `target=0.45`; `pace` stands for the three
    fields of `Pace`. `reference` is a ranker that never saw what is removed; a `Reference` can say that this is known,
    not only claimed. `record` is the ranker's record, if unrank made it: what it forgot before stays forgotten.
    `progress` shows how far the run is; by default it is a bar, if standard error is a terminal (`Silence()` shows
    nothing). `run` writes checkpoints. `cache` holds tokens and scores of earlier jobs, and keeps those of this one.
    `before` is the ranker's scorecard, if it was measured already.
    """
    check_given(collection, removal, ranker)
    record = Record.of(changes.pop("known", record))  # its old name
    before = changes.pop("before", None)
    options = (options or ForgetOptions()).changed(**changes)
    with deterministic(options.deterministic), listening(progress) as listener:
        workspace = Workspace.for_removal(
            ranker,
            collection,
            removal,
            record,
            device=options.device,
            progress=listener,
            measure=options.measure,
            cache=cache,
        )
        return forget_in(
            workspace,
            ranker,
            options,
            reference=reference,
            record=record,
            run=run,
            before=before,
        )


def forget_in(
    workspace: Workspace,
    ranker: Ranker,
    options: ForgetOptions,
    *,
    reference: Ranker | Reference | None = None,
    record: Record | None = None,
    run: ResumableRun | None = None,
    before: Scorecard | None = None,
    apart: Sequence[Pairs] = (),
    proxies: Sequence[Proxy] = (),
) -> Forgotten:
    """Forget the removal of a workspace; `before` is the original's scorecard, if it was measured there before.

    `apart` are forget pairs that are judged by themselves too, such as those of each request of a batch: a run to
    places begins if one of them stands too high, even if in all no more do than by chance. `proxies` are loaded
    already; without any, a run looks for prepared ones or makes one.
    """
    find_queries(workspace.collection, options.follow)
    request = validate(workspace, ranker, options, Reference.of(reference), record, run)
    few = options.adapt is not None or options.train_layers is not None
    check_room(ranker, workspace.runtime.device, copies=1 if options.adapt else 2, few=few)
    about = {"method": request.method.name, "ranker": ranker.kind, **journal_names(workspace.collection)}
    with recording(workspace.runtime.progress, run, "forget", **about) as listener, request.shared:
        watched = replace(workspace, runtime=replace(workspace.runtime, progress=listener))
        request = replace(request, workspace=watched, apart=tuple(apart), proxies=tuple(proxies))
        unlearned = unlearn(request, before)
        assessed = assess(request, unlearned)
    judged = judge_run(request, unlearned, assessed)
    record = make_record(request, unlearned, assessed, judged)
    return Forgotten(
        ranker=unlearned.student,
        before=unlearned.before,
        after=assessed.after,
        target=unlearned.goal,
        reached=assessed.outcome.reached is not False,
        record=record,
        judgement=judged,
        fulfilled=unlearned.fulfilled,
        limited=assessed.outcome.limited,
        places=unlearned.places,
        anchors=update_anchors(request, unlearned, record),
        card=earlier_card(ranker.card, workspace.collection, workspace.partition),
        adapter=unlearned.adapter,
        teachers=(unlearned.teacher, *([assessed.scored] if assessed.scored else [])),
    )


def update_anchors(request: Request, unlearned: Unlearned, record: Record) -> AnchorUpdate | None:
    """Return what changes in the anchor file; `None` if the ranker has no first original, or nobody knows it."""
    workspace, before = request.workspace, request.record.lineage if request.record else None
    lineage = record.lineage or before
    if lineage is None or workspace.removal is None or record.removed is None:
        return None
    collection, partition = workspace.collection, workspace.partition
    first = is_first(request.record) and record.lineage is not None
    lists = make_lists(collection, partition, unlearned.teacher) if first else {}
    placed = unlearned.places if record.changed and record.lineage else None
    places, ranks = make_places(collection, placed, unlearned.teacher) if placed else ({}, {})
    say = workspace.runtime.progress.say
    return AnchorUpdate(lineage, record.removed.salt, workspace.removal, lists, places, say, ranks)


def _lineage(request: Request) -> str | None:
    """Return the hash of the first original; `None` if the ranker starts anew, or if nobody knows it."""
    if request.method.start != "original":
        return None
    if is_first(request.record):
        return request.weights_hash()
    return request.record.lineage if request.record else None


def assess(request: Request, unlearned: Unlearned) -> Assessment:
    """Measure the student in full: all sets, what was forgotten before and, if asked, what comes back."""
    workspace, student, outcome = request.workspace, unlearned.student, unlearned.outcome
    after, now, scored = unlearned.before, unlearned.previous, None
    if outcome.history or unlearned.clearing.moved:
        score, scored = _remembering(workspace, student)
        after = workspace.evaluator.scorecard(score)
        now = PreviousRanks.measure(score, workspace.previous, workspace.collection, workspace.evaluator)
    outcome = outcome.confirmed(unlearned.goal, after, request.steers_by(unlearned.goals))
    keep_states(workspace, student)
    request.shared.close()
    release(student, request.ranker)
    for teacher in (unlearned.teacher, *workspace.teachers, *([scored] if scored else [])):
        teacher.save()
    workspace.store.save(workspace.runtime.progress.say)
    erase_removed(workspace)
    assert after.forget is not None
    recovered = (
        recovery(student, after.forget.mean, request.reference.ranker, workspace, request.options.seed)
        if request.options.recovery
        else None
    )
    likeness = compare_with_reference(request, unlearned.before, after)
    return Assessment(after, outcome, unlearned.previous.change_to(now), recovered, likeness, scored)


def _remembering(workspace: Workspace, student: Ranker) -> tuple[Scorer, Teacher]:
    """Return a scorer of the student, and a teacher that takes what it scores."""
    workspace.keep_vectors(student)  # it moves no more
    kept = workspace.cache if isinstance(workspace.cache, KeptState) else None
    score, teacher = workspace.scorer(student), workspace.teacher(student, kept)

    def scored(pairs: Pairs) -> NDArray[np.float32]:
        scores = score(pairs)
        teacher.remember(pairs, scores)
        return scores

    return scored, teacher


def erase_removed(workspace: Workspace) -> None:
    """Erase what was removed from the owner's kept state, if it is used."""
    kept = workspace.cache
    if isinstance(kept, KeptState) and not follows() and (failed := kept.erase()):
        workspace.runtime.progress.say(
            f"{listed([*map(str, failed)])} could not be written and may still hold tokens and scores of what was "
            "removed: delete it"
        )


def compare_with_reference(request: Request, before: Scorecard, after: Scorecard) -> ReferenceAgreement | None:
    """Compare the forget set query by query with the reference's, before and after; `None` if there is none."""
    workspace, reference = request.workspace, request.reference.ranker
    then, now = before.forget_figures, after.forget_figures
    if reference is None or then is None or now is None:
        return None
    theirs = workspace.evaluator.forget_figures(workspace.scorer(reference.to(workspace.runtime.device)))
    weights = digest(reference.state_dict())
    return ReferenceAgreement(agreement(then, theirs), agreement(now, theirs), weights)


def judge_run(request: Request, unlearned: Unlearned, assessed: Assessment) -> Judgement:
    """Judge the request by the ranks of its pairs before and after, which the scorecards have."""
    workspace, target, goal = request.workspace, request.options.target, unlearned.goal
    then, now = unlearned.before.pair_ranks, assessed.after.pair_ranks
    assert then is not None and now is not None and workspace.removal is not None
    default = default_mrr(target, goal, unlearned.before, request.reference.known)
    goals, places = unlearned.goals, unlearned.places
    ranks = ranks_of(
        workspace.collection,
        workspace.partition.forget,
        np.stack([then, now]),
        goal if default is None else min(goal, default),
        goals.least if goals else None,
        places.ranks if places else None,
        goals.may_exceed if goals else 0,
    )
    moved = bool(assessed.outcome.history)
    forgotten = [each for each in workspace.previous if not each.request.missed]
    before = unlearned.fulfilled and covers(workspace, forgotten) and not _nothing_before(request.record)
    never_seen = before and was_trained_on(workspace.collection, request.record, workspace.removal) is False
    found = Findings(
        weights_changed=moved or bool(unlearned.clearing.moved),
        only_rows=bool(unlearned.clearing.moved) and not (moved or before),
        rows_left=unlearned.clearing.record.left,
        retrained=never_seen or (moved and request.method.name == RETRAIN),
        forgotten_before=before,
        has_reference=request.reference.known or bool(places and places.found.proxies),
        default_known=default is not None,
        unseen_mrr=unlearned.before.mrrs.get("test"),
        apart=request.options.saved_as == "adapter",
        unseen_above=places.found.above if places else 0.0,
    )
    return judge(ranks, found)


def _nothing_before(record: Record | None) -> bool:
    """Return whether the one request that a ranker knows of found nothing to forget: then nobody has forgotten it."""
    return record is not None and record.state == ForgetState.NOTHING and not record.removed_before


def _places_found(unlearned: Unlearned, assessed: Assessment) -> PlacesFound | None:
    """Return how places were found and how far the pairs are from them; `None` if the target is another one."""
    then, now = unlearned.before.pair_ranks, assessed.after.pair_ranks
    assert then is not None and now is not None
    return unlearned.places.measured(then, now) if unlearned.places else None


def _entries(workspace: Workspace, original: Ranker, student: Ranker) -> Entries | None:
    """Return how sparse documents were and are; `None` if the ranker has no sparse vectors."""
    after = workspace.entries(student)
    return None if after is None else Entries(after, workspace.entries(original))


def make_record(request: Request, unlearned: Unlearned, assessed: Assessment, judged: Judgement) -> Record:
    """Return the record of a run. If nothing was done, it keeps the method and the settings of the earlier one."""
    workspace, ranker, options, method = request.workspace, request.ranker, request.options, request.method
    adapt = None if options.rank is None else f"lora:{options.rank}"
    chosen = {"train_layers": layers_of(options), "freeze": options.freeze, "adapt": adapt}
    settings = asdict(method) | {name: value for name, value in chosen.items() if value is not None}
    earlier = request.record if unlearned.fulfilled else None
    outcome, clock, moved = assessed.outcome, unlearned.clock, bool(assessed.outcome.history)
    then, now = unlearned.before.substitutes, assessed.after.substitutes
    assert workspace.removal is not None
    return Record(
        ranker=ranker.kind,
        base=request.base.name,
        base_digest=request.base.digest,
        cleared=unlearned.clearing.record,
        entries=_entries(workspace, ranker, unlearned.student),
        reserved=reserved_in(request.record, workspace.collection.fingerprint),
        method=earlier.method if earlier else method.name,
        settings=earlier.settings if earlier else settings,
        seed=options.seed,
        collection=workspace.collection.named,
        target=unlearned.goal,
        target_name=str(options.target),
        reached=outcome.reached,
        epochs=outcome.epochs,
        seconds=clock.total,
        timing=clock.seconds,
        learning_epoch=unlearned.learning_epoch,
        landing=outcome.landing,
        state=str(judged.state),
        pairs=judged.ranks,
        places=_places_found(unlearned, assessed),
        substitutes=Substituted(then, now) if then and now else None,
        adapter=adapter_of(ranker, options),
        lineage=_lineage(request),
        device=workspace.runtime.name,
        deterministic=workspace.runtime.deterministic,
        index_valid=(options.freeze is not None or not moved) if ranker.separable else None,
        before=unlearned.before.summary,
        after=assessed.after.summary,
        set_queries=workspace.evaluator.set_queries,
        removed=hashed(workspace.removal),
        removed_before=requests_of(request.record),
        earlier=assessed.earlier,
        recovery=assessed.recovered,
        agreement=assessed.agreement,
        history=tuple(outcome.history),
    )
