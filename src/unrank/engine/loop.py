"""The training loop of every method.

An epoch runs its phases in order. A phase draws its samples, shuffles them, and steps on batches of them. Dropout is
off, one optimiser serves all epochs, and every draw follows from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.engine.checkpoint import Stateful
from unrank.engine.distributed import is_sharded
from unrank.engine.optimizer import AdamW
from unrank.engine.projection import Projection
from unrank.engine.resume import ResumableRun
from unrank.engine.runtime import Runtime
from unrank.engine.samples import Phase, Samples, Scored
from unrank.engine.scoring import score_pairs
from unrank.engine.tokens import TokenStore
from unrank.engine.training_state import STATE, Interval, TrainingState
from unrank.rankers.base import Ranker
from unrank.rankers.fast.pinned_memory import to_device

LAST_RATE = 0.1
"""The share of the learning rate that a falling rate ends with."""


@dataclass(frozen=True)
class Schedule:
    """The length and the learning rate of a run, and its pauses."""

    epochs: int
    learning_rate: float
    seed: int = 0
    check_every: int | None = None
    """Steps between pauses within an epoch. Without it there is a pause at the end of each epoch."""
    warm_up: int = 1
    """Steps over which the rate rises to its full value."""
    falls: bool = False
    """Whether the rate falls to a tenth over all epochs."""
    ramps: bool = False
    """Whether the weight of the ranker's regulariser rises over the first epoch, as the square of the steps."""
    rounds: int = 1
    """How often these epochs are run, each time with a rate that falls anew."""
    over: Callable[[float], bool] | None = None
    """Decides from the seconds since the last pause whether time is up, so that a pause is due."""

    def is_over(self, seconds: float) -> bool:
        return self.over is not None and self.over(seconds)

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step of an epoch or of a later one; `steps` are those of an epoch.

        >>> [Schedule(1, 0.8, warm_up=4).rate(step, 10) for step in (1, 2, 4, 5)]
        [0.2, 0.4, 0.8, 0.8]
        >>> [round(Schedule(2, 1.0, falls=True).rate(step, 5), 2) for step in (1, 5, 9, 10)]
        [0.9, 0.5, 0.1, 0.1]
        >>> [round(Schedule(2, 1.0, falls=True, rounds=2).rate(step, 5), 2) for step in (1, 10, 11, 20)]
        [0.9, 0.1, 0.9, 0.1]
        """
        whole = self.epochs * steps
        left = 1 - ((step - 1) % whole + 1) / whole if self.falls else 1.0
        return self.learning_rate * min(1.0, step / max(1, self.warm_up)) * max(LAST_RATE, left)

    def regularised(self, step: int, steps: int) -> float:
        """Return the weight of the ranker's regulariser in a step; `steps` are those of an epoch.

        >>> [Schedule(2, 0.1, ramps=True).regularised(step, 4) for step in (1, 2, 4, 5)]
        [0.0625, 0.25, 1.0, 1.0]
        """
        return min(1.0, step / max(1, steps)) ** 2 if self.ramps else 1.0


def fit(
    ranker: Ranker,
    phases: Sequence[Phase],
    schedule: Schedule,
    store: TokenStore,
    runtime: Runtime,
    run: ResumableRun | None = None,
    *,
    masks: Mapping[str, Tensor] | None = None,
    **parts: Stateful,
) -> Iterator[Interval]:
    """Train in place, and yield at every pause. A caller ends the training by ending the iteration.

    A resumable run goes on from its checkpoint, and the `parts` of the caller are restored with it. `masks` are, by the
    name of a weight, the numbers in it that may move; without them all may.
    """
    run = run or ResumableRun()
    state = TrainingState(ranker, make_optimizer(ranker, schedule.learning_rate, runtime), runtime)
    if masks is not None:
        state.optimizer.register_step_pre_hook(lambda *_: _mask_gradients(ranker, masks))
    ranker.eval()
    run.follow(runtime.progress.say, runtime.processes, **{STATE: state}, **parts)
    with ranker.repeated_steps():
        for number in range(schedule.epochs * schedule.rounds):
            for interval in _epoch(number, state, phases, schedule, store, run):
                if interval.steps or not (schedule.check_every or schedule.over):
                    yield interval


def make_optimizer(ranker: Ranker, learning_rate: float, runtime: Runtime) -> torch.optim.Optimizer:
    trained = [parameter for parameter in ranker.parameters() if parameter.requires_grad]
    fused = runtime.device.type == "cuda"
    sharded = [parameter for parameter in trained if is_sharded(parameter)]
    whole = [parameter for parameter in trained if not is_sharded(parameter)]
    groups = [{"params": weights} for weights in (whole, sharded) if weights]  # one update takes weights of one type
    return AdamW(groups, lr=learning_rate, weight_decay=0.0, fused=fused)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _epoch(
    number: int, state: TrainingState, phases: Sequence[Phase], schedule: Schedule, store: TokenStore, run: ResumableRun
) -> Iterator[Interval]:
    """Run all phases once. The time includes drawing samples and asking the teacher."""
    runtime = state.runtime
    state.begin_interval((number, 0, 0))
    steps_of = [-(-phase.size // phase.batch) for phase in phases]
    for place, phase in enumerate(phases):
        generator = np.random.default_rng([schedule.seed, number + 1, place])
        drawn = phase.draw(generator, number + 1)
        store.read(drawn.pairs[drawn.present])
        batches = batches_of(phase, len(drawn), generator)
        guards = _guards(phase, [schedule.seed, number + 1, place, 1], number + 1, store)
        runtime.progress.begin(f"epoch {number + 1}: {phase.name}", len(batches))
        for done, batch in enumerate(batches, 1):
            here = number, place, done
            guard = guards[done % len(guards)] if guards else None
            if here <= state.resumed:
                for samples in (guard, drawn.take(batch)):
                    repeat_side_effects(state.ranker, samples, store, runtime)
                state.arrive(here)
            else:
                with run.step():
                    place_in_run = number * sum(steps_of) + sum(steps_of[:place]) + done
                    set_rate(state.optimizer, schedule.rate(place_in_run, sum(steps_of)))
                    weight = schedule.regularised(place_in_run, sum(steps_of))
                    loss = step(state.ranker, phase, drawn.take(batch), state.optimizer, store, runtime, guard, weight)
                    state.add(here, phase.name, loss, len(batch))
            runtime.progress.advance()
            if state.totals.steps == schedule.check_every or (
                here >= state.resumed and schedule.is_over(state.totals.seconds)
            ):
                share = (sum(steps_of[:place]) + done) / max(1, sum(steps_of))
                yield state.totals.interval(number + min(share, 1.0))
                state.begin_interval(here)
                runtime.progress.begin(f"epoch {number + 1}: {phase.name}", len(batches) - done)
    if number >= state.resumed[0]:
        yield state.totals.interval(number + 1.0)


def _guards(phase: Phase, seed: Sequence[int], epoch: int, store: TokenStore) -> list[Samples]:
    """Draw batches of the guard of a phase; none if it has no guard."""
    if phase.guard is None:
        return []
    generator = np.random.default_rng(seed)
    drawn = phase.guard.draw(generator, epoch)
    store.read(drawn.pairs[drawn.present])
    return [drawn.take(batch) for batch in batches_of(phase.guard, len(drawn), generator)]


def _mask_gradients(ranker: Ranker, masks: Mapping[str, Tensor]) -> None:
    for name, weight in ranker.named_parameters():
        if weight.grad is not None:
            weight.grad.mul_(masks[name])


def batches_of(phase: Phase, samples: int, generator: np.random.Generator) -> list[Rows]:
    """Shuffle samples into batches; samples that belong together stay side by side."""
    first = phase.together * generator.permutation(-(-samples // phase.together))
    order = (first[:, None] + np.arange(phase.together)).ravel()
    order = order[order < samples]
    return [order[start : start + phase.batch] for start in range(0, samples, phase.batch)]


def step(
    ranker: Ranker,
    phase: Phase,
    samples: Samples,
    optimizer: torch.optim.Optimizer,
    store: TokenStore,
    runtime: Runtime,
    guard: Samples | None = None,
    regularised: float = 1.0,
) -> Tensor:
    """Take one step on one batch, and return the loss of its scores, still on the device.

    With samples of the phase's guard, the update is projected so that it does not raise their loss. `regularised` is
    the weight of the ranker's regulariser.
    """
    projection = None
    if guard is not None and phase.guard is not None:
        _backward(ranker, phase.guard, guard, optimizer.zero_grad, store, runtime)
        projection = Projection(ranker)
        optimizer.zero_grad()
    loss = _backward(ranker, phase, samples, optimizer.zero_grad, store, runtime, regularised)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if projection is not None:
        projection.apply()
    return loss


def _backward(
    ranker: Ranker,
    phase: Phase,
    samples: Samples,
    clear: Callable[[], None],
    store: TokenStore,
    runtime: Runtime,
    regularised: float = 0.0,
) -> Tensor:
    """Compute the gradients of the loss of samples, scoring each pair once; return the loss.

    Each of several pieces of the samples brings its share of the regulariser.
    """
    once, place = pairs_once(samples)

    def score(pairs: Pairs) -> Tensor:
        weight = regularised * len(pairs) / len(once) if torch.is_grad_enabled() else 0.0
        return score_pairs(
            ranker, store, pairs, runtime.tokens_at_once, processes=runtime.processes, regularised=weight
        )

    def loss_of(scores: Tensor) -> Tensor:
        return phase.loss(Scored.of(samples, scores[to_device(place, scores.device)]))

    loss = runtime.memory.backward(score, once, loss_of, clear)
    runtime.processes.sum_gradients(ranker.parameters())
    return loss


def pairs_once(samples: Samples) -> tuple[Pairs, Rows]:
    """Return the pairs of samples, each once, and the place of each row in them."""
    pairs = samples.pairs[samples.present]
    _, once, place = np.unique(pairs[:, 0] << 32 | pairs[:, 1], return_index=True, return_inverse=True)
    return pairs[once], place


def repeat_side_effects(ranker: Ranker, samples: Samples | None, store: TokenStore, runtime: Runtime) -> None:
    """Repeat the side effects of a step that is done already, without moving weights.

    Kept encodings of a frozen side, or of frozen layers, differ in their last bits with the batch that they were
    computed in.
    """
    if samples is not None and (store.keeps_for(ranker) or ranker.keeps_states):
        with torch.no_grad():
            score_pairs(ranker, store, pairs_once(samples)[0], runtime.tokens_at_once)


def squared_gradients(
    ranker: Ranker, phase: Phase, seed: int, store: TokenStore, runtime: Runtime
) -> dict[str, Tensor]:
    """Return the mean over batches of each weight's squared gradient. Nothing is trained."""
    return mean_gradients(ranker, phase, seed, store, runtime, torch.square)


def mean_gradients(
    ranker: Ranker,
    phase: Phase,
    seed: int,
    store: TokenStore,
    runtime: Runtime,
    taken: Callable[[Tensor], Tensor] = lambda gradient: gradient,
) -> dict[str, Tensor]:
    """Return the mean over batches of what is taken of each weight's gradient. Nothing is trained."""
    ranker.eval()
    generator = np.random.default_rng(seed)
    drawn = phase.draw(generator, 1)
    store.read(drawn.pairs[drawn.present])
    batches = batches_of(phase, len(drawn), generator)
    weights = {name: weight for name, weight in ranker.named_parameters() if weight.requires_grad}
    total = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    runtime.progress.begin(f"importance: {phase.name}", len(batches))
    with ranker.repeated_steps():
        for batch in batches:
            _backward(ranker, phase, drawn.take(batch), ranker.zero_grad, store, runtime)
            for name, weight in weights.items():
                if weight.grad is not None:
                    total[name] += taken(weight.grad)
            ranker.zero_grad()
            runtime.progress.advance()
    return {name: value / max(1, len(batches)) for name, value in total.items()}
