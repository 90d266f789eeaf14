"""How well a learner knows its tasks, and what a run leaves behind."""
