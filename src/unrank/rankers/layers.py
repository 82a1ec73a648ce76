"""Training of some layers only, and reuse of the states that frozen layers give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Literal

from torch import nn

from unrank.errors import UnknownName, UnrankError, count
from unrank.rankers.base import Ranker
from unrank.rankers.fast.cpu import FrozenStates
from unrank.rankers.tokens import Ints

Layers = int | Literal["head", "all-but-embeddings"]
"""The layers to train, with all weights after them: the last n layers, none (`head`), or all."""


def read_layers(text: str) -> Layers:
    """Read a choice of layers.

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
    """Freeze the embeddings and all but the last layers of each trained encoder; weights after them stay trained."""
    trained = [encoder for encoder in ranker.encoders if any(weight.requires_grad for weight in encoder.parameters())]
    frozen = {id(weight) for encoder in trained for weight in _first_weights(encoder, ranker.kind, which)}
    frozen |= {id(table) for vocabulary in ranker.vocabularies for table in vocabulary.tables}
    for name, weight in ranker.named_parameters():
        if id(weight) in frozen or "embedding" in name:
            weight.requires_grad_(False)
    if not _can_learn(ranker):
        raise UnrankError(f"this {ranker.kind} has no head: no trained weight comes after the layers of its encoder")


def release(student: Ranker, original: Ranker) -> None:
    """Make all weights of a student trainable again if all of its original's are, so that another job can train it."""
    if all(weight.requires_grad for weight in original.parameters()):
        student.requires_grad_(True)


def layer_stack(encoder: nn.Module, kind: str) -> nn.ModuleList:
    """Return the layers of an encoder: the list of modules that has most of its weights."""
    stacks = [module for module in encoder.modules() if isinstance(module, nn.ModuleList)]
    if not stacks:
        raise UnrankError(f"a {kind} has no layers to choose from")
    return max(stacks, key=lambda layers: sum(weight.numel() for weight in layers.parameters()))


def _first_weights(encoder: nn.Module, kind: str, which: Layers) -> Iterator[nn.Parameter]:
    """Yield the weights of all layers but the last ones, and those before them, such as the encoder of a decoder."""
    stack = layer_stack(encoder, kind)
    last = {"head": 0, "all-but-embeddings": len(stack)}.get(str(which), which)
    assert isinstance(last, int)
    if last > len(stack):
        raise UnrankError(f"the encoder has {count(len(stack), 'layer')}, so {last} of them cannot be trained")
    if which != "all-but-embeddings":
        first = next(stack.parameters())
        yield from takewhile(lambda weight: weight is not first, encoder.parameters())
    for layer in list(stack)[: len(stack) - last]:
        yield from layer.parameters()


def _can_learn(ranker: Ranker) -> bool:
    """Return whether a score has a gradient: an encoder may have weights that no score depends on, such as a pooler."""
    score = ranker(ranker.tokenize(["a"], "query"), ranker.tokenize(["a"], "document"))
    return bool(score.requires_grad)


@contextmanager
def sharing_frozen_states(
    original: Ranker, student: Ranker, apart: Ints | None = None
) -> Iterator[FrozenStates | None]:
    """Compute the states of frozen layers once per text, for a student and the original it shares them with.

    A text with one of the tokens `apart`, whose embeddings differ, has states of its own in each. If the student's
    documents are frozen, the states are those of its queries alone: the vectors of documents are kept in their place.
    Yields the states as the original has them; `None` if there are none.
    """
    encoders, one = student.fast_encoders, len(student.fast_encoders) == 1
    moving = encoders if one else [encoder for encoder in encoders if encoder.moves]
    frozen = moving[0].frozen_layers if len(moving) == 1 else 0
    states = FrozenStates(frozen, apart) if frozen else None
    for encoder in original.fast_encoders:
        encoder.frozen_states = states if one else None
    for encoder in moving:
        encoder.frozen_states = states and states.of_another()
    try:
        yield states
    finally:
        drop_frozen_states(original, student)


def keep_frozen_states(ranker: Ranker) -> None:
    """Compute the states of a ranker's frozen layers once per text from now on. They must not change meanwhile."""
    for encoder in ranker.fast_encoders:
        encoder.frozen_states = FrozenStates(encoder.frozen_layers) if encoder.frozen_layers else None


def drop_frozen_states(*rankers: Ranker) -> None:
    """Forget the states of frozen layers, and compute them each time."""
    for ranker in rankers:
        for encoder in ranker.fast_encoders:
            encoder.frozen_states = None
