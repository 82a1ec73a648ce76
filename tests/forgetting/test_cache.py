"""A cache: the next job reads and scores nothing again, and comes to the same."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import numpy as np
import pytest
import torch

from tests.forgetting.conftest import FAST
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.engine import scoring, teacher
from unrank.engine.checkpoint import LONG_AGO, Cache
from unrank.engine.runtime import Runtime
from unrank.engine.teacher import Teacher
from unrank.engine.tokens import TokenStore
from unrank.errors import UnrankError
from unrank.forgetting.forget import Forgotten, forget, forget_in
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.train import Trained
from unrank.forgetting.workspace import Workspace
from unrank.rankers import RANKERS, create_ranker
from unrank.rankers.base import Ranker, Role
from unrank.rankers.bi_encoder import BiEncoderRanker

BRIEF = replace(FAST, epochs=1)
TRANSFORMERS = ["cross-encoder", "bi-encoder", "colbert", "parade"]
SIDES: list[Role] = ["query", "document"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, trained: Trained, dense: Collection, removal: Removal) -> Path:
    """What one job left."""
    folder = tmp_path_factory.mktemp("cache") / "made on the way"
    again(trained, dense, removal, Cache(folder))
    return folder


def again(trained: Trained, dense: Collection, removal: Removal, cache: Cache | None) -> Forgotten:
    return forget(trained.ranker, dense, removal, method=BRIEF, target="10%", cache=cache)


@pytest.fixture(scope="module")
def usual(trained: Trained, dense: Collection, removal: Removal) -> Forgotten:
    """The same without a cache."""
    return again(trained, dense, removal, None)


class Watch:
    """Counts the texts that are read, and the pairs that a teacher scores."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.read = self.scored = 0
        tokenize = BiEncoderRanker.tokenize

        def reading(ranker: BiEncoderRanker, texts: Sequence[str], role: Role) -> Any:
            self.read += len(texts)
            return tokenize(ranker, texts, role)

        def scores_of(ranker: Ranker, store: Any, pairs: Any, runtime: Any) -> Any:
            self.scored += len(pairs)
            return scoring.scores_of(ranker, store, pairs, runtime)

        patch.setattr(BiEncoderRanker, "tokenize", reading)
        patch.setattr(teacher, "scores_of", scores_of)


def weights(result: Forgotten) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in result.ranker.parameters()])


def test_the_next_job_reads_and_scores_nothing_and_comes_to_the_same(
    folder: Path,
    usual: Forgotten,
    trained: Trained,
    dense: Collection,
    removal: Removal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, before = Watch(monkeypatch), {path: path.read_bytes() for path in folder.iterdir()}
    cached = again(trained, dense, removal, Cache(folder))
    assert (seen.read, seen.scored) == (0, 0)
    assert torch.equal(weights(cached), weights(usual))
    assert cached.after.to_json() == usual.after.to_json()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before  # what has not grown is not written anew


def test_other_weights_are_asked_and_other_texts_are_read(
    folder: Path, forgotten: Forgotten, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Watch(monkeypatch)
    forget(forgotten.ranker, dense, removal, method=BRIEF, target="10%", cache=Cache(folder))
    assert seen.read == 0 and seen.scored > 0


def test_jobs_that_share_a_teacher_read_and_score_nothing_again_and_come_to_the_same(
    usual: Forgotten,
    trained: Trained,
    dense: Collection,
    removals: dict[str, Removal],
    removal: Removal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranker, options = trained.ranker, ForgetOptions(method=BRIEF, target="10%")
    first = Workspace.for_removal(ranker, dense, removals["queries"], trained.record).with_teacher(ranker)
    forget_in(first, ranker, options, record=trained.record)
    seen, second = Watch(monkeypatch), first.for_another(removal, trained.record)
    shared = forget_in(second, ranker, options, record=trained.record)
    second.scorecard(ranker)
    assert (seen.read, seen.scored) == (0, 0)
    assert torch.equal(weights(shared), weights(usual))
    assert shared.after.to_json() == usual.after.to_json()


def test_tokens_alone_can_be_kept(
    tmp_path: Path, trained: Trained, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    again(trained, dense, removal, Cache(tmp_path, scores=False))
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"tokens"}
    seen = Watch(monkeypatch)
    again(trained, dense, removal, Cache(tmp_path, scores=False))
    assert seen.read == 0 and seen.scored > 0


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "swap", "folder"])
def test_what_is_damaged_is_made_again(
    harm: str, folder: Path, tmp_path: Path, usual: Forgotten, trained: Trained, dense: Collection, removal: Removal
) -> None:
    harmed = tmp_path / "harmed"
    shutil.copytree(folder, harmed)
    files = sorted(harmed.iterdir())
    assert len(files) >= 3
    for path, other in zip(files, [*files[1:], files[0]], strict=True):
        whole = path.read_bytes()
        if harm == "cut":
            path.write_bytes(whole[: len(whole) // 2])
        elif harm == "flip":
            path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 64]) + whole[-8:])
        elif harm == "empty":
            path.write_bytes(b"")
        elif harm == "swap":
            path.write_bytes((folder / other.name).read_bytes())
        else:
            path.unlink()
            path.mkdir()
    assert torch.equal(weights(again(trained, dense, removal, Cache(harmed))), weights(usual))


