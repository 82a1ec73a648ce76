"""Forgetting: resolve the target, run a method, stop, land, score, save."""
