"""The command `lifelong`: parsing and printing only."""
