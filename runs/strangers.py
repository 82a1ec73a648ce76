"""Rankers from elsewhere: trained by another library, on more data than the collection holds, then made to forget.

For each collection a bi-encoder of sentence-transformers (multiple negatives) and a cross-encoder that learns from its
scores (margin MSE). Both are saved as that library saves them, without a record, and `unrank` knows their base alone.
The judges are trained in the same way without the removal; so is the teacher of a judge. The lines are those of
`places.py`.

    python runs/strangers.py COLLECTION... --base ENCODER --out strangers.jsonl [--more COLLECTION...]
        [--rankers bi-encoder cross-encoder] [--by documents queries] [--share 0.25] [--removal-seed 7]

The same command goes on with the first cell that its file does not hold whole. The library's own trainer needs the
package `datasets`. Without it, a plain loop takes the steps, with the library's models and losses; the lines say so.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from places import JUDGED, JUDGES, UNTOUCHED, Cell, finish
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.cross_encoder.losses import MarginMSELoss
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.util import batch_to_device, is_training_available
from shared import Line, LineFile
from torch import nn
from transformers import set_seed

import unrank
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition, make_partition, whole_partition
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.workspace import Workspace
from unrank.methods.task import Negatives
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker

SCALE = 20.0
"""A teacher's cosines, as the scores that a cross-encoder learns: the scale that its own loss had them on."""
RUNS = (JUDGED, UNTOUCHED, "places")
Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Lessons:
    """How strangers are trained, and on what: pairs of a collection, and all pairs of some others."""

    base: str
    more: Sequence[Collection]
    epochs: int
    batch: int
    rate: float
    device: str | None

    def columns(self, collection: Collection, partition: Partition, seed: int) -> Columns:
        """Return queries, their relevant documents and a negative of each."""
        anchors: Columns = {"query": [], "positive": [], "negative": []}
        for source, part in [(collection, partition), *((each, whole_partition(each)) for each in self.more)]:
            generator = np.random.default_rng(seed)
            negatives, has = Negatives(source, part.documents).draw(part.retain[:, 0], generator)
            anchors["query"] += source.queries.texts(part.retain[has, 0])
            anchors["positive"] += source.documents.texts(part.retain[has, 1])
            anchors["negative"] += source.documents.texts(negatives[has, 1])
        return anchors

    def bi_encoder(self, columns: Columns, seed: int) -> SentenceTransformer:
        """Train a bi-encoder with in-batch negatives."""
        set_seed(seed)
        model = SentenceTransformer(self.base, device=self.device)
        texts = {name: columns[name] for name in ("query", "positive")}
        self._fit(model, MultipleNegativesRankingLoss(model, scale=SCALE), texts, seed)
        return model

    def cross_encoder(self, columns: Columns, seed: int, teacher: SentenceTransformer) -> CrossEncoder:
        """Train a cross-encoder on the margins of a bi-encoder."""
        query, positive, negative = (
            teacher.encode(texts, batch_size=256, convert_to_tensor=True, normalize_embeddings=True)
            for texts in columns.values()
        )
        margins = SCALE * (query * (positive - negative)).sum(dim=1)
        set_seed(seed)
        model = CrossEncoder(self.base, num_labels=1, device=self.device)
        self._fit(model, MarginMSELoss(model), {**columns, "label": margins.tolist()}, seed)
        return model

    def _fit(self, model: SentenceTransformer | CrossEncoder, loss: nn.Module, columns: Columns, seed: int) -> None:
        fit = self._fit_by_trainer if is_training_available() else self._fit_by_hand
        fit(model, loss, columns, seed)
        model.eval()

    def _fit_by_trainer(self, model: Any, loss: nn.Module, columns: Columns, seed: int) -> None:
        from datasets import Dataset

        crossed = isinstance(model, CrossEncoder)
        arguments = CrossEncoderTrainingArguments if crossed else SentenceTransformerTrainingArguments
        trainer = CrossEncoderTrainer if crossed else SentenceTransformerTrainer
        with tempfile.TemporaryDirectory() as out:
            settings = arguments(
                output_dir=out,
                num_train_epochs=self.epochs,
                per_device_train_batch_size=self.batch,
                learning_rate=self.rate,
                warmup_steps=0.1,
                seed=seed,
                use_cpu=self.device == "cpu",
                bf16=self.device != "cpu" and torch.cuda.is_available(),
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
            )
            trainer(model=model, args=settings, train_dataset=Dataset.from_dict(columns), loss=loss).train()

    def _fit_by_hand(self, model: Any, loss: nn.Module, columns: Columns, seed: int) -> None:
        """Take the steps that the trainer takes: AdamW, a rate that rises for a tenth of them, then falls to 0."""
        texts = {name: values for name, values in columns.items() if name != "label"}
        labels = torch.tensor(columns["label"], device=model.device) if "label" in columns else None
        rows, generator = len(columns["query"]), np.random.default_rng(seed)
        steps = self.epochs * -(-rows // self.batch)
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.rate, weight_decay=0.0)
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min((step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps))
        )
        model.train()
        for _ in range(self.epochs):
            order = generator.permutation(rows)
            for start in range(0, rows, self.batch):
                batch = order[start : start + self.batch]
                inputs: list[Any] = [[values[row] for row in batch] for values in texts.values()]
                if isinstance(model, SentenceTransformer):
                    inputs = [batch_to_device(model.preprocess(each), model.device) for each in inputs]
                with torch.autocast("cuda", torch.bfloat16, enabled=model.device.type == "cuda"):
                    found = loss(inputs, labels[batch] if labels is not None else None)
                found.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                rate.step()


