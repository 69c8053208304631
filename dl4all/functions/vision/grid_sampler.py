"""Spatial transformers: grid sampling, and grids of affine maps. Jaderberg et al., arXiv:1506.02025."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.functions.host import to_device_of
from dl4all.functions.vision.interpolation import CUBIC_COEFFICIENT
from dl4all.ops.core import strides, tape
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.kernel_function import kernel_function
from dl4all.ops.core.limits import check_shape, host_memory
from dl4all.ops.core.tensor_base import Array, Shape
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.elementwise.comparison import clamp, eq
from dl4all.ops.elementwise.logic import logical_and, where
from dl4all.ops.elementwise.rounding import abs, floor, round_even, zero
from dl4all.ops.indexing.device_indices import checked, stays
from dl4all.ops.indexing.indices import Indices
from dl4all.ops.indexing.rows import take_rows
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.parts import select
from dl4all.ops.memory.views import movedim, reshape, transpose, unsqueeze

SamplingMode = Literal["bilinear", "nearest", "bicubic"]
SAMPLING_MODES = get_args(SamplingMode)
PaddingMode = Literal["zeros", "border", "reflection"]
PADDING_MODES = get_args(PaddingMode)


@export("F")
def affine_grid(theta: Array, size: Sequence[int], align_corners: bool = False) -> Array:
    """The coordinates of an image's pixels after an affine map, for :func:`grid_sample`.

    Args:
        theta: a matrix for each image, of shape (N, 2, 3); for volumes (N, 3, 4).
        size: the shape of the sampled images: (N, C, H, W), or (N, C, D, H, W).
        align_corners: whether -1 and 1 are the centres of the outermost pixels, not their outer edges.

    Returns:
        Shape (N, H, W, 2): x and y from -1 to 1; or (N, D, H, W, 3).

    Raises:
        ShapeError: the matrices do not fit the size.
        ArgumentError: a size is no int of at least 0, or too large.

    Example:
        >>> import dl4all as dl
        >>> same = dl.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
        >>> dl.nn.functional.affine_grid(same, (1, 1, 1, 2)).tolist()
        [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """
    check_float("affine_grid", theta)
    size = strides.sizes("affine_grid", (size,))
    axes = len(size) - 2
    if min(size) < 0:
        raise ArgumentError(f"[affine_grid] sizes must be at least 0, got {size}")
    check_shape("affine_grid", (size[0], *size[2:], axes))
    if axes not in (2, 3) or theta.shape != (size[0], axes, axes + 1):
        raise ShapeError(
            f"[affine_grid] expected a theta of shape (N, 2, 3) for (N, C, H, W), or (N, 3, 4) for "
            f"(N, C, D, H, W), got {theta.shape} for {tuple(size)}"
        )
    coordinates = []
    with host_memory("affine_grid"):
        for n in size[2:]:
            coordinate = np.linspace(-1, 1, n) if n > 1 else np.zeros(n)
            coordinates.append(coordinate if align_corners or n < 2 else coordinate * (n - 1) / n)
        grid = np.stack([*np.meshgrid(*coordinates, indexing="ij")[::-1], np.ones(tuple(size[2:]))], -1)
    base = to_device_of(theta, grid.reshape(-1, axes + 1).astype(theta.dtype))
    return reshape(matmul(base, transpose(theta, 1, 2)), size[0], *size[2:], axes)


@export("F", autocast="widest")
@reads("grid")
def grid_sample(
    input: Array,
    grid: Array,
    mode: SamplingMode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    align_corners: bool | None = None,
) -> Array:
    """Images sampled at the coordinates of a grid.

    Args:
        input: floats of shape (N, C, H, W), or volumes (N, C, D, H, W).
        grid: coordinates of shape (N, H2, W2, 2): x and y, which are -1 and 1 at the edges; for volumes
            (N, D2, H2, W2, 3).
        mode: "bilinear" for the weighted mean of the surrounding pixels, "bicubic" (of images only) for that
            of four times four, "nearest" for the closest one.
        padding_mode: the pixels beyond the edges: "zeros", "border" or "reflection".
        align_corners: whether -1 and 1 are the centres of the outermost pixels, not their outer edges.

    Returns:
        Shape (N, C, H2, W2), or (N, C, D2, H2, W2).

    Raises:
        ShapeError: the shapes do not fit.
        ArgumentError: a mode is unknown.

    Example:
        >>> import dl4all as dl
        >>> x, middle = dl.tensor([[[[1.0, 3.0]]]]), dl.zeros(1, 1, 1, 2)
        >>> dl.nn.functional.grid_sample(x, middle).item()
        2.0
    """
    name = "grid_sample"
    check_float(name, input, grid)
    if mode not in SAMPLING_MODES:
        raise ArgumentError(f"[{name}] the mode must be one of {', '.join(SAMPLING_MODES)}, got {mode!r}")
    if padding_mode not in PADDING_MODES:
        raise ArgumentError(
            f"[{name}] padding_mode must be one of {', '.join(PADDING_MODES)}, got {padding_mode!r}"
        )
    axes = len(input.shape) - 2
    if axes not in (2, 3) or len(grid.shape) != axes + 2 or (grid.shape[0], grid.shape[-1]) != (
        input.shape[0], axes,
    ):  # fmt: skip
        raise ShapeError(
            f"[{name}] expected images (N, C, H, W) and a grid (N, H2, W2, 2), or volumes and a grid "
            f"(N, D2, H2, W2, 3), got {input.shape} and {grid.shape}"
        )
    if axes == 3 and mode == "bicubic":
        raise ShapeError(f"[{name}] mode 'bicubic' is for images (N, C, H, W), got {input.shape}")
    return _sampled(input, grid, mode, padding_mode, bool(align_corners))


@kernel_function("grid_sample")
def _sampled(
    input: Array, grid: Array, mode: SamplingMode, padding_mode: PaddingMode, corners: bool
) -> Array:
    """:func:`grid_sample` of arguments that fit."""
    axes = len(input.shape) - 2
    # x is the last axis of the image and the first coordinate of the grid.
    coordinates = [
        _pixel_coordinates(select(grid, -1, axes - 1 - i), size, corners)
        for i, size in enumerate(input.shape[2:])
    ]

    def folded(coordinates: Sequence[Array]) -> list[Array]:
        return [
            _fold_into_image(coordinate, size, padding_mode, corners)
            for coordinate, size in zip(coordinates, input.shape[2:], strict=True)
        ]

    pixels = reshape(movedim(input, 1, -1), 1, math.prod((input.shape[0], *input.shape[2:])), input.shape[1])
    if mode == "nearest":
        with tape.gradients(False):
            nearest = [round_even(coordinate) for coordinate in folded(coordinates)]
        return movedim(_take_pixels(pixels, nearest, input.shape, grid.shape[:-1]), -1, 1)
    if mode == "bilinear":
        coordinates = folded(coordinates)
    with tape.gradients(False):
        floors = [floor(coordinate) for coordinate in coordinates]
    weights = [
        (_cubic_weights if mode == "bicubic" else _linear_weights)(coordinate - low)
        for coordinate, low in zip(coordinates, floors, strict=True)
    ]
    total: Array = None
    for tap in itertools.product(*weights):
        weight = functools.reduce(mul, (axis[at] for axis, at in zip(weights, tap, strict=True)))
        with tape.gradients(False):
            corner = [low + at for low, at in zip(floors, tap, strict=True)]
            corner = folded(corner) if mode == "bicubic" else corner
        term = _take_pixels(pixels, corner, input.shape, grid.shape[:-1]) * unsqueeze(weight, -1)
        total = term if total is None else total + term
    return movedim(total, -1, 1)


def _linear_weights(fraction: Array) -> dict[int, Array]:
    """The weights of the pixels before and behind a coordinate, by their distance from the one before it."""
    return {0: 1 - fraction, 1: fraction}


def _cubic_weights(fraction: Array) -> dict[int, Array]:
    """As :func:`_linear_weights`, of two pixels before and two behind, by Keys' convolution kernel."""
    a = CUBIC_COEFFICIENT

    def near(x: Array) -> Array:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Array) -> Array:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return {-1: far(fraction + 1), 0: near(fraction), 1: near(1 - fraction), 2: far(2 - fraction)}


