"""The base of transforms, and transforms made of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dl4all.data.workers import numpy_generator
from dl4all.errors import ArgumentError


class Transform:
    """Base class of transforms: a call takes an image and returns another.

    Example:
        >>> import dl4all as dl
        >>> class Invert(dl.data.transforms.Transform):
        ...     def __call__(self, image):
        ...         return 1 - image
        >>> Invert()(dl.tensor([0.25], device="cpu")).tolist()
        [0.75]
    """

    def __call__(self, image: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} needs a method __call__(self, image)")

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{type(self).__name__}({options})"


class Compose(Transform):
    """Transforms one after the other.

    Args:
        transforms: functions of an image.

    Example:
        >>> import dl4all as dl, numpy as np
        >>> T = dl.data.transforms
        >>> prepare = T.Compose([T.ToTensor(), T.Normalize((0.5,), (0.25,))])
        >>> prepare(np.full((2, 2), 255, np.uint8)).tolist()
        [[[2.0, 2.0], [2.0, 2.0]]]
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image

    def __repr__(self) -> str:
        return "\n".join(["Compose(", *[f"    {transform}" for transform in self.transforms], ")"])


class Lambda(Transform):
    """A function as a transform.

    Args:
        lambd: a function of an image.

    Raises:
        ArgumentError: it cannot be called.

    Example:
        >>> import dl4all as dl
        >>> dl.data.transforms.Lambda(lambda image: image * 2)(1.5)
        3.0
    """

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise ArgumentError(f"[Lambda] lambd must be a function of an image, got {lambd!r}")
        self.lambd = lambd

    def __call__(self, image: Any) -> Any:
        return self.lambd(image)


class RandomApply(Transform):
    """Transforms one after the other with a probability; else the image as it is.

    Args:
        transforms: functions of an image.
        p: the probability.

    Raises:
        ArgumentError: `p` is not from 0 to 1.

    Example:
        >>> import dl4all as dl
        >>> dl.data.transforms.RandomApply([lambda image: image + 1], p=1.0)(2)
        3
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: float = 0.5) -> None:
        self.transforms, self.p = transforms, probability("RandomApply", p)

    def __call__(self, image: Any) -> Any:
        return Compose(self.transforms)(image) if happens(self.p) else image


def probability(name: str, p: float) -> float:
    """A probability.

    Raises:
        ArgumentError: it is not from 0 to 1.
    """
    if not 0 <= p <= 1:
        raise ArgumentError(f"[{name}] p must be from 0 to 1, got {p!r}")
    return p


def happens(p: float) -> bool:
    """Whether what has a probability happens this time."""
    return bool(numpy_generator().random() < p)
