"""Interpolation, grids and shuffles of images."""
