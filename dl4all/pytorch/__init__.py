"""PyTorch's names, and a device of its own for PyTorch."""