def loaded(model: SentenceTransformer | CrossEncoder) -> Ranker:
    """Save a model as its library does, and load it as a user of `unrank` would."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, create_model_card=False)  # the card would ask the hub
        return load_ranker(folder)


def strangers(
    lessons: Lessons, collection: Collection, partition: Partition, seed: int, kinds: Sequence[str]
) -> dict[str, tuple[Ranker, float]]:
    """Train strangers of these kinds, and return them with the seconds that each took."""
    columns, began = lessons.columns(collection, partition, seed), perf_counter()
    bi_encoder = lessons.bi_encoder(columns, seed)
    made = {"bi-encoder": (loaded(bi_encoder), perf_counter() - began)}
    if "cross-encoder" in kinds:
        crossed = lessons.cross_encoder(columns, seed, bi_encoder)
        made["cross-encoder"] = loaded(crossed), perf_counter() - began
    return {kind: made[kind] for kind in kinds}


def cells(arguments: argparse.Namespace, lessons: Lessons, file: LineFile) -> Iterator[Cell]:
    """Yield the cells that the file does not hold whole."""
    for folder in arguments.collections:
        collection = unrank.open_collection(folder)
        facts = {"collection": Path(folder).name, "removal_seed": arguments.removal_seed}
        facts["more pairs"] = sum(len(each.pairs) for each in lessons.more)
        facts["trained by"] = "its trainer" if is_training_available() else "a plain loop with its losses"

        def is_whole(by: str, kind: str, facts: Line = facts) -> bool:
            return len(file.of({**facts, "by": by, "ranker": kind})) == len(RUNS)

        left = [by for by in arguments.by if not all(is_whole(by, kind) for kind in arguments.rankers)]
        originals = strangers(lessons, collection, whole_partition(collection), 0, arguments.rankers) if left else {}
        for by in left:
            removal = unrank.Removal.sample(collection, by, arguments.share, arguments.removal_seed)
            kept = make_partition(collection, removal)
            judges = [strangers(lessons, collection, kept, seed, arguments.rankers) for seed in JUDGES[:2]]
            for kind, (original, _) in originals.items():
                if not is_whole(by, kind):
                    workspace = Workspace.for_removal(original, collection, removal, device=arguments.device)
                    rankers, seconds = zip(*(judge[kind] for judge in judges), strict=True)
                    whose = {**facts, "by": by, "ranker": kind}
                    yield Cell(whose, original, workspace, rankers, float(np.mean(seconds)))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("collections", nargs="+")
    options.add_argument("--base", required=True)
    options.add_argument("--more", nargs="*", default=[], help="collections whose pairs are learned too")
    options.add_argument("--rankers", nargs="+", default=["bi-encoder", "cross-encoder"])
    options.add_argument("--by", nargs="+", default=["documents", "queries"])
    options.add_argument("--share", type=float, default=0.25)
    options.add_argument("--removal-seed", type=int, default=7)
    options.add_argument("--epochs", type=int, default=6, help="of the strangers")
    options.add_argument("--batch", type=int, default=64)
    options.add_argument("--rate", type=float, default=1e-4)
    options.add_argument("--device", default="auto")
    options.add_argument("--out", type=Path, required=True)
    arguments = options.parse_args()
    more = [unrank.open_collection(folder) for folder in arguments.more]
    device = None if arguments.device == "auto" else arguments.device
    lessons = Lessons(arguments.base, more, arguments.epochs, arguments.batch, arguments.rate, device)
    began, file = perf_counter(), LineFile(arguments.out)
    for cell in cells(arguments, lessons, file):
        chosen = ForgetOptions(base=arguments.base, device=arguments.device)
        work = (cell.noise, partial(cell.measure, UNTOUCHED, cell.before, None), partial(cell.run, "places", chosen))
        finish(cell, dict(zip(RUNS, work, strict=True)), file, began)


if __name__ == "__main__":
    main()
