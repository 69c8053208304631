"""Stands in for torchvision: seeded pictures instead of downloads, transforms in NumPy and Pillow."""

from torchvision import datasets, models, transforms, utils

__all__ = ["datasets", "models", "transforms", "utils"]
