"""The one training loop.

An epoch goes through its phases in order; a phase draws its samples, shuffles them, and steps on batches of them.
Dropout is off throughout, the optimiser lives through all epochs, and every draw follows from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch

from unrank.engine.runtime import Runtime
from unrank.engine.samples import Phase, Samples, Scored
from unrank.engine.scoring import score_pairs
from unrank.engine.tokens import TokenStore
from unrank.errors import NotFinite
from unrank.rankers.base import Ranker


@dataclass(frozen=True)
class Schedule:
    """How long and how fast."""

    epochs: int
    learning_rate: float
    seed: int = 0


@dataclass(frozen=True)
class Epoch:
    """What one epoch took and came to."""

    number: int
    seconds: float
    steps: int
    samples: int
    losses: dict[str, float]


def fit(
    ranker: Ranker,
    phases: Sequence[Phase],
    schedule: Schedule,
    store: TokenStore,
    runtime: Runtime,
    stop: Callable[[Epoch], bool],
) -> list[Epoch]:
    """Train in place until `stop` says so after an epoch, or the epochs are over."""
    trained = [parameter for parameter in ranker.parameters() if parameter.requires_grad]
    fused = runtime.device.type == "cuda"
    optimizer = torch.optim.AdamW(trained, lr=schedule.learning_rate, weight_decay=0.0, fused=fused)
    optimizer = runtime.accelerator.prepare(optimizer)
    ranker.eval()
    epochs: list[Epoch] = []
    for number in range(1, schedule.epochs + 1):
        epochs.append(_epoch(number, ranker, phases, optimizer, schedule.seed, store, runtime))
        if stop(epochs[-1]):
            break
    return epochs


def _epoch(
    number: int,
    ranker: Ranker,
    phases: Sequence[Phase],
    optimizer: torch.optim.Optimizer,
    seed: int,
    store: TokenStore,
    runtime: Runtime,
) -> Epoch:
    """One pass over all phases. Drawing samples, teacher scores included, is part of its time."""
    runtime.wait()
    started, steps, samples = perf_counter(), 0, 0
    losses: dict[str, float] = {}
    for place, phase in enumerate(phases):
        generator = np.random.default_rng([seed, number, place])
        drawn = phase.draw(generator)
        order = generator.permutation(len(drawn))
        batches = [order[start : start + phase.batch] for start in range(0, len(order), phase.batch)]
        runtime.progress.begin(f"epoch {number}: {phase.name}", len(batches))
        total = torch.zeros((), device=runtime.device)
        for batch in batches:
            total += step(ranker, phase, drawn.take(batch), optimizer, store, runtime)
            runtime.progress.advance()
        losses[phase.name] = float(total) / max(1, len(batches))
        if not np.isfinite(losses[phase.name]):
            raise NotFinite(f"the loss of {phase.name} is not finite in epoch {number}; try a lower learning rate")
        steps, samples = steps + len(batches), samples + len(drawn)
    runtime.wait()
    return Epoch(number, perf_counter() - started, steps, samples, losses)


def step(
    ranker: Ranker,
    phase: Phase,
    samples: Samples,
    optimizer: torch.optim.Optimizer,
    store: TokenStore,
    runtime: Runtime,
) -> torch.Tensor:
    """One step on one batch; its loss, still on the device."""
    scores = score_pairs(ranker, store, samples.pairs[samples.present], runtime.tokens_at_once)
    loss = phase.loss(Scored.of(samples, scores))
    runtime.accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()
