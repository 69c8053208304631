"""Patterns of kernels and functions that several families use."""
