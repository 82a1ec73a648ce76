"""A ranker whose documents are frozen: its two sides part, and sentence-transformers' own classes read it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import BoW, Pooling

from tests.rankers.fast.test_encoder import as_on_a_gpu
from tests.rankers.test_colbert import build
from unrank.errors import UnrankError
from unrank.rankers import RANKERS, load_ranker
from unrank.rankers.base import DualEncoder, Ranker
from unrank.rankers.layers import release, sharing_frozen_states, train_layers_of

pytestmark = pytest.mark.usefixtures("untried")
CLASSES: dict[str, Any] = {"bi-encoder": SentenceTransformer, "colbert": MultiVectorEncoder}
LONG = "ba cel dir fos gu " * 40
QUERIES = ["ba be", "", "xyzzy", "cel dan fos", LONG, "gu han"]
DOCUMENTS = ["ce di fo gu", "ba be", "", LONG, "ba", "han kel " * 31]
QUERY_SIDE, DOCUMENT_SIDE = ".sub_modules.query.", ".sub_modules.document."
SLOW = pytest.mark.slow
PROMPTS = {"query": "hir ", "document": "kos lan "}


@pytest.fixture(params=list(CLASSES))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def given(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each kind with all that a checkpoint may say of its sides."""
    folder = tmp_path_factory.mktemp("given")
    encoder = Transformer(str(folders["bi-encoder"]), query_length=9, document_length=20)
    modules = [encoder, Pooling(32, "mean", include_prompt=False), Dense(32, 24)]
    plain = SentenceTransformer(modules=modules, prompts=PROMPTS, similarity_fn_name="dot", device="cpu")
    plain.save_pretrained(str(folder / "bi-encoder"))
    expansion = {"strategy": "min", "attend": False, "length": 12}
    settings = {"query_expansion": expansion, "document_length": 30}
    model = build(folders["colbert"], skip=["ba"], prompts=PROMPTS, settings=settings)
    model.save_pretrained(str(folder / "colbert"))
    return {kind: folder / kind for kind in CLASSES}


def frozen_from(folder: Path, moved: float = 0.05) -> DualEncoder:
    """A student of the folder's ranker, whose trainable weights have moved."""
    ranker = load_ranker(folder)
    assert isinstance(ranker, DualEncoder)
    ranker.freeze_documents()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in ranker.parameters():
            if weight.requires_grad:
                weight.add_(moved * torch.randn(weight.shape, generator=generator))
    return ranker


def vectors(model: Any, role: str) -> list[Any]:
    given = model.encode_query(QUERIES) if role == "query" else model.encode_document(DOCUMENTS)
    return [np.asarray(vector) for vector in given]


def equal(first: list[Any], second: list[Any]) -> list[bool]:
    return [np.array_equal(*pair) for pair in zip(first, second, strict=True)]


def own_scores(model: Any) -> Any:
    return model.similarity_pairwise(model.encode_query(QUERIES), model.encode_document(DOCUMENTS)).numpy()


def test_frozen_alone_changes_no_score(kind: str, given: dict[str, Path]) -> None:
    before, frozen = load_ranker(given[kind]), frozen_from(given[kind], moved=0)
    assert frozen.score_texts(QUERIES, DOCUMENTS) == before.score_texts(QUERIES, DOCUMENTS)


def test_document_vectors_stay_bit_for_bit_and_query_vectors_move(
    kind: str, given: dict[str, Path], tmp_path: Path
) -> None:
    frozen_from(given[kind]).save(tmp_path / "frozen")
    before, after = (CLASSES[kind](str(folder), device="cpu") for folder in (given[kind], tmp_path / "frozen"))
    assert all(equal(vectors(before, "document"), vectors(after, "document")))
    assert not any(equal(vectors(before, "query"), vectors(after, "query")))
    assert after.prompts == before.prompts
    lengths = [[len(vector) for vector in vectors(model, "query")] for model in (before, after)]
    assert lengths[0] == lengths[1]


