"""Transforms between PIL images, arrays and tensors, and to standardized numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.data.transforms.base import Transform
from dl4all.data.transforms.imagenet import pillow
from dl4all.data.transforms.pictures import is_pil, on_array
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

Array = npt.NDArray[Any]


class ToTensor(Transform):
    """A PIL image, or an array of shape (height, width) or (height, width, C), as a tensor on the CPU.

    The tensor has the shape (C, height, width). Bytes, and the bits of mode "1", become float32 from 0 to 1;
    other numbers stay what they are.

    Raises:
        ArgumentError: from the call: it gets something else; a tensor needs no ToTensor.

    Example:
        >>> import dl4all as dl, numpy as np
        >>> dl.data.transforms.ToTensor()(np.array([[0, 51, 255]], np.uint8))
        tensor([[[0. , 0.2, 1. ]]])
    """

    def __call__(self, image: Any) -> Tensor:
        array = _planes("ToTensor", image)
        if array.dtype == np.uint8:
            array = array.astype(np.float32) / np.float32(255)
        elif array.dtype == np.bool_:
            array = array.astype(np.float32)
        return from_numpy(np.ascontiguousarray(array))


class PILToTensor(Transform):
    """A PIL image as a tensor (C, height, width) of its numbers on the CPU.

    Raises:
        ArgumentError: from the call: it gets no PIL image.

    Example:
        >>> import PIL.Image
        >>> import dl4all as dl
        >>> dl.data.transforms.PILToTensor()(PIL.Image.new("L", (3, 1), 7))
        tensor([[[7, 7, 7]]], dtype=uint8)
    """

    def __call__(self, image: Any) -> Tensor:
        if not is_pil(image):
            raise ArgumentError(f"[PILToTensor] expected a PIL image, got {type(image).__name__}")
        array = _planes("PILToTensor", image)
        return from_numpy(np.ascontiguousarray(array.astype(np.uint8) if array.dtype == np.bool_ else array))


class ToPILImage(Transform):
    """A tensor (C, height, width) or (height, width), or an array (height, width, C), as a PIL image.

    Args:
        mode: Pillow's mode; by default it follows from the channels: L, LA, RGB or RGBA.

    Raises:
        ArgumentError: from the call: it gets something else, or another number of channels.

    Example:
        >>> import dl4all as dl
        >>> dl.data.transforms.ToPILImage()(dl.zeros(3, 4, 5, device="cpu")).size
        (5, 4)
    """

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, image: Any) -> Any:
        if not isinstance(image, (Tensor, np.ndarray)) or not 2 <= len(image.shape) <= 3:
            raise ArgumentError(
                f"[ToPILImage] expected a tensor (C, height, width) or an array (height, width, C), got "
                f"{type(image).__name__}"
            )
        array = image
        if isinstance(image, Tensor):
            array = image.detach().numpy()
            array = array if array.ndim == 2 else array.transpose(1, 2, 0)
            if array.dtype.kind == "f" and self.mode != "F":  # torchvision's rounding: down
                array = (array * 255).astype(np.uint8)
        if array.ndim == 3 and array.shape[2] == 1:
            array = array[:, :, 0]
        if array.ndim == 3 and array.shape[2] > 4:
            raise ArgumentError(f"[ToPILImage] expected 1 to 4 channels, got {array.shape[2]}")
        made = pillow("ToPILImage").fromarray(np.ascontiguousarray(array))
        return made if self.mode in (None, made.mode) else made.convert(self.mode)


class Normalize(Transform):
    """Subtract each channel's mean and divide by its standard deviation.

    Args:
        mean: a number for each channel, or one for all.
        std: the same; none is 0.
        inplace: accepted; the result is always a new tensor.

    Raises:
        ArgumentError: a standard deviation is 0.
        DTypeError: from the call: the image is no tensor or array of floats; ToTensor makes one.
        ShapeError: from the call: it has not one channel for each number.

    Example:
        >>> import dl4all as dl
        >>> dl.data.transforms.Normalize((0.5, 0.0), (0.5, 2.0))(dl.ones(2, 1, 1, device="cpu")).tolist()
        [[[1.0]], [[0.5]]]
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean, self.std, self.inplace = mean, std, inplace
        if not np.all(np.asarray(std, np.float32)):
            raise ArgumentError(f"[Normalize] a standard deviation is 0: {std}")

    def __call__(self, image: Any) -> Any:
        if not isinstance(image, (Tensor, np.ndarray)) or image.dtype.kind != "f":
            kind = f"{image.dtype}" if hasattr(image, "dtype") else type(image).__name__
            raise DTypeError(f"[Normalize] expected a tensor of floats, got {kind}; put ToTensor() before it")
        mean, std = (np.atleast_1d(np.asarray(n, image.dtype)) for n in (self.mean, self.std))
        channels = image.shape[-3] if len(image.shape) >= 3 else -1
        if any(len(numbers) not in (1, channels) for numbers in (mean, std)) or channels < 0:
            raise ShapeError(
                f"[Normalize] expected (..., C, height, width) and C means and deviations, got shape "
                f"{tuple(image.shape)}, {len(mean)} means and {len(std)} deviations"
            )
        return on_array(image, lambda array: (array - mean[:, None, None]) / std[:, None, None])


def _planes(name: str, image: Any) -> Array:
    """The pixels as (C, height, width).

    Raises:
        ArgumentError: it is neither a PIL image nor an array of rank 2 or 3.
    """
    if not is_pil(image) and not (isinstance(image, np.ndarray) and image.ndim in (2, 3)):
        shape = f" of shape {image.shape}" if isinstance(image, np.ndarray) else ""
        raise ArgumentError(
            f"[{name}] expected a PIL image or an array (height, width, C), got {type(image).__name__}{shape}"
        )
    pixels = np.asarray(image)
    if pixels.dtype.kind == "u" and pixels.dtype.itemsize > 1:  # mode "I;16"
        pixels = pixels.astype(np.int32)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
