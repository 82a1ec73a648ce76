"""Which weights move, and what need not be computed again because none below it do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from unrank.errors import UnrankError, count
from unrank.rankers.base import Ranker
from unrank.rankers.frozen_start import FrozenStart


def train_last_layers(ranker: Ranker, layers: int) -> None:
    """Freeze the embeddings and all but the last layers of what still moves; what stands after them stays trainable."""
    moving = [encoder for encoder in ranker.encoders if any(weight.requires_grad for weight in encoder.parameters())]
    frozen = {id(weight) for encoder in moving for weight in _first_weights(encoder, ranker.kind, layers)}
    for name, weight in ranker.named_parameters():
        if id(weight) in frozen or "embedding" in name:
            weight.requires_grad_(False)


def release(student: Ranker, original: Ranker) -> None:
    """Let all of a student move again, as all of its original could: another job may begin with it."""
    if all(weight.requires_grad for weight in original.parameters()):
        student.requires_grad_(True)


def _first_weights(encoder: nn.Module, kind: str, last: int) -> Iterator[nn.Parameter]:
    """The weights of all layers but the last."""
    stacks = [module for module in encoder.modules() if isinstance(module, nn.ModuleList)]
    if not stacks:
        raise UnrankError(f"a {kind} has no layers to choose from")
    stack = max(stacks, key=lambda layers: sum(weight.numel() for weight in layers.parameters()))
    if last > len(stack):
        raise UnrankError(f"the encoder has {count(len(stack), 'layer')}, so {last} of them cannot be trained")
    for layer in list(stack)[: len(stack) - last]:
        yield from layer.parameters()


@contextmanager
def sharing_frozen_start(original: Ranker, student: Ranker) -> Iterator[None]:
    """While a student whose first layers are its original's and stay so: what they make of a text is computed once."""
    if original.lean is None or student.lean is None or not (frozen := student.lean.frozen_layers):
        yield
        return
    original.lean.start = student.lean.start = FrozenStart(frozen)
    try:
        yield
    finally:
        original.lean.start = student.lean.start = None
