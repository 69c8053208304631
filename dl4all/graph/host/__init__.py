"""Graphs of the CPU: calls of NumPy and of compiled kernels, alone and in groups."""
