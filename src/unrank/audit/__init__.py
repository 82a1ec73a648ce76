"""Audits: tests of a ranker that is said to have forgotten, however it came to forget."""