@pytest.mark.parametrize(
    "arrays",
    [
        {"rows": [0, 9999], "lengths": [1, 1], "ids": [5, 6]},
        {"rows": [-1, 2], "lengths": [1, 1], "ids": [5, 6]},
        {"rows": [2, 2], "lengths": [1, 1], "ids": [5, 6]},
        {"rows": [0, 1], "lengths": [1, 2], "ids": [5, 6]},
        {"rows": [0, 1], "lengths": [3, -1], "ids": [5, 6]},
        {"rows": [0, 1], "lengths": [1], "ids": [5]},
        {"rows": [0]},
        {},
    ],
    ids=str,
)
def test_tokens_that_cannot_be_are_not_taken(
    arrays: dict[str, list[int]], folder: Path, tmp_path: Path, trained: Trained, dense: Collection
) -> None:
    for path in folder.glob("tokens-*"):
        made = {name: np.array(values, np.int32 if name == "ids" else np.int64) for name, values in arrays.items()}
        Cache(tmp_path).save(path.name.removesuffix(".cache"), made, print)
    rows = np.arange(5)
    usual, given = TokenStore(trained.ranker, dense), TokenStore(trained.ranker, dense, Cache(tmp_path))
    for role in SIDES:
        assert [ids.tolist() for ids in given.get(rows, role)] == [ids.tolist() for ids in usual.get(rows, role)]


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_a_store_that_was_kept_reads_alike(kind: str, encoder: Path, dense: Collection, tmp_path: Path) -> None:
    ranker = create_ranker(kind, str(encoder), 0)
    first = TokenStore(ranker, dense, Cache(tmp_path))
    for rows in (np.array([7, 3]), np.array([3, 11, 0])):  # in any order, and in parts
        for role in SIDES:
            first.get(rows, role)
    first.save(print)
    next_one, usual = TokenStore(ranker, dense, Cache(tmp_path)), TokenStore(ranker, dense)
    for role in SIDES:
        rows = np.array([0, 11, 5, 7, 3])
        assert [ids.tolist() for ids in next_one.get(rows, role)] == [ids.tolist() for ids in usual.get(rows, role)]
        assert np.array_equal(next_one.lengths(rows, role), usual.lengths(rows, role))


