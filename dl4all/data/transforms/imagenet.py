"""torchvision's preprocessing for ImageNet evaluation, step for step, through Pillow.

Pretrained weights reach their measured accuracy only with the preprocessing of that measurement, so every
rounding here is torchvision's: the resized length is truncated, the crop is centered with `round`.
Pillow is optional (`pip install pillow`) and imported by the functions that need it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dl4all.errors import ArgumentError, BackendMissingError, DTypeError, FileFormatError, ShapeError

if TYPE_CHECKING:
    from types import ModuleType

    from PIL.Image import Image

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

Array: TypeAlias = NDArray[np.float32]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""The mean of ImageNet's pixels in red, green and blue, of pixels between 0 and 1.

Example:
    >>> import dl4all as dl
    >>> len(dl.data.IMAGENET_MEAN)
    3
"""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""The standard deviation of ImageNet's pixels in red, green and blue, of pixels between 0 and 1.

Example:
    >>> import dl4all as dl
    >>> len(dl.data.IMAGENET_STD)
    3
"""

_MAX_PIXELS = 1 << 28
"""The most pixels that `resize` makes; a strip of 1 x 1,000,000 pixels would become 50 GB."""

_MODES = ("L", "RGB", "RGBA", "CMYK")


def load_image(path: str | PathLike[str]) -> Image:
    """Read an image as RGB, as torchvision's default loader does.

    The EXIF orientation is not applied, because torchvision does not apply it.

    Args:
        path: an image file in any format that Pillow reads.

    Returns:
        A PIL image of mode "RGB".

    Raises:
        FileFormatError: the file is missing, no image, truncated, damaged, or so large that Pillow
            suspects a decompression bomb.
        BackendMissingError: Pillow is not installed.

    Example:
        >>> import tempfile, pathlib, PIL.Image
        >>> path = pathlib.Path(tempfile.mkdtemp(), "grey.png")
        >>> PIL.Image.new("L", (4, 3)).save(path)
        >>> load_image(path).mode, load_image(path).size
        ('RGB', (4, 3))
    """
    pil = pillow("load_image")
    where = fspath(path)
    try:
        with pil.open(where) as picture:
            image: Image = picture.convert("RGB")
            return image
    except FileNotFoundError:
        raise FileFormatError(f"{where}: no such file") from None
    except IsADirectoryError:
        raise FileFormatError(f"{where}: is a directory; give the path of one picture") from None
    except (pil.DecompressionBombError, pil.DecompressionBombWarning) as error:
        raise FileFormatError(f"{where}: is too large a picture ({error})") from error
    except pil.UnidentifiedImageError as error:
        raise FileFormatError(f"{where}: is no picture in a format that Pillow reads") from error
    except MemoryError as error:
        raise FileFormatError(f"{where}: does not fit in host memory") from error
    # Pillow's decoders raise all of these for damaged files, whatever their documentation says.
    except (
        OSError,
        SyntaxError,
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        EOFError,
        AttributeError,
        RuntimeError,
        struct.error,
        zlib.error,
    ) as error:
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = " ".join(text.split())
        raise FileFormatError(f"{where}: is a damaged, truncated or unreadable picture ({reason})") from error


def resize(image: Image, size: int) -> Image:
    """Resize so that the shorter side is `size` and the other `int(size * long / short)`.

    Bilinear with antialiasing, as Pillow does it.

    Args:
        image: a PIL image of mode L, RGB, RGBA or CMYK; `convert("RGB")` gives one.
        size: the new length of the shorter side, positive.

    Returns:
        A PIL image of the same mode.

    Raises:
        ArgumentError: the size is not positive, the mode is not supported, the image is empty, or the
            result would have more than 2**28 pixels.
        BackendMissingError: Pillow is not installed.

    Example:
        >>> import PIL.Image
        >>> resize(PIL.Image.new("RGB", (640, 427)), 256).size
        (383, 256)
    """
    pil = pillow("resize")
    _check("resize", image, size)
    width, height = image.size
    if not width or not height:
        raise ArgumentError(f"[resize] the image is empty: {width} x {height} pixels")
    length = int(size * max(width, height) / min(width, height))
    if size * length > _MAX_PIXELS:
        raise ArgumentError(
            f"[resize] {width} x {height} pixels with a shorter side of {size} would become "
            f"{size} x {length}, more than {_MAX_PIXELS} pixels; crop the image first"
        )
    shape = (size, length) if width <= height else (length, size)
    return image if shape == image.size else image.resize(shape, pil.Resampling.BILINEAR)


def center_crop(image: Image, size: int) -> Image:
    """Cut out the middle `size` x `size` pixels; a smaller image is first padded with black.

    Args:
        image: a PIL image of mode L, RGB, RGBA or CMYK.
        size: the side of the square, positive.

    Returns:
        A PIL image of `size` x `size` pixels and the same mode; padding is 0 in every channel.

    Raises:
        ArgumentError: the size is not positive, or the mode is not supported.

    Example:
        >>> import PIL.Image
        >>> center_crop(PIL.Image.new("RGB", (383, 256)), 224).size
        (224, 224)
    """
    _check("center_crop", image, size)
    left, top = (_crop_start(length, size) for length in image.size)
    return image.crop((left, top, left + size, top + size))


def to_array(image: Image) -> Array:
    """Convert a PIL image to an array of numbers from 0 to 1.

    Args:
        image: a PIL image of mode L, RGB, RGBA or CMYK: height x width pixels of C bytes.

    Returns:
        float32 of shape (C, height, width), C-contiguous: the bytes divided by 255.

    Raises:
        ArgumentError: the mode is not supported.

    Example:
        >>> import PIL.Image
        >>> to_array(PIL.Image.new("RGB", (4, 3), (255, 0, 51)))[:, 0, 0].tolist()
        [1.0, 0.0, 0.20000000298023224]
    """
    _check("to_array", image)
    pixels = np.asarray(image)
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return planes.astype(np.float32, order="C") / np.float32(255)


def normalize(array: Array, mean: Sequence[float], std: Sequence[float]) -> Array:
    """Subtract each channel's mean and divide by its standard deviation.

    Args:
        array: float32 of shape (..., C, height, width).
        mean: C numbers.
        std: C numbers, none of them 0.

    Returns:
        float32 of the array's shape.

    Raises:
        DTypeError: the array is not float32.
        ShapeError: it has fewer than three axes, or mean and std do not have a number for each channel.
        ArgumentError: a standard deviation is 0.

    Example:
        >>> import numpy as np
        >>> normalize(np.ones((3, 2, 2), np.float32), [0.5, 0, 1], [0.5, 2, 1])[:, 0, 0].tolist()
        [1.0, 0.5, 0.0]
    """
    if array.dtype != np.float32:
        raise DTypeError(f"[normalize] expected float32, got {array.dtype}; to_array gives float32")
    if array.ndim < 3 or not array.shape[-3] == len(mean) == len(std):
        raise ShapeError(
            f"[normalize] expected (..., C, height, width) and C means and deviations, "
            f"got shape {array.shape}, {len(mean)} means and {len(std)} deviations"
        )
    center, scale = (np.asarray(values, np.float32)[:, None, None] for values in (mean, std))
    if not scale.all():
        raise ArgumentError(f"[normalize] a standard deviation is 0 in float32: {tuple(std)}")
    normalized: Array = (array - center) / scale
    return normalized


def imagenet_eval(image: Image, *, resize_to: int = 256, crop: int = 224) -> Array:
    """Preprocess an image as torchvision does to evaluate its ImageNet classifiers.

    Resize the shorter side, crop the center, scale to 0..1, normalize with ImageNet's statistics.

    Args:
        image: a PIL image; any mode that converts to RGB.
        resize_to: length of the shorter side after resizing (232 for torchvision's "V2" weights).
        crop: side of the square that is kept.

    Returns:
        float32 of shape (3, crop, crop), C-contiguous.

    Raises:
        ArgumentError: a size is not positive, or the image is empty or too long a strip.
        BackendMissingError: Pillow is not installed.

    Example:
        >>> import PIL.Image
        >>> imagenet_eval(PIL.Image.new("RGB", (640, 427))).shape
        (3, 224, 224)
    """
    square = center_crop(resize(image.convert("RGB"), resize_to), crop)
    return normalize(to_array(square), IMAGENET_MEAN, IMAGENET_STD)


def pillow(caller: str) -> ModuleType:
    """Pillow's module of images.

    Raises:
        BackendMissingError: Pillow is not installed.
    """
    try:
        import PIL.Image
    except ImportError as error:
        raise BackendMissingError(
            f"[{caller}] needs Pillow, which is not installed; pip install pillow"
        ) from error
    return PIL.Image


def _check(caller: str, image: Image, size: int = 1) -> None:
    if image.mode not in _MODES:
        raise ArgumentError(
            f"[{caller}] expected mode {', '.join(_MODES)}, got {image.mode}; image.convert('RGB') makes one"
        )
    if size < 1:
        raise ArgumentError(f"[{caller}] size must be positive, got {size}")


def _crop_start(length: int, size: int) -> int:
    """The start of the crop along one side; negative if the image is padded (an odd pixel goes after it)."""
    return round((length - size) / 2.0) if length >= size else -((size - length) // 2)
