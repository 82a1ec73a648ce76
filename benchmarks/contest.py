"""The comparison of one ranker in unrank and in plain code, with the same encoder and the same samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from arithmetic import PEAK, WITH_GRADIENTS, operations
from library import BATCHES, LIBRARY, LibraryLoop
from plain import BATCH, LEARNING_RATE, SCORING_BATCH, PlainLoop, TextPair
from stopwatch import PeakMemory, Rate, seconds, until

from unrank import Collection, Removal
from unrank import partition as make_partition
from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.engine.loop import Schedule, fit
from unrank.engine.runtime import Device
from unrank.engine.samples import Phase, Samples
from unrank.engine.scoring import scores_of
from unrank.engine.teacher import Teacher, TeacherScores
from unrank.forgetting.workspace import Workspace
from unrank.methods.cocol import Cocol
from unrank.methods.ranking import learn
from unrank.methods.task import Task
from unrank.rankers import create_ranker
from unrank.rankers.model_folder import quiet

REMOVED = 0.25
FORGET_SHARE = 0.25
"""The share of forget pairs in a CoCoL epoch, as if a quarter of the pairs were removed."""
SAMPLES = {"cpu": 64, "cuda": 8_192}
LISTS_A_CALL = {"cpu": 1, "cuda": 2_000}
WARM_UP = 2
"""Steps of the plain loop that are not counted, each with this many samples: more would take long on a CPU."""
COUNTED_BATCHES = 8


@dataclass(frozen=True)
class Figure:
    """One row: the rates of a ranker in plain code and in unrank."""

    ranker: str
    what: str
    batch: int
    plain: Rate
    ours: Rate
    limit: float | None
    """The limit of the device's arithmetic in samples per second; `None` if its peak is not known."""

    @property
    def ratio(self) -> float:
        return self.ours.a_second / self.plain.a_second

    @property
    def share(self) -> float | None:
        return self.ours.a_second / self.limit if self.limit else None


class PairTeacher(Teacher):
    """A teacher that scores single pairs instead of whole lists; the time of a step is the same."""

    def ask(self, pairs: Pairs, list_ranges: bool = True) -> TeacherScores:
        scores = scores_of(self.ranker, self._store, pairs, self._runtime)
        return TeacherScores(scores, scores - 1, np.ones_like(scores))

    def learn(self, queries: Rows) -> None:
        return


