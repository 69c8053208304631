"""Functions made of other ops only."""