def test_the_library_scores_the_folder_as_we_do(kind: str, given: dict[str, Path], tmp_path: Path) -> None:
    student = frozen_from(given[kind])
    student.save(tmp_path / "frozen")
    wanted = own_scores(CLASSES[kind](str(tmp_path / "frozen"), device="cpu"))
    assert np.std(wanted) > 1e-3
    for ranker in (student, load_ranker(tmp_path / "frozen")):
        np.testing.assert_allclose(ranker.score_texts(QUERIES, DOCUMENTS), wanted, rtol=1e-5, atol=1e-4)


def test_a_gradient_reaches_the_query_side_alone(kind: str, given: dict[str, Path]) -> None:
    ranker = frozen_from(given[kind])
    texts = ranker.tokenize(QUERIES, "query"), ranker.tokenize(DOCUMENTS, "document")
    ranker(*texts).sum().backward()
    reached = {name for name, weight in ranker.named_parameters() if weight.grad is not None}
    assert reached
    assert all(QUERY_SIDE in name for name in reached)
    free = {name for name, weight in ranker.named_parameters() if weight.requires_grad}
    assert free == {name for name, _ in ranker.named_parameters() if QUERY_SIDE in name}


@pytest.mark.slow
def test_a_frozen_folder_is_a_start_for_both_sides_and_for_one(
    kind: str, given: dict[str, Path], tmp_path: Path
) -> None:
    frozen_from(given[kind]).save(tmp_path / "first")
    again = load_ranker(tmp_path / "first")
    assert all(weight.requires_grad for weight in again.parameters())
    frozen_from(tmp_path / "first").save(tmp_path / "second")
    before, first, second = (
        CLASSES[kind](str(folder), device="cpu") for folder in (given[kind], tmp_path / "first", tmp_path / "second")
    )
    assert all(equal(vectors(before, "document"), vectors(second, "document")))
    assert not any(equal(vectors(first, "query"), vectors(second, "query")))
    assert [type(module) for module in second] == [Router]


def old_layout(folder: Path) -> None:
    """Let a router take documents' modules for a text without its side, as folders of before did."""
    path = next(path for path in folder.rglob("router_config.json"))
    config = json.loads(path.read_text())
    config["parameters"] |= {"default_route": "document", "allow_empty_key": True}
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    "from_old_folder",
    [pytest.param(False, id="a first time"), pytest.param(True, id="from a folder of before", marks=SLOW)],
)
def test_a_text_without_its_side_is_refused(
    kind: str, from_old_folder: bool, given: dict[str, Path], tmp_path: Path
) -> None:
    source = given[kind]
    if from_old_folder:
        frozen_from(source).save(tmp_path / "old")
        old_layout(tmp_path / "old")
        source = tmp_path / "old"
        CLASSES[kind](str(source), device="cpu").encode(QUERIES[:1])
    frozen_from(source).save(tmp_path / "frozen")
    model = CLASSES[kind](str(tmp_path / "frozen"), device="cpu")
    with pytest.raises(ValueError, match="Could not determine route"):
        model.encode(QUERIES)
    assert len(model.encode_query(QUERIES)) == len(model.encode_document(DOCUMENTS)) == len(QUERIES)


@pytest.mark.slow
def test_a_folder_of_before_scores_as_it_did(kind: str, given: dict[str, Path], tmp_path: Path) -> None:
    student = frozen_from(given[kind])
    student.save(tmp_path / "old")
    old_layout(tmp_path / "old")
    wanted = student.score_texts(QUERIES, DOCUMENTS)
    assert load_ranker(tmp_path / "old").score_texts(QUERIES, DOCUMENTS) == wanted


def test_a_copy_of_a_frozen_one_is_apart_from_it(kind: str, given: dict[str, Path]) -> None:
    ranker = frozen_from(given[kind])
    before = ranker.score_texts(QUERIES, DOCUMENTS)
    other = copy.deepcopy(ranker)
    with torch.no_grad():
        for weight in other.parameters():
            weight.zero_()
    assert ranker.score_texts(QUERIES, DOCUMENTS) == before


