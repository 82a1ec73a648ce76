"""Runs: each query's documents come best first, whatever the order of the lines."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from unrank.collection.sources.runs import Ranked, best_first

ranked = st.builds(Ranked, st.sampled_from("abc"), st.text(max_size=2), st.integers(-3, 3))


@settings(max_examples=100)
@given(st.lists(ranked, max_size=20))
def test_a_run_in_any_order_comes_best_first(lines: list[Ranked]) -> None:
    read = list(best_first(lambda: iter(lines)))
    for query in "abc":
        expected = sorted((line for line in lines if line.query == query), key=lambda line: line.place)
        assert [found.document for found in read if found.query == query] == [line.document for line in expected]
