"""On the default encoder, too, scores are those of the original classes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch import nn

from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.encoder import DEFAULT_PACKAGE, default_encoder

QUERIES = ["Who wrote Faust?", "height of the Eiffel Tower", ""]
DOCUMENTS = [
    "Johann Wolfgang von Goethe worked on Faust, a tragedy in two parts, for sixty years.",
    "The tower in Paris is 330 metres tall, about as high as a building of 81 storeys. " * 30,
    "Nothing was asked.",
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec(DEFAULT_PACKAGE) is None, reason="the default encoder is not installed"
    ),
]


def test_a_cross_encoder_scores_as_predict_does(tmp_path: Path) -> None:
    ranker = create_ranker("cross-encoder", None, 0)
    ranker.save(tmp_path / "fresh")
    model = CrossEncoder(str(tmp_path / "fresh"), device="cpu")
    expected = model.predict(list(zip(QUERIES, DOCUMENTS, strict=True)), activation_fn=nn.Identity())
    np.testing.assert_allclose(ranker.score_texts(QUERIES, DOCUMENTS), expected, rtol=1e-5, atol=1e-4)


def test_the_encoder_as_it_comes_scores_as_encode_does() -> None:
    model = SentenceTransformer(str(default_encoder()), device="cpu")
    queries, documents = model.encode_query(QUERIES), model.encode_document(DOCUMENTS)
    expected = model.similarity_pairwise(queries, documents).numpy()
    given = load_ranker(default_encoder()).score_texts(QUERIES, DOCUMENTS)
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-4)
    assert given[0] > 0.4
