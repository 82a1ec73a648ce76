"""Benchmarks: a grid of cells, each run once, and their small records on disk."""
