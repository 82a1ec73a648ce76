"""Memory: what is done when the device has none left. The result stays the same; it takes a little longer.

Scoring begins anew with half as many tokens at once. A step cannot drop samples, because its loss is a function of
all scores of its batch. So the batch is scored without a graph, the loss tells how much each score should move, and
that is sent back through one piece of the batch after another: whatever the pieces, the gradients add up to the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from unrank.collection.collection import Pairs
from unrank.errors import UnrankError

Made = TypeVar("Made")


class Memory:
    """How much a device is given at once. It begins with all, and is halved whenever that was too much."""

    def __init__(self, tokens_at_once: int, say: Callable[[str], None], alone: bool = True) -> None:
        self.tokens_at_once = tokens_at_once
        self._alone = alone
        self.pieces = 1
        """How many pieces the batch of a step is cut into."""
        self._say = say
        self._said = False

    def score(self, work: Callable[[int], Tensor]) -> Tensor:
        """What `work` makes of so many tokens at once."""
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
        """Give every weight the gradient of the loss of these pairs' scores; `clear` takes back what was given."""
        while (loss := _unless_full(lambda: self._try_backward(score, pairs, loss_of))) is None:
            clear()
            self._halve(self.pieces < len(pairs))
            self.pieces *= 2
        return loss

    def _try_backward(
        self, score: Callable[[Pairs], Tensor], pairs: Pairs, loss_of: Callable[[Tensor], Tensor]
    ) -> Tensor:
        if self.pieces == 1:
            loss = loss_of(score(pairs))
            if loss.requires_grad:  # one of many processes may have had no pair to score
                torch.autograd.backward(loss)
            return loss.detach()
        return backward_in_pieces(score, np.array_split(pairs, min(self.pieces, len(pairs))), loss_of)

    def _halve(self, possible: bool) -> None:
        if not self._alone:
            raise UnrankError("a device ran out of memory, and others wait for it: take more processes, or --set batch")
        if not possible:
            raise UnrankError("the device has too little memory for a single pair: take another, or --device cpu")
        torch.cuda.empty_cache()
        if not self._said:
            self._say("the device ran out of memory: going on with half as much at once, to the same result")
            self._said = True


def backward_in_pieces(
    score: Callable[[Pairs], Tensor], pieces: list[Pairs], loss_of: Callable[[Tensor], Tensor]
) -> Tensor:
    """The gradients of a loss of all scores, with the graph of one piece at a time; the loss."""
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
    """None where memory ran out. What the work had made by then is let go before anyone goes on."""
    try:
        return work()
    except torch.OutOfMemoryError:
        return None
