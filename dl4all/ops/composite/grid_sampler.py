"""Images sampled at places of a grid, and the grids of affine maps. Jaderberg et al., arXiv:1506.02025."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.composite.interpolation import interpolate
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Shape, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.comparison import clamp
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.rounding import abs
from dl4all.ops.indexing.indices import Indices, NDArray
from dl4all.ops.indexing.rows import take_rows
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.views import movedim, reshape, select, transpose, unsqueeze

PADDINGS = ("zeros", "border", "reflection")


@export("F")
def affine_grid(theta: Any, size: Sequence[int], align_corners: bool = False) -> Any:
    """The places of an image's pixels after an affine map, for :func:`grid_sample`.

    Args:
        theta: a matrix for each image, of shape (N, 2, 3); of volumes (N, 3, 4).
        size: of the images to be made: (N, C, H, W), or (N, C, D, H, W).
        align_corners: whether -1 and 1 are the middles of the outermost pixels, not their outer edges.

    Returns:
        Shape (N, H, W, 2): x and y from -1 to 1; or (N, D, H, W, 3).

    Raises:
        ShapeError: the matrices do not fit the size.

    Example:
        >>> import dl4all as dl
        >>> same = dl.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
        >>> dl.nn.functional.affine_grid(same, (1, 1, 1, 2)).tolist()
        [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    check_float("affine_grid", theta)
    axes = len(size) - 2
    if axes not in (2, 3) or theta.shape != (size[0], axes, axes + 1):
        raise ShapeError(
            f"[affine_grid] expected a theta of shape (N, 2, 3) for (N, C, H, W), or (N, 3, 4) for "
            f"(N, C, D, H, W), got {theta.shape} for {tuple(size)}"
        )
    lines = []
    for n in size[2:]:
        line = np.linspace(-1, 1, n) if n > 1 else np.zeros(n)
        lines.append(line if align_corners or n < 2 else line * (n - 1) / n)
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(tuple(size[2:]))], -1)
    base = _there(theta, places.reshape(-1, axes + 1).astype(theta.dtype))
    return reshape(matmul(base, transpose(theta, 1, 2)), size[0], *size[2:], axes)


@export("F")
@reads("grid")
def grid_sample(
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Any:
    """Images with the colours of others at places of a grid.

    Which pixels are taken is found on the host; their weights, and the sums, stay on the device.

    Args:
        input: floats of shape (N, C, H, W), or volumes (N, C, D, H, W).
        grid: places, of shape (N, H2, W2, 2): x and y, which are -1 and 1 at the edges; of volumes
            (N, D2, H2, W2, 3).
        mode: "bilinear" for a mean of the pixels around a place, "nearest" for the one closest to it.
        padding_mode: what lies beyond the edges: "zeros", "border" or "reflection".
        align_corners: whether -1 and 1 are the middles of the outermost pixels, not their outer edges.

    Returns:
        Shape (N, C, H2, W2), or (N, C, D2, H2, W2).

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: there is no such mode.

    Example:
        >>> import dl4all as dl
        >>> x, middle = dl.tensor([[[[1.0, 3.0]]]]), dl.zeros(1, 1, 1, 2)
        >>> dl.nn.functional.grid_sample(x, middle).item()
        2.0
    """
    name = "grid_sample"
    check_float(name, input, grid)
    if mode not in ("bilinear", "nearest"):
        raise ArgumentError(f"[{name}] the mode must be 'bilinear' or 'nearest', got {mode!r}")
    if padding_mode not in PADDINGS:
        raise ArgumentError(
            f"[{name}] padding_mode must be one of {', '.join(PADDINGS)}, got {padding_mode!r}"
        )
    axes = len(input.shape) - 2
    if axes not in (2, 3) or len(grid.shape) != axes + 2 or (grid.shape[0], grid.shape[-1]) != (
        input.shape[0], axes,
    ):  # fmt: skip
        raise ShapeError(
            f"[{name}] expected images (N, C, H, W) and a grid (N, H2, W2, 2), or volumes and a grid "
            f"(N, D2, H2, W2, 3), got {input.shape} and {grid.shape}"
        )
    corners = bool(align_corners)
    # x is the last axis of the image and the first of the grid.
    places = [
        _beyond(_pixels(select(grid, -1, axes - 1 - i), size, corners), size, padding_mode, corners)
        for i, size in enumerate(input.shape[2:])
    ]
    host = [place.on_host().astype(np.float64) for place in places]
    pixels = reshape(movedim(input, 1, -1), 1, math.prod((input.shape[0], *input.shape[2:])), input.shape[1])
    shape = grid.shape[:-1]
    if mode == "nearest":
        found = _picked(pixels, [np.rint(h) for h in host], input.shape, shape)
        return movedim(found, -1, 1)
    below = [np.floor(h) for h in host]
    shares = [
        place - _there(place, low.astype(input.dtype)) for place, low in zip(places, below, strict=True)
    ]
    found = None
    for corner in itertools.product((0, 1), repeat=axes):
        weight: Any = 1.0
        for upper, share in zip(corner, shares, strict=True):
            weight = (share if upper else 1 - share) * weight
        there = [low + upper for upper, low in zip(corner, below, strict=True)]
        part = _picked(pixels, there, input.shape, shape) * unsqueeze(weight, -1)
        found = part if found is None else found + part
    return movedim(found, -1, 1)


def _there(like: Any, array: NDArray) -> Any:
    return from_host(type(like).result_class, np.ascontiguousarray(array), like.device, copy=False)


def _pixels(places: Any, size: int, corners: bool) -> Any:
    """Places from -1 to 1 as places among pixels."""
    return (places + 1) * ((size - 1) / 2) if corners else ((places + 1) * size - 1) / 2


def _beyond(places: Any, size: int, padding_mode: str, corners: bool) -> Any:
    """Places that lie outside as places inside, unless zeros lie there."""
    if padding_mode == "zeros":
        return places
    if padding_mode == "reflection":
        low, span = (0.0, size - 1) if corners else (-0.5, size)
        if span == 0:
            return places * 0.0
        away = abs(places - low)
        turns = np.floor(away.on_host().astype(np.float64) / span)
        rest = away - _there(away, (turns * span).astype(away.dtype))
        even = _there(away, turns % 2 == 0)
        places = where(even, rest, span - rest) + low
    return clamp(places, 0.0, float(size - 1))


def _picked(pixels: Any, places: list[NDArray], shape: Shape, wanted: Shape) -> Any:
    """The pixels at whole places, 0 for those outside: the grid's shape and an axis of channels."""
    inside = np.ones(wanted, bool)
    flat = np.arange(shape[0]).reshape(-1, *(1,) * (len(wanted) - 1)) * np.ones(wanted, np.int64)
    for place, size in zip(places, shape[2:], strict=True):
        with np.errstate(invalid="ignore"):
            within = (place >= 0) & (place < size)
        inside &= within
        flat = flat * size + np.where(within, place, 0).astype(np.int64)
    found = take_rows(pixels, Indices(np.where(inside, flat, -1)))
    return reshape(found, *wanted, shape[1])


# PyTorch's older names for two ways of resizing


@export("F")
def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """:func:`interpolate` with the nearest pixels.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.upsample_nearest(dl.ones(1, 1, 2, 2), scale_factor=2).shape
        (1, 1, 4, 4)
    """
    return interpolate(input, size, scale_factor, mode="nearest")


@export("F")
def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """:func:`interpolate` with means of four pixels, and the corners aligned.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.upsample_bilinear(dl.ones(1, 1, 2, 2), scale_factor=2).shape
        (1, 1, 4, 4)
    """
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
