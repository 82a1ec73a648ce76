"""Collections whose texts are chosen, document sides on the tiny encoder, and every store."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest

from tests.index import qdrant_server
from tests.index.server import programs, running
from tests.tiny import text_of
from unrank.collection.build import build_collection
from unrank.collection.collection import Collection
from unrank.collection.options import ImportOptions
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.engine.runtime import Runtime
from unrank.index.document_side import DocumentSide
from unrank.index.store import Store, open_store
from unrank.rankers import create_ranker

Texts = Mapping[str, str]
NewCollection = Callable[[Texts], Collection]


def some_texts(number: int = 30) -> dict[str, str]:
    generator = random.Random(21)
    return {f"d{place}": text_of(generator, 8) for place in range(number)}


def write_collection(out: Path, texts: Texts, queries: Texts | None = None) -> Collection:
    """A collection of these documents. Query i is about document i."""
    asked = queries or {f"q{place}": " ".join(text.split()[:3]) for place, text in enumerate(list(texts.values())[:6])}
    raw = Raw(
        "some",
        lambda: [Text(id, text) for id, text in asked.items()],
        lambda: [Text(id, text) for id, text in texts.items()],
        {"train": lambda: [Judgement(query, one, 1) for query, one in zip(asked, texts, strict=False)]},
    )
    return build_collection(raw, out, ImportOptions(candidates=5))


@pytest.fixture
def new_collection(tmp_path: Path) -> NewCollection:
    return lambda texts: write_collection(tmp_path / uuid4().hex, texts)


@pytest.fixture(scope="session")
def side(encoder: Path) -> DocumentSide:
    return DocumentSide.of(create_ranker("bi-encoder", str(encoder), 0), Runtime.on("cpu"))


@pytest.fixture(scope="session")
def other_side(encoder: Path) -> DocumentSide:
    """A ranker with other weights."""
    ranker = create_ranker("bi-encoder", str(encoder), 0)
    for weight in ranker.parameters():
        weight.data += 0.05 * weight.data.abs().mean() * (weight.data > 0)
    return DocumentSide.of(ranker, Runtime.on("cpu"))


@pytest.fixture(scope="session")
def database() -> Iterator[None]:
    """A private PostgreSQL, which libpq finds by its variables."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'unrank[pgvector]'")
    pytest.importorskip("pgvector", reason="pgvector is not installed: pip install 'unrank[pgvector]'")
    if programs() is None:
        pytest.skip("no PostgreSQL with pgvector here: install postgresql-NN-pgvector, or the package pgserver")
    with running() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def qdrant() -> Iterator[None]:
    """A server for Qdrant's client, which finds it by its variable."""
    for package in qdrant_server.NEEDED:
        pytest.importorskip(package, reason=f"{package} is not installed: pip install 'unrank[qdrant,serve]'")
    with qdrant_server.running() as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(params=["faiss", "pgvector", "qdrant"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store that does not exist yet."""
    if request.param == "pgvector":
        request.getfixturevalue("database")
        return open_store(f"pgvector:t{uuid4().hex[:8]}")
    if request.param == "qdrant":
        request.getfixturevalue("qdrant")
        return open_store(f"qdrant:t{uuid4().hex[:8]}")
    pytest.importorskip("faiss", reason="FAISS is not installed: pip install 'unrank[faiss]'")
    return open_store(str(tmp_path / "index"))
