"""Passes without padding: the texts of a batch are concatenated, and each token attends to its own text.

An attention function that is registered with transformers keeps texts apart, so any family that uses
`AttentionInterface` runs packed with its own layers. BERT-like families have faster layers (`packed_layers.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import transformers
from torch import Tensor
from transformers import AttentionInterface
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    BaseModelOutputWithPoolingAndCrossAttentions,
)

from unrank.rankers.fast.bucketing import Bucket
from unrank.rankers.fast.cuda_graphs import Pass
from unrank.rankers.fast.decoder_parts import faster_rotation
from unrank.rankers.fast.packed_layers import (
    BERT,
    DISTILBERT,
    LayerNames,
    Sequences,
    attend_each,
    has_kernels,
    packed_layer,
)
from unrank.rankers.fast.pinned_memory import to_device
from unrank.rankers.tokenisation import EncoderInputs
from unrank.rankers.tokens import Ints, span_indices

PACKED = "unrank_packed"
"""The name under which the attention function is registered. No mask is made for it."""
TRANSFORMERS = 5
"""The major version of transformers whose encoders are known."""
OLDEST_GPU = (8, 0)
"""The oldest compute capability (sm80) with bfloat16 attention."""
LARGEST_HEAD = 256
TOLERANCE = 1e-4
PROBE_LENGTHS = (3, 7)


class Runner(Protocol):
    """Runs the pass between packing and unpacking."""

    def bucket(self, lengths: Ints) -> Bucket:
        """Return the bucket for texts of these lengths."""

    def run(self, function: Pass, inputs: Sequence[Tensor], bucket: Bucket, family: Family) -> tuple[Tensor, ...]:
        """Call a function with inputs of a bucket's shape."""


@dataclass(frozen=True)
class Family:
    """How the encoders of a family differ."""

    positions_after_padding: bool = False
    """Whether a text's positions begin after the id of padding."""
    layers: str = ""
    """The module that holds the layers, if the family has layers in `packed_layers.py`."""
    names: LayerNames | None = None


ROBERTA = Family(positions_after_padding=True, layers="encoder", names=BERT)
FAMILIES = {
    "bert": Family(layers="encoder", names=BERT),
    "camembert": ROBERTA,
    "distilbert": Family(layers="transformer", names=DISTILBERT),
    "electra": Family(layers="encoder", names=BERT),
    "modernbert": Family(),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
}
"""Families whose packed passes are tested. Others are tried on two short texts first."""


def layered_family(encoder: Any) -> Family | None:
    """Return the family of an encoder if `packed_layers.py` has its layers, else `None`."""
    family = FAMILIES.get(encoder.config.model_type)
    return family if family is not None and family.names is not None else None


def can_pack(encoder: Any, device: torch.device) -> str | None:
    """Return why an encoder cannot run packed on a device; `None` if it can."""
    return why if isinstance(why := packing_family(encoder, device), str) else None


def packing_family(encoder: Any, device: torch.device) -> Family | str:
    """Return how an encoder is packed on a device, or why it cannot be."""
    config = encoder.config
    if int(transformers.__version__.partition(".")[0]) != TRANSFORMERS:
        return f"transformers {transformers.__version__} is not version {TRANSFORMERS}, with which packing was tested"
    if is_old(device):
        return f"{torch.cuda.get_device_name(device)} is older than sm80 and has no bfloat16 attention"
    if getattr(config, "is_decoder", False):
        return "a decoder's tokens do not attend to the tokens after them"
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if device.type == "cuda" and (head % 8 or head > LARGEST_HEAD):
        return f"a GPU's attention takes heads of 8, 16, ... {LARGEST_HEAD} numbers, not {head}"
    return FAMILIES.get(config.model_type) or _tried_family(encoder)


