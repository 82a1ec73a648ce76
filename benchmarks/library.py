"""sentence-transformers itself, in bfloat16: the baseline of `speed.py` for rankers that the publication does not have.

It is used as well as it allows. Texts are sorted by length and padded to the longest of their batch. Training is under
autocast with weights in float32, as the library's own trainer does it; scoring is by a model whose weights are
bfloat16. A dual encoder encodes each text of the lists once. Several sizes of a batch are tried, and the best counts.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from plain import DROPOUT, LEARNING_RATE, Features, Plain, PlainLoop, TextPair
from sentence_transformers import CrossEncoder, SparseEncoder
from torch import Tensor, nn

from unrank.rankers.splade import DOCUMENT_FLOPS, QUERY_FLOPS

BATCHES = (32, 64, 128, 256, 512)
"""The sizes of a batch that are tried."""


class LibraryModel(Plain):
    """A model of sentence-transformers."""

    @abstractmethod
    def learn(self, positive: Sequence[TextPair], negative: Sequence[TextPair]) -> Tensor:
        """Return the loss of triples, with a margin of 1."""

    @abstractmethod
    def score_lists(self, pairs: Sequence[TextPair], batch: int) -> Tensor:
        """Return the scores of pairs, on the CPU."""


class LibraryDecoder(LibraryModel):
    """A `CrossEncoder` over a language model."""

    kind = "decoder"

    def __init__(self, folder: Path) -> None:
        nn.Module.__init__(self)
        self.model = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})

    def read(self, pairs: Sequence[TextPair]) -> list[Features]:
        device = next(self.parameters()).device
        features = self.model.preprocess(list(pairs))
        return [{name: value.to(device) if isinstance(value, Tensor) else value for name, value in features.items()}]

    def tokenize(self, pairs: Sequence[TextPair]) -> list[Features]:
        return self.read(pairs)

    def forward(self, both: Features) -> Tensor:
        with torch.autocast(next(self.parameters()).device.type, torch.bfloat16):
            scores: Tensor = self.model(dict(both))["scores"]
        return scores.float().squeeze(-1)

    def learn(self, positive: Sequence[TextPair], negative: Sequence[TextPair]) -> Tensor:
        better, worse = self(*self.read([*positive, *negative])).chunk(2)
        return torch.relu(1 - better + worse).mean()

    @torch.inference_mode()
    def score_lists(self, pairs: Sequence[TextPair], batch: int) -> Tensor:
        given: dict[str, Any] = {"batch_size": batch, "activation_fn": nn.Identity(), "convert_to_tensor": True}
        scores: Tensor = self.model.predict(list(pairs), **given)
        return scores.float().cpu()


class LibrarySplade(LibraryModel):
    """A `SparseEncoder`, whose score is the dot product."""

    kind = "splade"

    def __init__(self, folder: Path) -> None:
        nn.Module.__init__(self)
        self.model = SparseEncoder(str(folder), device="cpu")

    def read(self, pairs: Sequence[TextPair]) -> list[Features]:
        device = next(self.parameters()).device
        sides = zip(*pairs, strict=True)
        return [
            {name: value.to(device) for name, value in self.model.preprocess(list(side)).items() if name != "modality"}
            for side in sides
        ]

    def tokenize(self, pairs: Sequence[TextPair]) -> list[Features]:
        return self.read(pairs)

    def forward(self, queries: Features, documents: Features) -> Tensor:
        query, document = self.vectors(queries), self.vectors(documents)
        return (query * document).sum(-1)

    def vectors(self, side: Features) -> Tensor:
        """Return one sparse vector for each text. [texts, words]"""
        with torch.autocast(next(self.parameters()).device.type, torch.bfloat16):
            found: Tensor = self.model({**side, "modality": "text"})["sentence_embedding"]
        return found.float()

    def learn(self, positive: Sequence[TextPair], negative: Sequence[TextPair]) -> Tensor:
        """Return the loss of triples, with a margin of 1 and the regulariser; each text of a triple is encoded once."""
        queries, _ = self.read(positive)
        _, documents = self.read([*positive, *negative])
        query, document = self.vectors(queries), self.vectors(documents)
        better, worse = ((query * side).sum(-1) for side in document.chunk(2))
        flops = QUERY_FLOPS * query.mean(0).square().sum() + DOCUMENT_FLOPS * document.mean(0).square().sum()
        return torch.relu(1 - better + worse).mean() + flops

    @torch.inference_mode()
    def score_lists(self, pairs: Sequence[TextPair], batch: int) -> Tensor:
        """Return the scores of pairs, on the CPU; each text is encoded once."""
        given: dict[str, Any] = {"batch_size": batch, "convert_to_sparse_tensor": False}
        queries, documents = (list(dict.fromkeys(side)) for side in zip(*pairs, strict=True))
        encoded = self.model.encode_query(queries, **given), self.model.encode_document(documents, **given)
        rows = [{text: row for row, text in enumerate(side)} for side in (queries, documents)]
        places = torch.tensor([[known[text] for known, text in zip(rows, pair, strict=True)] for pair in pairs])
        scores = [
            self.model.similarity_pairwise(encoded[0][some[:, 0]], encoded[1][some[:, 1]])
            for some in (places[start : start + 1024] for start in range(0, len(places), 1024))
        ]
        return torch.cat(scores).float().cpu()


LIBRARY: dict[str, type[LibraryModel]] = {model.kind: model for model in (LibraryDecoder, LibrarySplade)}
"""The rankers whose baseline is the library."""


class LibraryLoop(PlainLoop):
    """A student of the library, its optimiser and its teacher."""

    student: LibraryModel

    def __init__(self, kind: str, folder: Path, device: torch.device) -> None:
        self.student = LIBRARY[kind](folder).to(device)
        self.teacher = copy.deepcopy(self.student).eval()
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=LEARNING_RATE, fused=device.type == "cuda")

    def train(self, positive: Sequence[TextPair], negative: Sequence[TextPair]) -> None:
        self.student.train(DROPOUT)
        self._step(self.student.learn(positive, negative))

    def scorer(self) -> LibraryModel:
        """Return a copy of the student whose weights are bfloat16."""
        return copy.deepcopy(self.student).eval().to(torch.bfloat16)