class Contest:
    """One kind of ranker on one collection."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        collection: Collection,
        device: Device,
        limit: float,
        samples: int | None,
        lists: int | None,
    ) -> None:
        self.kind, self.folder, self.collection, self.limit, self.lists = kind, folder, collection, limit, lists
        self.ranker = create_ranker(kind, str(folder), 0)
        partition = make_partition(collection, Removal.sample(collection, "documents", REMOVED))
        self.workspace = Workspace.open(self.ranker, collection, partition, device)
        self.runtime, self.store = self.workspace.runtime, self.workspace.store
        self.samples = samples or SAMPLES[self.runtime.device.type]
        teacher = PairTeacher(self.ranker, collection, self.store, self.runtime)
        self.task: Task = replace(self.workspace.task(self.ranker), teacher=teacher)
        self.by_library = kind in LIBRARY
        if self.by_library:
            self._saved = TemporaryDirectory(prefix="unrank-contest-")
            self.ranker.save(Path(self._saved.name))

    def figures(self, what: str, batches: Sequence[int]) -> Iterator[Figure]:
        if what == "score":
            yield self._scoring()
            return
        phases = self._training() if what == "train" else self._unlearning()
        plain = self._best(lambda batch: self._plain_steps(phases, batch))
        for batch in batches:
            sized = [replace(phase, batch=batch) for phase in phases]
            yield Figure(self.kind, what, batch, plain, self._ours(sized), self._limit_of_steps(sized))

    def _training(self) -> list[Phase]:
        pairs = np.random.default_rng(0).permutation(self.task.partition.retain)[: self.samples]
        return [self._fixed(learn(self.task, pairs, -(-self.samples // len(pairs)), BATCH, 1), self.samples)]

    def _unlearning(self) -> list[Phase]:
        forgotten = round(FORGET_SHARE * self.samples)
        partition, order = self.task.partition, np.random.default_rng(0)
        few = replace(
            partition,
            forget=order.permutation(partition.forget)[: 2 * forgotten],
            disjoint=order.permutation(partition.disjoint)[: self.samples],
        )
        forget, hold = Cocol(anchors="paper").plan(replace(self.task, partition=few))
        return [self._fixed(forget, forgotten), self._fixed(hold, self.samples - forgotten)]

    def _fixed(self, phase: Phase, most: int) -> Phase:
        """Return the phase with the same samples in every epoch, each with all its roles."""
        drawn = phase.draw(np.random.default_rng(0), 1)
        whole = np.flatnonzero(drawn.present.all(1))
        kept = drawn.take(np.resize(np.random.default_rng(0).permutation(whole), most))
        self._tokenize(kept.pairs.reshape(-1, 2))
        return replace(phase, size=len(kept), draw=lambda generator, epoch: kept)

    def _tokenize(self, pairs: Pairs) -> None:
        self.store.lengths(pairs[:, 0], "query")
        self.store.lengths(pairs[:, 1], "document")

    def _ours(self, phases: list[Phase]) -> Rate:
        """Run whole epochs; the first is a warm-up."""
        student = create_ranker(self.kind, str(self.folder), 0).to(self.runtime.device)
        epochs = fit(student, phases, Schedule(10**9, LEARNING_RATE), self.store, self.runtime)
        next(epochs)
        peak = PeakMemory(self.runtime.device)
        return Rate.of(self._timed(interval.samples for interval in epochs), peak)

    def _plain(self, steps: Callable[[], Iterator[int]]) -> Rate:
        """Yield the number of samples of each step. The first steps are small, and a warm-up."""
        run = steps()
        for _ in range(WARM_UP):
            next(run)
        peak = PeakMemory(self.runtime.device)
        return Rate.of(self._timed(run), peak)

    def _best(self, steps: Callable[[int], Iterator[int]]) -> Rate:
        """Return the rate of the plain loop; of the library, the best over several sizes of a batch that fit."""
        rates = []
        for batch in BATCHES if self.by_library else (BATCH,):
            try:
                rates.append(self._plain(lambda batch=batch: steps(batch)))  # type: ignore[misc]
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
        return max(rates, key=lambda rate: rate.a_second)

    def _timed(self, steps: Iterator[int]) -> Iterator[tuple[int, float]]:
        for _ in until(self.limit, cycle([None])):
            started = seconds(self.runtime.device)
            samples = next(steps)
            yield samples, seconds(self.runtime.device) - started

    def _plain_steps(self, phases: list[Phase], size: int) -> Iterator[int]:
        """Yield the mini-batches of all phases in one random order, again and again."""
        loop = self._plain_loop()
        batches = [(phase.name, batch) for phase in phases for batch in self._plain_batches(phase, size)]
        order = np.random.default_rng(0).permutation(len(batches))
        for number, place in enumerate(chain(order[[0] * WARM_UP], cycle(order))):
            name, (samples, first, second) = batches[place]
            if number < WARM_UP:
                samples, first, second = samples.take(np.arange(WARM_UP)), first[:WARM_UP], second[:WARM_UP]
            if name == "forget":
                assert samples.teacher is not None
                loop.forget(first, samples.teacher.list_min[:, 0].tolist(), second)
            else:
                (loop.hold if name == "hold" else loop.train)(first, second)
            yield len(samples)

    def _plain_loop(self) -> PlainLoop:
        with quiet():
            if self.by_library:
                return LibraryLoop(self.kind, Path(self._saved.name), self.runtime.device)
            return PlainLoop(self.kind, self.folder, self.runtime.device)

    def _plain_batches(self, phase: Phase, size: int) -> list[tuple[Samples, list[TextPair], list[TextPair]]]:
        drawn = phase.draw(np.random.default_rng(0), 1)
        if self.by_library:  # sorted by length, so that there is little padding
            documents = drawn.pairs[..., 1]
            lengths = self.store.lengths(documents.ravel(), "document").reshape(documents.shape)
            drawn = drawn.take(np.argsort(lengths.max(1), kind="stable"))
        taken = [drawn.take(np.arange(start, min(start + size, len(drawn)))) for start in range(0, len(drawn), size)]
        return [(few, self._texts(few.pairs[:, 0]), self._texts(few.pairs[:, 1])) for few in taken]

    def _texts(self, pairs: Pairs) -> list[TextPair]:
        queries, documents = (self.collection.queries.texts(pairs[:, 0]), self.collection.documents.texts(pairs[:, 1]))
        return list(zip(queries, documents, strict=True))

    def _scoring(self) -> Figure:
        """Score all lists at once for a dual encoder, which encodes each text once; otherwise some lists at a time."""
        queries = np.random.default_rng(0).permutation(len(self.collection.queries))[: self.lists]
        pairs = self.collection.list_pairs(np.sort(queries))
        size = len(queries) if self.ranker.separable else LISTS_A_CALL[self.runtime.device.type]
        groups = [queries[start : start + size] for start in range(0, len(queries), size)]
        self._tokenize(pairs)
        scores_of(self.ranker, self.store, self.collection.list_pairs(queries[:1]), self.runtime)
        peak = PeakMemory(self.runtime.device)
        ours = Rate.of(self._timed(self._scored(groups)), peak)
        shuffled = np.random.default_rng(0).permutation(pairs)
        scored = self._library_scored if self.by_library else self._plain_scored
        plain = self._best(lambda batch: scored(shuffled, batch))
        limit = self._limit(operations(self.ranker, self.store, pairs) / len(pairs))
        return Figure(self.kind, "score", 0, plain, ours, limit)

    def _scored(self, groups: list[Rows]) -> Iterator[int]:
        for group in cycle(groups):
            pairs = self.collection.list_pairs(group)
            scores_of(self.ranker, self.store, pairs, self.runtime)
            yield len(pairs)

    def _library_scored(self, pairs: Pairs, batch: int) -> Iterator[int]:
        """Score all lists at once, again and again; the first calls are small, and a warm-up."""
        loop = self._plain_loop()
        assert isinstance(loop, LibraryLoop)
        model, texts = loop.scorer(), self._texts(pairs)
        for some in chain([texts[:WARM_UP]] * WARM_UP, cycle([texts])):
            model.score_lists(some, batch)
            yield len(some)

    def _plain_scored(self, pairs: Pairs, _: int) -> Iterator[int]:
        loop = self._plain_loop()
        starts = range(0, len(pairs), SCORING_BATCH)
        for number, start in enumerate(chain([0] * WARM_UP, cycle(starts))):
            texts = self._texts(pairs[start : start + (WARM_UP if number < WARM_UP else SCORING_BATCH)])
            loop.score(texts)
            yield len(texts)

    def _limit_of_steps(self, phases: list[Phase]) -> float | None:
        costs = []
        for phase in phases:
            drawn = phase.draw(np.random.default_rng(0), 1)
            for start in range(0, min(len(drawn), COUNTED_BATCHES * phase.batch), phase.batch):
                few = drawn.take(np.arange(start, min(start + phase.batch, len(drawn))))
                a_sample = operations(self.ranker, self.store, few.pairs.reshape(-1, 2)) / len(few)
                costs += [WITH_GRADIENTS * a_sample] * len(few)
        return self._limit(float(np.mean(costs)))

    def _limit(self, operations_a_sample: float) -> float | None:
        peak = PEAK.get(self.runtime.name)
        return peak / operations_a_sample if peak else None