def is_old(device: torch.device) -> bool:
    """Return whether a device is a GPU without bfloat16 attention."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) < OLDEST_GPU


@torch.no_grad()
def _tried_family(encoder: Any) -> Family | str:
    """Try an encoder of another family on two short texts, one longer than its attention window, packed and padded."""
    family = encoder.config.model_type
    if not getattr(encoder, "_supports_attention_backend", False):
        return f"{family} does not use the attention functions of transformers"
    config, padding = encoder.config, encoder.config.pad_token_id or 0
    window = min(getattr(config, "sliding_window", None) or 0, config.max_position_embeddings // 2)
    lengths = np.array(PROBE_LENGTHS) + np.array([0, window])
    ids = padding + 1 + np.arange(lengths.sum(), dtype=np.int32) % (config.vocab_size - padding - 1)
    texts = EncoderInputs(ids, lengths, int(lengths.max()), padding)
    mask = torch.from_numpy(np.arange(texts.width) < lengths[:, None]).to(encoder.device)
    try:
        expected = type(encoder).forward(encoder, **texts.padded(encoder.device)).last_hidden_state[mask]
        for after_padding in (False, True):
            given = run_packed(encoder, texts, Family(after_padding), _Probe()).last_hidden_state[mask]
            if torch.allclose(given, expected, atol=TOLERANCE * float(expected.abs().max())):
                return Family(after_padding)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return f"{family} cannot run packed: {' '.join(str(error).split())[:200]}"
    return f"{family} gives other states packed than padded"


class _Probe:
    """Runs a packed pass as it is."""

    def bucket(self, lengths: Ints) -> Bucket:
        return Bucket(int(lengths.sum()), len(lengths), int(lengths.max()))

    def run(self, function: Pass, inputs: Sequence[Tensor], bucket: Bucket, family: Family) -> tuple[Tensor, ...]:
        return function(*inputs)


def run_packed(
    encoder: Any,
    inputs: EncoderInputs,
    family: Family,
    runner: Runner,
    first_only: bool = False,
    last_only: bool = False,
    **options: Any,
) -> BaseModelOutputWithPoolingAndCrossAttentions:
    """Return the output of an encoder, computed without padding. [texts, width, size]

    With `first_only`, which needs layers of `packed_layers.py`, return the first token of each text; with `last_only`
    the last one. [texts, 1, size]
    """
    bucket, texts = runner.bucket(inputs.lengths), len(inputs.lengths)
    first = encoder.config.pad_token_id + 1 if family.positions_after_padding else 0
    last = encoder.config.max_position_embeddings - 1  # unused sequences may be longer than a text

    def run(packed: Tensor) -> tuple[Tensor, ...]:
        rows, cu_seqlens = packed[: -bucket.sequences - 1], packed[-bucket.sequences - 1 :]
        sequences = Sequences(cu_seqlens, bucket.max_length)
        given = dict(zip(("input_ids", "token_type_ids"), rows.view(-1, 1, bucket.tokens), strict=False))
        given["position_ids"] = (first + _positions(sequences, bucket.tokens)).clamp(max=last)
        states = _states(encoder, family, sequences, first_only, given, options)
        if last_only:
            return (states[cu_seqlens[1:] - 1].float(),)
        if getattr(encoder, "pooler", None) is None:
            return (states.float(),)
        firsts = states if first_only else states[cu_seqlens[:-1]]
        return states.float(), encoder.pooler(firsts.unsqueeze(1)).float()

    states, *pooled = runner.run(run, [inputs.packed(bucket, encoder.device)], bucket, family)
    states = states[:texts].unsqueeze(1) if first_only or last_only else _padded(states, inputs)
    output = BaseModelOutputWithPoolingAndCrossAttentions(last_hidden_state=states)
    if pooled:
        output.pooler_output = pooled[0][:texts]
    return output


def _states(
    encoder: Any,
    family: Family,
    sequences: Sequences,
    first_only: bool,
    given: dict[str, Tensor],
    options: dict[str, Any],
) -> Tensor:
    """Return the last states of a packed batch. [tokens or texts, size]"""
    options = {**options, **given, "attention_mask": None}
    with _packed_attention(encoder.config):
        if family.names is None:
            options |= {"cu_seq_lens_q": sequences.cu_seqlens, "max_length_q": sequences.max_length}
            with faster_rotation(encoder):
                output = type(encoder).forward(encoder, **options)
        else:
            with _layers_replaced(encoder, sequences, family, first_only), _embeddings_replaced(encoder, given):
                output = type(encoder).forward(encoder, **options)
    states: Tensor = output.last_hidden_state[0]
    return states


def attend_packed(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    cu_seq_lens_q: Tensor,
    max_length_q: int,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Let each token attend to its own text, as transformers calls an attention function; in a decoder, to the tokens
    before it.

    query, key, value [1, heads, tokens, size] -> [1, tokens, heads, size]
    """
    if softcap is not None:
        raise ValueError("its attention has a cap, which no kernel here knows")
    causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal)
    queries, keys, values = (side[0].transpose(0, 1) for side in (query, key, value))
    window = None if sliding_window is None else sliding_window - 1  # transformers counts the token itself
    if not queries.is_cuda or queries.dtype == torch.float32:
        sequences = Sequences(cu_seq_lens_q, max_length_q)
        out = attend_each(queries, keys, values, sequences, sequences, scaling, window, causal)
    else:
        out = torch.ops.aten._flash_attention_forward(
            *(queries, keys, values, cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q, 0.0, causal, False),
            scale=scaling,
            window_size_left=window,
            window_size_right=0 if causal else window,
        )[0]
    return out.unsqueeze(0), None


