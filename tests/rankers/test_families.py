"""Encoders of other families than BERT serve as well: fresh, scored, saved, and loaded in the class they came from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer

from tests.rankers.conftest import enliven
from tests.tiny import FAMILIES, make_encoder
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.layers import train_layers_of

pytestmark = pytest.mark.usefixtures("untried")
QUERIES = ["ba be", "", "xyzzy", "cel dan fos", "ba cel dir fos gu " * 40]
DOCUMENTS = ["ce di fo gu", "ba be", "", "ba cel dir fos gu " * 40, "han kel " * 25]


def predicted(folder: Path) -> Any:
    return CrossEncoder(str(folder), device="cpu").predict(list(zip(QUERIES, DOCUMENTS, strict=True)))


def similar(model: Any) -> Any:
    return model.similarity_pairwise(model.encode_query(QUERIES), model.encode_document(DOCUMENTS)).numpy()


ORIGINALS: dict[str, Callable[[Path], Any]] = {
    "cross-encoder": predicted,
    "bi-encoder": lambda folder: similar(SentenceTransformer(str(folder), device="cpu")),
    "colbert": lambda folder: similar(MultiVectorEncoder(str(folder), device="cpu")),
}


SLOW = pytest.mark.slow


@pytest.fixture(scope="module", params=[family for family in FAMILIES if family != "bert"])
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name: str = request.param
    return make_encoder(tmp_path_factory.mktemp("family") / name, name)


@pytest.mark.parametrize("kind", ["bi-encoder", "cross-encoder", pytest.param("colbert", marks=SLOW)])
def test_a_ranker_of_another_family_scores_as_its_class_does(kind: str, family: Path, tmp_path: Path) -> None:
    ranker = enliven(create_ranker(kind, str(family), seed=0))
    scores = ranker.score_texts(QUERIES, DOCUMENTS)
    assert np.std(scores) > 1e-3
    ranker.save(tmp_path / "saved")
    np.testing.assert_allclose(ORIGINALS[kind](tmp_path / "saved"), scores, rtol=1e-5, atol=1e-4)
    assert load_ranker(tmp_path / "saved").score_texts(QUERIES, DOCUMENTS) == scores


@pytest.mark.parametrize(
    "kind", ["bi-encoder", *(pytest.param(kind, marks=SLOW) for kind in ("colbert", "cross-encoder"))]
)
def test_its_last_layer_alone_can_be_trained(kind: str, family: Path) -> None:
    ranker = create_ranker(kind, str(family), seed=0)
    train_layers_of(ranker, 1)
    moving = [name for name, weight in ranker.named_parameters() if weight.requires_grad]
    assert any(".1." in name for name in moving)
    assert not any("embedding" in name or "layers.0." in name or "layer.0." in name for name in moving)
