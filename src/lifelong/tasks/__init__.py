"""What arrives: tasks, streams of them, and the data sets that they come from."""
