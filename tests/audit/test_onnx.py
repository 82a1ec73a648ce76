"""A ranker that is exported to ONNX ranks as before, and ONNX Runtime's own 8 bits find what ours find."""

from __future__ import annotations

import random
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tests.tiny import make_collection
from unrank.audit.context import AuditedRanker
from unrank.audit.other_forms import rounded
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition, make_partition
from unrank.collection.removal import Removal
from unrank.forgetting.forget import forget
from unrank.forgetting.train import train
from unrank.methods.retrain import Retrain
from unrank.rankers.base import Ranker, Role

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
NEEDS = "needs onnx, onnxscript and onnxruntime, which unrank does not depend on: pip install them to run this test"
BY_HEART = Retrain(learning_rate=3e-3, epochs=30, enough=0.98, negatives=2, batch=120)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not all(map(find_spec, PACKAGES)), reason=NEEDS)]


class Encoder(nn.Module):
    """A bi-encoder as a function of padded ids and a mask."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        features = {"input_ids": ids, "attention_mask": mask, "modality": "text"}
        vectors: Tensor = self.model(features)["sentence_embedding"]
        return vectors


@dataclass(frozen=True)
class Exported:
    """An ONNX file that stands for a bi-encoder."""

    file: Path
    ranker: Ranker
    collection: Collection

    def scores(self, pairs: Pairs) -> NDArray[np.float32]:
        import onnxruntime

        session = onnxruntime.InferenceSession(str(self.file), providers=["CPUExecutionProvider"])

        def encode(rows: NDArray[np.int64], role: Role) -> NDArray[np.float32]:
            texts = self.collection.queries if role == "query" else self.collection.documents
            tokens = self.ranker.tokenize(texts.texts(rows), role)
            ids = tokens.padded(0, int(tokens.lengths.max()), torch.device("cpu"))
            mask = torch.arange(ids.shape[1])[None] < torch.from_numpy(tokens.lengths)[:, None]
            given = {"ids": ids.numpy().astype(np.int64), "mask": mask.numpy().astype(np.int64)}
            return np.asarray(session.run(None, given)[0], np.float32)

        queries, documents = (np.unique(pairs[:, side], return_inverse=True) for side in (0, 1))
        vectors = encode(queries[0], "query")[queries[1]], encode(documents[0], "document")[documents[1]]
        found: NDArray[np.float32] = (vectors[0] * vectors[1]).sum(1)
        return found


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    generator = random.Random(5)
    documents = [f"doc{number}" for number in range(40)]
    pairs = [(f"query{number}", generator.choice(documents)) for number in range(60)]
    tests = [(f"test{number}", generator.choice(documents)) for number in range(30)]
    return make_collection(tmp_path_factory.mktemp("onnx") / "random", pairs, tests, candidates=8)


@pytest.fixture(scope="module")
def partition(collection: Collection) -> Partition:
    return make_partition(collection, Removal.sample(collection, "documents", 0.4))


@pytest.fixture(scope="module")
def forgotten(collection: Collection, partition: Partition, encoder: Path) -> AuditedRanker:
    """A bi-encoder that has learned everything by heart, and then forgotten half of the forget MRR."""
    removal = Removal.sample(collection, "documents", 0.4)
    trained = train(collection, "bi-encoder", str(encoder), method=BY_HEART)
    settings = {"learning_rate": "1e-3", "epochs": "30"}
    result = forget(trained.ranker, collection, removal, target="50%", settings=settings, record=trained.record)
    result.ranker.fast = False
    return AuditedRanker.open(result.ranker, collection, partition, "cpu", None)


@pytest.fixture(scope="module")
def exported(forgotten: AuditedRanker, collection: Collection, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    file = tmp_path_factory.mktemp("exported") / "ranker.onnx"
    ids = torch.ones(2, 5, dtype=torch.long)
    shape = {0: torch.export.Dim("texts"), 1: torch.export.Dim("tokens", max=64)}
    torch.onnx.export(
        Encoder(forgotten.ranker.model).eval(),
        (ids, torch.ones_like(ids)),
        file,
        input_names=["ids", "mask"],
        dynamic_shapes={"ids": shape, "mask": shape},
        dynamo=True,
    )
    return Exported(file, forgotten.ranker, collection)


def test_an_exported_ranker_keeps_its_scores(
    exported: Exported, forgotten: AuditedRanker, partition: Partition
) -> None:
    pairs = exported.collection.list_pairs(np.unique(partition.forget[:, 0]))
    np.testing.assert_allclose(exported.scores(pairs), forgotten.scores(pairs), rtol=1e-3, atol=1e-3)
    before = forgotten.reciprocals(partition.forget)
    assert 0.1 < before.mean() < 0.9
    assert forgotten.reciprocals(partition.forget, exported.scores).mean() == pytest.approx(before.mean(), abs=0.01)


def test_other_8_bits_bring_back_no_more_than_ours(
    exported: Exported, forgotten: AuditedRanker, partition: Partition, tmp_path: Path
) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(exported.file, tmp_path / "int8.onnx", per_channel=True)
    other = Exported(tmp_path / "int8.onnx", exported.ranker, exported.collection)
    ours = forgotten.workspace.scorer(rounded(forgotten.ranker, 8))
    found, own = (forgotten.reciprocals(partition.forget, score).mean() for score in (other.scores, ours))
    assert found == pytest.approx(own, abs=0.05)
