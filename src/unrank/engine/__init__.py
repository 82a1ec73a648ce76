"""How it runs: tokens, samples, the one training loop, scoring, the teacher's scores."""
