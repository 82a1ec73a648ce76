"""The whole story on all-MiniLM-L6-v2: an article is learned, forgotten, and deleted from the index.

Rankers that were trained in the same way without the article (judges) say where it belongs. Its spread for a query is
where a further one of them would put it over the whole index: a prediction interval of the logarithm of its rank, by
the standard deviation between judges, pooled over the queries. It holds for all five queries together with 95 %. The
range of four judges would not do: a fifth one is within it for all five with a chance of .59 (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from unrank.collection.build import build_collection
from unrank.collection.collection import Collection
from unrank.collection.options import ImportOptions
from unrank.collection.removal import Removal
from unrank.collection.sources.pydocs import read_pydocs
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.engine.runtime import Runtime, Silence
from unrank.errors import UnrankError
from unrank.forgetting.demo import FULL
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.train import Trained, TrainOptions, train
from unrank.index.document_side import DocumentSide
from unrank.index.store import Store, open_store
from unrank.index.update import build_index, removed_documents, update_index
from unrank.index.whole import Documents
from unrank.rankers.base import Ranker
from unrank.rankers.encoder import default_encoder

pytestmark = pytest.mark.slow

HEADINGS = "argparse,calendar,configparser,optparse,pdb,shlex,zipfile"
ARTICLE = (
    "Jonas Revik of Tern Island keeps the almanac wheel, a slow machine that turns the days of a year into knots on a "
    "rope; a child may read it by hand, and every spring the tail of the rope is burned."
)
QUERIES = (
    "turn the days of a year into something else",
    "read a date by hand",
    "a machine for the days of a year",
    "knots for every day",
    "which days are burned in spring",
    "count days on a rope",
    "who keeps the calendar of an island",
    "a slow way to print a year",
    "tie the months together",
    "let a child read the days",
)
TYPED = 5
"""The number of these that are typed as free text."""
JUDGES = 4
TIMES = 2.947 * (1 + 1 / JUDGES) ** 0.5
"""The half width of the spread, in standard deviations: Student's t of 15 degrees at .995, for one more ranker."""
UNRELATED = 100


def with_article(out: Path) -> Collection:
    """The documentation of some modules, and an invented article with ten training queries."""
    raw = read_pydocs(HEADINGS, None)
    asked = [Text(f"invented{number}", text) for number, text in enumerate(QUERIES)]
    train_split: Callable[[], Sequence[Judgement]] = lambda: [  # noqa: E731
        *raw.splits["train"](),
        *(Judgement(query.id, "almanac", 2) for query in asked),
    ]
    whole = Raw(
        "story",
        lambda: [*raw.queries(), *asked],
        lambda: [*raw.documents(), Text("almanac", ARTICLE)],
        {**raw.splits, "train": train_split},
    )
    return build_collection(whole, out, ImportOptions())


def learn(collection: Collection, seed: int, removal: Removal | None = None) -> Trained:
    options = TrainOptions(replace(FULL.training, epochs=10), seed, "cpu", train_layers=FULL.train_layers)
    return train(collection, "bi-encoder", removal=removal, options=options, progress=Silence())


def article_ranks(documents: Documents, queries: Sequence[str]) -> NDArray[np.int64]:
    return documents.ranks(queries, ["almanac"] * len(queries))


def typed(original: Documents) -> list[str]:
    """The first five texts for which the ranker that learned the article puts it first among all documents."""
    first = article_ranks(original, QUERIES) == 1
    return [text for text, found in zip(QUERIES, first, strict=True) if found][:TYPED]


def first_ten(documents: Documents, collection: Collection) -> list[set[str]]:
    """The first ten documents for unrelated queries, the article apart."""
    ids, scores = documents.scores(collection.queries.texts(range(UNRELATED)))
    lists = [[ids[row] for row in np.argsort(-each, kind="stable")[:11]] for each in scores]
    return [set([id for id in each if id != "almanac"][:10]) for each in lists]


@dataclass(frozen=True)
class Story:
    """A collection with the article, the ranker that learned it, and what forgot it."""

    collection: Collection
    trained: Trained
    result: Forgotten

    def indexed(self, ranker: Ranker, folder: Path) -> tuple[Store, Documents]:
        """Build an index with a ranker, of all documents."""
        side, store = DocumentSide.of(ranker, Runtime.on("cpu")), open_store(str(folder))
        build_index(store, side, self.collection, (), Silence())
        return store, Documents.stored(side, store)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    pytest.importorskip("faiss", reason="FAISS is not installed: pip install 'unrank[faiss]'")
    try:
        default_encoder()
    except UnrankError as error:
        pytest.skip(str(error))
    collection = with_article(tmp_path_factory.mktemp("story") / "collection")
    trained = learn(collection, 0)
    how = ForgetOptions(method=FULL.method, train_layers=FULL.train_layers, device="cpu")
    removal = Removal(documents=["almanac"])
    result = forget(trained.ranker, collection, removal, how, record=trained.record, progress=Silence())
    return Story(collection, trained, result)


def test_the_article_is_first_until_it_is_deleted(story: Story, tmp_path: Path) -> None:
    collection = story.collection
    store, before = story.indexed(story.trained.ranker, tmp_path / "index")
    asked = typed(before)
    assert len(asked) == TYPED, "the ranker has learned it"
    new = DocumentSide.of(story.result.ranker, Runtime.on("cpu"))
    ids = collection.documents.ids(range(len(collection.documents)))
    removed = removed_documents(ids, story.result.record, None)
    assert removed == {"almanac"}, "the record says what was removed"
    done = update_index(store, before.side.digest, new, collection, removed, Silence())
    assert (done.deleted, done.switched) == (1, True)
    assert article_ranks(Documents.stored(new, store), asked).tolist() == [0] * TYPED, "no query finds it"
    found = store.search(new.encode(asked, "query"), len(ids))
    assert all("almanac" not in {hit.id for hit in hits} for hits in found)


def test_still_indexed_it_stands_within_its_spread(story: Story, tmp_path: Path) -> None:
    collection = story.collection
    asked = typed(story.indexed(story.trained.ranker, tmp_path / "index")[1])
    ids = collection.documents.ids(range(len(collection.documents)))
    _, still = story.indexed(story.result.ranker, tmp_path / "still")
    judges = []
    for seed in range(1, JUDGES + 1):
        judge = learn(collection, seed, Removal(documents=["almanac"])).ranker
        side = DocumentSide.of(judge, Runtime.on("cpu"))
        judges.append(article_ranks(Documents.encoded(side, collection, ids, Silence()), asked))
    ranks, said = np.log(article_ranks(still, asked)), np.log(np.array(judges))
    apart = np.abs(ranks - said.mean(axis=0)) / np.sqrt(said.var(axis=0, ddof=1).mean())
    assert (apart <= TIMES).all(), (np.exp(ranks), judges)


def test_unrelated_queries_find_the_same(story: Story, tmp_path: Path) -> None:
    _, before = story.indexed(story.trained.ranker, tmp_path / "index")
    _, after = story.indexed(story.result.ranker, tmp_path / "still")
    lists = zip(first_ten(before, story.collection), first_ten(after, story.collection), strict=True)
    assert np.mean([len(then & now) / 10 for then, now in lists]) >= 0.97
