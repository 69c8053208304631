"""Features of regions of images: samples between pixels, means over parts of boxes, windows that are moved.

The names are torchvision's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.functions.host import numbers as numbers_of
from dl4all.functions.host import to_device_of
from dl4all.ops.core.checks import check_float, check_images
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import check_host_memory, check_shape, integer, real
from dl4all.ops.core.tensor_base import Array, Shape
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.arithmetic import add
from dl4all.ops.elementwise.comparison import maximum
from dl4all.ops.elementwise.logic import where
from dl4all.ops.elementwise.rounding import zero
from dl4all.ops.indexing.concatenation import cat
from dl4all.ops.indexing.indices import NDArray
from dl4all.ops.linalg.matrix_product import matmul
from dl4all.ops.memory.views import expand, unsqueeze

MOST_SAMPLES = 2**31
"""Of a part along an axis, beyond which no memory has room for them anyway."""


TENSORS = 32
"""Of samples that there are at once: four terms, their weights and indices, and what these come from."""


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
        y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    low_y, low_x = y.detach().floor(), x.detach().floor()
    terms = []
    for down in (0, 1):
        for right in (0, 1):
            row, column = low_y + down, low_x + right
            weight = (1 - (y - row).abs()) * (1 - (x - column).abs())
            if not clamped:
                inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            weight = where(inside, weight, zero(weight))
            line = row.clamp(0, height - 1).long() + image * height
            index = line * width + column.clamp(0, width - 1).long()
            terms.append(pixels.index_select(0, index) * unsqueeze(weight, 1))
    return terms


def pooled_regions(
    input: Any,
    rois: Any,
    image: Any,
    size: tuple[int, int],
    samples: int | NDArray,
    *,
    aligned: bool,
    largest: bool,
) -> Any:
    """Means of samples in the parts of regions, or their largest terms (He et al., arXiv:1703.06870).

    Args:
        input: shape (N, C, H, W).
        rois: left, top, right and bottom in pixels of the input, of shape (regions, 4).
        image: int64 of shape (regions,), which image a region is of.
        size: the parts of a region, down and across.
        samples: of a part along an axis; or the regions on the host, for as many as it has pixels.
        aligned: whether coordinates are those of pixels' corners; otherwise they are those of centres, and
            regions have at least a pixel.
        largest: of all samples' four terms the largest, not the mean of their sums.

    Returns:
        Shape (regions, C, *size).
    """
    count = rois.shape[0]
    shift = 0.5 if aligned else 0.0
    corners, axes = rois - shift, []
    of_axes = [_sample_counts(samples, count, axis, size[1 - axis], shift) for axis in (1, 0)]
    most = [max(int(counts.max(initial=1)), 1) for counts in of_axes]
    terms_shape = check_shape("roi_align", (count, *size, *most, input.shape[1]))
    check_host_memory("roi_align", terms_shape, input.dtype, input.device.info.memory // TENSORS)
    for axis, parts, counts in ((1, size[0], of_axes[0]), (0, size[1], of_axes[1])):
        start, length = corners[:, axis], corners[:, axis + 2] - corners[:, axis]
        length = length if aligned else length.clamp(min=1.0)
        steps = np.arange(most[1 - axis])[None]
        inner = ((steps + 0.5) / np.maximum(counts, 1)[:, None]).astype(np.float32)  # (regions, samples)
        offset = np.arange(parts, dtype=np.float32).reshape(1, parts, 1) + inner[:, None]
        offset = to_device_of(input, (offset / parts).astype(input.dtype))
        points = start.reshape(-1, 1, 1) + offset * length.reshape(-1, 1, 1)
        axes.append((points, steps < counts[:, None], counts))  # points: (regions, parts, samples)
    (ys, in_y, many_y), (xs, in_x, many_x) = axes
    shape = (count, *size, ys.shape[2], xs.shape[2])
    y = expand(ys.reshape(count, size[0], 1, shape[3], 1), shape).reshape(-1)
    x = expand(xs.reshape(count, 1, size[1], 1, shape[4]), shape).reshape(-1)
    terms = corner_terms(input, expand(image.reshape(-1, 1, 1, 1, 1), shape).reshape(-1), y, x, clamped=True)
    counted = (in_y[:, :, None] & in_x[:, None, :]).reshape(count, 1, 1, *shape[3:], 1)
    if largest:
        highest = reduce(maximum, terms).reshape(*shape, input.shape[1])
        least = to_device_of(input, np.array(-math.inf, input.dtype))
        pooled = where(to_device_of(input, counted), highest, least).amax((3, 4))
    else:
        factors = counted / np.maximum(many_y * many_x, 1).reshape(-1, 1, 1, 1, 1, 1)
        total = reduce(add, terms).reshape(*shape, input.shape[1])
        pooled = (total * to_device_of(input, factors.astype(input.dtype))).sum((3, 4))
    return pooled.permute(0, 3, 1, 2)


def _sample_counts(samples: int | NDArray, count: int, axis: int, parts: int, shift: float) -> NDArray:
    """The samples of a part along an axis, for each region."""
    if isinstance(samples, int):
        return np.full(count, samples)
    pixels = (samples[:, axis + 2] - shift) - (samples[:, axis] - shift)
    if not np.isfinite(pixels).all():
        raise ArgumentError("[roi_align] a box has a corner that is infinite or nan")
    pixels = np.ceil((pixels if shift else np.maximum(pixels, 1)) / pixels.dtype.type(parts))
    counts: NDArray = np.minimum(pixels, MOST_SAMPLES).astype(np.int64)
    return counts


@export()
@reads("boxes")
def roi_align(
    input: Array,
    boxes: Array | Sequence[Array],
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Array:
    """Features of boxes in one size: each part of a box is the mean of samples between pixels.

    He et al., arXiv:1703.06870, section 3; as ``torchvision.ops.roi_align``. Gradients flow to the input; the
    host reads the boxes.

    Args:
        input: floats of shape (N, C, H, W).
        boxes: for each image left, top, right and bottom of its boxes, of shape (boxes, 4); or one tensor
            (boxes, 5) with the number of the image in front.
        output_size: parts of a box down and across.
        spatial_scale: pixels of the input in one of the boxes' units.
        sampling_ratio: samples of a part along each axis; as many as it has pixels if it is 0 or less.
        aligned: whether coordinates are shifted by half a pixel, so that a box of two pixels has two.

    Returns:
        Shape (boxes, C, height, width).

    Raises:
        ShapeError, DTypeError: the input or the boxes do not fit.
        ArgumentError: a size is not positive, or a box is of an image that is not there.

    Example:
        >>> import dl4all as dl
        >>> x = dl.arange(16.0).reshape(1, 1, 4, 4)
        >>> box = dl.tensor([[0.0, 0.0, 4.0, 4.0]])
        >>> dl.ops.roi_align(x, [box], 2, aligned=True).tolist()
        [[[[2.5, 4.5], [10.5, 12.5]]]]
    """
    name, given = "roi_align", boxes
    check_images(name, input)
    sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size, output_size)
    down, across = (integer(name, "output_size", size, least=1) for size in sizes)
    rows: Any = given
    if isinstance(given, (list, tuple)):
        if len(given) != input.shape[0]:
            raise ShapeError(f"[{name}] expected boxes for {input.shape[0]} images, got {len(given)}")
        numbers = np.repeat(np.arange(len(given)), [one.shape[0] for one in given]).astype(input.dtype)
        rows = cat([to_device_of(input, numbers[:, None]), cat([*given])], 1)
    if len(rows.shape) != 2 or rows.shape[1] != 5:
        raise ShapeError(
            f"[{name}] expected a list of boxes (boxes, 4) for each image, or one tensor (boxes, 5) with the "
            f"image's number in front, got {rows.shape}"
        )
    check_float(name, input, rows)
    rows = rows.detach()
    held, scale = numbers_of(rows), real(name, "spatial_scale", spatial_scale, finite=True)
    images = held[:, 0]
    if images.size and not (images.min() >= 0 and images.max() < input.shape[0]):
        raise ArgumentError(f"[{name}] a box is of an image that is not there: there are {input.shape[0]}")
    ratio = integer(name, "sampling_ratio", sampling_ratio)
    samples = ratio if ratio > 0 else held[:, 1:] * held.dtype.type(scale)
    corners, image = rows[:, 1:] * scale, rows[:, 0].long()
    result: Array = pooled_regions(
        input, corners, image, (down, across), samples, aligned=aligned, largest=False
    )
    return result


def moved_windows(
    input: Any, offset: Any, mask: Any, kernel: Shape, stride: Shape, low: Shape, dilation: Shape
) -> Any:
    """The elements of windows whose places are moved by offsets (Dai et al., arXiv:1703.06211).

    Args:
        input: shape (N, C, H, W).
        offset: moves down and across of each element, of shape (N, 2 * parts * elements, H2, W2); a part of
            the channels shares them.
        mask: factors of shape (N, parts * elements, H2, W2), or None.
        kernel, stride, low, dilation: of windows; `low` is the padding in front.

    Returns:
        Shape (N, C * elements, H2 * W2), an element of all windows after the other.
    """
    (batch, channels, *sizes), area = input.shape, math.prod(kernel)
    parts, (height, width) = offset.shape[1] // (2 * area), offset.shape[2:]
    moves = offset.reshape(batch, parts, area, 2, height, width)
    ranges = [np.arange(k) * d for k, d in zip(kernel, dilation, strict=True)]
    down, across = (grid.reshape(-1, 1, 1) for grid in np.meshgrid(*ranges, indexing="ij"))
    rows = down + (np.arange(height) * stride[0] - low[0]).reshape(1, -1, 1)  # (area, height, 1)
    columns = across + (np.arange(width) * stride[1] - low[1]).reshape(1, 1, -1)
    y = moves[:, :, :, 0] + to_device_of(input, rows.astype(input.dtype))
    x = moves[:, :, :, 1] + to_device_of(input, columns.astype(input.dtype))
    images = input.reshape(batch * parts, channels // parts, *sizes)
    image = to_device_of(input, np.arange(batch * parts).repeat(area * height * width))
    values = reduce(add, corner_terms(images, image, y.reshape(-1), x.reshape(-1), clamped=False))
    values = values.reshape(batch, parts, area, height, width, channels // parts).permute(0, 1, 5, 2, 3, 4)
    if mask is not None:
        values = values * mask.reshape(batch, parts, 1, area, height, width)
    return values.reshape(batch, channels * area, height * width)


@export()
def deform_conv2d(
    input: Array,
    offset: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    mask: Array | None = None,
) -> Array:
    """Deformable convolution: the elements of each window are taken where offsets move them.

    Dai et al., arXiv:1703.06211, with `mask` Zhu et al., arXiv:1811.11168; as
    ``torchvision.ops.deform_conv2d``. The numbers of groups follow from the shapes.

    Args:
        input: floats of shape (N, C, H, W).
        offset: moves down and across, of shape (N, 2 * offset groups * kernel area, H2, W2).
        weight: shape (F, C / groups, kernel height, kernel width).
        bias: shape (F,).
        stride, padding, dilation: of windows.
        mask: factors of windows' elements, of shape (N, offset groups * kernel area, H2, W2).

    Returns:
        Shape (N, F, H2, W2).

    Raises:
        ShapeError, DTypeError: the tensors do not fit.
        ArgumentError: a stride or a dilation is not positive.

    Example:
        >>> import dl4all as dl
        >>> x, weight = dl.arange(9.0).reshape(1, 1, 3, 3), dl.ones(1, 1, 1, 1)
        >>> moved = dl.ones(1, 2, 3, 3) / 2  # half a pixel down, and to the right
        >>> dl.ops.deform_conv2d(x, moved, weight)[0, 0, 0].tolist()
        [2.0, 3.0, 1.75]
    """
    name = "deform_conv2d"
    check_images(name, input)
    check_float(name, input, offset, weight, bias, mask)
    steps, low, apart = (
        tuple(
            integer(name, what, n, least=least)
            for n in (value if isinstance(value, (tuple, list)) else (value, value))
        )
        for what, value, least in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1))
    )
    batch, channels, *sizes = input.shape
    if len(weight.shape) != 4 or not weight.shape[1] or channels % weight.shape[1]:
        raise ShapeError(f"[{name}] a weight of shape {weight.shape} does not fit {channels} channels")
    kernel = tuple(weight.shape[2:])
    counts = tuple(
        (size + 2 * before - d * (k - 1) - 1) // step + 1
        for size, before, d, k, step in zip(sizes, low, apart, kernel, steps, strict=True)
    )
    area, groups = math.prod(kernel), channels // weight.shape[1]
    parts = offset.shape[1] // (2 * area) if len(offset.shape) == 4 and area else 0
    expected = (batch, 2 * parts * area, *counts)
    if not parts or channels % parts or tuple(offset.shape) != expected or weight.shape[0] % groups:
        raise ShapeError(
            f"[{name}] expected offsets ({batch}, 2 * groups * {area}, {counts[0]}, {counts[1]}) for "
            f"an input {input.shape} and a weight {weight.shape}, got {offset.shape}"
        )
    if mask is not None and tuple(mask.shape) != (batch, parts * area, *counts):
        raise ShapeError(
            f"[{name}] expected a mask of shape {(batch, parts * area, *counts)}, got {mask.shape}"
        )
    columns = moved_windows(input, offset, mask, kernel, steps, low, apart)
    result: Any = product_by_groups(columns, weight, groups, counts)
    return result if bias is None else result + bias.reshape(1, -1, 1, 1)


def product_by_groups(columns: Any, weight: Any, groups: int, counts: Shape) -> Any:
    """The products of filters with windows (N, C * elements, places): shape (N, F, *counts)."""
    batch, terms, places = columns.shape
    windows = columns.reshape(batch, groups, terms // groups, places)
    filters = weight.reshape(groups, weight.shape[0] // groups, terms // groups)
    return matmul(filters, windows).reshape(batch, weight.shape[0], *counts)
