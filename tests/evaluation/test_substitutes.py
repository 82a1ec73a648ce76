"""Substitutes, ranked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.table import Listed, TableRanker, collection_of, forgetting

from unrank.collection.collection import Pairs
from unrank.evaluation.scorecard import Evaluator
from unrank.evaluation.substitutes import measure_substitutes


def test_by_hand() -> None:
    """Query 0 has the substitute as a negative, query 1 has it nowhere, query 2 has it as a relevant document."""
    lists = [Listed([0, 5], [1, 2, 3]), Listed([0], [1, 2, 4]), Listed([0, 3], [1, 2]), Listed([4], [1])]
    collection = collection_of(lists, 6)
    partition = replace(forgetting(collection, documents=[0, 4]), substitutes={0: 3})
    table = np.array(
        [
            [9.0, 5.0, 2.0, 5.0, 0.0, 9.0],  # tied with 1, which counts against it: rank 2; below the old one
            [1.0, 5.0, 4.0, 3.0, 8.0, 0.0],  # below 1 and 2; 4 is removed: rank 3; above the old one
            [6.0, 5.0, 4.0, 7.0, 0.0, 0.0],  # rank 1; above the old one
            [0.0] * 6,  # its removed document has no substitute
        ]
    )

    def score(pairs: Pairs) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        return TableRanker(table).table.detach().numpy()[pairs[:, 0], pairs[:, 1]]

    found = measure_substitutes(score, collection, partition)
    assert found is not None and found.pairs == 3
    assert found.mrr == pytest.approx((1 / 2 + 1 / 3 + 1) / 3)
    assert (found.median_rank, found.first, found.above) == (2.0, 1, 2)
    card = Evaluator(collection, partition).scorecard(score)
    assert card.substitutes == found and card.to_json()["substitutes"] == vars(found)
    none = replace(partition, substitutes={})
    assert measure_substitutes(score, collection, none) is None
    assert "substitutes" not in Evaluator(collection, none).scorecard(score).to_json()