@contextmanager
def _packed_attention(config: Any) -> Iterator[None]:
    """Let an encoder attend by `attend_packed`, and make no mask."""
    AttentionInterface.register(PACKED, attend_packed)
    usual, config._attn_implementation = config._attn_implementation, PACKED
    try:
        yield
    finally:
        config._attn_implementation = usual


@contextmanager
def _layers_replaced(encoder: Any, sequences: Sequences, family: Family, first_only: bool) -> Iterator[None]:
    layers, heads, names = getattr(encoder, family.layers), encoder.config.num_attention_heads, family.names
    assert names is not None

    def forward(hidden_states: Tensor, *_: Any, **__: Any) -> BaseModelOutputWithPastAndCrossAttentions:
        states = hidden_states[0]
        for layer in layers.layer:
            is_last = layer is layers.layer[-1]
            states = packed_layer(states, layer, names, heads, sequences, first_only and is_last)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=states.unsqueeze(0))

    layers.forward = forward
    try:
        yield
    finally:
        del layers.forward


@contextmanager
def _embeddings_replaced(encoder: Any, given: dict[str, Tensor]) -> Iterator[None]:
    """Embed the tokens by one kernel, if there is one and no gradient is needed."""
    if torch.is_grad_enabled() or not has_kernels(given["input_ids"].device):
        yield
        return
    from unrank.rankers.fast.layer_kernels import embed

    ids, positions, types = (given.get(name) for name in ("input_ids", "position_ids", "token_type_ids"))
    assert ids is not None and positions is not None

    def forward(*_: Any, **__: Any) -> Tensor:
        return embed(ids[0], positions[0], None if types is None else types[0], encoder.embeddings).unsqueeze(0)

    encoder.embeddings.forward = forward
    try:
        yield
    finally:
        del encoder.embeddings.forward


def _positions(sequences: Sequences, tokens: int) -> Tensor:
    """Return the position of each token in its text. [1, tokens]"""
    text = torch.repeat_interleave(sequences.cu_seqlens.diff(), output_size=tokens)
    return (torch.arange(tokens, device=text.device) - sequences.cu_seqlens[text]).unsqueeze(0)


def _padded(states: Tensor, inputs: EncoderInputs) -> Tensor:
    """Return packed states as padded ones. [tokens, size] -> [texts, width, size]"""
    texts, width = len(inputs.lengths), inputs.width
    rows = to_device(span_indices(width * np.arange(texts), inputs.lengths), states.device)
    padded = states.new_zeros(texts * width, states.shape[1])
    return padded.index_copy(0, rows, states[: len(inputs.ids)]).view(texts, width, -1)
