"""What an update of an index costs, and that it survives being killed.

`python benchmarks/index.py` makes a collection of 100,000 documents and builds an index of it. Then 1 % of the texts
are edited: an update must encode these alone and take less than 5 % of the time of the build. Another update of the
same index is killed ten times at random moments (SIGKILL): it must end in the same points and the same bits. One that
ends before it is killed begins again from the index as it was built. Last, a stale point, a removed document and a
point of another model are planted, and `check` must find each.

`--store pgvector` makes three tables, `unrank_bench_…`, in the database that libpq's variables name; drop them first if
they exist. For a scratch server, see `tests/index/server.py`. `--store qdrant` makes three indexes of these names on
the server that `QDRANT_URL` names; for a stand-in see `tests/index/qdrant_server.py`. By default the encoder is
all-MiniLM-L6-v2; a smaller one makes the bar harder, because encoding is then a smaller part of a build. It prints a
line of JSON, and exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import TypeVar

import numpy as np
import pyarrow as pa
import torch
from million import words_of
from synthetic import Size, describe, make_collection

from unrank.collection.arrow import TEXTS_A_BATCH, write_texts
from unrank.collection.collection import Collection, open_collection
from unrank.engine.runtime import Runtime, Silence
from unrank.errors import UnrankError
from unrank.index.check import check_index
from unrank.index.document_side import DocumentSide
from unrank.index.store import Points, Store, open_store
from unrank.index.update import build_index, text_digest, update_index
from unrank.rankers import create_ranker
from unrank.rankers.encoder import find_encoder

Made = TypeVar("Made")
Names = tuple[str, str, str]
"""An index that is updated, one that stays as it was built, and one whose updates are killed."""
EDITED = 100
"""Every hundredth document is edited."""
MOST_TIME = 0.05
REMOVED = {"d5"}


@dataclass(frozen=True)
class Job:
    """An index of one collection that has to follow another."""

    side: DocumentSide
    edited: Collection

    def update(self, name: str) -> int:
        """Bring an index up to date; return how many texts were encoded."""
        return update_index(open_store(name), self.side.digest, self.side, self.edited, REMOVED, Silence()).encoded

    def killed(self, name: str, untouched: str, times: int, seconds: float) -> int:
        """Update an index in processes until `times` of them were killed; return how many came to their end.

        After one of these the index holds the untouched points again.
        """
        generator, processes = random.Random(0), multiprocessing.get_context("fork")
        killed = ended = 0
        while killed < times:
            process = processes.Process(target=self.update, args=(name,))
            process.start()
            process.join(generator.random() * seconds)
            if process.is_alive():
                process.kill()
                process.join()
                wait_until_free(name)
                killed += 1
            elif process.exitcode == 0:
                copy(untouched, name)
                ended += 1
            else:
                raise SystemExit(f"an update of {name} failed with {process.exitcode}")
        return ended


def edit(source: Path, out: Path) -> Collection:
    """Copy a collection, with another text for every hundredth document."""
    shutil.copytree(source, out)
    documents = open_collection(source).documents

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(documents), TEXTS_A_BATCH):
            rows = range(start, min(start + TEXTS_A_BATCH, len(documents)))
            texts = documents.texts(rows)
            new = [f"edited {text}" if row % EDITED == 0 else text for row, text in zip(rows, texts, strict=True)]
            yield pa.record_batch({"id": pa.array(documents.ids(rows)), "text": pa.array(new)})

    write_texts(out / "documents.arrow", batches())
    describe(out)
    return open_collection(out)


def content(store: Store) -> tuple[Points, list[bytes]]:
    """Return all that an index holds, in its order."""
    return store.points(), [np.asarray(rows).tobytes() for _, rows in store.blocks()]


def copy(name: str, new: str) -> None:
    """Make all points of an index those of another one, whatever it holds."""
    source, store = open_store(name), open_store(new)
    header, points, start = source.header(), source.points(), 0
    assert header is not None
    with store.writing():
        store.drop(store.put_aside().ids)
        for ids, vectors in source.blocks():
            some = slice(start, start + len(ids))
            store.put(header, Points(ids, points.texts[some], points.models[some]), vectors)
            start += len(ids)
        store.switch(header, keep=False)


def wait_until_free(name: str) -> None:
    """Wait until a database has seen that the process which wrote to an index is gone."""
    for _ in range(100):
        with suppress(UnrankError), open_store(name).writing():
            return
        sleep(0.1)
    raise SystemExit(f"{name} is still locked by a process that was killed")


def planted(name: str, job: Job) -> dict[str, bool]:
    """Plant a stale point, a removed document and a point of another model; return which of them `check` finds."""
    store, side = open_store(name), job.side
    header, points = store.header(), store.points()
    assert header is not None
    vectors = side.encode(["a", "b", "c"], "document")
    text = dict(zip(points.ids, points.texts, strict=True))["d9"]
    wrong = Points(["d7", "d5", "d9"], [text_digest("older"), text, text], [side.digest, side.digest, "other"])
    with store.writing():
        store.put(header, wrong, vectors)
        store.switch(header, keep=True)
    found = check_index(store, side, job.edited, REMOVED, 200, Silence())
    return {
        "found_stale": found.stale == ("d7",),
        "found_removed": found.removed == ("d5",),
        "found_other_model": found.other_model == ("d9",),
    }


def timed(work: Callable[[], Made]) -> tuple[float, float, Made]:
    """Return the seconds and the processor's seconds of some work, and its result."""
    start, cpu = perf_counter(), process_time()
    made = work()
    return perf_counter() - start, process_time() - cpu, made