def test_the_last_layers_are_those_of_the_query_side(kind: str, given: dict[str, Path]) -> None:
    ranker = frozen_from(given[kind])
    train_layers_of(ranker, 1)
    moving = {name for name, weight in ranker.named_parameters() if weight.requires_grad}
    assert any(QUERY_SIDE in name and "layer.1." in name for name in moving)
    assert not any(DOCUMENT_SIDE in name or "layer.0." in name or "embedding" in name for name in moving)


def test_of_two_encoders_the_last_layers_of_each_move(kind: str, given: dict[str, Path], tmp_path: Path) -> None:
    frozen_from(given[kind]).save(tmp_path / "frozen")
    ranker = load_ranker(tmp_path / "frozen")
    train_layers_of(ranker, 1)
    moving = {name for name, weight in ranker.named_parameters() if weight.requires_grad}
    for side in (QUERY_SIDE, DOCUMENT_SIDE):
        assert any(side in name and "layer.1." in name for name in moving)
        assert not any(side in name and "layer.0." in name for name in moving)


def test_states_of_frozen_layers_are_not_shared_between_two_encoders(kind: str, given: dict[str, Path]) -> None:
    original, student = load_ranker(given[kind]), frozen_from(given[kind])
    train_layers_of(student, 1)
    wanted = student.score_texts(QUERIES, DOCUMENTS)
    with sharing_frozen_states(original, student):
        original.score_texts(QUERIES, DOCUMENTS)
        assert student.score_texts(QUERIES, DOCUMENTS) == wanted


def test_it_runs_without_padding_as_on_a_gpu(
    kind: str, given: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = frozen_from(given[kind])
    texts = ranker.tokenize(QUERIES, "query"), ranker.tokenize(DOCUMENTS, "document")
    usual = ranker(*texts)
    as_on_a_gpu(monkeypatch, torch.float32)
    packed = ranker(*texts)
    np.testing.assert_allclose(packed.detach(), usual.detach(), rtol=1e-5, atol=1e-4)
    packed.sum().backward()
    assert all(QUERY_SIDE in name for name, weight in ranker.named_parameters() if weight.grad is not None)


def test_what_was_frozen_is_released(kind: str, given: dict[str, Path]) -> None:
    original, student = load_ranker(given[kind]), frozen_from(given[kind])
    release(student, original)
    assert all(weight.requires_grad for weight in student.parameters())
    next(original.parameters()).requires_grad_(False)
    held = frozen_from(given[kind])
    release(held, original)
    assert not all(weight.requires_grad for weight in held.parameters())


def asymmetric(base: Path, folder: Path, *after: Any) -> Path:
    """What a user of the library makes: an encoder a side, and what both share after them."""
    sides = [[Transformer(str(base)), Pooling(32, mode)] for mode in ("cls", "mean")]
    sides[0][0].max_seq_length = 7
    router = Router.for_query_document(*sides)
    SentenceTransformer(modules=[router, *after], device="cpu").save_pretrained(str(folder))
    return folder


@pytest.mark.parametrize(
    "shared",
    [pytest.param("nothing", marks=SLOW), pytest.param("without weights", marks=SLOW), "with weights"],
)
def test_an_asymmetric_encoder_of_a_user(folders: dict[str, Path], tmp_path: Path, shared: str) -> None:
    after = {"nothing": [], "without weights": [Normalize()], "with weights": [Dense(32, 16), Normalize()]}[shared]
    folder = asymmetric(folders["bi-encoder"], tmp_path / "given", *after)
    wanted = own_scores(SentenceTransformer(str(folder), device="cpu"))
    ranker = load_ranker(folder)
    np.testing.assert_allclose(ranker.score_texts(QUERIES, DOCUMENTS), wanted, rtol=1e-5, atol=1e-4)
    assert ranker.tokenize([LONG], "query").lengths.tolist() == [7]
    assert ranker.tokenize([LONG], "document").lengths.tolist() == [64]
    frozen_from(folder).save(tmp_path / "frozen")
    given, frozen = (SentenceTransformer(str(each), device="cpu") for each in (folder, tmp_path / "frozen"))
    assert all(equal(vectors(given, "document"), vectors(frozen, "document")))
    assert not any(equal(vectors(given, "query"), vectors(frozen, "query")))
    scores = load_ranker(tmp_path / "frozen").score_texts(QUERIES, DOCUMENTS)
    np.testing.assert_allclose(scores, own_scores(frozen), rtol=1e-5, atol=1e-4)


def test_a_layer_a_side_after_one_encoder(folders: dict[str, Path], tmp_path: Path) -> None:
    router = Router.for_query_document([Dense(32, 8)], [Dense(32, 8)])
    modules = [Transformer(str(folders["bi-encoder"])), Pooling(32), router]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "given"))
    before = SentenceTransformer(str(tmp_path / "given"), device="cpu")
    scores = load_ranker(tmp_path / "given").score_texts(QUERIES, DOCUMENTS)
    np.testing.assert_allclose(scores, own_scores(before), rtol=1e-5, atol=1e-4)
    frozen_from(tmp_path / "given").save(tmp_path / "frozen")
    after = SentenceTransformer(str(tmp_path / "frozen"), device="cpu")
    assert all(equal(vectors(before, "document"), vectors(after, "document")))
    assert not any(equal(vectors(before, "query"), vectors(after, "query")))


