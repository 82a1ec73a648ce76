"""Evaluation: ranks, MRR and nDCG, bootstrap intervals, scorecards."""
