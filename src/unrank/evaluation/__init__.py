"""How well: ranks, MRR and nDCG, intervals, scorecards."""
