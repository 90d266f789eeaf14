"""Networks as immutable values: tensor declarations, forward passes, growth."""
