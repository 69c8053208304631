"""Kernels of ATen's ops for lists of tensors, as optimizers call them."""