def test_one_route_for_both_sides_shares_its_encoder(folders: dict[str, Path], tmp_path: Path) -> None:
    router = Router({"text": [Transformer(str(folders["bi-encoder"])), Pooling(32)]})
    SentenceTransformer(modules=[router], device="cpu").save_pretrained(str(tmp_path / "given"))
    ranker = load_ranker(tmp_path / "given")
    assert len(ranker.fast_encoders) == 1
    assert len(ranker.encoders) == 1
    frozen = frozen_from(tmp_path / "given")
    assert len(frozen.fast_encoders) == 2
    assert len(frozen.encoders) == 2


def test_routes_for_more_than_the_two_sides_are_not_lost(folders: dict[str, Path], tmp_path: Path) -> None:
    router = Router({name: [Transformer(str(folders["bi-encoder"])), Pooling(32)] for name in ("text", "other")})
    SentenceTransformer(modules=[router], device="cpu").save_pretrained(str(tmp_path / "given"))
    with pytest.raises(UnrankError, match="routes besides those of queries and documents"):
        frozen_from(tmp_path / "given")


def test_a_side_that_begins_with_something_else_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    document = [Transformer(str(folders["bi-encoder"])), Pooling(32)]
    router = Router.for_query_document([BoW(["ba", "ce"])], document)
    SentenceTransformer(modules=[router], device="cpu").save_pretrained(str(tmp_path))
    with pytest.raises(UnrankError, match="BoW"):
        load_ranker(tmp_path)


def test_a_router_without_a_way_for_documents_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    router = Router({"query": [Transformer(str(folders["bi-encoder"])), Pooling(32)]}, default_route="query")
    SentenceTransformer(modules=[router], device="cpu").save_pretrained(str(tmp_path))
    with pytest.raises(UnrankError, match="a bi-encoder whose router has no route for a document"):
        load_ranker(tmp_path)


def test_every_separable_ranker_can_be_frozen(rankers: dict[str, Ranker]) -> None:
    assert {kind for kind, entry in RANKERS.items() if entry.ranker.separable} == {*CLASSES, "colbert-dot", "splade"}


def test_one_of_ones_own_says_that_it_cannot(rankers: dict[str, Ranker]) -> None:
    ranker = rankers["colbert"]
    assert isinstance(ranker, DualEncoder)
    with pytest.raises(UnrankError, match="a colbert cannot be trained with its documents frozen"):
        DualEncoder.freeze_documents(ranker)
