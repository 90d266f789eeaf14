"""Learners: DEN and the baselines."""
