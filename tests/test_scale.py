"""The cost model of docs/scale.md: it predicts a rate that it was not fitted to, and a simulation agrees with it."""

from __future__ import annotations

import pytest
from scale import COLLECTIONS, ENCODERS, TABLES, figure, run_cost, simulate, steady_batch

from tests.pages import ROOT, read

MINILM, DISTILBERT, BERT, SMALL_DECODER, LARGEST = ENCODERS
PAIRS = COLLECTIONS["9 million"][1]


@pytest.mark.parametrize("what", ["train", "cocol", "score"])
def test_the_share_of_one_encoder_predicts_the_rate_of_a_larger_one(what: str) -> None:
    """BERT-base by DistilBERT's share of the limit, and the operations of both."""
    tokens = 120
    measured, smaller = (figure(each.name, what, "a_second") for each in (BERT, DISTILBERT))
    predicted = smaller * DISTILBERT.operations(tokens) / BERT.operations(tokens)
    assert predicted == pytest.approx(measured, rel=0.08)


def test_the_simulation_agrees_with_the_formula() -> None:
    for encoder, idle, near in ((SMALL_DECODER, 0.1, 0.15), (LARGEST, 0.02, 0.1)):
        found = simulate(encoder, PAIRS, together=True, days=10)
        assert found.batch == pytest.approx(steady_batch(encoder, PAIRS), rel=near)
        assert found.busy == pytest.approx(1, abs=idle) and found.left < 300
    alone = simulate(MINILM, PAIRS, together=False, days=10)
    assert alone.busy == pytest.approx(1_000 * run_cost(MINILM, PAIRS).seconds / 86_400, rel=0.05)


def test_a_desk_that_is_too_slow_falls_behind() -> None:
    found = simulate(LARGEST, PAIRS, together=False, days=5)
    assert run_cost(LARGEST, PAIRS).seconds > 86.4 and found.left > 4_000


def test_the_page_has_the_tables_of_the_model() -> None:
    """`python benchmarks/scale.py` prints them."""
    page = read(ROOT / "docs" / "scale.md")
    for table in TABLES:
        assert "\n".join(table()) in page, table.__name__
