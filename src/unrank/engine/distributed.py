"""Several processes on one job: each computes a share of every batch and list, and all get the whole result.

Every process draws the same samples and makes the same chunks. Process i computes every chunk whose number modulo the
number of processes is i. The results of the others are added to zeros, which changes no bit of them. So every process
sees the scores that a single process would see, and all decide alike. Gradients of a step are summed over processes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard, TypeVar

import torch
from torch import Tensor, distributed, nn

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Chunk = TypeVar("Chunk")


@dataclass(frozen=True)
class ProcessGroup:
    """The number of processes, and the number of this one."""

    size: int = 1
    number: int = 0
    together: bool = False
    """Whether each process must compute as many chunks as the others, because each pass needs all (sharded weights)."""

    def map(self, work: Callable[[Chunk], Tensor], chunks: Sequence[Chunk], device: torch.device) -> list[Tensor]:
        """Apply `work` to each chunk. Results of other processes carry no gradient."""
        if self.size == 1:
            return [work(chunk) for chunk in chunks]
        mine = {place: work(chunks[place]) for place in range(self.number, len(chunks), self.size)}
        idle = self.together and len(mine) * self.size < len(chunks)
        unused = [work(chunks[-1])] if idle else []
        shapes = self._shapes(mine, len(chunks), device)
        parts = [mine.get(place, torch.zeros(shape, device=device)) for place, shape in enumerate(shapes)]
        sizes = [part.numel() for part in parts]
        known = torch.cat([part.flatten() for part in (*parts, *unused)])[: sum(sizes)]
        others = known.detach().clone()
        distributed.all_reduce(others)
        whole = known + (others - known.detach())
        return [part.view(shape) for part, shape in zip(torch.split(whole, sizes), shapes, strict=True)]

    def sum_gradients(self, weights: Iterable[nn.Parameter]) -> None:
        """Replace the gradients of every process by their sum. Those of sharded weights are summed already."""
        if self.size == 1:
            return
        moving = [weight for weight in weights if weight.requires_grad and not is_sharded(weight)]
        gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in moving]
        whole = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(whole)
        for weight, gradient in zip(moving, torch.split(whole, [weight.numel() for weight in moving]), strict=True):
            weight.grad = gradient.view_as(weight)

    def agree(self, value: bool) -> bool:
        """Return the value of the first process in all of them: their clocks differ."""
        if self.size == 1:
            return value
        answer = torch.tensor([int(value)], device=_exchange_device())
        distributed.broadcast(answer, 0)
        return bool(answer.item())

    def all_have(self, number: int) -> bool:
        """Return whether every process has the same number."""
        if self.size == 1:
            return True
        most = torch.tensor([number, -number], device=_exchange_device())
        distributed.all_reduce(most, distributed.ReduceOp.MAX)
        largest, least = most.tolist()
        return bool(largest == -least)

    def _shapes(self, mine: dict[int, Tensor], chunks: int, device: torch.device) -> list[tuple[int, ...]]:
        """Return the shape of each chunk's result. A missing dimension is 0."""
        table = torch.zeros(chunks, 3, dtype=torch.int64)
        for place, part in mine.items():
            table[place, : part.dim()] = torch.tensor(part.shape)
        table = table.to(device)
        distributed.all_reduce(table)
        return [tuple(size for size in row if size) for row in table.tolist()]


def is_sharded(weight: Tensor) -> TypeGuard[DTensor]:
    """Return whether a weight is sharded over processes. None is before torch's module for that is imported."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(weight, module.DTensor)


def as_held(weight: Tensor) -> Tensor:
    """Return what this process holds of a weight: its part if it is sharded, else all."""
    return weight.to_local() if is_sharded(weight) else weight


def _exchange_device() -> str:
    """Return the device on which processes exchange numbers."""
    return "cuda" if distributed.get_backend() == "nccl" else "cpu"
