"""Charts from stored runs: one module per question of the report. No torch."""
