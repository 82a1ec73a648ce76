"""The embedded collection: what Python's own documentation becomes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from unrank.collection.build import import_collection
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition, make_partition
from unrank.collection.removal import Removal
from unrank.collection.sources import pydocs, read_source
from unrank.collection.sources.pydocs import DEMO_HEADINGS, location_of, read_pydocs
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.collection.texts import hashed_order
from unrank.errors import UnknownName, UnrankError

DIGEST = """
import hashlib
from unrank.collection.sources.pydocs import read_pydocs
raw = read_pydocs("asyncio,language reference,xml", None)
everything = [*raw.queries(), *raw.documents(), *((name, *row) for name in raw.splits for row in raw.splits[name]())]
print(hashlib.sha256(repr(everything).encode()).hexdigest())
"""


@dataclass(frozen=True)
class Read:
    """One pass over a source, and the modules that reading it imported."""

    queries: list[Text]
    documents: list[Text]
    splits: dict[str, list[Judgement]]
    imported: frozenset[str] = frozenset()

    @classmethod
    def of(cls, raw: Raw, imported: frozenset[str] = frozenset()) -> Read:
        splits = {name: list(judgements()) for name, judgements in raw.splits.items()}
        return cls(list(raw.queries()), list(raw.documents()), splits, imported)

    def grades(self, path: str) -> dict[str, int]:
        """The paragraphs relevant to a heading path, with their grades."""
        texts = dict(self.documents)
        (query,) = [query.id for query in self.queries if query.text == path]
        judgements = [judgement for split in self.splits.values() for judgement in split]
        return {texts[judgement.document]: judgement.grade for judgement in judgements if judgement.query == query}


@pytest.fixture(scope="module")
def everything() -> Read:
    before = set(sys.modules)
    raw = read_pydocs("", None)
    return Read.of(raw, frozenset(set(sys.modules) - before))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return import_collection(f"pydocs:{location_of(DEMO_HEADINGS)}", tmp_path_factory.mktemp("demo") / "collection")


@pytest.mark.slow
def test_counts_are_as_promised(everything: Read) -> None:
    pairs = sum(map(len, everything.splits.values()))
    assert 7_500 < len(everything.documents) < 10_500
    assert 3_600 < len(everything.queries) < 5_200
    assert 4 < pairs / len(everything.queries) < 6.5
    assert 2 < pairs / len(everything.documents) < 3


def test_ids_are_unique_and_hashes_of_the_text(everything: Read) -> None:
    for texts, kind in ((everything.queries, "h"), (everything.documents, "p")):
        assert len({text.id for text in texts}) == len({text.text for text in texts}) == len(texts)
        assert all(id == kind + hashlib.sha256(text.encode()).hexdigest()[:12] for id, text in texts)


@pytest.mark.slow
def test_two_reads_are_equal(everything: Read) -> None:
    first, second = (Read.of(read_pydocs("asyncio,language reference", None)) for _ in range(2))
    assert first == second
    assert set(first.documents) < set(everything.documents)


@pytest.mark.slow
def test_the_order_does_not_depend_on_the_hash_seed() -> None:
    environments = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    command = [sys.executable, "-c", DIGEST]
    digests = [subprocess.run(command, env=env, check=True, capture_output=True).stdout for env in environments]
    assert len(digests[0]) > 60
    assert digests[0] == digests[1]


def test_headings_are_paths_as_users_know_them(everything: Read) -> None:
    paths = {query.text for query in everything.queries}
    assert {"asyncio", "asyncio / Queue", "asyncio / Queue / put", "json / JSONDecoder / decode"} <= paths
    assert {"optparse / OptionParser", "argparse / ArgumentParser", "unittest / mock / Mock"} <= paths
    assert {"language reference", 'language reference / The "assert" statement'} <= paths


def test_paragraphs_are_relevant_at_every_depth(everything: Read) -> None:
    put, queue, top = (everything.grades(path) for path in ("asyncio / Queue / put", "asyncio / Queue", "asyncio"))
    assert any(paragraph.startswith("Put an item into the queue.") for paragraph in put)
    assert {(put[paragraph], queue[paragraph], top[paragraph]) for paragraph in put} == {(2, 1, 1)}
    assert set(put) < set(queue) < set(top)
    assert 2 in queue.values()  # the class has paragraphs of its own


def test_every_query_has_a_paragraph_of_its_own_or_below(everything: Read) -> None:
    judged = {judgement.query for split in everything.splits.values() for judgement in split}
    assert judged == {query.id for query in everything.queries}


def test_no_private_name_and_no_test_is_a_heading(everything: Read) -> None:
    modules = [query.text for query in everything.queries if not query.text.startswith(pydocs.LANGUAGE)]
    partition = {part for path in modules for part in path.split(" / ")}
    assert [part for part in partition if part.startswith("_")] == []
    articles = {path.partition(" / ")[0] for path in modules}
    assert articles.isdisjoint({"test", "idlelib", "lib2to3", "antigravity", "this"})
    assert articles <= sys.stdlib_module_names


def test_paragraphs_are_prose(everything: Read) -> None:
    texts = [document.text for document in everything.documents]
    assert [text for text in texts if len(text.split()) < 5 or text.startswith(">>>") or "\n" in text] == []


def test_splits_share_no_query_and_no_article(everything: Read) -> None:
    paths = dict(everything.queries)
    train, test = ({judgement.query for judgement in everything.splits[name]} for name in ("train", "test"))
    articles = [{paths[query].partition(" / ")[0] for query in split} for split in (train, test)]
    assert not train & test
    assert not articles[0] & articles[1]
    assert {"optparse", "argparse"} <= articles[0]
    assert 0.1 < len(test) / len(everything.queries) < 0.3


def test_nothing_is_imported_but_the_topics(everything: Read) -> None:
    assert everything.imported <= {"pydoc_data", "pydoc_data.topics"}
    assert {"antigravity", "this"}.isdisjoint(sys.modules)


def test_a_location_names_articles_in_any_order(everything: Read) -> None:
    some = Read.of(read_source("pydocs: optparse,argparse,asyncio"))
    assert some == Read.of(read_source("pydocs:asyncio,optparse, argparse,"))
    assert {query.text.partition(" / ")[0] for query in some.queries} == {"optparse", "argparse", "asyncio"}
    assert set(some.queries) < set(everything.queries)
    assert list(some.splits) == ["train"]


def test_an_unknown_heading_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="unknown heading 'optparser': did you mean 'optparse'"):
        read_pydocs("argparse,optparser", None)


def test_a_python_without_its_sources_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(UnrankError, match="contains no source files"):
        read_pydocs("", None)


def test_a_package_lifts_what_it_imports(tmp_path: Path) -> None:
    package = tmp_path / "queue"
    package.mkdir()
    (package / "__init__.py").write_text("from ._inner import *\nfrom queue.near import Near\nfrom os import path\n")
    (package / "_inner.py").write_text("try:\n    class Put:\n        'Put it there.'\nexcept ImportError: pass\n")
    (package / "near.py").write_text("class Near:\n    def at(self): 'At hand.'\n    def _far(self): 'Away.'\n")
    (package / "path.py").write_text("async def walk(): 'Step by step.'\n")
    (package / "_hidden.py").write_text("def secret(): 'Not to be read.'\n")
    found = {" / ".join(heading): text for heading, text in pydocs.read_article("queue", package) if text}
    assert found == {
        "queue / Put": "Put it there.",
        "queue / Near / at": "At hand.",
        "queue / path / walk": "Step by step.",
    }


def test_the_demo_takes_what_this_python_has() -> None:
    assert set(location_of(DEMO_HEADINGS).split(",")) == set(DEMO_HEADINGS)
    assert location_of(("optparse", "gone_by_now", "argparse")) == "optparse,argparse"


def test_the_demo_is_small_and_its_paragraphs_short(demo: Collection) -> None:
    words = [len(text.split()) for text in demo.documents.texts(np.arange(len(demo.documents)))]
    assert 1_200 < len(demo.documents) < 1_800
    assert np.mean(words) < 30
    assert len(demo.test_queries) >= 60


@pytest.mark.parametrize("seed", range(5))
def test_the_demo_forgets_enough_queries_and_entangles_some(demo: Collection, seed: int) -> None:
    partition = _forget_option_parser(demo, share=0.05, seed=seed)
    assert len(np.unique(partition.forget[:, 0])) >= 60
    assert len(partition.entangled) > 100
    assert len(partition.disjoint) > 500


def _forget_option_parser(collection: Collection, share: float, seed: int) -> Partition:
    """Every document under `optparse / OptionParser`, and others drawn by seed, up to a share of the documents."""
    paths = collection.queries.texts(np.arange(len(collection.queries)))
    own = collection.judged[collection.judged[:, 0] == paths.index("optparse / OptionParser"), 1]
    others = collection.documents.ids(np.setdiff1d(collection.pairs[:, 1], own))
    drawn = hashed_order(others, f"{seed}:documents")[: round(share * len(collection.documents)) - len(own)]
    removal = Removal(documents=[*collection.documents.ids(own), *(others[i] for i in drawn)])
    return make_partition(collection, removal)
