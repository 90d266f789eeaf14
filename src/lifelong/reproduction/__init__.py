"""The paper's figures and tables, and what became of its claims: stored runs, and no torch."""
