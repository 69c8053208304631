"""Transforms of what pixels are worth: brightness, contrast, colours, and parts that are erased."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.data.transforms import pictures
from dl4all.data.transforms.base import Transform, happens, probability
from dl4all.data.transforms.geometry import checked_range, random_part
from dl4all.data.transforms.imagenet import pillow
from dl4all.data.transforms.pictures import check_image
from dl4all.data.workers import numpy_generator
from dl4all.errors import ArgumentError

Array = npt.NDArray[Any]
Amount = float | Sequence[float]

GREY = (0.2989, 0.587, 0.114)  # of red, green and blue, as torchvision weighs them


class ColorJitter(Transform):
    """An image with random brightness, contrast, saturation and hue, changed in random order.

    Args:
        brightness: the greatest change b of a factor from 1 - b to 1 + b, or (least, greatest) factor.
        contrast: the same for differences from the mean grey.
        saturation: the same for differences from each pixel's grey.
        hue: the greatest turn of the hues, of at most 0.5 of a circle, or (least, greatest).

    Raises:
        ArgumentError: a number is out of range; from the call: the image has not 1 or 3 channels.

    Example:
        >>> import dl4all as dl
        >>> jitter = dl.data.transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)
        >>> jitter(dl.rand(3, 5, 7, device="cpu")).shape
        (3, 5, 7)
    """

    def __init__(
        self, brightness: Amount = 0, contrast: Amount = 0, saturation: Amount = 0, hue: Amount = 0
    ) -> None:
        self.brightness = _factors("brightness", brightness)
        self.contrast = _factors("contrast", contrast)
        self.saturation = _factors("saturation", saturation)
        turns = tuple(hue) if isinstance(hue, Sequence) else (-hue, hue)
        if len(turns) != 2 or not -0.5 <= turns[0] <= turns[1] <= 0.5:
            raise ArgumentError(
                f"[ColorJitter] hue must be from 0 to 0.5, or two of -0.5 to 0.5, got {hue!r}"
            )
        self.hue = None if turns == (0, 0) else turns

    def __call__(self, image: Any) -> Any:
        check_image("ColorJitter", image)
        numbers = numpy_generator()
        steps = [
            (change, span)
            for change, span in (
                ("brightness", self.brightness),
                ("contrast", self.contrast),
                ("saturation", self.saturation),
                ("hue", self.hue),
            )
            if span is not None
        ]
        for number in numbers.permutation(len(steps)):
            change, span = steps[number]
            image = _changed(image, change, float(numbers.uniform(*span)))
        return image


class Grayscale(Transform):
    """An image without colours.

    Args:
        num_output_channels: 1, or 3 equal ones.

    Raises:
        ArgumentError: it is another number; from the call: a tensor has not 3 channels.

    Example:
        >>> import dl4all as dl
        >>> dl.data.transforms.Grayscale()(dl.rand(3, 4, 5, device="cpu")).shape
        (1, 4, 5)
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels not in (1, 3):
            raise ArgumentError(
                f"[Grayscale] num_output_channels must be 1 or 3, got {num_output_channels!r}"
            )
        self.num_output_channels = num_output_channels

    def __call__(self, image: Any) -> Any:
        check_image("Grayscale", image)
        if pictures.is_pil(image):
            grey = image.convert("L")
            return grey if self.num_output_channels == 1 else pillow("Grayscale").merge("RGB", [grey] * 3)
        _check_channels("Grayscale", image)
        return pictures.on_array(
            image, lambda array: np.repeat(_grey(array).astype(array.dtype), self.num_output_channels, -3)
        )


class RandomGrayscale(Transform):
    """An image without colours, with a probability; the number of channels stays.

    Args:
        p: the probability.

    Raises:
        ArgumentError: `p` is not from 0 to 1.

    Example:
        >>> import dl4all as dl
        >>> dl.data.transforms.RandomGrayscale(p=1)(dl.rand(3, 4, 5, device="cpu")).shape
        (3, 4, 5)
    """

    def __init__(self, p: float = 0.1) -> None:
        self.p = probability("RandomGrayscale", p)

    def __call__(self, image: Any) -> Any:
        check_image("RandomGrayscale", image)
        return Grayscale(_channels(image))(image) if _channels(image) == 3 and happens(self.p) else image


