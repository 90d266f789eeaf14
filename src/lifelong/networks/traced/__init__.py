"""Any module as an architecture: traced, its widths found, run as a function of named tensors."""
