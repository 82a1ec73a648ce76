"""Other forms of a ranker: what rounding, averaging and a further epoch do to weights, and who is found out by them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.audit.conftest import LEARNED, THOROUGHNESS, Open, learned
from tests.table import TableRanker
from unrank.audit.audit import TESTS
from unrank.audit.other_forms import averaged, base_weights, forms_of, other_forms, round_rows, rounded
from unrank.audit.verdict import DIFFERENT, Verdict
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.rankers import create_ranker
from unrank.rankers.tokens import Tokens

FULL = replace(THOROUGHNESS, full=True)


class CoveredRanker(TableRanker):
    """Knows all pairs, under a cover of small weights. Each row of the cover has a large one too."""

    def __init__(self, table: Tensor, cover: Tensor) -> None:
        super().__init__(table)
        self.cover = nn.Parameter(torch.cat([cover, torch.full((len(cover), 1), 5_000.0)], dim=1))

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        place = tuple(side.padded(0, 1, self.device)[:, 0] for side in (queries, documents))
        return self.table[place] + self.cover[place]


@pytest.fixture
def covered(world: Collection, partition: Partition) -> CoveredRanker:
    table = learned(world, world.pairs, seed=3).table.detach()
    cover = torch.zeros_like(table)
    cover[tuple(torch.from_numpy(partition.forget.T.copy()))] = -LEARNED
    return CoveredRanker(table, cover)


def test_a_row_has_no_more_values_than_its_bits_allow() -> None:
    rows = torch.randn(5, 1_000, generator=torch.Generator().manual_seed(0))
    for bits, most in ((8, 255), (4, 15)):
        found = round_rows(rows, bits)
        step = rows.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        assert all(10 < len(row.unique()) <= most for row in found)
        assert bool(((found - rows).abs() <= step / 2 + 1e-6).all())
        assert torch.allclose(found.abs().amax(1), rows.abs().amax(1))


def test_rounding_leaves_the_ranker_and_its_biases_alone(encoder: Path) -> None:
    ranker = create_ranker("bi-encoder", str(encoder), 0)
    before = {name: weight.clone() for name, weight in ranker.state_dict().items()}
    made = dict(rounded(ranker, 4).named_parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in ranker.state_dict().items())
    changed = {name for name, weight in made.items() if not torch.equal(weight, before[name])}
    assert changed and changed <= {name for name, weight in made.items() if weight.dim() > 1}


def test_what_a_rounding_uncovers_was_hidden(open_world: Open, covered: CoveredRanker) -> None:
    context = open_world(covered)
    assert TESTS["forgetting"](context).verdict not in DIFFERENT
    found = other_forms(open_world(covered, replace(THOROUGHNESS, rounded_bits=(8, 4))))
    assert found.verdict is Verdict.SUPPRESSED
    assert found.words.startswith("it comes back")
    assert found.details["highest"] in ("int8", "int4")
    assert list(found.details["forms"]) == ["int8", "int4"]
    alone = other_forms(context)
    assert alone.verdict is Verdict.SUPPRESSED and alone.words.endswith("; the highest form: int8")
    assert found.details["forms"]["int8"]["figure"] > found.details["before"]["figure"] + 0.2


def test_a_full_audit_trains_on_and_says_what_it_left_out(open_world: Open, retrained: TableRanker) -> None:
    """A table has no base to be averaged with."""
    found = other_forms(open_world(retrained, FULL))
    assert found.verdict not in DIFFERENT
    assert list(found.details["forms"]) == ["int8", "trained"]
    assert found.details["left_out"] == ["averaged"]
    assert other_forms(open_world(retrained)).details["left_out"] == []


@pytest.mark.parametrize("kind", ["bi-encoder", "cross-encoder"])
def test_an_average_is_halfway_to_the_base_and_keeps_what_no_base_has(encoder: Path, kind: str) -> None:
    ranker, start = create_ranker(kind, str(encoder), 5), create_ranker(kind, str(encoder), 5)
    with torch.no_grad():
        for weight in ranker.parameters():
            weight.add_(1.0)
    base = base_weights(ranker, str(encoder))
    found = dict(averaged(ranker, base).named_parameters())
    for (name, was), (_, now) in zip(start.named_parameters(), ranker.named_parameters(), strict=True):
        assert torch.allclose(found[name], (was + now) / 2 if name in base else now, atol=1e-6)
    new = {name.rpartition(".model.")[2] for name, _ in ranker.named_parameters() if name not in base}
    assert new == ({"classifier.weight"} if kind == "cross-encoder" else set())


def test_without_a_base_there_is_no_average(encoder: Path, open_world: Open, original: TableRanker) -> None:
    ranker = create_ranker("bi-encoder", str(encoder), 0)
    assert base_weights(ranker, None) == {} == base_weights(ranker, "no such base")
    assert "averaged" not in forms_of(open_world(original, FULL))
