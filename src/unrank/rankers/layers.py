"""Which weights move, and what need not be computed again because none below it do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from unrank.errors import UnrankError, count
from unrank.rankers.base import Ranker
from unrank.rankers.frozen_start import FrozenStart


def train_last_layers(ranker: Ranker, layers: int) -> None:
    """Freeze the embeddings and all but the last layers of the encoder; what stands after them stays trainable."""
    stacks = [module for module in ranker.modules() if isinstance(module, nn.ModuleList)]
    if not stacks:
        raise UnrankError(f"a {ranker.kind} has no layers to choose from")
    stack = max(stacks, key=lambda layers: sum(weight.numel() for weight in layers.parameters()))
    if layers > len(stack):
        raise UnrankError(f"the encoder has {count(len(stack), 'layer')}, so {layers} of them cannot be trained")
    frozen = {id(weight) for layer in list(stack)[: len(stack) - layers] for weight in layer.parameters()}
    for name, weight in ranker.named_parameters():
        weight.requires_grad_(id(weight) not in frozen and "embedding" not in name)


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
