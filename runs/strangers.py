"""Rankers from elsewhere: trained by another library, on more data than the collection holds, then made to forget.

For each collection a bi-encoder of sentence-transformers (multiple negatives) and a cross-encoder that learns from its
scores (margin MSE). Both are saved as that library saves them, without a record, and `unrank` knows their base alone.
The judges are trained in the same way without the removal; so is the teacher of a judge. The lines are those of
`places.py`.

    python runs/strangers.py COLLECTION... --base ENCODER --out strangers.jsonl [--more COLLECTION...]
        [--rankers bi-encoder cross-encoder] [--by documents queries] [--share 0.25] [--removal-seed 7] [--keep FOLDER]
        [--plain]

The same command goes on with the first cell that its file does not hold whole. `--keep` keeps what was trained in a
folder, so that a cell which was stopped goes on with it. The library's own trainer needs the package `datasets`.
Without it, or with `--plain`, a plain loop takes the steps, with the library's models and losses; the lines say so.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from sentence_transformers.util import is_training_available
from shared import Line, LineFile
from torch import Tensor, nn
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
WEIGHTS = {"dtype": torch.float32}
"""A base may be stored in half precision, in which its training would end in NaN."""
RUNS = (JUDGED, UNTOUCHED, "places")
AT_ONCE = 1024
"""Texts that are tokenised at a time."""
WIDTHS = 8
"""Batches are padded to a multiple of this."""
ALIKE = 16
"""Batches of an epoch whose rows are sorted by length among each other, so that little is padded."""
Columns = dict[str, list[Any]]
Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


class Encoded:
    """What a library's model makes of texts, or of pairs of them, made once for all models that read them alike."""

    def __init__(self) -> None:
        self._rows: dict[Any, int] = {}
        self._starts = np.zeros(1, np.int64)
        self._flat: dict[str, Tensor] = {}
        self._rest: dict[str, Any] = {}

    def add(self, model: Any, inputs: Sequence[Any]) -> None:
        """Let the model encode the inputs that are new, and keep the tokens on its device."""
        new = sorted({each: 0 for each in inputs if each not in self._rows}, key=lambda each: len("".join(each)))
        parts: dict[str, list[Tensor]] = {name: [tokens] for name, tokens in self._flat.items()}
        for start in range(0, len(new), AT_ONCE):
            some = new[start : start + AT_ONCE]
            made = model.preprocess(some)
            there = made["attention_mask"].bool()
            self._rows |= {each: len(self._rows) + place for place, each in enumerate(some)}
            self._starts = np.append(self._starts, self._starts[-1] + np.cumsum(there.sum(1).numpy()))
            for name, value in made.items():
                if isinstance(value, Tensor):
                    parts.setdefault(name, []).append(value[there].to(model.device))
                else:
                    self._rest[name] = value
        self._flat = {name: torch.cat(tokens) for name, tokens in parts.items()}

    def lengths(self, inputs: Sequence[Any]) -> Numbers:
        rows = self._places(inputs)
        return self._starts[rows + 1] - self._starts[rows]

    def batch(self, inputs: Sequence[Any], **_: object) -> dict[str, Any]:
        """Return what the model's own `preprocess` does, padded with zeros."""
        lengths, starts = self.lengths(inputs), self._starts[self._places(inputs)]
        column = np.arange(-(-lengths.max() // WIDTHS) * WIDTHS)
        device = self._flat["input_ids"].device
        there = torch.from_numpy(column < lengths[:, None]).to(device)
        index = torch.from_numpy(np.minimum(starts[:, None] + column, self._starts[-1] - 1)).to(device)
        return {**self._rest, **{name: tokens[index] * there for name, tokens in self._flat.items()}}

    @contextmanager
    def serving(self, model: Any) -> Iterator[None]:
        """Let the model, and so its loss, take its inputs from here."""
        model.preprocess = self.batch
        try:
            yield
        finally:
            del model.preprocess

    def _places(self, inputs: Sequence[Any]) -> Numbers:
        return np.array([self._rows[each] for each in inputs], np.int64)


@dataclass(frozen=True)
class Lessons:
    """How strangers are trained, and on what: pairs of a collection, and all pairs of some others."""

    base: str
    more: Sequence[Collection]
    epochs: int
    batch: int
    rate: float
    device: str | None
    plain: bool = False
    encoded: tuple[Encoded, Encoded] = field(default_factory=lambda: (Encoded(), Encoded()))
    """The tokens of texts, and those of pairs."""

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
        model = SentenceTransformer(self.base, device=self.device, model_kwargs=WEIGHTS)
        texts = {name: columns[name] for name in ("query", "positive")}
        self._fit(model, MultipleNegativesRankingLoss(model, scale=SCALE), texts, seed)
        return model

    def cross_encoder(self, columns: Columns, seed: int, teacher: SentenceTransformer) -> CrossEncoder:
        """Train a cross-encoder on the margins of a bi-encoder."""
        texts = list(dict.fromkeys(text for column in columns.values() for text in column))
        with half(teacher):
            vectors = teacher.encode(texts, batch_size=256, convert_to_tensor=True, normalize_embeddings=True).float()
        place = {text: row for row, text in enumerate(texts)}
        query, positive, negative = (vectors[[place[text] for text in column]] for column in columns.values())
        margins = SCALE * (query * (positive - negative)).sum(dim=1)
        set_seed(seed)
        model = CrossEncoder(self.base, num_labels=1, device=self.device, model_kwargs=WEIGHTS)
        self._fit(model, MarginMSELoss(model), {**columns, "label": margins.tolist()}, seed)
        return model

    def _fit(self, model: SentenceTransformer | CrossEncoder, loss: nn.Module, columns: Columns, seed: int) -> None:
        (self._fit_by_hand if self.plain else self._fit_by_trainer)(model, loss, columns, seed)
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
        """Take the steps that the trainer takes: AdamW, a rate that rises for a tenth of them, then falls to 0.

        Its tokens are made once, not at each step, and its batches are grouped by length, as the trainer's can be.
        """
        generator = np.random.default_rng(seed)
        texts = [values for name, values in columns.items() if name != "label"]
        labels = torch.tensor(columns["label"], device=model.device) if "label" in columns else None
        crossed = isinstance(model, CrossEncoder)
        # a cross-encoder's loss takes texts, and reads each pair of them; the other one takes what was read
        read = [list(zip(texts[0], values, strict=True)) for values in texts[1:]] if crossed else texts
        encoded = self.encoded[crossed]
        encoded.add(model, [each for values in read for each in values])
        lengths = np.sum([encoded.lengths(values) for values in read], axis=0)
        batches = [batch for _ in range(self.epochs) for batch in self._batches(lengths, generator)]
        steps = len(batches)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=self.rate, weight_decay=0.0, fused=model.device.type == "cuda"
        )
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min((step + 1) / (0.1 * steps), (steps - step) / (0.9 * steps))
        )
        model.train()
        found = torch.zeros(())
        with encoded.serving(model):
            for batch in batches:
                inputs: list[Any] = [[values[row] for row in batch] for values in texts]
                if not crossed:
                    inputs = [encoded.batch(each) for each in inputs]
                with half(model):
                    found = loss(inputs, labels[torch.from_numpy(batch)] if labels is not None else None)
                found.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                rate.step()
        if not torch.isfinite(found):  # this waits for the last step, too
            raise RuntimeError(f"the last loss of a stranger is {found}")

    def _batches(self, lengths: Numbers, generator: np.random.Generator) -> list[Numbers]:
        """Return the batches of an epoch in a random order, each of rows of about the same length."""
        order = generator.permutation(len(lengths))
        alike = range(0, len(order), ALIKE * self.batch)
        order = np.concatenate(
            [some[np.argsort(lengths[some])] for some in (order[at : at + alike.step] for at in alike)]
        )
        batches = [order[at : at + self.batch] for at in range(0, len(order), self.batch)]
        return [batches[place] for place in generator.permutation(len(batches))]


