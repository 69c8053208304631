"""Convolution on the host: one algorithm a file, and the choice between them."""
