"""Metrics, result matrices, and stored runs."""
