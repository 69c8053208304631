"""Batched tensors and batching rules for ``vmap``."""
