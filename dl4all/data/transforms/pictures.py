"""Operations of transforms on a PIL image, a tensor or an array: crop, flip, pad, resize."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dl4all.data.transforms.imagenet import pillow
from dl4all.errors import ArgumentError
from dl4all.ops.core import limits
from dl4all.tensor.creation import from_numpy
from dl4all.tensor.tensor import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image

Array = npt.NDArray[Any]


class InterpolationMode(enum.Enum):
    """The interpolation between pixels, by Pillow's names.

    Example:
        >>> InterpolationMode("bicubic")
        <InterpolationMode.BICUBIC: 'bicubic'>
    """

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def interpolation_mode(name: str, mode: Any) -> InterpolationMode:
    """A mode by its name, or by what Pillow and torchvision call it.

    Raises:
        ArgumentError: there is none of that name.
    """
    word = getattr(mode, "name", mode)
    try:
        return InterpolationMode(str(word).lower())
    except ValueError:
        names = ", ".join(known.value for known in InterpolationMode)
        raise ArgumentError(f"[{name}] interpolation must be one of {names}, got {mode!r}") from None


def is_pil(image: Any) -> bool:
    """Whether an image is one of Pillow's; Pillow is not imported for that."""
    return hasattr(image, "mode") and hasattr(image, "getbands")


def is_array(image: Any) -> bool:
    return isinstance(image, (Tensor, np.ndarray))


def check_image(name: str, image: Any) -> None:
    """
    Raises:
        ArgumentError: an image is neither a PIL image, nor a tensor or array of rank 2 or more.
    """
    if not is_pil(image) and not (is_array(image) and len(image.shape) >= 2):
        shape = f" of shape {tuple(image.shape)}" if is_array(image) else ""
        raise ArgumentError(
            f"[{name}] expected a PIL image, or a tensor of shape (..., height, width), got "
            f"{type(image).__name__}{shape}"
        )


def image_size(image: Any) -> tuple[int, int]:
    """Height and width."""
    if is_pil(image):
        return int(image.size[1]), int(image.size[0])
    return int(image.shape[-2]), int(image.shape[-1])


def on_array(image: Any, function: Callable[[Array], Array]) -> Any:
    """A tensor or array with a function applied to its elements; the result is of the same kind."""
    if isinstance(image, Tensor):
        return from_numpy(np.ascontiguousarray(function(image.detach().numpy())), image.device)
    return function(image)


def on_planes(image: Any, function: Callable[[Image], Image]) -> Any:
    """A tensor or array with a function of a PIL image applied to each (height, width) of it."""
    pil = pillow("transforms")

    def planes(array: Array) -> Array:
        kind = np.uint8 if array.dtype == np.uint8 else np.float32
        flat = array.reshape(-1, *array.shape[-2:])
        made = [np.asarray(function(pil.fromarray(np.ascontiguousarray(plane, kind)))) for plane in flat]
        size = made[0].shape if made else image_size(array)
        stacked = np.stack(made) if made else np.empty((0, *size), kind)
        if array.dtype.kind in "iu":
            stacked = np.rint(stacked)
        return stacked.reshape(*array.shape[:-2], *size).astype(array.dtype)

    return on_array(image, planes)


def crop(image: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part of an image, which lies within it."""
    if is_pil(image):
        return image.crop((left, top, left + width, top + height))
    return on_array(image, lambda array: array[..., top : top + height, left : left + width])


def flip(image: Any, *, vertical: bool) -> Any:
    """The image upside down, or with left and right exchanged."""
    if is_pil(image):
        methods = pillow("transforms").Transpose
        return image.transpose(methods.FLIP_TOP_BOTTOM if vertical else methods.FLIP_LEFT_RIGHT)
    return on_array(image, lambda array: array[..., ::-1, :] if vertical else array[..., ::-1])


def pad(image: Any, padding: tuple[int, int, int, int], fill: Any, mode: str) -> Any:
    """The image with pixels around it.

    Args:
        padding: how many on the left, above, on the right and below.
        fill: their value in mode "constant", or one for each channel.
        mode: "constant", or one of NumPy's names.
    """
    if is_pil(image):
        pil = pillow("transforms")
        bands = [np.asarray(band) for band in image.split()]
        fills = np.broadcast_to(np.asarray(fill), (len(bands),)).tolist()
        made = [
            pil.fromarray(_padded(band, padding, value, mode))
            for band, value in zip(bands, fills, strict=True)
        ]
        return pil.merge(image.mode, made)
    return on_array(image, lambda array: _padded(array, padding, fill, mode))


def _padded(array: Array, padding: tuple[int, int, int, int], fill: Any, mode: str) -> Array:
    left, top, right, bottom = padding
    around = [(0, 0)] * (array.ndim - 2) + [(top, bottom), (left, right)]
    if mode != "constant":
        return np.asarray(np.pad(array, around, mode))  # type: ignore[call-overload]  # one of its names
    values = np.asarray(fill, array.dtype)
    if values.ndim == 0:
        return np.pad(array, around, constant_values=values.item())
    shape = [size + before + after for size, (before, after) in zip(array.shape, around, strict=True)]
    padded = np.empty(shape, array.dtype)
    padded[...] = values[:, None, None]
    padded[..., top : shape[-2] - bottom, left : shape[-1] - right] = array
    return padded


def resize_to(image: Any, size: tuple[int, int], mode: InterpolationMode) -> Any:
    """The image with another height and width, with antialiasing, as Pillow resizes."""
    if image_size(image) == size:
        return image
    method = pillow("transforms").Resampling[mode.name]

    def resized(picture: Image) -> Image:
        return picture.resize((size[1], size[0]), method)

    return resized(image) if is_pil(image) else on_planes(image, resized)


def pair(name: str, what: str, size: Any, least: int = 1) -> tuple[int, int]:
    """Height and width from one number or two.

    Raises:
        ArgumentError: they are no ints, or too small.
    """
    sizes = tuple(size) if isinstance(size, Sequence) else (size,)
    if len(sizes) not in (1, 2):
        raise ArgumentError(f"[{name}] {what} must be a number or (height, width), got {size!r}")
    checked = [limits.integer(name, what, number, least) for number in sizes]
    return checked[0], checked[-1]