def half(model: Any) -> torch.autocast:
    """Return a context in which a model on a GPU computes in bfloat16, as the trainer lets it."""
    return torch.autocast("cuda", torch.bfloat16, enabled=model.device.type == "cuda")


def trained(
    place: Path, library: Callable[..., Any], train: Callable[[], Any], device: str | None
) -> tuple[Any, float]:
    """Return a model that its library saved in a folder, and the seconds of its training, now or by a call before."""
    clock = place.with_name(f"{place.name}.json")
    if clock.exists():
        return library(str(place), device=device), json.loads(clock.read_text())["seconds"]
    began = perf_counter()
    model = train()
    seconds = perf_counter() - began
    model.save_pretrained(str(place), create_model_card=False)  # the card would ask the hub
    clock.write_text(json.dumps({"seconds": seconds}))
    return model, seconds


def strangers(
    lessons: Lessons, collection: Collection, partition: Partition, seed: int, kinds: Sequence[str], folder: Path
) -> dict[str, tuple[Ranker, float]]:
    """Train strangers of these kinds, load them as a user of `unrank` would, and return the seconds that each took."""
    columns = lessons.columns(collection, partition, seed)
    places = [folder / kind for kind in ("bi-encoder", "cross-encoder")]
    train = partial(lessons.bi_encoder, columns, seed)
    bi_encoder, first = trained(places[0], SentenceTransformer, train, lessons.device)
    seconds = {"bi-encoder": first}
    if "cross-encoder" in kinds:
        train_crossed = partial(lessons.cross_encoder, columns, seed, bi_encoder)
        _, more = trained(places[1], CrossEncoder, train_crossed, lessons.device)
        seconds["cross-encoder"] = first + more
    return {kind: (load_ranker(folder / kind), seconds[kind]) for kind in kinds}


