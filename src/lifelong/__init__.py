"""Networks that keep learning, task after task, and grow only where they must."""
