"""Kernels of ops: their declaration, launches, plans of launches, and tuning."""
