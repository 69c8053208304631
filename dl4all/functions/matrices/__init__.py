"""Factorizations, linear systems and other functions of matrices."""
