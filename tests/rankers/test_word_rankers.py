"""Duet and MatchPyramid: what they make of words, and what their folders hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.rankers.conftest import WORD_KINDS
from unrank.errors import BadFile, UnrankError
from unrank.rankers import RANKERS, create_ranker, load_ranker, ranker_kind
from unrank.rankers.base import Ranker
from unrank.rankers.layers import train_layers_of
from unrank.rankers.match_pyramid import highest, parts_of
from unrank.rankers.word_ranker import MAX_WORDS, WordRanker

LONG = "ba cel dir fos gu " * 400


@pytest.fixture(params=WORD_KINDS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ranker(name: str, rankers: dict[str, Ranker]) -> WordRanker:
    ranker = rankers[name]
    assert isinstance(ranker, WordRanker)
    return ranker


def test_they_have_their_names() -> None:
    assert WORD_KINDS == ["duet", "match-pyramid"]
    assert ranker_kind("Duet") == "duet"
    assert ranker_kind("MatchPyramid") == "match-pyramid"


def test_an_unknown_word_matches_itself_and_no_other(ranker: WordRanker) -> None:
    batch = ranker.batch(ranker.tokenize(["zebulon ba"], "query"), ranker.tokenize(["ba Zebulon quibble"], "document"))
    assert batch.same_word()[0, :, :3].tolist() == [[0, 1, 0], [1, 0, 0]]
    itself, another = ranker.score_texts(["zebulon"] * 2, ["ba zebulon ce", "ba quibble ce"])
    assert abs(itself - another) > 1e-3


def test_padding_matches_nothing(ranker: WordRanker) -> None:
    batch = ranker.batch(
        ranker.tokenize(["ba", "", "ba be bi"], "query"), ranker.tokenize(["", "ba", "ce"], "document")
    )
    assert float(batch.same_word().abs().max()) == 0


def test_words_beyond_the_longest_are_not_read(ranker: WordRanker) -> None:
    queries, documents = ranker.tokenize([LONG], "query"), ranker.tokenize([LONG], "document")
    assert (len(queries.ids.array), len(documents.ids.array)) == (MAX_WORDS["query"], MAX_WORDS["document"])
    assert ranker.score_texts(["ba"], [LONG]) == ranker.score_texts(["ba"], [LONG + " ba han"])


def test_capitals_and_marks_do_not_matter(ranker: WordRanker) -> None:
    assert ranker.score_texts(["BA, be!"], ["Ce: (di)"]) == ranker.score_texts(["ba be"], ["ce di"])


def test_word_vectors_stay_as_they_are(ranker: WordRanker) -> None:
    trained = {name for name, weight in ranker.named_parameters() if weight.requires_grad}
    assert "table.importance" in trained
    assert "table.vectors" not in trained
    assert "table.vectors" in ranker.state_dict()


def test_any_base_will_do(name: str) -> None:
    ranker = create_ranker(name, "random", seed=0)
    assert np.std(ranker.score_texts(["ba be", "ce", "di"], ["be ba", "ce di", "fo"])) > 0


def test_a_folder_holds_words_weights_and_a_description(name: str, folders: dict[str, Path]) -> None:
    names = {path.name for path in folders[name].iterdir()}
    assert names == {"ranker.json", "model.safetensors", "words.txt"}
    assert json.loads((folders[name] / "ranker.json").read_text())["kind"] == name
    assert (folders[name] / "words.txt").read_text().splitlines()[:2] == ["ba", "be"]


@pytest.mark.parametrize("settings", [{}, {"width": 0}, {"width": "16"}, {"width": True}, {"width": 17}])
def test_a_width_that_cannot_be(
    name: str, folders: dict[str, Path], tmp_path: Path, settings: dict[str, object]
) -> None:
    folder = Path(shutil.copytree(folders[name], tmp_path / "ranker"))
    (folder / "ranker.json").write_text(json.dumps({"format_version": 1, "kind": name, "settings": settings}))
    with pytest.raises(BadFile, match="cannot be loaded as a"):
        load_ranker(folder)


def test_there_are_no_layers_to_choose_from(name: str) -> None:
    with pytest.raises(UnrankError, match=f"a {name} has no layers to choose from"):
        train_layers_of(create_ranker(name, "random", seed=0), 1)


def test_every_recipe_can_be_followed() -> None:
    from unrank.methods import make_method

    for kind, entry in RANKERS.items():
        for method, recipe in entry.recipes.items():
            made = make_method(method, ranker=kind)
            assert {name: getattr(made, name) for name in recipe} == recipe
    assert make_method("retrain", {"learning_rate": "1e-5"}, "duet").learning_rate == 1e-5
    assert make_method("retrain", ranker="bi-encoder") == make_method("retrain")


def test_cocol_goes_faster_than_training_did(name: str) -> None:
    from unrank.methods import make_method
    from unrank.methods.cocol import Cocol

    assert make_method("cocol", ranker=name) == Cocol(learning_rate=5e-3, warm_up=1, batch=16, hold_factor=16)
    assert make_method("cocol", ranker=name).learning_rate > make_method("retrain", ranker=name).learning_rate
    assert make_method("cocol", ranker="bi-encoder") == Cocol()


def test_weight_of_a_query_word_depends_on_the_query_alone(ranker: WordRanker) -> None:
    def weights(query: str, beside: str) -> Any:
        batch = ranker.batch(ranker.tokenize([query, beside], "query"), ranker.tokenize(["ba", "be"], "document"))
        return ranker.weigh(batch)[0].tolist()

    alone, beside_long = weights("ba be", "ce"), weights("ba be", "ba be bi bo bu ce di")
    assert beside_long[:2] == pytest.approx(alone)
    assert set(beside_long[2:]) == {0.0}


def test_parts_cover_a_text_of_any_length() -> None:
    start, end = parts_of(np.array([0, 1, 2, 4, 9]), 4)
    assert start.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 3], [0, 2, 4, 6]]
    assert end.tolist() == [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 2, 2], [1, 2, 3, 4], [3, 5, 7, 9]]


def test_pooling_takes_the_highest_of_each_part() -> None:
    rows = torch.tensor([[3.0, 1, 4, 1, 5, 9], [2, 7, 0, 0, 0, 0]])[..., None]
    assert highest(rows, np.array([6, 2]), 2)[..., 0].tolist() == [[4, 9], [2, 7]]


def test_words_are_read_in_larger_chunks_than_tokens(rankers: dict[str, Ranker]) -> None:
    lengths = np.array([8, 8]), np.array([120, 0])
    for kind in ("duet", "match-pyramid"):
        assert rankers[kind].lengths(*lengths).tolist() == [34, 4]
