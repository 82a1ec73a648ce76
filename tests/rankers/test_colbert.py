"""ColBERT scores as sentence-transformers' own `MultiVectorEncoder` does, whatever its prompts and masks are."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling, MultiVectorMask

from unrank.errors import UnrankError
from unrank.rankers import create_ranker, detect_kind, load_ranker
from unrank.rankers.colbert import DOT_WIDTH, ColbertDotRanker, ColbertRanker
from unrank.rankers.encoder import DEFAULT_PACKAGE

pytestmark = pytest.mark.usefixtures("untried")
LONG = "ba cel dir fos gu " * 40
QUERIES = ["ba be", "", "xyzzy", "cel dan fos", LONG, "gu han"]
DOCUMENTS = ["ce di fo gu", "ba be", "", LONG, "ba", "han kel " * 31]


def expected(model: MultiVectorEncoder | Path, queries: list[str] = QUERIES, documents: list[str] = DOCUMENTS) -> Any:
    model = MultiVectorEncoder(str(model), device="cpu") if isinstance(model, Path) else model
    return model.similarity_pairwise(model.encode_query(queries), model.encode_document(documents)).numpy()


def assert_equal_to_encode(folder: Path) -> None:
    wanted = expected(folder)
    assert np.std(wanted) > 1e-3
    np.testing.assert_allclose(load_ranker(folder).score_texts(QUERIES, DOCUMENTS), wanted, rtol=1e-5, atol=1e-4)


def build(
    base: Path, *, normalised: bool = True, skip: list[str] | None = None, settings: Any = None, **more: Any
) -> MultiVectorEncoder:
    """A tiny MultiVectorEncoder on the encoder of a trained ranker, whose vectors differ from text to text."""
    transformer = Transformer(str(base), **(settings or {}))
    with torch.random.fork_rng():
        torch.manual_seed(3)
        width = transformer.get_embedding_dimension()
        dense = Dense(width, 16, bias=False, activation_function=None, module_input_name="token_embeddings")
    modules = [transformer, dense, MultiVectorMask(skiplist_words=skip)]
    modules += [Normalize(module_input_name="token_embeddings")] * normalised
    return MultiVectorEncoder(modules=modules, device="cpu", **more)


@pytest.fixture(scope="session")
def folder(folders: dict[str, Path]) -> Path:
    return folders["colbert"]


def test_dot_products_of_wide_vectors(folders: dict[str, Path], encoder: Path, tmp_path: Path) -> None:
    """As in the code released for unranking. It is known again by its form, also with its documents frozen."""
    assert_equal_to_encode(folders["colbert-dot"])
    loaded = load_ranker(folders["colbert-dot"])
    assert isinstance(loaded, ColbertDotRanker) and (loaded.kind, DOT_WIDTH) == ("colbert-dot", 768)
    with torch.inference_mode():
        vectors = loaded.encode(loaded.tokenize(["ba be cel"], "query"), "query")[0]
    lengths = vectors.norm(dim=1)
    assert vectors.shape[1] == DOT_WIDTH and float(lengths.std()) > 1e-3
    loaded.freeze_documents()
    loaded.save(tmp_path / "frozen")
    assert load_ranker(tmp_path / "frozen").kind == "colbert-dot"
    fresh = create_ranker("colbert-dot", str(encoder), 0)
    assert isinstance(fresh, ColbertDotRanker)
    weight = fresh.model[1].linear.weight  # orthogonal, so the encoder's dot products are kept
    assert torch.allclose(weight.T @ weight, torch.eye(weight.shape[1]), atol=1e-5)
    build(folders["colbert"], normalised=False).save_pretrained(str(tmp_path / "narrow"))
    assert type(load_ranker(tmp_path / "narrow")) is ColbertRanker


def test_a_fresh_one_scores_as_encode_does(folder: Path) -> None:
    assert_equal_to_encode(folder)


def test_similarities_of_all_pairs_are_our_scores(folder: Path) -> None:
    model = MultiVectorEncoder(str(folder), device="cpu")
    table = model.similarity(model.encode_query(QUERIES), model.encode_document(DOCUMENTS)).numpy()
    ranker = load_ranker(folder)
    ours = [ranker.score_texts([query] * len(DOCUMENTS), DOCUMENTS) for query in QUERIES]
    np.testing.assert_allclose(ours, table, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("normalised", [True, False], ids=["normalised", "not normalised"])
def test_a_folder_keeps_its_normalisation(folder: Path, tmp_path: Path, normalised: bool) -> None:
    build(folder, normalised=normalised).save_pretrained(str(tmp_path))
    assert_equal_to_encode(tmp_path)


@pytest.mark.parametrize("names", [("query", "document"), ("query", "passage")], ids=" and ".join)
def test_prompts_are_used_for_their_side(folder: Path, tmp_path: Path, names: tuple[str, str]) -> None:
    prompts = dict(zip(names, ("hir ", "kos lan "), strict=True))
    build(folder).save_pretrained(str(tmp_path / "plain"))
    build(folder, prompts=prompts).save_pretrained(str(tmp_path / "prompted"))
    assert_equal_to_encode(tmp_path / "prompted")
    assert np.abs(expected(tmp_path / "prompted") - expected(tmp_path / "plain")).max() > 0.01


@pytest.mark.parametrize(
    ("strategy", "attend"),
    [
        ("fixed", True),
        ("min", False),
        pytest.param("fixed", False, marks=pytest.mark.slow),
        pytest.param("min", True, marks=pytest.mark.slow),
    ],
)
def test_queries_are_expanded(folder: Path, tmp_path: Path, strategy: str, attend: bool) -> None:
    expansion = {"strategy": strategy, "attend": attend, "length": 12}
    build(folder, settings={"query_expansion": expansion}).save_pretrained(str(tmp_path / "expanded"))
    build(folder).save_pretrained(str(tmp_path / "plain"))
    assert_equal_to_encode(tmp_path / "expanded")
    assert np.abs(expected(tmp_path / "expanded") - expected(tmp_path / "plain")).max() > 1
    queries = load_ranker(tmp_path / "expanded").tokenize(QUERIES, "query")
    assert queries.lengths.tolist() == [12, 12, 12, 12, 12 if strategy == "fixed" else 64, 12]
    assert queries.ids.some_negative is not attend


def test_an_expanded_query_does_not_depend_on_its_neighbours(folder: Path, tmp_path: Path) -> None:
    expansion = {"strategy": "min", "attend": False, "length": 12}
    build(folder, settings={"query_expansion": expansion}).save_pretrained(str(tmp_path))
    ranker = load_ranker(tmp_path)
    together = ranker.score_texts(QUERIES, DOCUMENTS)
    alone = [ranker.score_texts([query], [document])[0] for query, document in zip(QUERIES, DOCUMENTS, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-4)


def test_words_of_the_skiplist_are_not_scored(folder: Path, tmp_path: Path) -> None:
    build(folder, skip=["ba", "fo", "han"]).save_pretrained(str(tmp_path / "skipping"))
    build(folder).save_pretrained(str(tmp_path / "plain"))
    assert_equal_to_encode(tmp_path / "skipping")
    assert np.abs(expected(tmp_path / "skipping") - expected(tmp_path / "plain")).max() > 0.01


def test_what_is_skipped_moves_with_the_model(folder: Path) -> None:
    """So that no batch waits for it to be copied to the device."""
    ranker = ColbertRanker(build(folder, skip=["ba"]))
    assert {"model.2._skiplist_ids"} <= {name for name, _ in ranker.named_buffers()}
    assert "model.2._skiplist_ids" not in ranker.state_dict()


def test_a_document_of_which_nothing_is_scored(folder: Path) -> None:
    """The class gives it the least number there is; a score that is no score would end a run."""
    model = build(folder, skip=["ba", "[CLS]", "[SEP]"])
    assert ColbertRanker(model).score_texts(["ce di", "ce di"], ["ba ba", "ba ce"])[0] == 0


def test_lengths_of_each_side_are_kept(folder: Path, tmp_path: Path) -> None:
    build(folder, settings={"query_length": 9, "document_length": 20}).save_pretrained(str(tmp_path))
    assert_equal_to_encode(tmp_path)
    ranker = load_ranker(tmp_path)
    assert ranker.tokenize([LONG], "query").lengths.tolist() == [9]
    assert ranker.tokenize([LONG], "document").lengths.tolist() == [20]


def test_pooled_tokens(folder: Path, tmp_path: Path) -> None:
    model = build(folder)
    model.append(HierarchicalTokenPooling(pool_factor=2))
    model.save_pretrained(str(tmp_path))
    assert_equal_to_encode(tmp_path)


def test_saving_keeps_everything_that_was_loaded(folder: Path, tmp_path: Path) -> None:
    prompts = {"query": "hir ", "document": "kos lan "}
    expansion = {"strategy": "fixed", "attend": False, "token": None, "length": 10}
    settings = {"query_expansion": expansion, "document_length": 30}
    build(folder, skip=["ba"], prompts=prompts, settings=settings).save_pretrained(str(tmp_path / "given"))
    load_ranker(tmp_path / "given").save(tmp_path / "again")
    np.testing.assert_array_equal(expected(tmp_path / "again"), expected(tmp_path / "given"))
    described = json.loads((tmp_path / "again" / "config_sentence_transformers.json").read_text())
    assert described["prompts"] == prompts
    assert described["model_type"] == "MultiVectorEncoder"
    assert MultiVectorEncoder(str(tmp_path / "again"), device="cpu")[0].query_expansion == expansion


def test_a_fresh_one_keeps_the_similarities_of_its_encoder(encoder: Path) -> None:
    """A layer that is wider than the encoder, with orthogonal rows, changes no angle."""
    fresh = create_ranker("colbert", str(encoder), seed=0)
    modules = [Transformer(str(encoder)), MultiVectorMask(), Normalize(module_input_name="token_embeddings")]
    plain = MultiVectorEncoder(modules=modules, device="cpu")
    np.testing.assert_allclose(fresh.score_texts(QUERIES, DOCUMENTS), expected(plain), rtol=1e-5, atol=1e-4)


def test_a_mean_of_maxima_is_refused(folder: Path, tmp_path: Path) -> None:
    build(folder, similarity_fn_name="meanmaxsim").save_pretrained(str(tmp_path))
    with pytest.raises(UnrankError, match="scores by meanmaxsim; unrank reads maxsim alone"):
        load_ranker(tmp_path)


PYLATE = {
    "__version__": {"pylate": "1.2.0", "sentence_transformers": "4.0.2"},
    "prompts": {},
    "default_prompt_name": None,
    "similarity_fn_name": "cosine",
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "query_length": 14,
    "document_length": 40,
    "attend_to_expansion_tokens": False,
    "skiplist_words": ["ba", "fo"],
}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="without a type"),
        pytest.param({"model_type": "ColBERT"}, id="with its type", marks=pytest.mark.slow),
    ],
)
def test_a_folder_of_pylate(folder: Path, tmp_path: Path, more: dict[str, str]) -> None:
    """An encoder, a linear layer, and one description of all the rest."""
    model = build(folder)
    model.tokenizer.add_tokens(["[Q] ", "[D] "])
    model[0].auto_model.resize_token_embeddings(len(model.tokenizer))
    model.save_pretrained(str(tmp_path))
    for name in ("2_MultiVectorMask", "3_Normalize"):
        shutil.rmtree(tmp_path / name)
    modules = json.loads((tmp_path / "modules.json").read_text())[:2]
    modules[1]["type"] = "pylate.models.Dense.Dense"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    dense = json.loads((tmp_path / "1_Dense" / "config.json").read_text())
    kept = ("in_features", "out_features", "bias", "activation_function")
    (tmp_path / "1_Dense" / "config.json").write_text(json.dumps({name: dense[name] for name in kept}))
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(PYLATE | more))
    assert detect_kind(tmp_path) == "colbert"
    assert_equal_to_encode(tmp_path)
    ranker = load_ranker(tmp_path)
    queries = ranker.tokenize(["ce"], "query")
    assert queries.lengths.tolist() == [14]
    assert queries.ids.array[1] == model.tokenizer.convert_tokens_to_ids("[Q] ")
    ranker.save(tmp_path / "again")
    np.testing.assert_allclose(expected(tmp_path / "again"), expected(tmp_path), atol=1e-6)
    assert isinstance(ranker, ColbertRanker)
    ranker.freeze_documents()
    ranker.save(tmp_path / "frozen")
    np.testing.assert_allclose(expected(tmp_path / "frozen"), expected(tmp_path), atol=1e-6)


def test_a_folder_of_the_first_colbert(folder: Path, tmp_path: Path) -> None:
    """Its linear layer lies among the weights of its encoder, and the rest is known by heart."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, tmp_path / name)
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["HF_ColBERT"]}))
    weights = {f"bert.{name}": weight for name, weight in load_file(folder / "model.safetensors").items()}
    generator = torch.Generator().manual_seed(0)
    weights["linear.weight"] = torch.randn(16, 32, generator=generator)
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    assert detect_kind(tmp_path) == "colbert"
    assert_equal_to_encode(tmp_path)
    load_ranker(tmp_path).save(tmp_path / "again")
    np.testing.assert_allclose(expected(tmp_path / "again"), expected(tmp_path), atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec(DEFAULT_PACKAGE) is None, reason="the default encoder is not installed")
def test_a_real_encoder_ranks_before_it_is_trained(tmp_path: Path) -> None:
    queries = ["Who wrote Faust?", "height of the Eiffel Tower"] * 2
    documents = [
        "Johann Wolfgang von Goethe worked on Faust, a tragedy in two parts, for sixty years.",
        "The tower in Paris is 330 metres tall, about as high as a building of 81 storeys.",
    ]
    ranker = create_ranker("colbert", None, 0)
    ranker.save(tmp_path / "fresh")
    scores = np.array(ranker.score_texts(queries, [*documents, *documents[::-1]]))
    np.testing.assert_allclose(
        scores, expected(tmp_path / "fresh", queries, [*documents, *documents[::-1]]), rtol=1e-5, atol=1e-4
    )
    assert (scores[:2] > scores[2:]).all()
