"""The index: stored document vectors that follow a ranker and its collection."""
