"""Which weights move, and what need not be computed again because none below it do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch import nn

from unrank.errors import UnknownName, UnrankError, count
from unrank.rankers.base import Ranker
from unrank.rankers.frozen_start import FrozenStart

Layers = int | Literal["head", "all-but-embeddings"]
"""How many of the encoder's last layers move, with what stands after them; none of them; or all of them."""


def read_layers(text: str) -> Layers:
    """
    >>> read_layers("2"), read_layers("head")
    (2, 'head')
    """
    named: dict[str, Layers] = {"head": "head", "all-but-embeddings": "all-but-embeddings"}
    if text in named:
        return named[text]
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise UnknownName("choice of layers", text, [*named, "a whole number of layers"])


def train_layers_of(ranker: Ranker, which: Layers) -> None:
    """Freeze the embeddings and all but the last layers of what still moves; what stands after them stays trainable."""
    moving = [encoder for encoder in ranker.encoders if any(weight.requires_grad for weight in encoder.parameters())]
    frozen = {id(weight) for encoder in moving for weight in _first_weights(encoder, ranker.kind, which)}
    for name, weight in ranker.named_parameters():
        if id(weight) in frozen or "embedding" in name:
            weight.requires_grad_(False)
    if not _can_learn(ranker):
        raise UnrankError(f"this {ranker.kind} has no head: nothing stands after the layers of its encoder")


def release(student: Ranker, original: Ranker) -> None:
    """Let all of a student move again, as all of its original could: another job may begin with it."""
    if all(weight.requires_grad for weight in original.parameters()):
        student.requires_grad_(True)


def _first_weights(encoder: nn.Module, kind: str, which: Layers) -> Iterator[nn.Parameter]:
    """The weights of all layers but the last."""
    stacks = [module for module in encoder.modules() if isinstance(module, nn.ModuleList)]
    if not stacks:
        raise UnrankError(f"a {kind} has no layers to choose from")
    stack = max(stacks, key=lambda layers: sum(weight.numel() for weight in layers.parameters()))
    last = {"head": 0, "all-but-embeddings": len(stack)}.get(str(which), which)
    assert isinstance(last, int)
    if last > len(stack):
        raise UnrankError(f"the encoder has {count(len(stack), 'layer')}, so {last} of them cannot be trained")
    for layer in list(stack)[: len(stack) - last]:
        yield from layer.parameters()


def _can_learn(ranker: Ranker) -> bool:
    """Whether a gradient reaches anything: an encoder may bring weights that no score depends on, such as a pooler."""
    score = ranker(ranker.tokenize(["a"], "query"), ranker.tokenize(["a"], "document"))
    return bool(score.requires_grad)


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
