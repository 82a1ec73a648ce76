"""The interface of fast passes: an encoder's `forward`, replaced by a faster one.

On a GPU it computes in bfloat16 and without padding. On a CPU it skips frozen layers whose states are kept. On either
the last layer computes no more of a text than is used. It falls back to the library's padded pass if the GPU, the
family or the version of transformers is not known (`can_pack`), and does nothing if it is switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unrank.rankers.fast import bf16_weights
from unrank.rankers.fast.bf16_weights import BF16Weights
from unrank.rankers.fast.bucketing import Bucket
from unrank.rankers.fast.cpu import FrozenStates, LastLayer, faster_gelus, skipping_frozen
from unrank.rankers.fast.cuda_graphs import Pass, RecordedPasses
from unrank.rankers.fast.decoder_parts import faster_parts
from unrank.rankers.fast.packing import Family, is_old, layered_family, packing_family, run_packed
from unrank.rankers.fast.pinned_memory import to_device
from unrank.rankers.tokenisation import EncoderInputs
from unrank.rankers.tokens import Ints, Tokens


class PassInputs(NamedTuple):
    """The inputs of the current pass."""

    packable: EncoderInputs | None = None
    """The texts, if the pass may run packed."""
    texts: Tokens | None = None
    """The texts, if states of frozen layers may be kept for them."""
    recomputed: bool = False
    """Whether the pass runs again during the backward pass (`torch.utils.checkpoint`)."""
    lengths: Ints | None = None
    """The number of tokens of each text."""


_current: ContextVar[tuple[FastEncoder | None, PassInputs]] = ContextVar("current", default=(None, PassInputs()))
"""The encoder that this thread runs, and its inputs. A library in between passes neither on."""


class FastEncoder:
    """A replacement of an encoder's `forward` that gives float32."""

    def __init__(self, encoder: nn.Module, first_only: bool = False, last_only: bool = False) -> None:
        self.first_only = first_only
        """Whether only the state of a text's first token is used."""
        self.last_only = last_only
        """Whether only the state of a text's last token is used; a pass gives no other. [texts, 1, size]"""
        self.frozen_states: FrozenStates | None = None
        self._encoder: Any = encoder
        self._weights = BF16Weights(encoder)
        self._recorded: RecordedPasses | None = None
        self._packing: dict[torch.device, Family | str] = {}
        self._patched: list[nn.Module] = []
        self._replace_forwards()

    def find_weights(self) -> None:
        """Look for the encoder's weights again, because some were replaced."""
        self._weights = BF16Weights(self._encoder)

    @property
    def enabled(self) -> bool:
        """Whether the encoder uses fast passes, and not those of its library."""
        return bool(self._patched)

    @enabled.setter
    def enabled(self, on: bool) -> None:
        if on and not self.enabled:
            self._replace_forwards()
        elif not on:
            self._restore_forwards()

    def _replace_forwards(self) -> None:
        encoder = self._encoder
        replaced: dict[Any, Any] = {**faster_gelus(encoder), **faster_parts(encoder)}
        if family := layered_family(encoder):
            last, heads = getattr(encoder, family.layers).layer[-1], encoder.config.num_attention_heads
            assert family.names is not None
            replaced[last] = LastLayer(last, family.names, heads)
        replaced[encoder] = self  # on the instance, because a library may call `forward` itself
        for module, forward in replaced.items():
            module.forward = forward
        self._patched = list(replaced)

    def _restore_forwards(self) -> None:
        for module in self._patched:
            del module.__dict__["forward"]
        self._patched = []

    @property
    def frozen_layers(self) -> int:
        """The number of leading layers that are frozen, if all weights before them are frozen too."""
        family = layered_family(self._encoder)
        if family is None or not self.enabled:
            return 0
        if any(weight.requires_grad for name, weight in self._encoder.named_parameters() if "embedding" in name):
            return 0
        layers = getattr(self._encoder, family.layers).layer
        trained = [any(weight.requires_grad for weight in layer.parameters()) for layer in layers]
        return trained.index(True) if any(trained) else len(trained)

    @property
    def moves(self) -> bool:
        """Whether a weight of the encoder is trained."""
        return any(weight.requires_grad for weight in self._encoder.parameters())

    def weights_before(self, layer: int) -> dict[str, Tensor]:
        """Return all weights but those of this layer and of later ones: the states before it depend on no others."""
        family, encoder = layered_family(self._encoder), self._encoder
        later = getattr(encoder, family.layers).layer[layer:] if family is not None else []
        left_out = {id(weight) for each in later for weight in each.parameters()}
        return {name: weight for name, weight in encoder.named_parameters() if id(weight) not in left_out}

    def packing(self) -> Family | str:
        """Return how the encoder is packed on its device, or why it is not."""
        device = self._encoder.device
        if device not in self._packing:
            self._packing[device] = packing_family(self._encoder, device)
        return self._packing[device]

    @contextmanager
    def reading(
        self, inputs: EncoderInputs, texts: Tokens | None = None, recomputed: bool = False
    ) -> Iterator[dict[str, Tensor]]:
        """Yield features for the library. An encoder that packs its texts ignores them and uses `inputs`.

        States of frozen layers are kept for `texts`. A pass that is `recomputed` during the backward pass is never
        replayed.
        """
        encoder, device = self._encoder, self._encoder.device
        family = self.packing() if on_gpu(encoder) else layered_family(encoder)
        may_pack = self.enabled and not inputs.some_unattended and isinstance(family, Family)
        no_padding = may_pack and (self._first_only(family) or self.last_only) and on_gpu(encoder)
        packable = inputs if may_pack else None
        before = _current.set((self, PassInputs(packable, texts, recomputed, inputs.lengths)))
        try:
            yield inputs.placeholders(device) if no_padding else inputs.padded(device)
        finally:
            _current.reset(before)

    def _first_only(self, family: Family | str | None) -> bool:
        """Return whether a pass gives only the first token of each text, which our own layers can."""
        return self.first_only and isinstance(family, Family) and family.names is not None

    @property
    def current(self) -> PassInputs:
        """The inputs of this thread's pass."""
        encoder, inputs = _current.get()
        return inputs if encoder is self else PassInputs()

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        family, current = self.packing() if on_gpu(self._encoder) else None, self.current
        if current.packable is not None and isinstance(family, Family):
            first_only = self._first_only(family)
            return run_packed(self._encoder, current.packable, family, self, first_only, self.last_only, **options)
        output = self._run_padded(*inputs, **options)
        if self.last_only and current.lengths is not None:
            output.last_hidden_state = last_states(output.last_hidden_state, current.lengths).unsqueeze(1)
        return output

    def _run_padded(self, *inputs: Any, **options: Any) -> Any:
        encoder = self._encoder
        library = type(encoder).forward
        if not on_gpu(encoder):
            return self._run_on_cpu(*inputs, **options)
        if is_old(encoder.device):
            return library(encoder, *inputs, **options)
        with self._weights.in_place():
            output = library(encoder, *inputs, **options)
        for name, value in output.items():
            if isinstance(value, Tensor) and value.dtype == bf16_weights.PRECISION:
                output[name] = value.float()
        return output

    def _run_on_cpu(self, *inputs: Any, **options: Any) -> Any:
        encoder, current, family = self._encoder, self.current, layered_family(self._encoder)
        if family is None:
            return type(encoder).forward(encoder, *inputs, **options)
        if self.first_only and current.packable is not None:
            options["first_only"] = True  # reaches the last layer
        with skipping_frozen(self.frozen_states, current.texts, getattr(encoder, family.layers)):
            return type(encoder).forward(encoder, *inputs, **options)

    def bucket(self, lengths: Ints) -> Bucket:
        recorded = self._recorded.bucket(lengths) if self._recorded and self._may_replay else None
        return recorded or Bucket.around(lengths)

    def run(self, function: Pass, inputs: Sequence[Tensor], bucket: Bucket, family: Family) -> tuple[Tensor, ...]:
        """Run a pass; replay it if it is recorded. Only passes through our own layers are recorded."""
        passes = self._recorded if self._may_replay and family.names is not None else None
        if passes and (recorded := passes.find(function, inputs, bucket)):
            return passes.replay(recorded, inputs)
        with self._weights.in_place():
            return function(*inputs)

    @property
    def _may_replay(self) -> bool:
        return torch.is_grad_enabled() and not self.current.recomputed

    @contextmanager
    def repeated_steps(self) -> Iterator[None]:
        """Record passes, because passes of few shapes are repeated.

        Recorded passes decide how a batch is rounded up. A resumed run has recorded fewer, so none are recorded if
        results must be bit-exact.
        """
        self._recorded = None if torch.are_deterministic_algorithms_enabled() else RecordedPasses(self._weights)
        try:
            yield
        finally:
            self._recorded = None

    def constant_weights(self) -> AbstractContextManager[None]:
        """Keep copies of the weights from one pass to the next while no weight changes."""
        return self._weights.constant()

    def recompute(self, read: Callable[[], Tensor]) -> Tensor:
        """Call `read`, and call it again for its gradients instead of keeping its states (gradient checkpointing).

        Both passes use the same copies of the weights, also if these are no longer kept by then.
        """
        copies = self._weights.kept() if self.enabled and on_gpu(self._encoder) else None

        def read_with_copies() -> Tensor:
            with self._weights.holding(copies):
                return read()

        given: Tensor = checkpoint(read_with_copies, use_reentrant=False, preserve_rng_state=False)
        return given


def last_states(states: Tensor, lengths: Ints) -> Tensor:
    """Return the state of the last token of each padded text. [texts, width, size] -> [texts, size]"""
    last = to_device(np.maximum(lengths, 1) - 1, states.device)
    return states[torch.arange(len(states), device=states.device), last]


def on_gpu(encoder: nn.Module) -> bool:
    return next(encoder.parameters()).is_cuda
