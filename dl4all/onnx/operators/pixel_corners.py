"""Values of images between their pixels."""

from __future__ import annotations

from typing import Any

from dl4all.functions import names as functions
from dl4all.tensor.creation import zeros_like


def corner_terms(images: Any, image: Any, y: Any, x: Any, *, clamped: bool) -> list[Any]:
    """The four pixels around each point, times their weights, whose sum is the bilinear sample.

    Args:
        images: shape (N, C, H, W).
        image: int64 of shape (points,), which image a point is of.
        y, x: floats of shape (points,), in pixels.
        clamped: whether points up to one pixel beyond the outermost are moved there, and those farther away
            are 0; otherwise all around the image is 0, and mixes with its edge.

    Returns:
        Tensors of shape (points, C).
    """
    count, channels, height, width = images.shape
    pixels = images.permute(0, 2, 3, 1).reshape(count * height * width, channels)
    inside: Any = None
    if clamped:
        inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
        y, x = functions.clamp(y, 0, height - 1), functions.clamp(x, 0, width - 1)
    low_y, low_x = functions.floor(y), functions.floor(x)
    terms = []
    for down in (0, 1):
        for right in (0, 1):
            row, column = low_y + down, low_x + right
            weight = (1 - functions.abs(y - row)) * (1 - functions.abs(x - column))
            if not clamped:
                inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            weight = functions.where(inside, weight, zeros_like(weight))
            line = functions.clamp(row, 0, height - 1).long() + image * height
            index = line * width + functions.clamp(column, 0, width - 1).long()
            terms.append(functions.index_select(pixels, 0, index) * weight.unsqueeze(1))
    return terms
