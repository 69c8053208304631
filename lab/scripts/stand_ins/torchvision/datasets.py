"""Data sets of torchvision's form; the pictures are drawn from a seed, one motif for each class."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from torchvision.framework import torch

TRAIN = int(os.environ.get("SCRIPT_PICTURES", "512"))
"""How many pictures to train with; a quarter of them for the test."""


def pictures(
    seed: int, count: int, size: int, channels: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Pictures of shape (count, size, size, channels), and their classes from 0 to 9."""
    motifs = np.random.default_rng(17).integers(0, 2, (10, 4, 4, channels))
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 10, count)
    classes[:20] = np.arange(20) % 10  # at least two of each
    large = motifs.repeat(-(-size // 4), axis=1).repeat(-(-size // 4), axis=2)[:, :size, :size]
    noise = rng.integers(0, 80, (count, size, size, channels))
    return (large[classes] * 170 + noise).astype(np.uint8), classes.astype(np.int64)


class MNIST(torch.utils.data.Dataset):  # type: ignore[misc]
    """28 x 28 grey pictures of ten classes."""

    size, channels = 28, 1

    def __init__(
        self,
        root: str,
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        download: bool = False,
    ) -> None:
        images, classes = pictures(3 + train, TRAIN if train else TRAIN // 4, self.size, self.channels)
        self.images = images[..., 0] if self.channels == 1 else images
        self.transform, self.target_transform = transform, target_transform
        self.set_data(classes)

    def set_data(self, classes: npt.NDArray[np.int64]) -> None:
        """Set ``data`` and ``targets`` as MNIST has them: tensors."""
        self.data, self.targets = torch.from_numpy(self.images.copy()), torch.from_numpy(classes)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image: Any = Image.fromarray(self.images[index])
        target = int(self.targets[index])
        image = image if self.transform is None else self.transform(image)
        return image, target if self.target_transform is None else self.target_transform(target)


class CIFAR10(MNIST):
    """32 x 32 coloured pictures of ten classes."""

    size, channels = 32, 3

    def set_data(self, classes: npt.NDArray[np.int64]) -> None:
        """Set ``data`` and ``targets`` as CIFAR10 has them: an array and a list."""
        self.data, self.targets = self.images, classes.tolist()


class FakeData(torch.utils.data.Dataset):  # type: ignore[misc]
    """Coloured pictures of any size."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.images, self.classes = pictures(7, TRAIN, image_size[1], image_size[0])
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image: Any = Image.fromarray(self.images[index])
        return image if self.transform is None else self.transform(image), int(self.classes[index])
