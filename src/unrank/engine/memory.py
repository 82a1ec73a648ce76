"""Memory: how a job goes on when the device runs out of it. The result stays the same and takes a little longer.

Scoring starts again with half as many tokens at once. A training step cannot drop samples, because its loss depends on
all scores of its batch. So the batch is scored without a graph, the gradient of the loss by each score is taken, and
that is sent back through the batch piece by piece. The gradients of the pieces add up to those of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from unrank.collection.collection import Pairs
from unrank.engine.distributed import as_held
from unrank.errors import UnrankError
from unrank.rankers.base import Ranker
from unrank.rankers.size_check import device_memory

Made = TypeVar("Made")
GIB = 2**30
FLOAT, BFLOAT = 4, 2
"""Bytes of a weight, and of its copy for a pass on a GPU."""


class Memory:
    """The amount of work that a device gets at once. It is halved whenever memory runs out."""

    def __init__(self, tokens_at_once: int, say: Callable[[str], None], alone: bool = True) -> None:
        self.tokens_at_once = tokens_at_once
        self._alone = alone
        self.pieces = 1
        """The number of pieces of a step's batch."""
        self.pairs_at_once: int | None = None
        """The most pairs of a piece; `None` if a batch is cut only when memory runs out."""
        self._say = say
        self._said = False

    def score(self, work: Callable[[int], Tensor]) -> Tensor:
        """Call `work` with the number of tokens to take at once, until it fits."""
        while (scores := _unless_full(lambda: work(self.tokens_at_once))) is None:
            self._halve(self.tokens_at_once > 1)
            self.tokens_at_once //= 2
        return scores

    def backward(
        self,
        score: Callable[[Pairs], Tensor],
        pairs: Pairs,
        loss_of: Callable[[Tensor], Tensor],
        clear: Callable[[], None],
    ) -> Tensor:
        """Compute the gradient of the loss of these pairs' scores; `clear` drops gradients of a failed try."""
        while (loss := _unless_full(lambda: self._try_backward(score, pairs, loss_of))) is None:
            clear()
            self._halve(self.pieces < len(pairs))
            self.pieces *= 2
        return loss

    def _try_backward(
        self, score: Callable[[Pairs], Tensor], pairs: Pairs, loss_of: Callable[[Tensor], Tensor]
    ) -> Tensor:
        least = 1 if self.pairs_at_once is None else -(-len(pairs) // self.pairs_at_once)
        pieces = max(self.pieces, least)
        if pieces == 1:
            loss = loss_of(score(pairs))
            if loss.requires_grad:  # one of several processes may have no pair to score
                torch.autograd.backward(loss)
            return loss.detach()
        return backward_in_pieces(score, np.array_split(pairs, min(pieces, len(pairs))), loss_of)

    def _halve(self, possible: bool) -> None:
        if not self._alone:
            raise UnrankError(
                "a device ran out of memory while others wait for it: use more processes, or a smaller --set batch"
            )
        if not possible:
            raise UnrankError(
                "the device has too little memory for a single pair: use a larger device, or --device cpu"
            )
        torch.cuda.empty_cache()
        if not self._said:
            self._say("the device ran out of memory: going on with half as much at once, to the same result")
            self._said = True


def check_room(ranker: Ranker, device: torch.device, copies: int, few: bool = False) -> None:
    """Refuse a training for which a device has too little memory, before it starts.

    `copies` of all weights are held, and for those that are trained a gradient and two moments. With `few`, only a
    small share is trained, such as an adapter or some layers.
    """
    weights = sum(as_held(weight).numel() for weight in ranker.parameters())
    lower = BFLOAT if device.type == "cuda" else 0
    held = (FLOAT + lower) * copies * weights
    trained = 0 if few else (3 * FLOAT + lower) * weights
    room = device_memory(device)
    if held + trained <= room:
        return
    instead = f"; --adapt lora or --train-layers takes about {held / GIB:.3g} GiB" if trained and held <= room else ""
    raise UnrankError(
        f"{weights:,} weights take about {(held + trained) / GIB:.3g} GiB here, with their gradients and moments, and "
        f"the device has {room / GIB:.3g} GiB: use a larger device{instead}"
    )


def backward_in_pieces(
    score: Callable[[Pairs], Tensor], pieces: list[Pairs], loss_of: Callable[[Tensor], Tensor]
) -> Tensor:
    """Compute the gradients of a loss of all scores with the graph of one piece at a time; return the loss."""
    with torch.no_grad():
        scores = torch.cat([score(piece) for piece in pieces])
    loss = loss_of(scores.requires_grad_())
    (gradient,) = torch.autograd.grad(loss, scores)
    start = 0
    for piece in pieces:
        torch.autograd.backward(score(piece), gradient[start : start + len(piece)])
        start += len(piece)
    return loss.detach()


def _unless_full(work: Callable[[], Made]) -> Made | None:
    """Return the result of `work`, or `None` if memory ran out. Its intermediate results are freed by then."""
    try:
        return work()
    except torch.OutOfMemoryError:
        return None
