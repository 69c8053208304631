"""Stands in for torchvision: seeded pictures instead of downloads, transforms in NumPy and Pillow."""

from torchvision import datasets, transforms, utils

__all__ = ["datasets", "transforms", "utils"]