def test_rankers_that_read_otherwise_share_nothing(encoder: Path) -> None:
    made = {kind: create_ranker(kind, str(encoder), 0) for kind in TRANSFORMERS}
    ways = {kind: [ranker.tokens_fingerprint(role) for role in SIDES] for kind, ranker in made.items()}
    assert all(way is not None for both in ways.values() for way in both)
    for queries, documents in (("bi-encoder", "cross-encoder"), ("cross-encoder", "parade"), ("bi-encoder", "parade")):
        assert not set(ways[queries]) & set(ways[documents])
    shorter: Any = create_ranker("bi-encoder", str(encoder), 0)
    shorter.model.max_seq_length = 9
    assert BiEncoderRanker(shorter.model).tokens_fingerprint("query") != ways["bi-encoder"][0]
    shorter.model.prompts = {"query": "ba "}
    prompted = BiEncoderRanker(shorter.model)
    assert prompted.tokens_fingerprint("query") != prompted.tokens_fingerprint("document")
    others = {"colbert-dot", "decoder", "duet", "match-pyramid", "splade"}  # words are few and quickly read
    assert set(RANKERS) - set(ways) == others


def test_a_cache_that_cannot_be_written_is_said_and_harms_nothing(
    tmp_path: Path, trained: Trained, dense: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    said: list[str] = []
    store = TokenStore(trained.ranker, dense, Cache(tmp_path / "new"))
    store.get(np.arange(3), "query")
    store.save(said.append)
    assert said and "nothing is kept in the cache" in said[0] and "No space left" in said[0]
    assert not list((tmp_path / "new").iterdir())


def test_what_a_killed_job_left_half_written_goes(tmp_path: Path) -> None:
    for name, age in (("old", 2 * LONG_AGO), ("new", 5.0)):
        left = tmp_path / f".partial-{name}"
        left.mkdir()
        (left / "scores-a").touch()
        os.utime(left, (time() - age, time() - age))
    Cache(tmp_path).save("scores-a", {"keys": np.arange(3)}, print)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".partial-new", "scores-a.cache"]


def test_rankers_with_the_same_weights_that_score_otherwise_share_no_score(
    folder: Path, tmp_path: Path, trained: Trained, dense: Collection, removal: Removal
) -> None:
    other: Any = copy.deepcopy(trained.ranker)
    other.model.similarity_fn_name = "cosine"
    shutil.copytree(folder, tmp_path / "cache")
    expected = forget(other, dense, removal, method=BRIEF, target="10%").before
    given = forget(other, dense, removal, method=BRIEF, target="10%", cache=Cache(tmp_path / "cache")).before
    assert given.to_json() == expected.to_json()
    assert len([*(tmp_path / "cache").glob("scores-*")]) == 1 + len([*folder.glob("scores-*")])


def test_collections_share_no_score(folder: Path, trained: Trained, dense: Collection, golden: Collection) -> None:
    """The rows of their texts are the same numbers."""
    runtime = Runtime.on("cpu")
    of_dense, cached, usual = (
        Teacher(trained.ranker, collection, TokenStore(trained.ranker, collection), runtime, cache)
        for collection, cache in ((dense, Cache(folder)), (golden, Cache(folder)), (golden, None))
    )
    assert len(of_dense._scores) > len(cached._scores) == 0
    assert np.array_equal(cached.scores(golden.pairs), usual.scores(golden.pairs))


def test_processes_that_were_kept_different_scores_begin_with_none(
    folder: Path, trained: Trained, dense: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Runtime.on("cpu")
    teachers = [
        Teacher(trained.ranker, dense, TokenStore(trained.ranker, dense), runtime, cache)
        for cache in (None, Cache(folder))
    ]
    assert [len(one._scores) > 0 for one in teachers] == [False, True]
    monkeypatch.setattr(type(runtime.processes), "all_have", lambda *_: False)
    assert len(Teacher(trained.ranker, dense, TokenStore(trained.ranker, dense), runtime, Cache(folder))._scores) == 0


def test_a_file_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnrankError, match="is not a folder, so nothing can be kept there: choose another --cache"):
        Cache(tmp_path / "file")
