"""Data sets, batches, and image preprocessing as in torchvision."""

from __future__ import annotations

from dl4all.data.batch import collate
from dl4all.data.dataset import Dataset, ImageFolder, Subset, TensorDataset, TextBytes, random_split, shifted
from dl4all.data.loader import DataLoader
from dl4all.data.sources import blobs, breast_cancer, digits, iris, mnist5k, spiral, wine, xor
from dl4all.data.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    center_crop,
    imagenet_eval,
    load_image,
    normalize,
    resize,
    to_array,
)

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "DataLoader",
    "Dataset",
    "ImageFolder",
    "Subset",
    "TensorDataset",
    "TextBytes",
    "blobs",
    "breast_cancer",
    "center_crop",
    "collate",
    "digits",
    "imagenet_eval",
    "iris",
    "load_image",
    "mnist5k",
    "normalize",
    "random_split",
    "resize",
    "shifted",
    "spiral",
    "to_array",
    "wine",
    "xor",
]
