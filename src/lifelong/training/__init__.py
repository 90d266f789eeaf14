"""The training loop and its parts, penalties, and the sparse head of Equation 3."""
