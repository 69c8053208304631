"""Kernels of ATen's ops for layers of networks."""