def cells(arguments: argparse.Namespace, lessons: Lessons, file: LineFile, keep: Path) -> Iterator[Cell]:
    """Yield the cells that the file does not hold whole. What is trained lies in a folder."""
    for folder in arguments.collections:
        collection = unrank.open_collection(folder)
        facts = {"collection": Path(folder).name, "removal_seed": arguments.removal_seed}
        facts["more pairs"] = sum(len(each.pairs) for each in lessons.more)
        facts["trained by"] = "a plain loop with its losses" if lessons.plain else "its trainer"
        within = keep / "-".join(map(str, (facts["collection"], lessons.epochs, lessons.batch, lessons.rate)))

        def is_whole(by: str, kind: str, facts: Line = facts) -> bool:
            return len(file.of({**facts, "by": by, "ranker": kind})) == len(RUNS)

        left = [by for by in arguments.by if not all(is_whole(by, kind) for kind in arguments.rankers)]
        if not left:
            continue
        whole = whole_partition(collection)
        originals = strangers(lessons, collection, whole, 0, arguments.rankers, within / "original")
        for by in left:
            removal = unrank.Removal.sample(collection, by, arguments.share, arguments.removal_seed)
            kept = make_partition(collection, removal)
            draw = f"{by}-{arguments.share:g}-{arguments.removal_seed}-judge"
            judges = [
                strangers(lessons, collection, kept, seed, arguments.rankers, within / f"{draw}-{seed}")
                for seed in JUDGES[:2]
            ]
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
    options.add_argument("--batch", type=int, default=128)
    options.add_argument("--rate", type=float, default=1.4e-4)
    options.add_argument("--plain", action="store_true", help="train in a plain loop even if the trainer is there")
    options.add_argument("--keep", type=Path, help="a folder for what is trained, so that a stopped cell goes on")
    options.add_argument("--device", default="auto")
    options.add_argument("--out", type=Path, required=True)
    arguments = options.parse_args()
    more = [unrank.open_collection(folder) for folder in arguments.more]
    device = None if arguments.device == "auto" else arguments.device
    plain = arguments.plain or not is_training_available()
    lessons = Lessons(arguments.base, more, arguments.epochs, arguments.batch, arguments.rate, device, plain)
    began, file = perf_counter(), LineFile(arguments.out)
    with tempfile.TemporaryDirectory() as scratch:
        for cell in cells(arguments, lessons, file, arguments.keep or Path(scratch)):
            chosen = ForgetOptions(base=arguments.base, device=arguments.device)
            untouched = partial(cell.measure, UNTOUCHED, cell.before, None)
            work = (cell.noise, untouched, partial(cell.run, "places", chosen))
            finish(cell, dict(zip(RUNS, work, strict=True)), file, began)


if __name__ == "__main__":
    main()
