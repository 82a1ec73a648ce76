"""Losses, as pure functions of scores. Each can be checked by hand.

A gap between two scores is measured in units of the range of the teacher's list ("range"), or as the quotient that the
paper prints ("paper"), which is right only if all scores are positive.
"""

from __future__ import annotations

import torch
from torch import Tensor


def margin_loss(positive: Tensor, negative: Tensor, margin: float = 1.0) -> Tensor:
    """Return how far a negative is closer to its positive than the margin.

    >>> margin_loss(torch.tensor([3.0, 0.5]), torch.tensor([1.0, 0.0])).tolist()
    [0.0, 0.5]
    """
    return torch.relu(margin - positive + negative)


def range_gap(above: Tensor, below: Tensor, list_range: Tensor) -> Tensor:
    """Return the difference of two scores in units of the range of the query's list.

    >>> range_gap(torch.tensor(-1.0), torch.tensor(-3.0), torch.tensor(4.0)).item()
    0.5
    """
    return (above - below) / list_range


def paper_gap(above: Tensor, below: Tensor) -> Tensor:
    """Return the paper's quotient: right for positive scores, noise for others.

    >>> paper_gap(torch.tensor(3.0), torch.tensor(1.0)).item(), paper_gap(torch.tensor(-3.0), torch.tensor(-1.0)).item()
    (0.5, 0.5)
    """
    return (above - below) / (above + below)


def mean_where(values: Tensor, present: Tensor) -> Tensor:
    """Return the mean over the samples that are present, for each role; 0 if there is none. [batch, ...] -> [...]

    >>> mean_where(torch.tensor([1.0, 9.0]), torch.tensor([True, False])).item()
    1.0
    """
    return torch.where(present, values, 0.0).sum(0) / present.sum(0).clamp(min=1)


def list_loss(scores: Tensor, present: Tensor, label: int = 0) -> Tensor:
    """Return −log p of the document in one column, by the softmax of each list. [lists, documents] -> [lists]

    0 for a list that lacks this document.

    >>> scores, present = torch.tensor([[1.0, 1.0], [9.0, 0.0]]), torch.tensor([[True, True], [True, False]])
    >>> [round(value, 4) for value in list_loss(scores, present).tolist()], list_loss(scores, present, 1)[1].item()
    ([0.6931, 0.0], 0.0)
    """
    total = scores.masked_fill(~present, -torch.inf).logsumexp(1)
    return torch.where(present[:, label], total - scores[:, label], 0.0)


def list_divergence(teacher: Tensor, student: Tensor, present: Tensor) -> Tensor:
    """Return the divergence of the student's distribution from the teacher's: KL(teacher ‖ student). [lists]

    >>> two = torch.tensor([[0.0, 0.0], [5.0, 0.0]])
    >>> [round(value, 4) for value in list_divergence(two, two.flip(0), torch.ones(2, 2, dtype=torch.bool)).tolist()]
    [1.8136, 0.653]
    >>> list_divergence(two, two + 3, torch.tensor([[True, False], [True, True]])).tolist()
    [0.0, 0.0]
    """
    wanted, given = (scores.masked_fill(~present, -torch.inf).log_softmax(1) for scores in (teacher, student))
    gap = torch.where(present, wanted, 0.0) - torch.where(present, given, 0.0)
    return (wanted.exp() * gap).sum(1)
