"""Models of every family serve as well: fresh, scored, saved, loaded in the class they came from, and forgetting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import families
from tests.families import (
    DOCUMENTS,
    KINDS,
    LARGEST,
    MODELS,
    MOST_TIMES,
    NAMED,
    NO_ADAPTER,
    NO_HEAD,
    PAGE,
    QUERIES,
    TABLES,
    difference,
    forget_briefly,
    library_scores,
    make_ranker,
    times_as_far,
    with_adapter,
    with_table,
)
from tests.rankers.conftest import enliven
from tests.tiny import FAMILIES, make_encoder
from unrank.collection.collection import Collection
from unrank.errors import UnrankError
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.layers import train_layers_of

pytestmark = pytest.mark.usefixtures("untried")
SLOW = pytest.mark.slow


@pytest.fixture(scope="module", params=[family for family in FAMILIES if family != "bert"])
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def base(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("family") / family, family)


@pytest.mark.parametrize(
    "kind", ["bi-encoder", "cross-encoder", *(pytest.param(kind, marks=SLOW) for kind in ("colbert", "splade"))]
)
def test_a_ranker_of_another_family_scores_as_its_class_does(
    kind: str, family: str, base: Path, tmp_path: Path
) -> None:
    if (family, kind) in NO_HEAD:
        with pytest.raises(UnrankError, match="cannot be loaded as a masked language model"):
            create_ranker(kind, str(base), seed=0)
        return
    ranker = enliven(create_ranker(kind, str(base), seed=0))
    scores = ranker.score_texts(QUERIES, DOCUMENTS)
    assert np.std(scores) > 1e-3
    ranker.save(tmp_path / "saved")
    wanted = library_scores(kind, tmp_path / "saved")
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=LARGEST * np.ptp(wanted))
    assert load_ranker(tmp_path / "saved").score_texts(QUERIES, DOCUMENTS) == scores


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_with_prompts_and_after_forgetting_too(
    kind: str, family: str, base: Path, tmp_path: Path, dense: Collection
) -> None:
    if (family, kind) in NO_HEAD:
        pytest.skip("the family has no such head")
    prompted = make_ranker(kind, base, tmp_path / "prompted", prompted=True)
    assert difference(prompted) <= LARGEST
    assert difference(forget_briefly(prompted, dense, tmp_path / "forgotten")) <= LARGEST


@pytest.mark.parametrize("kind", ["bi-encoder", pytest.param("cross-encoder", marks=SLOW)])
def test_a_modernbert_with_prompts_forgets(kind: str, tmp_path: Path, dense: Collection) -> None:
    """One family with a sliding window, of those that slow tests send through a whole run."""
    prompted = make_ranker(kind, make_encoder(tmp_path / "base", "modernbert"), tmp_path / "prompted", prompted=True)
    assert difference(prompted) <= LARGEST
    assert difference(forget_briefly(prompted, dense, tmp_path / "forgotten")) <= LARGEST


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[SLOW] if "static" not in name or "splade" in name else []) for name in MODELS]
)
def test_a_model_of_more_parts_scores_as_its_class_and_forgets(
    name: str, encoder: Path, tmp_path: Path, dense: Collection
) -> None:
    folder = MODELS[name](encoder, tmp_path / "given")
    assert difference(folder) <= LARGEST
    assert difference(forget_briefly(folder, dense, tmp_path / "forgotten")) <= LARGEST


def test_static_embeddings_are_what_rows_are_cleared_in(encoder: Path, tmp_path: Path) -> None:
    ranker = load_ranker(families.static_embedding(encoder, tmp_path / "given"))
    (vocabulary,) = ranker.vocabularies
    assert [table.shape[1] for table in vocabulary.tables] == [16]
    assert ranker.tokens_fingerprint("query") != ranker.tokens_fingerprint("document")  # they have prompts
    assert ranker.score_texts([""], ["ba"]) == ranker.library_scores([""], ["ba"])
    with pytest.raises(UnrankError, match="a bi-encoder has no layers to choose from"):
        train_layers_of(ranker, 1)


@pytest.mark.parametrize(
    "kind", ["bi-encoder", *(pytest.param(kind, marks=SLOW) for kind in ("colbert", "cross-encoder"))]
)
def test_its_last_layer_alone_can_be_trained(kind: str, base: Path) -> None:
    ranker = create_ranker(kind, str(base), seed=0)
    train_layers_of(ranker, 1)
    moving = [name for name, weight in ranker.named_parameters() if weight.requires_grad]
    assert any(".1." in name for name in moving)
    first = ("embed", "shared", "layers.0.", "block.0.", *(["layer.0."] if "t5" not in base.name else []))
    assert [name for name in moving if any(part in name for part in first)] == []


def test_the_page_has_a_measured_row_for_every_family_and_model() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    first = {row[0].removeprefix("| ") for row in rows}
    assert {*NAMED.values(), *MODELS, *(head[0] for head, _ in TABLES.values())} <= first
    assert {*NAMED} == {*FAMILIES}
    for row in rows:
        if row[0].removeprefix("| ") in NAMED.values():
            assert len(row) in (2 + len(KINDS), 3 + len(KINDS))
            in_bf16 = len(row) == 2 + len(KINDS)
            cells = [cell.strip(" |") for cell in (row[1:] if in_bf16 else row[1:-1])]
            cells = [cell for cell in cells if cell not in ("no such head", *NO_ADAPTER.values())]
            assert all(float(cell.removeprefix("< ")) <= (MOST_TIMES if in_bf16 else LARGEST) for cell in cells)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_is_no_further_from_float32_than_the_library(kind: str, encoder: Path, tmp_path: Path) -> None:
    folder = make_ranker(kind, encoder, tmp_path / "ranker")
    assert 0.1 < times_as_far(folder) <= MOST_TIMES
    if kind == "bi-encoder":
        assert times_as_far(with_adapter(folder, tmp_path / "adapter")) <= MOST_TIMES


def test_a_table_is_written_between_its_marks() -> None:
    page = "a\n\n<!-- one -->\n\nold\n\n<!-- end of one -->\n\nb"
    written = with_table(page, "one", ("x", "y"), [["1", "2"]])
    assert written == "a\n\n<!-- one -->\n\n| x | y |\n| --- | --- |\n| 1 | 2 |\n\n<!-- end of one -->\n\nb"
    with pytest.raises(UnrankError, match="expected one pair of marks"):
        with_table(page, "two", (), [])
