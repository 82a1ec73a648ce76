"""Many jobs: a grid of cells, each run once, and their small results on disk."""
