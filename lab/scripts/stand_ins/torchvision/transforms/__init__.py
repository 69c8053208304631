"""Transforms of Pillow's pictures, as torchvision names them.

What is random follows from the picture's own bytes, so that it does not matter which worker process or thread
makes which picture.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from torchvision.framework import torch
from torchvision.transforms import functional

__all__ = [
    "CenterCrop", "Compose", "Lambda", "Normalize", "Pad", "RandomCrop", "RandomHorizontalFlip", "Resize",
    "ToTensor", "functional",
]  # fmt: skip


class Lambda:
    """Any function."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        self.lambd = lambd

    def __call__(self, image: Any) -> Any:
        return self.lambd(image)


class Compose:
    """One transform after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor:
    """Floats of shape (C, H, W) from 0 to 1."""

    def __call__(self, image: Image.Image) -> Any:
        array = np.asarray(image, np.float32) / np.float32(255)
        array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
        return torch.from_numpy(np.ascontiguousarray(array))


class Normalize:
    """Subtract each channel's mean, and divide by its standard deviation."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean, self.std = (torch.tensor(values, device="cpu").view(-1, 1, 1) for values in (mean, std))

    def __call__(self, tensor: Any) -> Any:
        return (tensor - self.mean) / self.std


class Resize:
    """The shorter side gets a length, or both sides theirs."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = size

    def __call__(self, image: Image.Image) -> Image.Image:
        if isinstance(self.size, int):
            scale = self.size / min(image.size)
            width, height = (round(side * scale) for side in image.size)
        else:
            height, width = self.size
        return image.resize((width, height), Image.Resampling.BILINEAR)


class CenterCrop:
    """The middle; black where the picture is smaller."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, image: Image.Image) -> Image.Image:
        left, top = (image.width - self.size) // 2, (image.height - self.size) // 2
        return image.crop((left, top, left + self.size, top + self.size))


class Pad:
    """A black border."""

    def __init__(self, padding: int) -> None:
        self.padding = padding

    def __call__(self, image: Image.Image) -> Image.Image:
        return ImageOps.expand(image, self.padding)


class RandomCrop:
    """Some part of the picture with its border."""

    def __init__(self, size: int, padding: int = 0) -> None:
        self.size, self.padding = size, padding

    def __call__(self, image: Image.Image) -> Image.Image:
        rng = _random(image)
        image = ImageOps.expand(image, self.padding)
        left, top = rng.randint(0, image.width - self.size), rng.randint(0, image.height - self.size)
        return image.crop((left, top, left + self.size, top + self.size))


class RandomHorizontalFlip:
    """Every second picture is mirrored."""

    def __call__(self, image: Image.Image) -> Image.Image:
        return ImageOps.mirror(image) if _random(image).random() < 0.5 else image


def _random(image: Image.Image) -> random.Random:
    return random.Random(zlib.crc32(image.tobytes()))
