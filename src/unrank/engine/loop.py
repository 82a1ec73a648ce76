"""The one training loop.

An epoch goes through its phases in order; a phase draws its samples, shuffles them, and steps on batches of them.
Dropout is off throughout, the optimiser lives through all epochs, and every draw follows from the seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.engine.runtime import Runtime
from unrank.engine.samples import Phase, Samples, Scored
from unrank.engine.scoring import score_pairs
from unrank.engine.tokens import TokenStore
from unrank.errors import NotFinite
from unrank.rankers.base import Ranker
from unrank.rankers.staging import to_device


@dataclass(frozen=True)
class Schedule:
    """How long and how fast, and where to pause."""

    epochs: int
    learning_rate: float
    seed: int = 0
    check_every: int | None = None
    """Steps between pauses within an epoch; without it there is one at the end of each."""


@dataclass(frozen=True)
class Stretch:
    """What was done since the last pause, and how many epochs are done in all."""

    epochs: float
    seconds: float
    steps: int
    samples: int
    losses: dict[str, float]


def fit(
    ranker: Ranker, phases: Sequence[Phase], schedule: Schedule, store: TokenStore, runtime: Runtime
) -> Iterator[Stretch]:
    """Train in place, pausing for whoever wants to look; whoever has seen enough asks for no more."""
    optimizer = make_optimizer(ranker, schedule.learning_rate, runtime)
    ranker.eval()
    for number in range(schedule.epochs):
        for stretch in _epoch(number, ranker, phases, optimizer, schedule, store, runtime):
            if stretch.steps or not schedule.check_every:
                yield stretch


def make_optimizer(ranker: Ranker, learning_rate: float, runtime: Runtime) -> torch.optim.Optimizer:
    trained = [parameter for parameter in ranker.parameters() if parameter.requires_grad]
    fused = runtime.device.type == "cuda"
    optimizer = torch.optim.AdamW(trained, lr=learning_rate, weight_decay=0.0, fused=fused)
    prepared: torch.optim.Optimizer = runtime.accelerator.prepare(optimizer)
    return prepared


def _epoch(
    number: int,
    ranker: Ranker,
    phases: Sequence[Phase],
    optimizer: torch.optim.Optimizer,
    schedule: Schedule,
    store: TokenStore,
    runtime: Runtime,
) -> Iterator[Stretch]:
    """One pass over all phases. Drawing samples, teacher scores included, is part of its time."""
    tally = _Tally(runtime)
    steps_of = [-(-phase.size // phase.batch) for phase in phases]
    for place, phase in enumerate(phases):
        generator = np.random.default_rng([schedule.seed, number + 1, place])
        drawn = phase.draw(generator)
        batches = batches_of(phase, len(drawn), generator)
        runtime.progress.begin(f"epoch {number + 1}: {phase.name}", len(batches))
        for done, batch in enumerate(batches, 1):
            tally.add(phase.name, step(ranker, phase, drawn.take(batch), optimizer, store, runtime), len(batch))
            runtime.progress.advance()
            if schedule.check_every and tally.steps == schedule.check_every:
                share = (sum(steps_of[:place]) + done) / max(1, sum(steps_of))
                yield tally.stretch(number + min(share, 1.0))
                tally = _Tally(runtime)
                runtime.progress.begin(f"epoch {number + 1}: {phase.name}", len(batches) - done)
    yield tally.stretch(number + 1.0)


def batches_of(phase: Phase, samples: int, generator: np.random.Generator) -> list[Rows]:
    """The samples in random order, those that belong together side by side."""
    first = phase.together * generator.permutation(-(-samples // phase.together))
    order = (first[:, None] + np.arange(phase.together)).ravel()
    order = order[order < samples]
    return [order[start : start + phase.batch] for start in range(0, samples, phase.batch)]


class _Tally:
    """Counts what is done, and adds up losses where they are: on the device."""

    def __init__(self, runtime: Runtime) -> None:
        runtime.wait()
        self._runtime, self._started = runtime, perf_counter()
        self._losses: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self.samples = 0

    @property
    def steps(self) -> int:
        return sum(self._counts.values())

    def add(self, phase: str, loss: Tensor, samples: int) -> None:
        self._losses[phase] = self._losses.get(phase, torch.zeros_like(loss)) + loss
        self._counts[phase] = self._counts.get(phase, 0) + 1
        self.samples += samples

    def stretch(self, epochs: float) -> Stretch:
        losses = {phase: float(loss) / self._counts[phase] for phase, loss in self._losses.items()}
        for phase, loss in losses.items():
            if not np.isfinite(loss):
                raise NotFinite(
                    f"the loss of {phase} is not finite in epoch {math.ceil(epochs)}; try a lower learning rate"
                )
        self._runtime.wait()
        return Stretch(epochs, perf_counter() - self._started, self.steps, self.samples, losses)


def step(
    ranker: Ranker,
    phase: Phase,
    samples: Samples,
    optimizer: torch.optim.Optimizer,
    store: TokenStore,
    runtime: Runtime,
) -> Tensor:
    """One step on one batch; its loss, still on the device."""
    loss = _backward(ranker, phase, samples, optimizer.zero_grad, store, runtime)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def _backward(
    ranker: Ranker, phase: Phase, samples: Samples, clear: Callable[[], None], store: TokenStore, runtime: Runtime
) -> Tensor:
    """Give each weight its gradient of the loss of these samples, scoring a pair of several samples once; the loss."""
    pairs = samples.pairs[samples.present]
    _, once, place = np.unique(pairs[:, 0] << 32 | pairs[:, 1], return_index=True, return_inverse=True)

    def score(pairs: Pairs) -> Tensor:
        return score_pairs(ranker, store, pairs, runtime.tokens_at_once, team=runtime.team)

    def loss_of(scores: Tensor) -> Tensor:
        return phase.loss(Scored.of(samples, scores[to_device(place, scores.device)]))

    loss = runtime.memory.backward(score, pairs[once], loss_of, clear)
    runtime.team.add_up_gradients(ranker.parameters())
    return loss


def squared_gradients(
    ranker: Ranker, phase: Phase, seed: int, store: TokenStore, runtime: Runtime
) -> dict[str, Tensor]:
    """The mean, over the batches of a phase, of each weight's squared gradient. Nothing is trained."""
    ranker.eval()
    generator = np.random.default_rng(seed)
    drawn = phase.draw(generator)
    batches = batches_of(phase, len(drawn), generator)
    weights = {name: weight for name, weight in ranker.named_parameters() if weight.requires_grad}
    total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    runtime.progress.begin(f"importance: {phase.name}", len(batches))
    for batch in batches:
        _backward(ranker, phase, drawn.take(batch), ranker.zero_grad, store, runtime)
        for name, weight in weights.items():
            if weight.grad is not None:
                total[name] += weight.grad.square()
        ranker.zero_grad()
        runtime.progress.advance()
    return {name: value / max(1, len(batches)) for name, value in total.items()}