def _pixel_coordinates(coordinates: Array, size: int, align_corners: bool) -> Array:
    """Coordinates from -1 to 1 converted to indices of pixels."""
    if align_corners:
        return (coordinates + 1) * ((size - 1) / 2)
    return ((coordinates + 1) * size - 1) / 2


def _fold_into_image(coordinates: Array, size: int, padding_mode: PaddingMode, align_corners: bool) -> Array:
    """Coordinates with those outside of the image clamped or reflected into it, unless it is zero-padded."""
    if padding_mode == "zeros":
        return coordinates
    if padding_mode == "reflection":
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if span == 0:
            return coordinates * 0.0
        distance = abs(coordinates - low)
        with tape.gradients(False):
            reflections = floor(distance / span)
            half = reflections * 0.5
            even = eq(floor(half), half)
            whole = reflections * span
        remainder = distance - whole
        coordinates = where(even, remainder, span - remainder) + low
    return clamp(where(coordinates >= 0.0, coordinates, 0.0), max=float(size - 1))  # nan to 0, as in PyTorch


def _take_pixels(pixels: Array, coordinates: list[Array], image_shape: Shape, grid_shape: Shape) -> Array:
    """The pixels at integer coordinates, 0 outside of the image: the grid's shape and an axis of channels."""
    with tape.gradients(False):
        images = np.arange(image_shape[0], dtype=np.int32).reshape(-1, *(1,) * (len(grid_shape) - 1))
        flat, inside = to_device_of(pixels, images), None
        for coordinate, size in zip(coordinates, image_shape[2:], strict=True):
            within = logical_and(coordinate >= 0, coordinate < size)  # nan is not
            inside = within if inside is None else logical_and(inside, within)
            flat = flat * size + cast(where(within, coordinate, zero(coordinate)), "int32")
        nowhere = to_device_of(pixels, np.array(-1, np.int32))
        flat = reshape(where(inside, flat, nowhere), math.prod(grid_shape))
    taken = take_rows(pixels, _checked(flat, pixels))
    return reshape(taken, *grid_shape, image_shape[1])


def _checked(flat: Array, pixels: Array) -> Indices:
    """Indices of pixels, which stay on their device where its kernels take them."""
    if stays(flat, pixels):
        indices = checked(flat, pixels.shape[1], None, ignored=-1)
        if indices is not None:
            return Indices.of_checked(indices)
    return Indices(flat.on_host())
