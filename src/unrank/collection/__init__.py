"""What is known: texts, judgements, candidates, removals. numpy and pyarrow, never torch."""
