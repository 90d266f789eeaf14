"""Networks as values: what each tensor is, how they compute, how they grow."""
