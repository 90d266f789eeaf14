"""Watching a learner learn: events, and adapters to what logs them."""
