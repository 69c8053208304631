"""Expressions of elementwise ops as compiled loops."""
