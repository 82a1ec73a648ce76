"""The time that an audit will take, from a few lists and steps timed on this machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unrank.audit.context import AuditContext
from unrank.audit.evidence import JudgedPairs, lists_to_score
from unrank.audit.other_forms import further_epoch
from unrank.audit.probe import ProbedPairs
from unrank.audit.recovery_test import kept_sample
from unrank.audit.relearning import attempts_of, split_forget
from unrank.audit.rewording import REWORDINGS
from unrank.collection.texts import Rows
from unrank.forgetting.estimate import NONE, Seconds, seconds_per_epoch, seconds_per_step, seconds_per_text
from unrank.forgetting.mrr_estimator import to_read
from unrank.forgetting.train import recipe_of, trainable_copy
from unrank.forgetting.validation import encoded_sides
from unrank.methods.ranking import learn

STATISTICS = 0.005
"""Seconds for the statistics of one query: bootstrap resamples and rank agreement. They do not depend on the ranker."""


def audit_time(context: AuditContext) -> Seconds:
    """Return the time of an audit: of each ranker, the original and the references included, and of the proxies."""
    number = 1 + (context.rankers.original is not None) + len(context.rankers.references)
    statistics = Seconds(0.0, STATISTICS * len(_queries(context)))
    tests = (_scoring(context) + _recovery(context) + _relearning(context) + statistics).times(number)
    return tests + seconds_per_text(context.rankers.ranker.ranker, context.rankers.ranker.workspace).times(
        texts_to_judge(context)
    )


def texts_to_judge(context: AuditContext) -> int:
    """Count the pairs to read, or the texts to encode, by which all rankers together judge single pairs."""
    judged, sides = JudgedPairs.of(context), encoded_sides(context.rankers.ranker.ranker, None)
    whole = [np.ones(len(part.pairs), bool) for part in judged.parts]
    asked = [whole] * (1 + (context.rankers.original is not None))
    asked += [[part.never_saw[row] for part in judged.parts] for row in range(len(context.judges))]
    return sum(to_read(lists_to_score(context, judged, each), sides) for each in asked)


def _queries(context: AuditContext) -> Rows:
    return np.unique(np.concatenate(list(context.sets.values()))[:, 0])


def _scoring(context: AuditContext) -> Seconds:
    """Time all lists once, the forget lists again for each test that reads them in another way, and the probe."""
    audited, collection, forget = context.rankers.ranker, context.collection, context.sets["forget"]
    effort, sides = context.thoroughness, encoded_sides(audited.ranker, None)
    lists = to_read(collection.list_pairs(_queries(context)), sides)
    again = to_read(np.concatenate([forget, collection.negatives.pairs(np.unique(forget[:, 0]))]), sides)
    steps = len(effort.relearning_steps)
    passes: float = 1 + steps + len(REWORDINGS) + 1 + len(effort.rounded_bits)  # 1 for paraphrases
    if effort.full:
        probed = min(1.0, effort.probed_queries / len(np.unique(forget[:, 0])))
        passes += 2 + probed * steps * len(attempts_of(context))
    states = to_read(ProbedPairs.of(context).pairs, sides)
    return seconds_per_text(audited.ranker, audited.workspace).times(lists + passes * again + states)


def _recovery(context: AuditContext) -> Seconds:
    """Time the epoch on kept pairs; in a full audit, the epoch of ordinary training too."""
    audited = context.rankers.ranker
    kept = kept_sample(context.partition, context.thoroughness.kept_pairs, context.seed)
    workspace = replace(audited.workspace, partition=kept)
    student = trainable_copy(audited.ranker, workspace)
    epochs = [context.thoroughness.recovery]
    epochs += [further_epoch(context)] if context.thoroughness.full else []
    return sum((seconds_per_epoch(audited.ranker, student, workspace, epoch, None) for epoch in epochs), NONE)


def _relearning(context: AuditContext) -> Seconds:
    """Time the steps of all attempts, and those of the best one again."""
    audited, attempts = context.rankers.ranker, attempts_of(context)
    if not attempts or not len(split_forget(context)[1]):
        return NONE
    recipe, workspace = recipe_of(audited.ranker.kind), audited.workspace
    largest = max((attempt.pairs for attempt in attempts), key=len)
    student = trainable_copy(audited.ranker, workspace)
    phase = learn(workspace.task(student), largest, recipe.negatives, recipe.batch, recipe.together)
    filled = min(1.0, phase.size / phase.batch)  # a time is of a full mini-batch
    times = 1 if len(attempts) == 1 else 1 + len(attempts)
    steps = times * max(context.thoroughness.relearning_steps)
    return seconds_per_step(student, phase, workspace).times(steps * filled)
