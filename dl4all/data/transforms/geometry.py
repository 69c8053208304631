"""Transforms that move pixels: sizes, parts, flips and rotations of images, as torchvision has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dl4all.data.transforms import pictures
from dl4all.data.transforms.base import Transform, happens, probability
from dl4all.data.transforms.imagenet import _MAX_PIXELS as MAX_PIXELS
from dl4all.data.transforms.imagenet import _crop_start as crop_start
from dl4all.data.transforms.imagenet import pillow
from dl4all.data.transforms.pictures import InterpolationMode, check_image, image_size
from dl4all.data.workers import numpy_generator
from dl4all.errors import ArgumentError

PADDING_MODES = {"constant": "constant", "edge": "edge", "reflect": "reflect", "symmetric": "symmetric"}


class Resize(Transform):
    """An image with another height and width.

    Args:
        size: the length of the shorter side, which keeps the shape, or (height, width).
        interpolation: an :class:`InterpolationMode` or its name.
        max_size: the most that the longer side may become, where `size` is one number.
        antialias: only True: Pillow computes the pixels.

    Raises:
        ArgumentError: a size is no positive int, `max_size` does not fit to `size`, or the result would have
            more than 2**28 pixels.

    Example:
        >>> import PIL.Image
        >>> import dl4all as dl
        >>> dl.data.transforms.Resize(256)(PIL.Image.new("RGB", (640, 427))).size
        (383, 256)
        >>> dl.data.transforms.Resize((3, 5))(dl.rand(2, 7, 7, device="cpu")).shape
        (2, 3, 5)
    """

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: Any = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        self._pair = pictures.pair("Resize", "size", size)
        self.size, self.max_size = size, max_size
        self._shorter = not isinstance(size, Sequence) or len(size) == 1
        self.interpolation = pictures.interpolation_mode("Resize", interpolation)
        if max_size is not None and (not self._shorter or max_size <= self._pair[0]):
            raise ArgumentError(
                f"[Resize] max_size {max_size} needs a size that is one smaller number, got {size!r}"
            )
        if antialias is False:
            raise ArgumentError("[Resize] antialias must be True: Pillow computes the pixels")

    def __call__(self, image: Any) -> Any:
        check_image("Resize", image)
        height, width = image_size(image)
        if not height or not width:
            raise ArgumentError(f"[Resize] the image is empty: {width} x {height} pixels")
        target = self._pair
        if self._shorter:
            shorter, longer = target[0], int(target[0] * max(height, width) / min(height, width))
            if self.max_size is not None and longer > self.max_size:
                shorter, longer = int(self.max_size * shorter / longer), self.max_size
            target = (longer, shorter) if height > width else (shorter, longer)
        if target[0] * target[1] > MAX_PIXELS:
            raise ArgumentError(
                f"[Resize] {width} x {height} pixels would become {target[1]} x {target[0]}, more than "
                f"{MAX_PIXELS}; crop the image first"
            )
        return pictures.resize_to(image, target, self.interpolation)


class CenterCrop(Transform):
    """The middle of an image; a smaller image is first padded with 0.

    Args:
        size: the side of a square, or (height, width).

    Raises:
        ArgumentError: a size is no positive int.

    Example:
        >>> import dl4all as dl
        >>> dl.data.transforms.CenterCrop(2)(dl.arange(16, device="cpu").reshape(4, 4)).tolist()
        [[5, 6], [9, 10]]
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = pictures.pair("CenterCrop", "size", size)

    def __call__(self, image: Any) -> Any:
        check_image("CenterCrop", image)
        starts = [crop_start(have, want) for have, want in zip(image_size(image), self.size, strict=True)]
        if min(starts) < 0:
            top, left = (max(0, -start) for start in starts)
            height, width = (
                max(0, want - have) for have, want in zip(image_size(image), self.size, strict=True)
            )
            image = pictures.pad(image, (left, top, width - left, height - top), 0, "constant")
            starts = [max(0, start) for start in starts]
        return pictures.crop(image, starts[0], starts[1], *self.size)


