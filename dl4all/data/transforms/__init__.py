"""Image transforms: torchvision's classes, and its preprocessing for ImageNet as functions.

The classes take PIL images, and tensors and NumPy arrays of shape (..., C, height, width). They
compute on the host, without gradients, and draw random numbers from the default generator, which
:func:`dl4all.manual_seed` seeds; within a :class:`dl4all.data.DataLoader` they are the same with any number
of workers.
"""

from __future__ import annotations

from dl4all.data.transforms.base import Compose, Lambda, RandomApply, Transform
from dl4all.data.transforms.color import ColorJitter, Grayscale, RandomErasing, RandomGrayscale
from dl4all.data.transforms.conversion import Normalize, PILToTensor, ToPILImage, ToTensor
from dl4all.data.transforms.geometry import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
)
from dl4all.data.transforms.imagenet import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    center_crop,
    imagenet_eval,
    load_image,
    normalize,
    resize,
    to_array,
)
from dl4all.data.transforms.pictures import InterpolationMode

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "Grayscale",
    "InterpolationMode",
    "Lambda",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandomApply",
    "RandomCrop",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
    "ToPILImage",
    "ToTensor",
    "Transform",
    "center_crop",
    "imagenet_eval",
    "load_image",
    "normalize",
    "resize",
    "to_array",
]
