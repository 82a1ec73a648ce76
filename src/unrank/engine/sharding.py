"""Sharded weights: each of several processes holds a part of every layer of a ranker that is too large for one GPU.

torch's FSDP2 (`fully_shard`) gathers a layer before a pass needs it, frees it afterwards, and sums the gradients of its
weights over the processes. So all processes run the same number of passes in the same order. The weights outside the
layers (embeddings, last norm, head) are whole in each process, and their gradients are summed as without sharding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from unrank.engine.distributed import is_sharded
from unrank.engine.memory import Memory
from unrank.engine.runtime import Device, Runtime
from unrank.errors import UnrankError
from unrank.rankers.base import Ranker
from unrank.rankers.layers import layer_stack

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule

    from unrank.rankers.decoder import DecoderRanker

SHARDED_KIND = "decoder"
FLAG = "--shard-weights"
TOKENS_AT_ONCE = {"cpu": 1_024, "cuda": 4_096}
"""Tokens that go through the layers of a process at once, padding included; their states are kept for gradients."""


def check_shardable(kind: str, device: Device) -> None:
    """Refuse a kind of ranker that cannot be sharded, a job of one process, and a promise of equal bits."""
    if kind != SHARDED_KIND:
        raise UnrankError(f"{FLAG} shards the layers of a decoder, not of a {kind}: leave {FLAG} out")
    if torch.are_deterministic_algorithms_enabled():
        raise UnrankError(f"{FLAG} gives no promise of equal bits: leave out {FLAG}, or --deterministic")
    if Runtime.on(device).processes.size == 1:
        raise UnrankError(f"{FLAG} needs several processes, and this job is one: start it with torchrun")


def shard(ranker: Ranker, runtime: Runtime) -> None:
    """Shard the layers of a ranker over all processes, and move it to their devices. It uses the library's passes.

    Every process must hold the same weights. They may lie in the memory of the CPU: a device never holds more of the
    layers than its part and one layer.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    ranker.fast, cast("DecoderRanker", ranker).reads_in_pieces = False, False
    stack = layer_stack(ranker, ranker.kind)
    root = next(module for module in ranker.modules() if any(child is stack for child in module.children()))
    mesh = init_device_mesh(runtime.device.type, (runtime.processes.size,))
    for layer in stack:
        _sum_gradients(fully_shard(layer, mesh=mesh, reshard_after_forward=True))
    outside = {weight for weight in ranker.parameters() if not is_sharded(weight)}
    fully_shard(root, mesh=mesh, ignored_params=outside)
    for encoder in ranker.fast_encoders:
        encoder.find_weights()  # the whole ones would stay in memory
    ranker.to(runtime.device)


def sharded_runtime(runtime: Runtime, ranker: Ranker) -> Runtime:
    """Return a runtime whose processes run the passes of a sharded ranker together, one chunk each at a time."""
    longest = int(cast("DecoderRanker", ranker).model.max_seq_length)
    processes, tokens = replace(runtime.processes, together=True), TOKENS_AT_ONCE[runtime.device.type]
    memory = Memory(tokens, runtime.progress.say, alone=False)
    memory.pairs_at_once = processes.size * max(1, tokens // longest)
    return replace(runtime, processes=processes, memory=memory)


def gather(sharded: Ranker, whole: Ranker) -> None:
    """Copy the weights of a sharded ranker into another of the same shape. All processes call it together."""
    into = dict(whole.named_parameters())
    with torch.no_grad():
        for name, weight in sharded.named_parameters():
            into[name].copy_(as_whole(weight.detach()))


def as_whole(weight: Tensor) -> Tensor:
    """Return a weight, or its gradient, put together from the parts of all processes, which call it together."""
    return weight.full_tensor() if is_sharded(weight) else weight


def _sum_gradients(layer: FSDPModule) -> None:
    """Let gradients be summed over processes: each has the whole loss, and FSDP2 would take their mean."""
    layer.set_gradient_divide_factor(1.0)
    layer.set_force_sum_reduction_for_comms(True)
