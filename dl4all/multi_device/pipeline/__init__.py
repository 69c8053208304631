"""Layers on several devices, with micro-batches on their way between them."""