class RandomErasing(Transform):
    """A tensor with a random rectangle erased, with a probability.

    Args:
        p: the probability.
        scale: the least and the greatest share of the image's area.
        ratio: the least and the greatest width / height.
        value: what the rectangle is filled with: a number, one for each channel, or "random".
        inplace: accepted; the result is always a new tensor.

    Raises:
        ArgumentError: a number is out of range; from the call: the image is no tensor (C, height, width).

    Example:
        >>> import dl4all as dl
        >>> erased = dl.data.transforms.RandomErasing(p=1)(dl.ones(1, 9, 9, device="cpu"))
        >>> 0 < erased.sum().item() < 81
        True
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0,
        inplace: bool = False,
    ) -> None:
        self.p, self.inplace, self.value = probability("RandomErasing", p), inplace, value
        self.scale = checked_range("RandomErasing", "scale", scale)
        self.ratio = checked_range("RandomErasing", "ratio", ratio)
        if isinstance(value, str) and value != "random":
            raise ArgumentError(f"[RandomErasing] value must be numbers or 'random', got {value!r}")

    def __call__(self, image: Any) -> Any:
        if not pictures.is_array(image) or len(image.shape) < 3:
            raise ArgumentError(
                "[RandomErasing] expected a tensor (C, height, width); put ToTensor() before it"
            )
        if not happens(self.p):
            return image
        part = random_part(*pictures.image_size(image), self.scale, self.ratio)
        return image if part is None else pictures.on_array(image, lambda array: self._erased(array, part))

    def _erased(self, array: Array, part: tuple[int, int, int, int]) -> Array:
        top, left, height, width = part
        shape = (*array.shape[:-2], height, width)
        if self.value == "random":
            values: Array = numpy_generator().standard_normal(shape)
        else:
            numbers = np.atleast_1d(np.asarray(self.value, np.float64))
            if len(numbers) not in (1, array.shape[-3]):
                raise ArgumentError(
                    f"[RandomErasing] value has {len(numbers)} numbers for {array.shape[-3]} channels"
                )
            values = np.broadcast_to(numbers[:, None, None], shape)
        erased = array.copy()
        erased[..., top : top + height, left : left + width] = values
        return erased


def _factors(name: str, amount: Amount) -> tuple[float, float] | None:
    """The least and the greatest factor; None if it is always 1.

    Raises:
        ArgumentError: they are no such two.
    """
    factors = tuple(amount) if isinstance(amount, Sequence) else (max(0.0, 1 - amount), 1 + amount)
    if len(factors) != 2 or not 0 <= factors[0] <= factors[1]:
        raise ArgumentError(
            f"[ColorJitter] {name} must be a number of at least 0 or (least, greatest), got {amount!r}"
        )
    return None if factors == (1, 1) else (float(factors[0]), float(factors[1]))


def _channels(image: Any) -> int:
    return len(image.getbands()) if pictures.is_pil(image) else image.shape[-3] if image.ndim > 2 else 1


def _check_channels(name: str, image: Any) -> None:
    if _channels(image) != 3:
        raise ArgumentError(f"[{name}] expected 3 channels, got a tensor of shape {tuple(image.shape)}")


def _changed(image: Any, change: str, amount: float) -> Any:
    """An image with a property changed by an amount."""
    if pictures.is_pil(image):
        return _changed_picture(image, change, amount)
    if _channels(image) == 1 and change in ("saturation", "hue"):
        return image  # grey has neither
    if change != "brightness" and _channels(image) != 1:
        _check_channels("ColorJitter", image)

    def changed(array: Array) -> Array:
        most = 1.0 if array.dtype.kind == "f" else 255.0
        values = array.astype(np.float32, copy=False)
        if change == "hue":
            made = _hue_turned(values / most, amount) * most
        else:
            grey = values if array.ndim < 3 or array.shape[-3] == 1 else _grey(values)
            base = {"brightness": 0.0, "contrast": grey.mean((-2, -1), keepdims=True), "saturation": grey}
            made = np.clip(amount * values + (1 - amount) * base[change], 0, most)
        return made.astype(array.dtype)

    return pictures.on_array(image, changed)


def _changed_picture(image: Any, change: str, amount: float) -> Any:
    from PIL import ImageEnhance

    if change != "hue":
        enhancers: dict[str, Any] = {
            "brightness": ImageEnhance.Brightness,
            "contrast": ImageEnhance.Contrast,
            "saturation": ImageEnhance.Color,
        }
        return enhancers[change](image).enhance(amount)
    if image.mode in ("1", "L", "I", "F"):
        return image
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.asarray(hue).astype(np.int32) + int(amount * 255)) % 256
    pil = pillow("ColorJitter")
    return pil.merge("HSV", (pil.fromarray(turned.astype(np.uint8)), saturation, value)).convert(image.mode)


def _grey(array: Array) -> Array:
    """The grey of each pixel, as one channel."""
    red, green, blue = (array[..., channel, :, :] for channel in range(3))
    return np.asarray(GREY[0] * red + GREY[1] * green + GREY[2] * blue)[..., None, :, :]


def _hue_turned(array: Array, amount: float) -> Array:
    """Red, green and blue from 0 to 1 with the hues turned by a share of the circle."""
    most, least = array.max(-3), array.min(-3)
    span = np.where(most == least, 1, most - least)
    red, green, blue = ((most - array[..., channel, :, :]) / span for channel in range(3))
    is_red, is_green = most == array[..., 0, :, :], most == array[..., 1, :, :]
    hue = np.where(is_red, blue - green, np.where(is_green, 2 + red - blue, 4 + green - red))
    sixths = (np.where(most == least, 0, hue) / 6 + amount) % 1 * 6
    planes = []
    for shift in (5, 3, 1):
        step = (shift + sixths) % 6
        planes.append(most - (most - least) * np.clip(np.minimum(step, 4 - step), 0, 1))
    return np.stack(planes, -3)
