"""Values between elements: of an axis in another size by ONNX's rules, and of images at points."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dl4all.functions.vision.interpolation import Taps, cubic_kernel
from dl4all.onnx.graph import NDArray

TRANSFORMS = (
    "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)  # fmt: skip
"""Ways from points in a new axis to points in the old one, besides ``half_pixel``."""


class ResizeRule(NamedTuple):
    """The attributes of ``Resize`` for one axis."""

    mode: str
    transform: str
    nearest_mode: str = "round_prefer_floor"
    start: float = 0.0  # of the region that is resized, as a part of the axis
    end: float = 1.0
    cubic_coefficient: float = -0.75
    exclude_outside: bool = False
    extrapolation: float = 0.0
    antialias: bool = False


def coordinates(old: int, new: int, factor: float, rule: ResizeRule) -> NDArray:
    """The points in the old axis of the elements of the new one."""
    points = np.arange(new, dtype=np.float64)
    if rule.transform == "half_pixel":
        return (points + 0.5) / factor - 0.5
    if rule.transform == "half_pixel_symmetric":  # the old axis' centre stays in the centre
        centre = old / 2 * (1 - new / (factor * old))
        return centre + (points + 0.5) / factor - 0.5
    if rule.transform == "pytorch_half_pixel":
        return (points + 0.5) / factor - 0.5 if new > 1 else np.zeros(new)
    if rule.transform == "align_corners":
        last = factor * old - 1  # of the new axis, whose size need not be whole here
        return points * (old - 1) / last if new > 1 else np.zeros(new)
    if rule.transform == "asymmetric":
        return points / factor
    if rule.transform == "tf_crop_and_resize":
        if new == 1:
            return np.full(1, 0.5 * (rule.start + rule.end) * (old - 1))
        return rule.start * (old - 1) + points * (rule.end - rule.start) * (old - 1) / (new - 1)
    return (points + 0.5) / factor  # tf_half_pixel_for_nn


ROUNDED: dict[str, Any] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""The modes of the nearest element."""


def _outside(points: NDArray, old: int, rule: ResizeRule) -> NDArray:
    """Which points get the extrapolated value."""
    if rule.transform != "tf_crop_and_resize":
        return np.zeros(len(points), bool)
    return (points < 0) | (points > old - 1)


def nearest_indices(old: int, new: int, factor: float, rule: ResizeRule) -> tuple[NDArray, NDArray]:
    """For each element the old one, and whether it is outside."""
    points = coordinates(old, new, factor, rule)
    nearest = np.clip(ROUNDED[rule.nearest_mode](points).astype(np.int64), 0, old - 1)
    return nearest, _outside(points, old, rule)


def _linear(distance: NDArray, rule: ResizeRule) -> NDArray:
    return np.maximum(1 - np.abs(distance), 0)


def _cubic(distance: NDArray, rule: ResizeRule) -> NDArray:
    return cubic_kernel(np.abs(distance), rule.cubic_coefficient)


def taps(old: int, new: int, factor: float, rule: ResizeRule) -> tuple[Taps, NDArray]:
    """For each tap the old elements and their weights, and which elements are outside."""
    kernel, radius = (_linear, 1) if rule.mode == "linear" else (_cubic, 2)
    points = coordinates(old, new, factor, rule)
    stretch = min(factor, 1.0) if rule.antialias else 1.0
    reach = int(np.ceil(radius / stretch))
    first = np.floor(points).astype(np.int64) - reach + 1
    rows, weights = [], []
    for step in range(2 * reach):
        row = first + step
        weight = kernel((row - points) * stretch, rule)
        if rule.exclude_outside:
            weight = np.where((row < 0) | (row >= old), 0, weight)
        rows.append(np.clip(row, 0, old - 1))
        weights.append(weight)
    total = np.sum(weights, 0)
    if rule.exclude_outside or rule.antialias:
        weights = [weight / total for weight in weights]
    return list(zip(rows, weights, strict=True)), _outside(points, old, rule)
