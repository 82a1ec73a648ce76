"""Collections: texts, judgements, candidate lists and removals, with numpy and pyarrow and without torch."""
