"""The rankers of the contract tests, and what they start from."""

from __future__ import annotations

from tests.rankers.conftest import bases, rankers

__all__ = ["bases", "rankers"]
