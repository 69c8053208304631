"""Sums, extremes and their places."""
