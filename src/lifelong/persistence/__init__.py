"""Files that are there whole or not at all: models and checkpoints."""
