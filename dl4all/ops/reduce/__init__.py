"""Reductions over axes, running sums, softmax."""
