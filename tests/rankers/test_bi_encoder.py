"""The bi-encoder scores as sentence-transformers' own `SentenceTransformer` does, whatever its modules are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import BoW, Normalize, Pooling

from unrank.errors import UnrankError
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.bi_encoder import BiEncoderRanker

pytestmark = pytest.mark.usefixtures("untried")
LONG = "ba cel dir fos gu " * 40
QUERIES = ["ba be", "", "xyzzy", "cel dan fos", LONG, "gu han"]
DOCUMENTS = ["ce di fo gu", "ba be", "", LONG, "ba", "han kel " * 31]


def expected(folder: Path) -> Any:
    model = SentenceTransformer(str(folder), device="cpu")
    queries = model.encode_query(QUERIES, convert_to_tensor=True)
    return model.similarity_pairwise(queries, model.encode_document(DOCUMENTS, convert_to_tensor=True)).numpy()


def assert_equal_to_encode(folder: Path) -> None:
    wanted = expected(folder)
    assert np.std(wanted) > 1e-3
    np.testing.assert_allclose(load_ranker(folder).score_texts(QUERIES, DOCUMENTS), wanted, rtol=1e-6, atol=1e-5)


def build(base: Path, *more: torch.nn.Module, pooling: str = "mean", **settings: Any) -> SentenceTransformer:
    """A tiny SentenceTransformer on the encoder of a trained ranker, whose vectors differ from text to text."""
    transformer = Transformer(str(base))
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling), *more]
    return SentenceTransformer(modules=modules, device="cpu", **settings)


@pytest.fixture(scope="session")
def folder(folders: dict[str, Path]) -> Path:
    return folders["bi-encoder"]


def test_a_fresh_one_scores_as_encode_does(folder: Path) -> None:
    assert_equal_to_encode(folder)


def test_similarities_of_all_pairs_are_our_scores(folder: Path) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    table = model.similarity(model.encode_query(QUERIES), model.encode_document(DOCUMENTS)).numpy()
    ranker = load_ranker(folder)
    ours = [ranker.score_texts([query] * len(DOCUMENTS), DOCUMENTS) for query in QUERIES]
    np.testing.assert_allclose(ours, table, rtol=1e-6, atol=1e-5)


def test_mean_pooling_normalised_with_cosine(folder: Path, tmp_path: Path) -> None:
    build(folder, Normalize(), similarity_fn_name="cosine").save_pretrained(str(tmp_path))
    assert_equal_to_encode(tmp_path)
    scores = load_ranker(tmp_path).score_texts(["ba be", *QUERIES], ["ba be", *DOCUMENTS])
    assert scores[0] == pytest.approx(1, abs=1e-6)
    assert max(map(abs, scores)) <= 1 + 1e-6


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_a_folder_keeps_its_similarity(folder: Path, tmp_path: Path, similarity: str) -> None:
    build(folder, similarity_fn_name=similarity).save_pretrained(str(tmp_path))
    assert_equal_to_encode(tmp_path)


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "lasttoken", "weightedmean"])
def test_a_folder_keeps_its_pooling(folder: Path, tmp_path: Path, pooling: str) -> None:
    build(folder, pooling=pooling, similarity_fn_name="cosine").save_pretrained(str(tmp_path))
    assert_equal_to_encode(tmp_path)


@pytest.mark.parametrize("names", [("query", "document"), ("query", "passage")], ids=" and ".join)
def test_prompts_are_used_for_their_side(folder: Path, tmp_path: Path, names: tuple[str, str]) -> None:
    prompts = dict(zip(names, ("hir ", "kos lan "), strict=True))
    build(folder, similarity_fn_name="cosine").save_pretrained(str(tmp_path / "plain"))
    build(folder, similarity_fn_name="cosine", prompts=prompts).save_pretrained(str(tmp_path / "prompted"))
    assert_equal_to_encode(tmp_path / "prompted")
    moved = expected(tmp_path / "prompted") - expected(tmp_path / "plain")
    assert np.abs(moved).max() > 0.01


def test_a_prompt_may_be_left_out_of_the_pooling(folder: Path, tmp_path: Path) -> None:
    model = build(folder, similarity_fn_name="cosine", prompts={"query": "hir ", "document": "kos lan "})
    model.save_pretrained(str(tmp_path / "with"))
    model.set_pooling_include_prompt(False)
    model.save_pretrained(str(tmp_path / "without"))
    assert_equal_to_encode(tmp_path / "without")
    assert np.abs(expected(tmp_path / "with") - expected(tmp_path / "without")).max() > 1e-3


def test_a_default_prompt_serves_a_side_without_its_own(folder: Path, tmp_path: Path) -> None:
    model = build(folder, similarity_fn_name="cosine", prompts={"any": "hir "}, default_prompt_name="any")
    model.prompts = {"any": "hir "}
    model.save_pretrained(str(tmp_path))
    assert_equal_to_encode(tmp_path)


def test_truncated_vectors(folder: Path) -> None:
    model = build(folder, similarity_fn_name="cosine", truncate_dim=8)
    queries = model.encode_query(QUERIES, convert_to_tensor=True)
    wanted = model.similarity_pairwise(queries, model.encode_document(DOCUMENTS, convert_to_tensor=True))
    assert queries.shape[1] == 8
    np.testing.assert_allclose(BiEncoderRanker(model).score_texts(QUERIES, DOCUMENTS), wanted, atol=1e-5)


def test_a_shorter_limit_of_the_folder_is_kept(folder: Path, tmp_path: Path) -> None:
    model = build(folder, similarity_fn_name="cosine")
    model.max_seq_length = 12
    model.save_pretrained(str(tmp_path / "short"))
    assert_equal_to_encode(tmp_path / "short")
    ranker = load_ranker(tmp_path / "short")
    assert int(ranker.tokenize([LONG], "document").lengths[0]) == 12
    ranker.save(tmp_path / "again")
    np.testing.assert_allclose(expected(tmp_path / "again"), expected(tmp_path / "short"), atol=1e-6)


def test_saving_keeps_everything_that_was_loaded(folder: Path, tmp_path: Path) -> None:
    prompts = {"query": "hir ", "document": "kos lan "}
    model = build(folder, Normalize(), similarity_fn_name="cosine", prompts=prompts)
    model.save_pretrained(str(tmp_path / "given"))
    load_ranker(tmp_path / "given").save(tmp_path / "again")
    np.testing.assert_allclose(expected(tmp_path / "again"), expected(tmp_path / "given"), atol=1e-6)
    described = json.loads((tmp_path / "again" / "config_sentence_transformers.json").read_text())
    assert described["prompts"] == prompts
    assert described["similarity_fn_name"] == "cosine"


def test_a_fresh_one_starts_as_the_dot_product_of_cls_vectors(encoder: Path) -> None:
    """The linear layer is the identity at first."""
    fresh: Ranker = create_ranker("bi-encoder", str(encoder), seed=0)
    plain = build(encoder, pooling="cls", similarity_fn_name="dot")
    queries = plain.encode_query(QUERIES, convert_to_tensor=True)
    wanted = plain.similarity_pairwise(queries, plain.encode_document(DOCUMENTS, convert_to_tensor=True))
    np.testing.assert_allclose(fresh.score_texts(QUERIES, DOCUMENTS), wanted, rtol=1e-6, atol=1e-5)


def test_a_bag_of_words_is_refused(tmp_path: Path) -> None:
    SentenceTransformer(modules=[BoW(["ba", "be"])], device="cpu").save_pretrained(str(tmp_path))
    for name in ("model.safetensors", "vocab.txt"):
        (tmp_path / name).touch()
    with pytest.raises(UnrankError, match="BoW"):
        load_ranker(tmp_path)


def test_a_tokenizer_that_has_grown_beyond_the_weights_is_refused(encoder: Path, tmp_path: Path) -> None:
    model: Any = build(encoder)
    model.tokenizer.add_tokens(["zuzu", "zozo"])
    model.save_pretrained(str(tmp_path / "grown"))
    with pytest.raises(UnrankError, match=r"grown: its tokenizer has \d+ tokens and its weights \d+ rows; resize"):
        load_ranker(tmp_path / "grown")
    model.tokenizer.save_pretrained(str(tmp_path / "base"))
    model[0].model.save_pretrained(str(tmp_path / "base"))
    with pytest.raises(UnrankError, match=r"base: its tokenizer has \d+ tokens and its weights \d+ rows; resize"):
        create_ranker("cross-encoder", str(tmp_path / "base"), seed=0)
