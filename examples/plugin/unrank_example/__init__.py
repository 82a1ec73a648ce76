"""A method and a ranker for unrank, found by the entry points in pyproject.toml."""
