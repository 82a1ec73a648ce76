"""Weights: can removed words be listed from a ranker's vocabulary alone?

Training moves the rows of the words that it reads. The words that only removed texts have are compared with words that
no text of the collection has: a row that moved as no unused row did, or that did not move where all others have, gives
its word away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from unrank.audit.comparison import Json, PerRanker
from unrank.audit.context import AuditContext, AuditedRanker
from unrank.audit.verdict import Finding, Verdict, undecided
from unrank.errors import count
from unrank.evaluation.bootstrap import BootstrapEstimate, ResampledSets
from unrank.evaluation.measure import Floats
from unrank.forgetting.vocabulary import Values, initial_tables, is_same, only_removed, removed_texts, unused
from unrank.rankers.base import Ranker

WEIGHTS = "weights"
MEASURES = "the AUC of removed words against unused ones, by how their rows moved"
STRANGERS = 2_000
"""The most unused words that are compared with."""
FALSE_SHARE = 0.01
"""The share of unused words that a list of removed words may take in by mistake."""
SURELY = 0.001
"""The chance at which a list counts as more than luck."""


@dataclass(frozen=True)
class Moves:
    """How far the rows of removed words and of unused words are from where unused rows usually are."""

    removed: Floats
    unused: Floats

    @classmethod
    def of(cls, counts: Sequence[int], moved: Sequence[Floats]) -> Moves:
        """Take for each vocabulary the moves of its removed words, `counts` of them, then those of unused ones."""
        apart = [np.abs(one - np.median(one[number:])) for one, number in zip(moved, counts, strict=True)]
        parts = list(zip(apart, counts, strict=True))
        return cls(
            np.concatenate([one[:number] for one, number in parts]),
            np.concatenate([one[number:] for one, number in parts]),
        )

    @property
    def listed(self) -> tuple[int, int]:
        """The removed and the unused words above the bar that few unused words exceed."""
        bar = np.sort(self.unused)[len(self.unused) - 1 - int(FALSE_SHARE * len(self.unused))]
        return int((self.removed > bar).sum()), int((self.unused > bar).sum())

    @property
    def recall(self) -> float:
        return self.listed[0] / len(self.removed)

    @property
    def precision(self) -> float | None:
        """The share of removed words in the list; `None` if it is empty."""
        found, wrong = self.listed
        return found / (found + wrong) if found + wrong else None

    def estimate(self, seed: int) -> BootstrapEstimate:
        resampled = ResampledSets.of(np.arange(len(self.removed)), np.arange(len(self.unused)), seed)
        return resampled.area(self.removed, self.unused, len(self.removed))

    def to_json(self) -> Json:
        found, wrong = self.listed
        return {"listed": found + wrong, "precision": self.precision, "recall": self.recall}


def weights(context: AuditContext) -> Finding:
    one = context.rankers.ranker
    removed = removed_texts(context.partition)
    members = [only_removed(one.ranker, each, one.workspace, removed) for each in one.ranker.vocabularies]
    number = sum(map(len, members))
    if not number:
        return Finding(MEASURES, Verdict.EQUIVALENT, "no word stands in removed texts alone: none can be listed")
    initial = initial_tables(one.ranker, context.base) if all(each.tables for each in one.ranker.vocabularies) else None
    if initial is None:
        return undecided(MEASURES, "the model that the ranker was trained from is not known, so no move can be seen")
    known = context.base_recorded or context.base == one.ranker.default_base
    if not known and is_same(one.ranker, initial):
        return undecided(MEASURES, "no row differs from the base, which may be the ranker itself")
    if not _alike(one.ranker, initial):
        return undecided(MEASURES, "the base is not the model that the ranker was trained from")
    strangers = [unused(one.ranker, each, one.workspace, STRANGERS, context.seed) for each in one.ranker.vocabularies]
    tokens = [torch.from_numpy(np.concatenate(both)) for both in zip(members, strangers, strict=True)]
    moved = context.each(partial(_moved, tokens, initial))
    counts = [len(rows) for rows in members]
    if all(map(len, strangers)):
        return _judge(context, moved.map(partial(Moves.of, counts)))
    if not any(one[:number].any() for one, number in zip(moved.ranker, counts, strict=True)):
        return Finding(MEASURES, Verdict.EQUIVALENT, f"no row of {count(number, 'removed word')} has moved")
    return undecided(MEASURES, "every word of the vocabulary stands in some text, so there is none to compare with")


def _alike(ranker: Ranker, initial: Sequence[Values]) -> bool:
    pairs = zip(ranker.vocabularies, initial, strict=True)
    return all(table.shape == tables[0].shape for each, tables in pairs for table in each.tables)


def _moved(tokens: Sequence[Tensor], initial: Sequence[Values], one: AuditedRanker) -> list[Floats]:
    """Return how far rows moved, as a share of their length; of several tables, the furthest."""
    found = []
    for each, rows, tables in zip(one.ranker.vocabularies, tokens, initial, strict=True):
        start = _rows(tables[0], rows)
        distances = torch.stack([(_rows(table, rows) - start).norm(dim=1) for table in each.tables])
        found.append((distances.amax(0) / start.norm(dim=1).clamp_min(1e-12)).numpy())
    return found


def _rows(table: Tensor, rows: Tensor) -> Tensor:
    return table.detach().cpu()[rows].reshape(len(rows), -1).double()


def _judge(context: AuditContext, moves: PerRanker[Moves]) -> Finding:
    mine, compared = moves.ranker, context.compare(moves.map(lambda one: one.estimate(context.seed)))
    found, words = mine.listed[0], count(len(mine.removed), "removed word")
    above = mine.recall > max((one.recall for one in moves.references), default=0.0)
    lucky = partial(luck, words=len(mine.removed), wrong=mine.listed[1], unused=len(mine.unused))
    verdict = Verdict.EQUIVALENT
    chance = lucky(found) if found and above else 1.0
    if chance < SURELY:
        verdict = Verdict.REMEMBERED
    elif found and lucky(len(mine.removed)) >= SURELY:
        verdict = Verdict.UNDECIDED
    said = f"{found} of {words} can be listed from the weights, among {count(len(mine.unused), 'unused word')}"
    said += ", which are too few to tell" if verdict is Verdict.UNDECIDED else ""
    details = {
        "removed_words": len(mine.removed),
        "unused_words": len(mine.unused),
        "chance": len(mine.removed) / (len(mine.removed) + len(mine.unused)),
        **mine.to_json(),
        "original": moves.original and moves.original.to_json(),
        "references": [one.to_json() for one in moves.references],
    }
    return Finding(MEASURES, verdict, said, compared.ranker, compared.threshold, compared, details, p_remembered=chance)


def luck(found: int, words: int, wrong: int, unused: int) -> float:
    """Return the chance that this many words or more exceed a bar that `wrong` of the unused ones exceed.

    >>> luck(0, 9, 4, 498), round(luck(1, 9, 4, 498), 3), luck(9, 9, 4, 498) < 1e-15
    (1.0, 0.086, True)
    """
    share = (wrong + 1) / (unused + 2)
    logs = [
        math.lgamma(words + 1) - math.lgamma(each + 1) - math.lgamma(words - each + 1)
        + each * math.log(share) + (words - each) * math.log1p(-share)
        for each in range(found, words + 1)
    ]  # fmt: skip
    return min(1.0, math.fsum(map(math.exp, logs)))
