"""LoRA: a low-rank change of the linear layers of a ranker, which is trained alone.

Reference: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models (2021).
Differs: the change is added to a weight, not to the output of its layer, so that all fast passes serve. The scale and
the first values are such that a step moves a weight about as far as it would without an adapter, at any rank.

The other weights are those of the original, in the same memory: a student and its teacher share one copy.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unrank.errors import UnrankError
from unrank.rankers.base import Ranker
from unrank.rankers.fast.bf16_weights import LowRank

SCALE = 8
"""The factor of the product of both matrices; `lora_alpha` of peft is the rank times this."""


@dataclass(frozen=True)
class Adapter:
    """The matrices A [rank, in] and B [out, rank] of each changed layer, by the name of the layer in its ranker."""

    rank: int
    matrices: dict[str, tuple[Tensor, Tensor]]


def share_weights(ranker: Ranker) -> Ranker:
    """Return a copy of a ranker whose weights are in the memory of the first. Whoever changes one owns it first."""
    shared: dict[int, Any] = {
        id(weight): nn.Parameter(weight.detach(), requires_grad=weight.requires_grad) for weight in ranker.parameters()
    }
    return copy.deepcopy(ranker, shared)


def own_weights(*weights: Tensor) -> None:
    """Give weights memory of their own."""
    for weight in weights:
        weight.data = weight.data.clone()


def add_adapter(ranker: Ranker, rank: int, seed: int) -> None:
    """Put an adapter on the linear layers that would be trained, and freeze all other weights."""
    layers = [layer for _, layer in linear_layers(ranker) if layer.weight.requires_grad]
    if not layers:
        raise UnrankError(f"this {ranker.kind} has no linear layers within an encoder, so --adapt has nothing to adapt")
    ranker.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for layer in layers:
        size, width = layer.weight.shape
        first = torch.randn(rank, width, generator=generator) / (SCALE * math.sqrt(rank))
        change = LowRank(first, torch.zeros(size, rank), SCALE).to(layer.weight.device)
        parametrize.register_parametrization(layer, "weight", change)
    _renew(ranker)


def take_adapter(ranker: Ranker) -> Adapter | None:
    """Merge the adapter of a ranker into weights of its own, and return it; `None` if there is none."""
    adapted = [(name, layer) for name, layer in linear_layers(ranker) if parametrize.is_parametrized(layer, "weight")]
    if not adapted:
        return None
    taken = {}
    for name, layer in adapted:
        change = layer.parametrizations["weight"][0]
        taken[name] = change.a.detach().cpu(), change.b.detach().cpu()
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
        others = {name: layer._parameters.pop(name) for name in [*layer._parameters] if name != "weight"}
        layer._parameters.update(others)  # in the order of the original
    own_weights(*(weight for weight in ranker.parameters()))
    _renew(ranker)
    return Adapter(len(next(iter(taken.values()))[0]), taken)


def linear_layers(ranker: Ranker) -> Iterator[tuple[str, Any]]:
    """Yield the linear layers of attention and feed-forward networks, with their names in the ranker."""
    inside = {
        id(module)
        for encoder in ranker.encoders
        if (stack := _layers(encoder)) is not None
        for module in stack.modules()
        if isinstance(module, nn.Linear)
    }
    return ((name, module) for name, module in ranker.named_modules() if id(module) in inside)


def _layers(encoder: nn.Module) -> nn.ModuleList | None:
    """Return the layers of an encoder; `None` if it has none."""
    stacks = [module for module in encoder.modules() if isinstance(module, nn.ModuleList)]
    return max(stacks, key=lambda stack: sum(weight.numel() for weight in stack.parameters()), default=None)


def _renew(ranker: Ranker) -> None:
    for encoder in ranker.fast_encoders:
        encoder.find_weights()
