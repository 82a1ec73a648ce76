"""Norms, gated activations and rotations of decoders on a GPU, each in one kernel in place of the library's many.

A part is replaced only where it gives what the library's gives, which is tried on a few states first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu

from unrank.rankers.fast.packed_layers import has_kernels

PROBE = 8
"""The number of states on which a part is compared with its library's."""
TOLERANCE = 1e-5
ROTATION = "apply_rotary_pos_emb"
"""The function by which a family of the library turns queries and keys by their positions."""
Rotation = Callable[..., tuple[Tensor, Tensor]]


def faster_parts(encoder: nn.Module) -> dict[Any, Any]:
    """Return a `forward` for each norm and each gated network of an encoder that have one kernel."""
    replaced, gated = dict[Any, Any](), dict[tuple[type, type], bool]()
    for module in encoder.modules():
        if type(module).__name__.endswith("RMSNorm") and _is_plain_norm(module):
            replaced[module] = partial(_norm, module)
        elif callable(activation := getattr(module, "act_fn", None)):
            alike = type(module), type(activation)
            if alike not in gated:  # the networks of large models take long to try
                gated[alike] = _is_gated(module)
            if gated[alike]:
                replaced[module] = partial(_gated, module)
    return replaced


@contextmanager
def faster_rotation(encoder: nn.Module) -> Iterator[None]:
    """Turn queries and keys by a kernel, if the family of an encoder turns the halves of each head."""
    family: Any = sys.modules[type(encoder).__module__]
    library = getattr(family, ROTATION, None)
    if (
        library is None
        or isinstance(library, partial)  # replaced already, by another thread
        or not has_kernels(next(encoder.parameters()).device)
        or not turns_halves(library)
    ):
        yield
        return
    setattr(family, ROTATION, partial(_rotated, library))
    try:
        yield
    finally:
        setattr(family, ROTATION, library)


@torch.no_grad()
def _is_plain_norm(norm: Any) -> bool:
    """Return whether torch's norm gives what a norm of the library does: some families add one to the scale."""
    weight, eps = getattr(norm, "weight", None), getattr(norm, "variance_epsilon", None)
    if not isinstance(weight, Tensor) or eps is None:
        return False
    states = _some_states(weight.numel(), weight)
    return torch.allclose(rms_norm(states, weight.shape, weight, eps), type(norm).forward(norm, states), TOLERANCE)


@torch.no_grad()
def _is_gated(module: Any) -> bool:
    """Return whether a module is a network whose inner states are multiplied by the SiLU of others."""
    parts = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    if not all(isinstance(part, nn.Linear) for part in parts):
        return False
    gate, up, down = parts
    assert gate is not None and up is not None and down is not None
    states = _some_states(gate.in_features, gate.weight)
    expected = type(module).forward(module, states)
    return torch.allclose(down(silu(gate(states)) * up(states)), expected, TOLERANCE, TOLERANCE)


@cache
def turns_halves(library: Rotation) -> bool:
    """Return whether a family turns the first half of a head against the second, and nothing else."""
    given = torch.linspace(-2, 3, 5 * PROBE).view(1, 1, 5, PROBE)
    cosine, sine = given[:, 0].cos(), given[:, 0].sin()
    try:
        queries, keys = library(given, given + 1, cosine, sine)
    except (TypeError, RuntimeError, IndexError):
        return False
    expected = _in_halves(given, cosine, sine), _in_halves(given + 1, cosine, sine)
    return all(map(partial(torch.allclose, rtol=TOLERANCE, atol=TOLERANCE), (queries, keys), expected))


def _in_halves(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = states.chunk(2, -1)
    return states * cosine.unsqueeze(1) + torch.cat([-second, first], -1) * sine.unsqueeze(1)


def _some_states(size: int, like: Tensor) -> Tensor:
    return torch.linspace(-2, 3, PROBE * size, dtype=like.dtype, device=like.device).view(PROBE, size)


def _norm(norm: Any, states: Tensor) -> Tensor:
    if not states.is_cuda:
        given: Tensor = type(norm).forward(norm, states)
        return given
    return rms_norm(states, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _gated(network: Any, states: Tensor) -> Tensor:
    if not has_kernels(states.device):
        given: Tensor = type(network).forward(network, states)
        return given
    from unrank.rankers.fast.decoder_kernels import gated

    out: Tensor = network.down_proj(gated(network.gate_proj(states), network.up_proj(states)))
    return out


def _rotated(
    library: Rotation, queries: Tensor, keys: Tensor, cosine: Tensor, sine: Tensor, *more: Any, **options: Any
) -> tuple[Tensor, Tensor]:
    """Turn packed queries and keys. each [1, heads, tokens, size]"""
    packed = cosine.dim() == 3 and len(cosine) == len(queries) == 1 and cosine.shape[-1] == queries.shape[-1]
    if not packed or more or options or not has_kernels(queries.device):
        return library(queries, keys, cosine, sine, *more, **options)
    from unrank.rankers.fast.decoder_kernels import rotated

    return rotated(queries, cosine, sine), rotated(keys, cosine, sine)