class Pad(Transform):
    """An image with pixels around it.

    Args:
        padding: how many on every side; or (left and right, above and below); or (left, above, right, below).
        fill: the value of the new pixels, or one for each channel.
        padding_mode: "constant"; or "edge", "reflect" or "symmetric", which repeat the image's own pixels.

    Raises:
        ArgumentError: a number is no int of at least 0, or there is no such mode.

    Example:
        >>> import dl4all as dl
        >>> dl.data.transforms.Pad((1, 0), fill=7)(dl.ones(1, 1, 2, device="cpu")).tolist()
        [[[7.0, 1.0, 1.0, 7.0]]]
    """

    def __init__(self, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant") -> None:
        self.padding = _sides("Pad", padding)
        if padding_mode not in PADDING_MODES:
            raise ArgumentError(
                f"[Pad] padding_mode must be one of {', '.join(PADDING_MODES)}, got {padding_mode!r}"
            )
        self.fill, self.padding_mode = fill, padding_mode

    def __call__(self, image: Any) -> Any:
        check_image("Pad", image)
        return pictures.pad(image, self.padding, self.fill, PADDING_MODES[self.padding_mode])


class RandomCrop(Transform):
    """A part of an image at a random place.

    Args:
        size: the side of a square, or (height, width).
        padding: pixels that are put around the image first, as for :class:`Pad`.
        pad_if_needed: put as many pixels around an image that is too small.
        fill: their value, or one for each channel.
        padding_mode: as for :class:`Pad`.

    Raises:
        ArgumentError: a number is out of range; from the call: the image is too small.

    Example:
        >>> import dl4all as dl
        >>> dl.data.transforms.RandomCrop(32, padding=4)(dl.rand(3, 32, 32, device="cpu")).shape
        (3, 32, 32)
    """

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size, self.pad_if_needed = pictures.pair("RandomCrop", "size", size), pad_if_needed
        self.padding = None if padding is None else _sides("RandomCrop", padding)
        self._pad = Pad(0 if padding is None else padding, fill, padding_mode)

    def __call__(self, image: Any) -> Any:
        check_image("RandomCrop", image)
        image = image if self.padding is None else self._pad(image)
        missing = [max(0, want - have) for want, have in zip(self.size, image_size(image), strict=True)]
        if self.pad_if_needed and any(missing):
            image = Pad((missing[1], missing[0]), self._pad.fill, self._pad.padding_mode)(image)
        height, width = image_size(image)
        if height < self.size[0] or width < self.size[1]:
            raise ArgumentError(
                f"[RandomCrop] the image of {height} x {width} pixels is smaller than {self.size[0]} x "
                f"{self.size[1]}; pass pad_if_needed=True, or resize it first"
            )
        numbers = numpy_generator()
        top = int(numbers.integers(height - self.size[0] + 1))
        left = int(numbers.integers(width - self.size[1] + 1))
        return pictures.crop(image, top, left, *self.size)


class RandomHorizontalFlip(Transform):
    """An image with left and right exchanged, with a probability.

    Args:
        p: the probability.

    Raises:
        ArgumentError: `p` is not from 0 to 1.

    Example:
        >>> import dl4all as dl
        >>> dl.data.transforms.RandomHorizontalFlip(p=1)(dl.arange(3, device="cpu").reshape(1, 1, 3)).tolist()
        [[[2, 1, 0]]]
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = probability("RandomHorizontalFlip", p)

    def __call__(self, image: Any) -> Any:
        check_image("RandomHorizontalFlip", image)
        return pictures.flip(image, vertical=False) if happens(self.p) else image


class RandomVerticalFlip(Transform):
    """An image upside down, with a probability.

    Args:
        p: the probability.

    Raises:
        ArgumentError: `p` is not from 0 to 1.

    Example:
        >>> import dl4all as dl
        >>> dl.data.transforms.RandomVerticalFlip(p=1)(dl.arange(3, device="cpu").reshape(1, 3, 1)).tolist()
        [[[2], [1], [0]]]
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = probability("RandomVerticalFlip", p)

    def __call__(self, image: Any) -> Any:
        check_image("RandomVerticalFlip", image)
        return pictures.flip(image, vertical=True) if happens(self.p) else image


class RandomResizedCrop(Transform):
    """A random part of an image, of random size and shape, resized: how networks for ImageNet are trained.

    Args:
        size: the side of a square, or (height, width).
        scale: the least and the greatest share of the image's area.
        ratio: the least and the greatest width / height.
        interpolation: an :class:`InterpolationMode` or its name.
        antialias: only True, as for :class:`Resize`.

    Raises:
        ArgumentError: a number is out of range.

    Example:
        >>> import PIL.Image
        >>> import dl4all as dl
        >>> dl.data.transforms.RandomResizedCrop(224)(PIL.Image.new("RGB", (640, 427))).size
        (224, 224)
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        self.size = pictures.pair("RandomResizedCrop", "size", size)
        self.scale, self.ratio = (
            checked_range("RandomResizedCrop", name, numbers)
            for name, numbers in (("scale", scale), ("ratio", ratio))
        )
        self._resize = Resize(self.size, interpolation, antialias=antialias)

    def __call__(self, image: Any) -> Any:
        check_image("RandomResizedCrop", image)
        part = random_part(*image_size(image), self.scale, self.ratio) or self._whole(*image_size(image))
        return self._resize(pictures.crop(image, *part))

    def _whole(self, height: int, width: int) -> tuple[int, int, int, int]:
        """The largest part in the middle whose shape is allowed."""
        least, most = self.ratio
        rows, columns = height, width
        if width / height < least:
            rows = min(height, max(1, round(width / least)))
        elif width / height > most:
            columns = min(width, max(1, round(height * most)))
        return (height - rows) // 2, (width - columns) // 2, rows, columns


class RandomRotation(Transform):
    """An image turned by a random angle, counter-clockwise.

    Args:
        degrees: the greatest angle to both sides, or (least, greatest).
        interpolation: "nearest", "bilinear" or "bicubic".
        expand: enlarge the image so that all of it is seen.
        center: (x, y) of the point around which it turns; by default the middle.
        fill: the value of new pixels; with a tensor, one for all channels.

    Raises:
        ArgumentError: the angles are negative or in the wrong order, or there is no such interpolation.

    Example:
        >>> import dl4all as dl
        >>> quarter = dl.data.transforms.RandomRotation((90, 90))
        >>> quarter(dl.arange(4.0, device="cpu").reshape(1, 2, 2)).tolist()
        [[[1.0, 3.0], [0.0, 2.0]]]
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: Any = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Any = 0,
    ) -> None:
        angles = tuple(degrees) if isinstance(degrees, Sequence) else (-degrees, degrees)
        if len(angles) != 2 or not angles[0] <= angles[1]:
            raise ArgumentError(
                f"[RandomRotation] degrees must be a number of at least 0 or (least, greatest), got "
                f"{degrees!r}"
            )
        self.degrees, self.expand, self.center, self.fill = angles, expand, center, fill
        self.interpolation = pictures.interpolation_mode("RandomRotation", interpolation)
        if self.interpolation.value not in ("nearest", "bilinear", "bicubic"):
            raise ArgumentError(
                f"[RandomRotation] interpolation must be nearest, bilinear or bicubic, got {interpolation!r}"
            )

    def __call__(self, image: Any) -> Any:
        check_image("RandomRotation", image)
        angle = float(numpy_generator().uniform(*self.degrees))
        method = pillow("RandomRotation").Resampling[self.interpolation.name]

        def turned(picture: Any) -> Any:
            return picture.rotate(angle, method, self.expand, self.center, fillcolor=self.fill)

        return turned(image) if pictures.is_pil(image) else pictures.on_planes(image, turned)


