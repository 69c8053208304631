"""Kernels of the suite, their sources, and what they have to give."""
