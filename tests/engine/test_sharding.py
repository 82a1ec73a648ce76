"""Sharded weights: two processes take the steps of one, and what cannot be sharded is refused first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import unrank
from tests.engine import distributed_job
from unrank.cli.main import run
from unrank.collection.collection import Collection, Pairs
from unrank.engine.memory import Memory
from unrank.engine.runtime import deterministic
from unrank.errors import UnrankError


@pytest.mark.slow
def test_two_processes_with_sharded_layers_take_the_steps_of_one(
    dense: Collection, language_model: Path, tmp_path: Path
) -> None:
    command = [sys.executable, distributed_job.__file__, str(dense.folder), str(language_model), str(tmp_path)]
    subprocess.run([*command, "decoder"], env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, timeout=300)
    one, two = (dict(np.load(tmp_path / f"{count}.npz")) for count in (1, 2))
    assert (float(one["decoder processes"]), float(two["decoder processes"])) == (1, 2)
    assert float(two["decoder held"]) == float(one["decoder held"]) / 2
    losses = one["decoder losses"]
    assert len(losses) == 3 and losses[-1] < losses[0]
    for name in ("losses", "trained", "scores", "norms"):  # Adam hides a wrong scale of gradients; norms do not
        np.testing.assert_allclose(two[f"decoder {name}"], one[f"decoder {name}"], atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "changes", "why"),
    [
        ("cross-encoder", {}, "--shard-weights shards the layers of a decoder, not of a cross-encoder"),
        ("decoder", {}, "--shard-weights needs several processes, and this job is one"),
        ("decoder", {"train_layers": 1}, "--shard-weights trains all layers"),
    ],
)
def test_what_cannot_be_sharded_is_refused_first(
    kind: str, changes: dict[str, Any], why: str, dense: Collection
) -> None:
    with pytest.raises(UnrankError, match=f"^{why}"):
        unrank.train(dense, kind, "no-such-base", device="cpu", shard_weights=True, **changes)


def test_equal_bits_and_proxies_are_not_promised_with_sharded_weights(
    dense: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with deterministic(), pytest.raises(UnrankError, match=r"^--shard-weights gives no promise of equal bits"):
        unrank.train(dense, "decoder", "no-such-base", device="cpu", shard_weights=True)
    options = ["--ranker", "decoder", "--base", "no-such-base", "--shard-weights", "--proxies", "2"]
    assert run(["train", str(dense.folder), *options, "--out", str(tmp_path / "out")]) == 2
    assert "--shard-weights prepares no --proxies" in capsys.readouterr().err


def test_a_batch_is_cut_into_pieces_of_at_most_some_pairs() -> None:
    weight, pairs = torch.ones(1, requires_grad=True), np.arange(10).reshape(5, 2)
    scored: list[int] = []

    def score(piece: Pairs) -> Tensor:
        scored.append(len(piece))
        return weight * torch.from_numpy(piece[:, 0]).float()

    memory = Memory(1, print)
    memory.pairs_at_once = 2
    loss = memory.backward(score, pairs, lambda scores: scores.square().sum(), lambda: None)
    assert (float(loss), weight.grad is not None and float(weight.grad)) == (120.0, 240.0)
    assert max(scored) == 2