def random_part(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[int, int, int, int] | None:
    """Top, left, height and width of a part of random area and shape; None if ten tries do not fit."""
    numbers = numpy_generator()
    for _ in range(10):
        area = height * width * numbers.uniform(*scale)
        shape = math.exp(numbers.uniform(math.log(ratio[0]), math.log(ratio[1])))
        columns, rows = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < columns <= width and 0 < rows <= height:
            top = int(numbers.integers(height - rows + 1))
            return top, int(numbers.integers(width - columns + 1)), rows, columns
    return None


def checked_range(name: str, what: str, numbers: Sequence[float]) -> tuple[float, float]:
    """A positive least and greatest number.

    Raises:
        ArgumentError: they are no such two.
    """
    if not isinstance(numbers, Sequence) or len(numbers) != 2 or not 0 < numbers[0] <= numbers[1]:
        raise ArgumentError(f"[{name}] {what} must be (least, greatest), both above 0, got {numbers!r}")
    return float(numbers[0]), float(numbers[1])


def _sides(name: str, padding: int | Sequence[int]) -> tuple[int, int, int, int]:
    """Padding on the left, above, on the right and below.

    Raises:
        ArgumentError: they are no ints of at least 0, or not 1, 2 or 4.
    """
    numbers = list(padding) if isinstance(padding, Sequence) else [padding]
    if len(numbers) not in (1, 2, 4):
        raise ArgumentError(f"[{name}] padding must be 1, 2 or 4 numbers, got {padding!r}")
    for number in numbers:
        pictures.pair(name, "padding", number, 0)
    left, top, right, bottom = {1: numbers * 4, 2: numbers * 2, 4: numbers}[len(numbers)]
    return left, top, right, bottom
