"""Recovery: what comes back after one epoch on kept data was hidden, not forgotten. Nothing forgotten is shown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unrank.audit.case import Case, Subject
from unrank.audit.comeback import Comeback, find_comeback
from unrank.audit.verdict import Finding
from unrank.collection.partition import Partition
from unrank.forgetting.recovery import learn_kept, pupil_of


def recovery(case: Case) -> Finding:
    shown = kept_sample(case.partition, case.thoroughness.kept_pairs, case.seed)
    forget = case.sets["forget"]

    def recover(subject: Subject) -> Comeback:
        workspace = replace(subject.workspace, partition=shown)
        pupil = pupil_of(subject.ranker, workspace)
        learn_kept(pupil, workspace, case.seed, case.thoroughness.recovery)
        return Comeback(subject.reciprocals(forget), subject.reciprocals(forget, workspace.scorer(pupil)))

    return find_comeback(
        case, "the forget MRR after an epoch on kept data", case.each(recover), pairs=len(shown.retain)
    )


def kept_sample(partition: Partition, most: int, seed: int) -> Partition:
    """The same partition with at most so many of its kept pairs."""
    taken = np.sort(np.random.default_rng(seed).permutation(len(partition.retain))[:most])
    entangled = taken < len(partition.entangled)
    return replace(
        partition, entangled=partition.retain[taken[entangled]], disjoint=partition.retain[taken[~entangled]]
    )
