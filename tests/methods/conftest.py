"""The rankers of the contract tests and what they start from, and a collection that methods plan on."""

from __future__ import annotations

import pytest

from tests.rankers.conftest import bases, rankers
from tests.table import collection_of, forgetting, random_lists
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition

__all__ = ["bases", "rankers"]


@pytest.fixture(scope="session")
def shared() -> Collection:
    """Queries that share documents, in lists by chance."""
    return collection_of(random_lists(4), 14)


@pytest.fixture(params=[{"queries": [0, 1, 2]}, {"documents": [1, 5]}], ids=["queries", "documents"])
def partition(request: pytest.FixtureRequest, shared: Collection) -> Partition:
    return forgetting(shared, **request.param)
