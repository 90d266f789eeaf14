"""Tasks, streams of tasks, and data sets."""