def measure(base: str | None, documents: int, kills: int, folder: Path, names: Names) -> dict[str, object]:
    """Build, update, kill and check; return the figures."""
    encoder = find_encoder(base)
    side = DocumentSide.of(create_ranker("bi-encoder", str(encoder), 0), Runtime.on("cpu"))
    make_collection(folder / "collection", Size(documents, 200), words_of(encoder))
    collection = open_collection(folder / "collection")
    job = Job(side, edit(collection.folder, folder / "edited"))
    updated, untouched, other = names
    build_seconds, build_cpu, _ = timed(lambda: build_index(open_store(updated), side, collection, (), Silence()))
    copy(updated, untouched)
    copy(updated, other)
    update_seconds, update_cpu, encoded = timed(lambda: job.update(updated))
    ended = job.killed(other, untouched, kills, update_seconds)
    job.update(other)
    return {
        "documents": documents,
        "store": updated.partition(":")[0] if ":" in updated else "faiss",
        "build_seconds": round(build_seconds, 2),
        "update_seconds": round(update_seconds, 2),
        "share": round(update_seconds / build_seconds, 4),
        "share_of_processor_time": round(update_cpu / build_cpu, 4),
        "encoded": encoded,
        "killed": kills,
        "ended_before": ended,
        "equal_after_kills": content(open_store(updated)) == content(open_store(other)),
        **planted(updated, job),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What an update of an index costs, and that it survives being killed.")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--base", help="the encoder's folder or hub id")
    parser.add_argument("--store", choices=("faiss", "pgvector", "qdrant"), default="faiss")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a forked process cannot use the threads of its parent
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        places = f"{folder}/index_" if options.store == "faiss" else f"{options.store}:unrank_bench_"
        names = f"{places}updated", f"{places}untouched", f"{places}other"
        figures = measure(options.base, options.documents, options.kills, folder, names)
    bars = {
        "only edited texts are encoded": figures["encoded"] == -(-options.documents // EDITED),
        "an update takes less than 5 % of a build": float(str(figures["share"])) < MOST_TIME,
        "killed, it ends in the same bits": bool(figures["equal_after_kills"]),
        "check finds what was planted": all(figures[f"found_{what}"] for what in ("stale", "removed", "other_model")),
    }
    for bar, met in bars.items():
        print(f"{'yes' if met else 'NO':>4}  {bar}")
    print(json.dumps(figures))
    sys.exit(not all(bars.values()))


if __name__ == "__main__":
    main()
