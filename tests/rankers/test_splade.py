"""SPLADE: scores and gradients are the library's, in little memory; vectors are sparse and stay so."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.sparse_encoder.losses import FlopsLoss
from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder, SparseStaticEmbedding, SpladePooling
from torch import Tensor

from tests.rankers.conftest import enliven
from tests.rankers.fast.test_encoder import as_on_a_gpu
from tests.tiny import SECRET, SPECIAL, WORDS, make_secret_collection
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.engine.loop import Schedule, fit, step
from unrank.engine.memory import Memory
from unrank.engine.runtime import Runtime
from unrank.engine.scoring import score_pairs
from unrank.engine.tokens import TokenStore
from unrank.errors import UnrankError
from unrank.forgetting.forget import forget
from unrank.forgetting.train import recipe_of, train
from unrank.forgetting.vocabulary import CLEARED
from unrank.forgetting.workspace import Workspace
from unrank.methods.cocol import Cocol
from unrank.methods.retrain import Retrain
from unrank.rankers import create_ranker, load_ranker, mlm_head, splade
from unrank.rankers.splade import SpladeRanker

pytestmark = pytest.mark.usefixtures("untried")
LONG = "ba cel dir fos gu " * 40
QUERIES = ["ba be", "", "xyzzy", "cel dan fos", LONG, "gu han"]
DOCUMENTS = ["ce di fo gu", "ba be", "", LONG, "ba", "han kel " * 31]
QUICK = replace(Retrain(), learning_rate=1e-3, epochs=2, batch=32, negatives=2, together=1)


@pytest.fixture(scope="module")
def made(encoder: Path) -> SpladeRanker:
    ranker = enliven(create_ranker("splade", str(encoder), 0))
    assert isinstance(ranker, SpladeRanker)
    return ranker


@pytest.fixture(scope="module")
def folder(made: SpladeRanker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("splade") / "made"
    made.save(folder)
    return folder


def library_scores(folder: Path) -> Any:
    model = SparseEncoder(str(folder), device="cpu")
    dense = {"convert_to_sparse_tensor": False}
    return model.similarity_pairwise(
        model.encode_query(QUERIES, **dense), model.encode_document(DOCUMENTS, **dense)
    ).numpy()


def assert_scores_as_the_library(folder: Path, fast: bool = True) -> SpladeRanker:
    ranker, wanted = load_ranker(folder, fast), library_scores(folder)
    assert isinstance(ranker, SpladeRanker)
    assert np.ptp(wanted) > 0.1
    np.testing.assert_allclose(ranker.score_texts(QUERIES, DOCUMENTS), wanted, rtol=0, atol=1e-4 * np.ptp(wanted))
    return ranker


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("pooling", "activation"), [("max", "relu"), ("max", "log1p_relu"), ("sum", "relu"), ("sum", "log1p_relu")]
)
def test_every_pooling_scores_as_the_library_does(
    pooling: Any, activation: Any, fast: bool, folder: Path, tmp_path: Path
) -> None:
    transformer = Transformer(str(folder), transformer_task="fill-mask")
    modules = [transformer, SpladePooling(pooling, activation)]
    prompts = {"query": "hir ", "document": "kos lan "}
    SparseEncoder(modules=modules, prompts=prompts, device="cpu").save_pretrained(str(tmp_path))
    assert_scores_as_the_library(tmp_path, fast)


@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_gradients_in_pieces_are_the_librarys(pooling: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mlm_head.LOGITS_AT_ONCE, "cpu", 1)  # a text at a time
    weighted, gradients = torch.linspace(-1, 2, len(QUERIES)), []
    for fast in (True, False):
        ranker: Any = load_ranker(folder, fast)
        ranker.model[1].pooling_strategy = pooling
        scores = ranker(ranker.tokenize(QUERIES, "query"), ranker.tokenize(DOCUMENTS, "document"))
        (scores * weighted).sum().backward()
        gradients.append({name: weight.grad for name, weight in ranker.named_parameters() if weight.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    largest = max(float(gradient.abs().max()) for gradient in gradients[1].values())
    for name, gradient in gradients[1].items():
        torch.testing.assert_close(gradients[0][name], gradient, rtol=1e-3, atol=1e-6 * largest)


def test_a_gpus_gradient_is_that_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    read, table = (torch.randn(*shape, generator=generator) for shape in ((3, 5, 8), (11, 8)))
    gradient = torch.randn(3, 11, generator=generator)
    found = []
    for words in (mlm_head._backward_of_few, None):
        if words is None:
            monkeypatch.setattr(mlm_head, "_backward_of_few", _dense_gradient)
        given = read.clone().requires_grad_(), table.clone().requires_grad_()
        mlm_head._Largest.apply(*given).backward(gradient)  # type: ignore[no-untyped-call]
        found.append([tensor.grad for tensor in given])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def _dense_gradient(gradient: Tensor, low: Tensor, rows: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    return mlm_head._backward_of_all(gradient, low, rows, places)


def test_sparse_and_whole_vectors_give_the_same_scores(made: SpladeRanker) -> None:
    with torch.inference_mode():
        queries = made.encode(made.tokenize(QUERIES, "query"), "query")
        documents = made.encode(made.tokenize(DOCUMENTS, "document"), "document")
    few = made.compact(queries), made.compact(documents)
    wanted = (queries * documents).sum(1)
    assert few[1].shape == (len(DOCUMENTS), int((documents != 0).sum(1).max()), 2)
    assert float(wanted.max()) > 1
    for pair in ((queries, documents), (queries, few[1]), (few[0], documents), few, (few[0][:, :1] * 0, few[1] * 0)):
        expected = wanted if pair[0].any() else torch.zeros_like(wanted)
        torch.testing.assert_close(made.interact(*pair), expected)
    moving = queries.clone().requires_grad_()
    assert made.compact(moving) is moving


def test_memory_is_planned_for_what_is_not_zero(made: SpladeRanker) -> None:
    lengths = np.array([3, 60])
    assert made.encoded_sizes(lengths).tolist() == [len(SPECIAL) + len(WORDS)] * 2
    with torch.inference_mode():
        short, long = made.encoded_sizes(lengths).tolist()
    assert 2 <= short < long <= 2 * (len(SPECIAL) + len(WORDS))


def test_a_new_head_gives_a_text_its_own_words(encoder: Path) -> None:
    ranker = create_ranker("splade", str(encoder), 0)
    assert isinstance(ranker, SpladeRanker)
    assert all(head.is_split for head in ranker._heads.values())
    text = "ba cel dir fos gu han kel lir mos"
    tokens = ranker.tokenize([text], "document")
    with torch.inference_mode():
        weights = ranker.encode(tokens, "document")[0]
    own = [token for token in tokens[0].tolist() if token >= len(SPECIAL)]
    assert len(own) == 9
    assert float((weights[own] > 0).float().mean()) > 0.7
    assert float((weights > 0).float().mean()) < 0.5
    again = create_ranker("splade", str(encoder), 0)
    assert all(torch.equal(*pair) for pair in zip(ranker.parameters(), again.parameters(), strict=True))


def test_scores_of_a_new_head_differ_by_about_the_margin_of_training() -> None:
    """If they differ by ten times as much, training makes all scores smaller before it ranks anything."""
    ranker = create_ranker("splade", None, 0)
    documents = [
        "The garden needs water early in the morning, before the sun dries the soil.",
        "A parser turns the words of a program into a tree, which a compiler reads.",
        "Old bridges of stone carry less weight than those of steel, but last longer.",
        "Bees fly back to the hive with pollen from the flowers of the garden.",
    ]
    queries = ["when to water a garden", "what a compiler reads", "how long a bridge of stone lasts", "pollen of bees"]
    scores = np.array([ranker.score_texts([query] * len(documents), documents) for query in queries])
    assert scores.argmax(1).tolist() == [0, 1, 2, 3]
    apart = scores.diagonal()[:, None] - scores
    assert 0.5 < apart[~np.eye(len(queries), dtype=bool)].mean() < 5


def test_a_base_with_a_head_keeps_it(folder: Path) -> None:
    trained, ranker = load_ranker(folder), create_ranker("splade", str(folder), 3)
    assert ranker.score_texts(QUERIES, DOCUMENTS) == trained.score_texts(QUERIES, DOCUMENTS)


def test_the_regulariser_is_that_of_the_library(made: SpladeRanker) -> None:
    queries = made.encode(made.tokenize(QUERIES, "query"), "query")
    documents = made.encode(made.tokenize(DOCUMENTS, "document"), "document")
    flops = FlopsLoss(made.model).compute_loss_from_embeddings
    term = made.regulariser(queries, documents)
    assert term is not None and bool(term > 0)
    torch.testing.assert_close(
        term, splade.QUERY_FLOPS * flops(queries) + splade.DOCUMENT_FLOPS * flops(documents), rtol=1e-5, atol=0
    )
    alone = made.regulariser(queries, documents.detach())
    assert alone is not None and bool(alone < term)
    assert made.regulariser(queries.detach(), documents.detach()) is None


def gradient_of_step(
    ranker: SpladeRanker, collection: Collection, weight: float, pieces: int = 1
) -> tuple[Tensor, float]:
    """The gradient of all weights in one step on all pairs, and its loss."""
    student = copy.deepcopy(ranker)
    runtime = Runtime.on("cpu")
    memory = Memory(10_000, lambda _: None)
    memory.pieces = pieces
    workspace = Workspace.for_removal(student, collection, Removal(documents=["doc1"]), device="cpu")
    (phase,) = QUICK.plan(workspace.task(student))
    drawn = phase.draw(np.random.default_rng(0), 1)
    seen: list[Tensor] = []

    class Watching(torch.optim.SGD):
        def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
            seen.append(
                torch.cat([weight.grad.flatten() for weight in student.parameters() if weight.grad is not None])
            )

    optimizer = Watching(student.parameters(), lr=0.0)
    runtime = replace(runtime, memory=memory)
    loss = step(student, phase, drawn, optimizer, workspace.store, runtime, None, weight)
    return seen[0], float(loss)


def test_a_step_adds_the_regulariser_and_its_pieces_their_shares(
    made: SpladeRanker, dense: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splade, "QUERY_FLOPS", 1.0)
    monkeypatch.setattr(splade, "DOCUMENT_FLOPS", 1.0)
    without, loss = gradient_of_step(made, dense, 0.0)
    whole, same = gradient_of_step(made, dense, 1.0)
    half, _ = gradient_of_step(made, dense, 0.5)
    pieces, _ = gradient_of_step(made, dense, 1.0, pieces=3)
    assert loss == same
    torch.testing.assert_close(half - without, (whole - without) / 2, rtol=1e-2, atol=1e-4)
    term, about = whole - without, pieces - without
    assert float(term.norm()) > 0.1
    assert float((term - about).norm() / term.norm()) < 0.7  # the square of a piece's mean is not that of the whole


def test_training_with_the_regulariser_leaves_fewer_entries(
    encoder: Path, dense: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = []
    for weight in (0.0, 0.3):
        monkeypatch.setattr(splade, "QUERY_FLOPS", weight)
        monkeypatch.setattr(splade, "DOCUMENT_FLOPS", weight)
        ranker = create_ranker("splade", str(encoder), 0)
        workspace = Workspace.for_removal(ranker, dense, Removal(documents=["doc1"]), device="cpu")
        plan = QUICK.plan(workspace.task(ranker))
        for _ in fit(ranker, plan, Schedule(2, 1e-3), workspace.store, workspace.runtime):
            pass
        assert isinstance(ranker, SpladeRanker)
        with torch.inference_mode():
            tokens = workspace.store.get(np.arange(len(dense.documents)), "document")
            entries.append(float((ranker.encode(tokens, "document") > 0).float().mean()))
    assert entries[1] < 0.8 * entries[0]


def test_queries_with_static_weights(folder: Path, tmp_path: Path, dense: Collection) -> None:
    transformer = Transformer(str(folder), transformer_task="fill-mask")
    static = SparseStaticEmbedding(transformer.tokenizer, torch.linspace(0.1, 2, len(SPECIAL) + len(WORDS)))
    router = Router.for_query_document([static], [transformer, SpladePooling("max")])
    SparseEncoder(modules=[router], device="cpu", similarity_fn_name="dot").save_pretrained(str(tmp_path / "given"))
    ranker = assert_scores_as_the_library(tmp_path / "given")
    (vocabulary,) = ranker.vocabularies
    assert [len(table) for table in vocabulary.tables] == [len(SPECIAL) + len(WORDS)] * 3
    elsewhere = Path(shutil.copytree(tmp_path / "given", tmp_path / "elsewhere"))
    (settings,) = elsewhere.rglob("*SparseStaticEmbedding/config.json")
    settings.write_text('{"frozen": false, "path": "idf.json"}')
    with pytest.raises(UnrankError, match="SparseStaticEmbedding with 'path'; unrank knows frozen"):
        load_ranker(elsewhere)
    method = Cocol(epochs=1, learning_rate=1e-3)
    result = forget(ranker, dense, Removal(documents=["doc1"]), method=method, target=0.02)
    result.save(tmp_path / "forgotten")
    assert_scores_as_the_library(tmp_path / "forgotten")


def test_what_is_no_splade_is_refused_in_one_line(folder: Path, encoder: Path, tmp_path: Path) -> None:
    transformer = Transformer(str(encoder))
    csr = [transformer, Pooling(32, "mean"), SparseAutoEncoder(32, 64, k=8, k_aux=8)]
    SparseEncoder(modules=csr, device="cpu").save_pretrained(str(tmp_path / "csr"))
    with pytest.raises(UnrankError, match=r"SparseAutoEncoder' as a module; unrank imports .* and no other"):
        load_ranker(tmp_path / "csr")
    pooled = [Transformer(str(folder), transformer_task="fill-mask"), Pooling(32, "mean")]
    SparseEncoder(modules=pooled, device="cpu").save_pretrained(str(tmp_path / "pooled"))
    with pytest.raises(UnrankError, match="a sparse encoder whose query goes through Transformer, Pooling; unrank"):
        load_ranker(tmp_path / "pooled")
    cosine = SparseEncoder(str(folder), device="cpu", similarity_fn_name="cosine")
    cosine.save_pretrained(str(tmp_path / "cosine"))
    with pytest.raises(UnrankError, match="a splade that scores by cosine; unrank reads the dot product"):
        load_ranker(tmp_path / "cosine")


def test_frozen_documents_keep_an_inverted_index_valid(folder: Path, tmp_path: Path, dense: Collection) -> None:
    original = load_ranker(folder)
    assert isinstance(original, SpladeRanker)
    method = Cocol(epochs=2, learning_rate=3e-3)
    result = forget(
        original, dense, Removal(documents=["doc1", "doc3"]), method=method, target=0.02, freeze="documents"
    )
    result.save(tmp_path / "frozen")
    entries = result.record.entries
    assert entries is not None and entries.before == entries.after > 1  # documents are frozen
    assert_scores_as_the_library(tmp_path / "frozen")
    models = [SparseEncoder(str(path), device="cpu") for path in (folder, tmp_path / "frozen")]
    documents = [model.encode_document(DOCUMENTS, convert_to_sparse_tensor=False) for model in models]
    queries = [model.encode_query(QUERIES, convert_to_sparse_tensor=False) for model in models]
    assert torch.equal(*documents)
    assert not torch.equal(*queries)
    frozen = load_ranker(tmp_path / "frozen")
    assert isinstance(frozen, SpladeRanker)
    states = [ranker.document_state() for ranker in (original, frozen)]
    assert states[0][1] == states[1][1]
    assert states[0][0].keys() == states[1][0].keys()
    assert all(torch.equal(weight, states[1][0][name]) for name, weight in states[0][0].items())


@pytest.mark.parametrize("tied", [True, False])
def test_rows_of_removed_words_are_cleared_in_the_head_too(tied: bool, encoder: Path, tmp_path: Path) -> None:
    collection = make_secret_collection(tmp_path / "secret")
    base = tmp_path / "base"
    created: Any = create_ranker("splade", str(encoder), 0)
    created.model[0].auto_model.config.tie_word_embeddings = tied
    if not tied:
        head = created.model[0].auto_model.get_output_embeddings()
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
    created.save(base)
    original = train(collection, "splade", str(base), method=QUICK)
    ranker = original.ranker
    tables = ranker.vocabularies[0].tables
    assert [table.dim() for table in tables] == ([2, 1] if tied else [2, 1, 2, 1])
    rows = [[*SPECIAL, *WORDS].index(word) for word in SECRET]
    started = load_ranker(base).vocabularies[0].tables
    assert any(not torch.equal(table[rows], start[rows]) for table, start in zip(tables, started, strict=True))
    result = forget(
        ranker, collection, Removal(documents=["secret"], queries=["secret1", "secret2"]),
        method=Cocol(epochs=1, learning_rate=1e-3), target=0.3, record=original.record,
    )  # fmt: skip
    assert result.record.cleared is not None and result.record.cleared.how == CLEARED
    assert original.record.entries is not None and result.record.entries is not None
    assert result.record.entries.before == original.record.entries.after
    assert original.record.entries.before is None
    for table, trained, start in zip(result.ranker.vocabularies[0].tables, tables, started, strict=True):
        moved = trained[rows] != start[rows]
        assert not bool((table[rows] == trained[rows])[moved].any())
        assert not tied or torch.equal(table[rows], start[rows])


def test_scores_of_many_pairs_need_no_whole_vectors(
    made: SpladeRanker, dense: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = dense.list_pairs(np.arange(6))
    with torch.inference_mode():
        usual = score_pairs(made, TokenStore(made, dense), pairs, 200)
    held: list[int] = []
    original = SpladeRanker.interact

    def watched(self: SpladeRanker, queries: Tensor, documents: Tensor) -> Tensor:
        held.append(documents.dim())
        return original(self, queries, documents)

    monkeypatch.setattr(SpladeRanker, "interact", watched)
    with torch.inference_mode():
        again = score_pairs(made, TokenStore(made, dense), pairs, 1_000)
    torch.testing.assert_close(again, usual, rtol=1e-5, atol=1e-5)
    assert {*held} == {3}


def test_its_recipe_is_known() -> None:
    assert isinstance(recipe_of("splade"), Retrain)


def test_packed_as_on_a_gpu_it_gives_the_same_scores_and_gradients(
    made: SpladeRanker, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for packed in (False, True):
        ranker = copy.deepcopy(made)
        if packed:
            as_on_a_gpu(monkeypatch, torch.float32)
        scores = ranker(ranker.tokenize(QUERIES, "query"), ranker.tokenize(DOCUMENTS, "document"))
        scores.sum().backward()
        gradients = {name: weight.grad for name, weight in ranker.named_parameters() if weight.grad is not None}
        found.append((scores.detach(), gradients))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-5, atol=1e-4)
    largest = max(float(gradient.abs().max()) for gradient in found[0][1].values())
    for name, gradient in found[0][1].items():
        torch.testing.assert_close(found[1][1][name], gradient, rtol=1e-3, atol=1e-5 * largest)
