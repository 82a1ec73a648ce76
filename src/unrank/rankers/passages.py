"""The passages of a document: how it is cut into them, and how their vectors become its score."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn

from unrank.errors import BadFile, listed
from unrank.rankers.allow_list import DESCRIPTION
from unrank.rankers.tokenisation import PairTemplate
from unrank.rankers.tokens import Ints

Aggregation = Literal["transformer", "max"]
RANGES = {"longest": (1, 1_000_000), "passage": (1, 1_000_000), "overlap": (0, 1_000_000), "layers": (1, 24)}


@dataclass(frozen=True)
class PassageSettings:
    """The settings of a parade ranker, which its folder keeps."""

    longest: int
    """Most tokens in one input of the encoder: query, passage and special tokens."""
    passage: int = 50
    overlap: int = 7
    layers: int = 2
    aggregation: Aggregation = "transformer"

    @property
    def window(self) -> int:
        return self.passage + 2 * self.overlap

    @classmethod
    def fitting(cls, template: PairTemplate) -> Self:
        """Return the default settings, with shorter passages if the encoder is too short for a query beside them."""
        half = (template.max_length - template.special) // 2
        overlap = min(cls.overlap, half // 4)
        return cls(template.max_length, max(1, min(cls.passage, half - 2 * overlap)), overlap)

    @classmethod
    def read(cls, folder: Path, given: dict[str, Any]) -> Self:
        """Return the settings of a folder's description, after a check of their ranges."""
        path, names = folder / DESCRIPTION, [field.name for field in fields(cls)]
        if odd := sorted(set(names) ^ set(given)):
            raise BadFile(path, f"the settings of a parade ranker are {', '.join(names)}; wrong: {listed(odd)}")
        for name, (least, most) in RANGES.items():
            if type(given[name]) is not int or not least <= given[name] <= most:
                raise BadFile(path, f"{name} is a whole number from {least} to {most:,}, not {given[name]!r}")
        if given["aggregation"] not in get_args(Aggregation):
            raise BadFile(path, f"aggregation is {' or '.join(get_args(Aggregation))}, not {given['aggregation']!r}")
        return cls(**given)

    def check(self, folder: Path, template: PairTemplate) -> None:
        """Refuse settings that do not fit the folder's encoder."""
        if self.longest > template.max_length:
            raise BadFile(folder / DESCRIPTION, f"longest is {self.longest}; the encoder reads {template.max_length}")
        if self.window + template.special >= self.longest:
            raise BadFile(folder / DESCRIPTION, f"passages of {self.window} tokens leave no token for a query")


def cores(lengths: Ints, passage: int) -> Ints:
    """Return the number of passages of documents of these lengths; an empty document has one.

    >>> cores(np.array([0, 50, 51]), 50).tolist()
    [1, 1, 2]
    """
    counts: Ints = np.maximum(1, -(-lengths // passage))
    return counts


def passage_spans(lengths: Ints, settings: PassageSettings) -> tuple[Ints, Ints, Ints]:
    """Return the document, the first token and the end of each passage.

    Cores follow each other; a passage has up to `overlap` tokens more on either side.

    >>> [array.tolist() for array in passage_spans(np.array([3, 51]), PassageSettings(256))]
    [[0, 1, 1], [0, 0, 43], [3, 51, 51]]
    """
    counts = cores(lengths, settings.passage)
    document = np.repeat(np.arange(len(lengths)), counts)
    core = settings.passage * (np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts))
    ends = np.minimum(core + settings.passage + settings.overlap, lengths[document])
    return document, np.maximum(core - settings.overlap, 0), ends


class MaxAggregator(nn.Module):
    """A linear layer over the largest value of each element."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = _start(nn.Linear(width, 1))

    def forward(self, passages: Tensor, missing: Tensor) -> Tensor:
        """Return the score of each document. [documents, passages, width], [documents, passages] -> [documents]"""
        largest = passages.masked_fill(missing[:, :, None], float("-inf")).amax(1)
        scores: Tensor = self.score(largest)
        return scores.squeeze(1)


class TransformerAggregator(nn.Module):
    """Transformer layers over a learned first vector and the passages, and a linear layer over the first.

    A new one passes on the mean of the passages: values and outputs of attention start as the identity, all else near
    zero. The layers are no `ModuleList`, which would be taken for the encoder's.
    """

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.layers = nn.Sequential(*(_layer(width, heads) for _ in range(layers)))
        self.score = _start(nn.Linear(width, 1))

    def forward(self, passages: Tensor, missing: Tensor) -> Tensor:
        """Return the score of each document. [documents, passages, width], [documents, passages] -> [documents]"""
        row = torch.cat([self.first.expand(len(passages), -1, -1), passages], 1)
        missing = nn.functional.pad(missing, (1, 0))
        for layer in self.layers:
            row = layer(row, src_key_padding_mask=missing)
        scores: Tensor = self.score(row[:, 0])
        return scores.squeeze(1)


def make_aggregator(config: Any, layers: int, aggregation: str) -> nn.Module:
    """Return a new aggregator for an encoder with this config."""
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
