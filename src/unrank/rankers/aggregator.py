"""How the vectors of a document's passages become its score."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class MaxAggregator(nn.Module):
    """The largest value of each element, through a linear layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = _start(nn.Linear(width, 1))

    def forward(self, passages: Tensor, missing: Tensor) -> Tensor:
        """passages [documents, passages, width], missing [documents, passages] -> [documents]"""
        largest = passages.masked_fill(missing[:, :, None], float("-inf")).amax(1)
        scores: Tensor = self.score(largest)
        return scores.squeeze(1)


class TransformerAggregator(nn.Module):
    """Transformer layers over a learned first vector and the passages; a linear layer on what the first became.

    A fresh one hands on the mean of the passages: values and outputs of the attention start as the identity, all
    else near nothing. The layers are no `ModuleList`, which would be taken for the encoder's.
    """

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.layers = nn.Sequential(*(_layer(width, heads) for _ in range(layers)))
        self.score = _start(nn.Linear(width, 1))

    def forward(self, passages: Tensor, missing: Tensor) -> Tensor:
        """passages [documents, passages, width], missing [documents, passages] -> [documents]"""
        row = torch.cat([self.first.expand(len(passages), -1, -1), passages], 1)
        missing = nn.functional.pad(missing, (1, 0))
        for layer in self.layers:
            row = layer(row, src_key_padding_mask=missing)
        scores: Tensor = self.score(row[:, 0])
        return scores.squeeze(1)


def make_aggregator(config: Any, layers: int, aggregation: str) -> nn.Module:
    """A fresh one for the vectors of an encoder so configured."""
    if aggregation == "max":
        return MaxAggregator(config.hidden_size)
    return TransformerAggregator(config.hidden_size, config.num_attention_heads, layers)


def _layer(width: int, heads: int) -> nn.TransformerEncoderLayer:
    layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
    for linear in (layer.linear1, layer.linear2):
        _start(linear)
    attention = layer.self_attn
    with torch.no_grad():
        nn.init.normal_(attention.in_proj_weight, std=0.02)
        attention.in_proj_weight[2 * width :] = torch.eye(width)
        nn.init.eye_(attention.out_proj.weight)
    return layer


def _start(linear: nn.Linear) -> nn.Linear:
    nn.init.normal_(linear.weight, std=0.02)
    nn.init.zeros_(linear.bias)
    return linear
