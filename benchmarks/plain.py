"""The published procedure in plain code: the baseline of `speed.py`.

Texts are tokenised at each step, in one call for each mini-batch and side, and padded to 20 query and 200 document
tokens. All is float32, with 32 samples in a step. Positives and negatives are two forward passes, a dual encoder
encodes both texts of every pair, and the teacher scores at each step. Choices that the publication leaves open and that
change the speed are constants below, so the baseline can be matched to the authors' code.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

QUERY_TOKENS, DOCUMENT_TOKENS = 20, 200
PASSAGE, OVERLAP = 50, 7
BATCH = 32
SCORING_BATCH = 32
LEARNING_RATE = 7e-6
FAST_TOKENIZER = True
"""Use the compiled tokenizer."""
PAIRS_A_CALL = 32
"""Pairs in one call of the tokenizer."""
TENSOR_FLOAT = False
"""Allow TF32 matrix products on a GPU."""
DROPOUT = True
"""Train the student with dropout, the default of libraries."""

TextPair = tuple[str, str]
Features = dict[str, Tensor]


class Plain(nn.Module):
    """A ranker that tokenises texts at each call."""

    kind: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.tokenizer = AutoTokenizer.from_pretrained(str(folder), use_fast=FAST_TOKENIZER)

    def read(self, pairs: Sequence[TextPair]) -> list[Features]:
        """Return the arguments of `forward` for these pairs: both texts joined, or one side after the other."""
        device = next(self.parameters()).device
        calls = [self.tokenize(pairs[start : start + PAIRS_A_CALL]) for start in range(0, len(pairs), PAIRS_A_CALL)]
        sides = zip(*calls, strict=True)
        return [{name: torch.cat([part[name] for part in side]).to(device) for name in side[0]} for side in sides]

    @abstractmethod
    def tokenize(self, pairs: Sequence[TextPair]) -> list[Features]:
        """Return the tokens of these pairs, one dict for each argument of `forward`."""

    def _tokens(self, longest: int, *texts: Sequence[str]) -> Features:
        given, longest = [list(side) for side in texts], min(longest, self.tokenizer.model_max_length)
        return dict(
            self.tokenizer(*given, truncation=True, max_length=longest, padding="max_length", return_tensors="pt")
        )


class PlainCrossEncoder(Plain):
    kind = "cross-encoder"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.model = AutoModelForSequenceClassification.from_pretrained(str(folder), num_labels=1, dtype=torch.float32)

    def tokenize(self, pairs: Sequence[TextPair]) -> list[Features]:
        queries, documents = zip(*pairs, strict=True)
        return [self._tokens(QUERY_TOKENS + DOCUMENT_TOKENS, queries, documents)]

    def forward(self, both: Features) -> Tensor:
        scores: Tensor = self.model(**both).logits.squeeze(-1)
        return scores


class PlainBiEncoder(Plain):
    kind = "bi-encoder"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.model = AutoModel.from_pretrained(str(folder), dtype=torch.float32)

    def tokenize(self, pairs: Sequence[TextPair]) -> list[Features]:
        queries, documents = zip(*pairs, strict=True)
        return [self._tokens(QUERY_TOKENS, queries), self._tokens(DOCUMENT_TOKENS, documents)]

    def forward(self, queries: Features, documents: Features) -> Tensor:
        query, document = (_vectors(self.model, side)[:, 0] for side in (queries, documents))
        return (query * document).sum(-1)


class PlainColbert(PlainBiEncoder):
    kind = "colbert"

    def __init__(self, folder: Path, width: int = 128) -> None:
        super().__init__(folder)
        self.narrow = nn.Linear(self.model.config.hidden_size, width, bias=False)

    def forward(self, queries: Features, documents: Features) -> Tensor:
        query, document = (
            nn.functional.normalize(self.narrow(_vectors(self.model, side)), dim=-1) for side in (queries, documents)
        )
        similarities = query @ document.transpose(1, 2)
        unseen = documents["attention_mask"] == 0
        best = similarities.masked_fill(unseen.unsqueeze(1), -torch.inf).amax(-1)
        return (best * queries["attention_mask"]).sum(-1)


class PlainParade(Plain):
    """PARADE: every document is padded to the maximal number of passages, each read with the query."""

    kind = "parade"
    passages = DOCUMENT_TOKENS // PASSAGE

    def __init__(self, folder: Path, layers: int = 2) -> None:
        super().__init__(folder)
        self.model = AutoModel.from_pretrained(str(folder), dtype=torch.float32)
        config = self.model.config
        layer = nn.TransformerEncoderLayer(
            config.hidden_size, config.num_attention_heads, 4 * config.hidden_size, batch_first=True
        )
        self.first = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.aggregator = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(config.hidden_size, 1)

    def tokenize(self, pairs: Sequence[TextPair]) -> list[Features]:
        passages = [(query, passage) for query, document in pairs for passage in self._cut(document)]
        queries, documents = zip(*passages, strict=True)
        longest = QUERY_TOKENS + PASSAGE + 2 * OVERLAP
        return [self._tokens(longest, queries, documents)]

    def _cut(self, document: str) -> list[str]:
        """Return the text of each passage; missing passages are empty."""
        ids = self.tokenizer(document, add_special_tokens=False, truncation=True, max_length=DOCUMENT_TOKENS).input_ids
        starts = range(0, DOCUMENT_TOKENS, PASSAGE)
        cuts = [
            ids[max(0, start - OVERLAP) : start + PASSAGE + OVERLAP] if start < len(ids) else [] for start in starts
        ]
        return [str(self.tokenizer.decode(cut)) for cut in cuts]

    def forward(self, both: Features) -> Tensor:
        vectors = _vectors(self.model, both)[:, 0]
        vectors = vectors.view(-1, self.passages, vectors.shape[-1])
        whole = torch.cat([self.first.expand(len(vectors), -1, -1), vectors], dim=1)
        scores: Tensor = self.head(self.aggregator(whole)[:, 0]).squeeze(-1)
        return scores


PLAIN: dict[str, type[Plain]] = {
    ranker.kind: ranker for ranker in (PlainCrossEncoder, PlainBiEncoder, PlainColbert, PlainParade)
}


class PlainLoop:
    """A student, its optimiser and, for CoCoL, the teacher: a frozen copy of the student before training."""

    def __init__(self, kind: str, folder: Path, device: torch.device) -> None:
        torch.backends.cuda.matmul.allow_tf32 = TENSOR_FLOAT
        self.student = PLAIN[kind](folder).to(device)
        self.teacher = copy.deepcopy(self.student).eval()
        self.optimizer = torch.optim.Adam(self.student.parameters(), lr=LEARNING_RATE)

    def train(self, positive: Sequence[TextPair], negative: Sequence[TextPair]) -> None:
        """Take one step on triples, with a margin of 1."""
        better, worse = self._score(positive), self._score(negative)
        self._step(nn.functional.margin_ranking_loss(better, worse, torch.ones_like(better), margin=1.0))

    def forget(self, forget: Sequence[TextPair], lowest: Sequence[float], partner: Sequence[TextPair]) -> None:
        """Take one step of CoCoL's first phase as printed: lower each pair to the lowest score of its query, keep its
        partner."""
        score, drift = self._score(forget), self._drift(partner)
        least = torch.tensor(lowest, device=score.device)
        self._step((torch.relu(_gap(score, least)) + drift).mean())

    def hold(self, positive: Sequence[TextPair], negative: Sequence[TextPair]) -> None:
        """Take one step of CoCoL's second phase as printed: keep a disjoint pair and a negative of its query."""
        self._step((self._drift(positive) + self._drift(negative)).mean())

    def _score(self, pairs: Sequence[TextPair]) -> Tensor:
        scores: Tensor = self.student.train(DROPOUT)(*self.student.read(pairs))
        return scores

    def _drift(self, pairs: Sequence[TextPair]) -> Tensor:
        """Return how far the student is from its teacher, which scores in this call."""
        features = self.student.read(pairs)
        with torch.no_grad():
            wanted = self.teacher(*features)
        return _gap(wanted, self.student.train(DROPOUT)(*features)).abs()

    @torch.no_grad()
    def score(self, pairs: Sequence[TextPair]) -> Tensor:
        """Return the score of each pair, on the CPU."""
        self.student.eval()
        batches = (pairs[start : start + SCORING_BATCH] for start in range(0, len(pairs), SCORING_BATCH))
        return torch.cat([self.student(*self.student.read(batch)).cpu() for batch in batches])

    def _step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        loss.item()  # waits for the GPU, as in a loop that prints its loss


def _gap(above: Tensor, below: Tensor) -> Tensor:
    return (above - below) / (above + below)


def _vectors(encoder: nn.Module, side: Features) -> Tensor:
    """Return one vector for each token. [texts, tokens, width]"""
    vectors: Tensor = encoder(**side).last_hidden_state
    return vectors
