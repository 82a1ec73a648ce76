"""A new head for a masked language model whose encoder came without one: a text gets the words that it is made of.

The states of an encoder for sentences say little about its word embeddings, and a random head says nothing. So the
head's transform is fitted to lead from the state of a token back to the embedding of its word, on random words of the
vocabulary. The bias of each word is set so that few other words reach it. The ranker then matches words before it is
trained, with few entries in a vector.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unrank.rankers.mlm_head import MlmHead

TEXTS, WORDS = 128, 32
"""Random texts, and the words of each."""
MEASURED = 2048
"""Tokens by which the bias of a word is set."""
STRANGERS = 1e-3
"""The share of tokens that give a word a weight without being it, about."""
RIDGE = 1e-2
"""How much the fit prefers small weights, as a share of the states' mean square."""
LINEAR = 8.0
"""A shift, in standard deviations, that keeps the transform's activation in its linear part. The norm takes it back."""


SIZE = 0.15
"""The weights of the norm, by which scores of a query's documents differ by about the margin of the training's loss.

If they differed by much more, the quickest way to a smaller loss would be to make all scores smaller, and texts would
lose their words.
"""


@torch.no_grad()
def make_lexical(model: Any) -> None:
    """Fit the head of a model to its word embeddings, if it is a linear layer, a norm and a tied decoder."""
    head, layers = MlmHead(model), _layers(model)
    if layers is None or not head.is_split:
        return
    dense, norm = layers
    model.eval()
    embeddings: Tensor = head.decoder.weight
    words = torch.randint(len(embeddings), (TEXTS, WORDS))
    states = model.base_model(input_ids=words).last_hidden_state.flatten(0, 1)
    wanted = embeddings[words.flatten()] - embeddings.mean(0)
    dense.weight.copy_(_fit(states, wanted).T)
    read = states @ dense.weight.T
    dense.bias.copy_(-read.mean(0) + LINEAR * read.std())
    norm.weight.fill_(SIZE)
    norm.bias.zero_()
    read = head.transform(states[:MEASURED].unsqueeze(0))[0]
    head.decoder.bias.copy_(-_reached_by_few(read, words.flatten()[:MEASURED], embeddings))


def _layers(model: Any) -> tuple[nn.Linear, nn.LayerNorm] | None:
    """Return the linear layer and the norm between the encoder and the decoder; `None` if there is anything else."""
    inner = {id(module) for module in model.base_model.modules()} | {id(model.get_output_embeddings())}
    outer = [
        module for module in model.modules() if id(module) not in inner and any(True for _ in module.parameters(False))
    ]
    linear = [module for module in outer if isinstance(module, nn.Linear) and module.bias is not None]
    norms = [module for module in outer if isinstance(module, nn.LayerNorm) and module.bias is not None]
    has_bias = getattr(model.get_output_embeddings(), "bias", None) is not None
    return (linear[0], norms[0]) if len(linear) == len(norms) == 1 and has_bias else None


def _fit(states: Tensor, wanted: Tensor) -> Tensor:
    """Return the matrix that leads from states to what is wanted, by least squares. [size, width]"""
    squares = states.T @ states
    squares += RIDGE * squares.diagonal().mean() * torch.eye(len(squares))
    found: Tensor = torch.linalg.solve(squares, states.T @ wanted)
    return found


def _reached_by_few(read: Tensor, words: Tensor, embeddings: Tensor) -> Tensor:
    """Return, for each word, the logit that only few tokens of other words exceed. [words]"""
    few = max(2, round(STRANGERS * len(read)))
    found = []
    for start in range(0, len(embeddings), 1024):
        some = embeddings[start : start + 1024]
        own = words.unsqueeze(1) == start + torch.arange(len(some))
        logits = (read @ some.T).masked_fill(own, -torch.inf)
        found.append(logits.topk(few, dim=0).values[-1])
    return torch.cat(found)
