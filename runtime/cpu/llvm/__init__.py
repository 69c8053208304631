"""Kernels of the host as LLVM IR: Python writes them, llvmlite compiles them, a thread pool runs them."""
