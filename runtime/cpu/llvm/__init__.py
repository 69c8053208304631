"""Kernels of the host as LLVM IR: written by Python, compiled by llvmlite, kept on disk, run by a thread pool."""
