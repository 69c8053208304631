"""Expressions of elementwise ops, and the functions in them that GLSL or NumPy lacks."""
