"""The head of a masked language model: from the state of each token to one number for each word of the vocabulary.

The logits of all tokens would fill the memory: a text of 200 tokens has six million. So some texts are computed at a
time, and only the largest logit of each word is kept. Its bias is the same for all tokens, and is added afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint
from transformers.modeling_outputs import BaseModelOutput

from unrank.rankers.fast.bf16_weights import PRECISION
from unrank.rankers.fast.packing import is_old

LOGITS_AT_ONCE = {"cpu": 2**24, "cuda": 2**28}
"""Logits in memory at once: 64 MiB in float32, and 512 MiB in bfloat16."""


class MlmHead:
    """The layers of a masked language model after its encoder: a transform, and a row of weights for each word."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._encoder: nn.Module = model.base_model

    @property
    def decoder(self) -> nn.Linear:
        """The last layer, which has a row for each word."""
        decoder: nn.Linear = self._model.get_output_embeddings()
        return decoder

    @property
    def is_split(self) -> bool:
        """Whether the decoder is a layer of its own. If not, only the library can compute the head."""
        decoder = self._model.get_output_embeddings()
        return isinstance(decoder, nn.Linear) and decoder.out_features == self._model.config.vocab_size

    @property
    def tables(self) -> list[Tensor]:
        """The weights with a row for each word: the decoder's, which may be the encoder's embeddings, and its bias."""
        size = self._model.config.vocab_size
        inner = {id(weight) for weight in self._encoder.parameters()}
        return [
            weight for weight in self._model.parameters() if id(weight) not in inner and weight.shape[:1] == (size,)
        ]

    def transform(self, states: Tensor) -> Tensor:
        """Return what the decoder reads, from the states of the encoder. [..., size]"""
        given = BaseModelOutput(last_hidden_state=states)
        with _forward(self._encoder, lambda *_, **__: given), _forward(self.decoder, lambda read: read):
            transformed: Tensor = self._model(inputs_embeds=states).logits
        return transformed

    def largest(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return the largest logit of each word over the tokens of a text. [texts, tokens, size] -> [texts, words]"""
        read = self.transform(states)
        read = torch.where(mask.unsqueeze(2), read, read[:, :1])  # a token twice does not change the largest
        weight, bias = self.decoder.weight, self.decoder.bias
        found: Tensor = _Largest.apply(read, weight)  # type: ignore[no-untyped-call]
        return found if bias is None else found + bias

    def summed(self, states: Tensor, mask: Tensor, activation: Any) -> Tensor:
        """Return the sum of the activated logits of each word over the tokens of a text. [texts, words]"""
        read = self.transform(states)

        def add(read: Tensor, mask: Tensor) -> Tensor:
            weights: Tensor = activation(self.decoder(read))
            return (weights * mask.unsqueeze(2)).sum(1)

        pieces = [
            checkpoint(add, read[piece], mask[piece], use_reentrant=False)
            for piece in _pieces(read, self.decoder.weight)
        ]
        return torch.cat(pieces)


class _Largest(torch.autograd.Function):
    """The largest product of each row of a table with the tokens of a text. On a GPU it computes in bfloat16."""

    @staticmethod
    def forward(context: Any, read: Tensor, table: Tensor) -> Tensor:
        low, rows = (_lower(tensor) for tensor in (read, table))
        needed = any(context.needs_input_grad)
        found = read.new_empty(len(read), len(table))
        places = torch.empty(found.shape, dtype=torch.int16, device=read.device) if needed else None
        for piece in _pieces(read, table):
            logits = linear(low[piece], rows)
            if places is None:
                found[piece] = logits.amax(1)
            else:
                found[piece], places[piece] = logits.max(1)
        if needed:
            context.save_for_backward(low, rows, places)
        return found

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        low, rows, places = context.saved_tensors
        send_back = _backward_of_few if gradient.device.type == "cpu" else _backward_of_all
        return send_back(gradient, low, rows, places)


def _backward_of_all(gradient: Tensor, low: Tensor, rows: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Send everything back in matrix products, which a GPU computes fast and without waiting."""
    to_read, to_table = low.new_empty(low.shape), torch.zeros_like(rows, dtype=torch.float32)
    for piece in _pieces(low, rows):
        spread = low.new_zeros(len(low[piece]), low.shape[1], len(rows))
        spread.scatter_(1, places[piece].long().unsqueeze(1), gradient[piece].to(low.dtype).unsqueeze(1))
        to_read[piece] = spread @ rows
        to_table += spread.flatten(0, 1).T @ low[piece].flatten(0, 1)
    return to_read.float(), to_table


def _backward_of_few(gradient: Tensor, low: Tensor, rows: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Send back only what is not zero: most words of a sparse vector are."""
    text, word = gradient.nonzero(as_tuple=True)
    token = text * low.shape[1] + places[text, word].long()
    amount, flat = gradient[text, word].unsqueeze(1), low.flatten(0, 1)
    to_read, to_table = torch.zeros_like(flat), torch.zeros_like(rows)
    at_once = max(1, LOGITS_AT_ONCE["cpu"] // low.shape[2])
    for start in range(0, len(text), at_once):
        some = slice(start, start + at_once)
        to_read.index_add_(0, token[some], amount[some] * rows[word[some]])
        to_table.index_add_(0, word[some], amount[some] * flat[token[some]])
    return to_read.view_as(low), to_table


def _pieces(read: Tensor, table: Tensor) -> Iterator[slice]:
    """Yield texts whose logits fit into memory, at least one."""
    most = LOGITS_AT_ONCE["cpu" if read.device.type == "cpu" else "cuda"]
    texts = max(1, most // (read.shape[1] * len(table)))
    for start in range(0, len(read), texts):
        yield slice(start, start + texts)


def _lower(tensor: Tensor) -> Tensor:
    """Return a tensor in the precision of its device."""
    return tensor.to(PRECISION) if tensor.is_cuda and not is_old(tensor.device) else tensor


@contextmanager
def _forward(module: nn.Module, forward: Any) -> Iterator[None]:
    """Let a module compute something else for a while."""
    usual = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        del module.__dict__["forward"]
        if usual is not None:
            module.forward = usual
