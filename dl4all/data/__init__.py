"""Pictures in, arrays out: torchvision's preprocessing for ImageNet classifiers."""

from __future__ import annotations

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
    "center_crop",
    "imagenet_eval",
    "load_image",
    "normalize",
    "resize",
    "to_array",
]
