"""What sentence-transformers itself has trained goes through `unrank forget`, and loads there again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import sentence_transformers as st
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.multi_vector_encoder import MultiVectorEncoderTrainer, MultiVectorEncoderTrainingArguments
from sentence_transformers.multi_vector_encoder.losses import MultiVectorMultipleNegativesRankingLoss
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling

from tests.tiny import make_dense_collection
from unrank.cli.main import run
from unrank.collection.collection import Collection, open_collection
from unrank.collection.inspect import pair_ids
from unrank.rankers import load_ranker


class Elsewhere(NamedTuple):
    """A class of sentence-transformers, with all that it needs to train and to score."""

    build: Callable[[Path], Any]
    load: Callable[[str], Any]
    trainer: Any
    arguments: Any
    loss: Any
    score: Callable[[Any, list[str], list[str]], Any]


def new_bi_encoder(encoder: Path) -> Any:
    transformer = Transformer(str(encoder))
    pooling = Pooling(transformer.get_embedding_dimension(), "mean")
    return st.SentenceTransformer(modules=[transformer, pooling], prompts={"query": "hir "}, device="cpu")


def new_colbert(encoder: Path) -> Any:
    expansion = {"strategy": "fixed", "attend": False, "length": 12}
    transformer = Transformer(str(encoder), query_expansion=expansion)
    dense = Dense(32, 16, bias=False, activation_function=None, module_input_name="token_embeddings")
    mask, unit = MultiVectorMask(skiplist_words=["ba"]), Normalize(module_input_name="token_embeddings")
    prompts = {"query": "hir ", "document": "kos "}
    return st.MultiVectorEncoder(modules=[transformer, dense, mask, unit], prompts=prompts, device="cpu")


def similarity(model: Any, queries: list[str], documents: list[str]) -> Any:
    return model.similarity_pairwise(model.encode_query(queries), model.encode_document(documents)).numpy()


ELSEWHERE = {
    "cross-encoder": Elsewhere(
        lambda encoder: st.CrossEncoder(str(encoder), num_labels=1, device="cpu"),
        lambda folder: st.CrossEncoder(folder, device="cpu"),
        st.CrossEncoderTrainer,
        st.CrossEncoderTrainingArguments,
        BinaryCrossEntropyLoss,
        lambda model, queries, documents: model.predict(
            list(zip(queries, documents, strict=True)), activation_fn=lambda scores: scores
        ),
    ),
    "bi-encoder": Elsewhere(
        new_bi_encoder,
        lambda folder: st.SentenceTransformer(folder, device="cpu"),
        st.SentenceTransformerTrainer,
        st.SentenceTransformerTrainingArguments,
        MultipleNegativesRankingLoss,
        similarity,
    ),
    "colbert": Elsewhere(
        new_colbert,
        lambda folder: st.MultiVectorEncoder(folder, device="cpu"),
        MultiVectorEncoderTrainer,
        MultiVectorEncoderTrainingArguments,
        MultiVectorMultipleNegativesRankingLoss,
        similarity,
    ),
}


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("elsewhere") / "dense"
    make_dense_collection(out)
    return out


def texts_of(collection: Collection) -> tuple[list[str], list[str]]:
    pairs = collection.pairs[:48]
    return list(collection.queries.texts(pairs[:, 0])), list(collection.documents.texts(pairs[:, 1]))


@pytest.fixture
def without_cards() -> None:
    """Here models have their cards, as those of others do."""


def train_there(kind: str, encoder: Path, collection: Collection, folder: Path) -> None:
    """A few steps with the class's own trainer, and saved with it."""
    from datasets import Dataset

    queries, documents = texts_of(collection)
    columns: dict[str, list[Any]] = {"query": queries, "document": documents}
    if kind == "cross-encoder":
        columns = {"query": queries * 2, "document": documents + documents[::-1], "label": [1.0] * 48 + [0.0] * 48}
    there = ELSEWHERE[kind]
    model = there.build(encoder)
    arguments = there.arguments(
        output_dir=str(folder.parent / "trainer"),
        max_steps=6,
        per_device_train_batch_size=16,
        learning_rate=1e-3,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=1,
    )
    there.trainer(model=model, args=arguments, train_dataset=Dataset.from_dict(columns), loss=there.loss(model)).train()
    model.save_pretrained(str(folder))


@pytest.mark.parametrize(
    "kind", ["bi-encoder", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("cross-encoder", "colbert"))]
)
def test_it_forgets_here_and_loads_there(kind: str, encoder: Path, collection: Path, tmp_path: Path) -> None:
    there, given, out = ELSEWHERE[kind], tmp_path / "given", tmp_path / "forgotten"
    opened = open_collection(collection)
    train_there(kind, encoder, opened, given)
    queries, documents = texts_of(opened)
    before = there.score(there.load(str(given)), queries, documents)
    np.testing.assert_allclose(load_ranker(given).score_texts(queries, documents), before, rtol=1e-5, atol=1e-4)

    removal = tmp_path / "documents.txt"
    removal.write_text("\n".join(document for _, document in pair_ids(opened, opened.pairs[:3])))
    command = ["forget", given, collection, "--documents", removal, "--out", out, "--target", "0.02", "--quiet"]
    settings = ["--set", "epochs=1", "--set", "learning_rate=1e-3", "--set", "batch=16"]
    assert run([*map(str, command), *settings]) in (0, 3)

    assert json.loads((out / "unrank.json").read_text())["epochs"] > 0
    after = there.score(there.load(str(out)), queries, documents)
    assert np.abs(after - before).max() > 1e-4
    ranker = load_ranker(out)
    assert ranker.kind == kind
    np.testing.assert_allclose(ranker.score_texts(queries, documents), after, rtol=1e-5, atol=1e-4)
