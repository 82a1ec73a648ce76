"""Several processes that do one job together: each computes a share of every batch and list, and all know the result.

Every process draws the same samples and makes the same chunks; chunk i is computed by process i modulo their number,
and what the others made is added to zeros, which changes no bit of it. So all see the scores that one process alone
would see, and decide alike. A step's gradients are those of each one's own chunks, added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn

Chunk = TypeVar("Chunk")


@dataclass(frozen=True)
class Team:
    """How many processes there are, and which one this is."""

    size: int = 1
    number: int = 0

    def map(self, work: Callable[[Chunk], Tensor], chunks: Sequence[Chunk], device: torch.device) -> list[Tensor]:
        """What the work makes of each chunk. What others made of theirs has no gradient here."""
        if self.size == 1:
            return [work(chunk) for chunk in chunks]
        mine = {place: work(chunks[place]) for place in range(self.number, len(chunks), self.size)}
        shapes = self._shapes(mine, len(chunks), device)
        parts = [mine.get(place, torch.zeros(shape, device=device)) for place, shape in enumerate(shapes)]
        known = torch.cat([part.flatten() for part in parts])
        others = known.detach().clone()
        distributed.all_reduce(others)
        whole = known + (others - known.detach())
        sizes = [part.numel() for part in parts]
        return [part.view(shape) for part, shape in zip(torch.split(whole, sizes), shapes, strict=True)]

    def add_up_gradients(self, weights: Iterable[nn.Parameter]) -> None:
        """Give every process the sum of all processes' gradients."""
        if self.size == 1:
            return
        moving = [weight for weight in weights if weight.requires_grad]
        gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in moving]
        whole = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(whole)
        for weight, gradient in zip(moving, torch.split(whole, [weight.numel() for weight in moving]), strict=True):
            weight.grad = gradient.view_as(weight)

    def agree(self, told: bool) -> bool:
        """What the first process was told: clocks differ."""
        if self.size == 1:
            return told
        answer = torch.tensor([int(told)], device=_meeting_place())
        distributed.broadcast(answer, 0)
        return bool(answer.item())

    def all_have(self, number: int) -> bool:
        """Whether every process has the same number."""
        if self.size == 1:
            return True
        most = torch.tensor([number, -number], device=_meeting_place())
        distributed.all_reduce(most, distributed.ReduceOp.MAX)
        largest, least = most.tolist()
        return bool(largest == -least)

    def _shapes(self, mine: dict[int, Tensor], chunks: int, device: torch.device) -> list[tuple[int, ...]]:
        """The shape of what each chunk became; a dimension that is not there is 0."""
        table = torch.zeros(chunks, 3, dtype=torch.int64)
        for place, part in mine.items():
            table[place, : part.dim()] = torch.tensor(part.shape)
        table = table.to(device)
        distributed.all_reduce(table)
        return [tuple(size for size in row if size) for row in table.tolist()]


def _meeting_place() -> str:
    """Where a number must lie to be told to the others."""
    return "cuda" if distributed.get_backend() == "nccl" else "cpu"
