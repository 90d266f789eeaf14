"""One training loop, what it is made of, and the sparse head of Equation 3."""
