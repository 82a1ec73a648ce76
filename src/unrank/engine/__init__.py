"""The engine: tokens, samples, the training loop, scoring, the teacher, checkpoints."""
