"""Charts from stored runs, one module for each question that the report answers. No torch."""
