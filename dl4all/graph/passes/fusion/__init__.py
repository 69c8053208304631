"""Passes that merge the kernels of several nodes into one."""
