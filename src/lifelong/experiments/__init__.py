"""The paper's experiments: recipes, the runner that makes their runs, tuning, what is stored."""
