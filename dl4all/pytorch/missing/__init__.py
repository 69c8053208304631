"""PyTorch's names that are not here: a table of them, and their answers."""
