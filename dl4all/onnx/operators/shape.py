"""Operators that read, change and rearrange shapes; on the host they are the arithmetic of shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.functions import names as functions
from dl4all.nn import functional as F
from dl4all.onnx.call import Call, is_array
from dl4all.onnx.registry import SAME, operator


@operator("Shape", on_host=SAME)
def shape(call: Call, x: Any) -> Any:
    end = call.get("end")
    return np.array(x.shape[call.get("start", 0) : end], np.int64)


@operator("Size", on_host=SAME)
def size(call: Call, x: Any) -> Any:
    return np.array(math.prod(x.shape), np.int64)


def reshaped(x: Any, sizes: Sequence[int]) -> Any:
    return np.reshape(x, sizes) if is_array(x) else x.reshape(tuple(sizes))


@operator("Reshape", on_host=SAME, reads=(1,))
def reshape(call: Call, x: Any, sizes: Any = None) -> Any:
    """A size of 0 is that of the input, unless ``allowzero`` says otherwise; before opset 5 an attribute."""
    new = call.axes(sizes, "shape") or []
    if not call.flag("allowzero"):
        new = [x.shape[i] if n == 0 else n for i, n in enumerate(new)]
    return reshaped(x, new)


@operator("Flatten", on_host=SAME)
def flatten(call: Call, x: Any) -> Any:
    axis = call.get("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    return reshaped(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Transpose", on_host=SAME)
def transpose(call: Call, x: Any) -> Any:
    order = call.get("perm", list(reversed(range(len(x.shape)))))
    return np.transpose(x, order) if is_array(x) else x.permute(*order)


@operator("Squeeze", on_host=SAME, reads=(1,))
def squeeze(call: Call, x: Any, axes: Any = None) -> Any:
    ndim, chosen = len(x.shape), call.axes(axes)
    dropped = {axis % ndim for axis in chosen} if chosen is not None else None
    if dropped and any(x.shape[axis] != 1 for axis in dropped):
        raise ShapeError(f"axes {chosen} of the shape {tuple(x.shape)} are not all of size 1")
    kept = (n for i, n in enumerate(x.shape) if (n != 1 if dropped is None else i not in dropped))
    return reshaped(x, tuple(kept))


@operator("Unsqueeze", on_host=SAME, reads=(1,))
def unsqueeze(call: Call, x: Any, axes: Any = None) -> Any:
    chosen = call.axes(axes) or []
    ndim = len(x.shape) + len(chosen)
    new, old = {axis % ndim for axis in chosen}, iter(x.shape)
    if len(new) != len(chosen):
        raise ShapeError(f"axes {chosen} name one of {ndim} twice")
    return reshaped(x, tuple(1 if i in new else next(old) for i in range(ndim)))


@operator("Expand", on_host=SAME, reads=(1,))
def expand(call: Call, x: Any, sizes: Any) -> Any:
    target = np.broadcast_shapes(tuple(x.shape), tuple(call.ints(sizes)))
    return np.broadcast_to(x, target) if is_array(x) else functions.broadcast_to(x, target)


@operator("Tile", on_host=SAME, reads=(1,))
def tile(call: Call, x: Any, repeats: Any) -> Any:
    counts = call.ints(repeats)
    if is_array(x):
        return np.tile(x, counts)
    return x.repeat(*counts) if counts else x


@operator("Concat", on_host=SAME)
def concat(call: Call, *parts: Any) -> Any:
    axis = call.get("axis")
    if all(map(is_array, parts)):
        return np.concatenate(parts, axis)
    return functions.cat(list(call.tensors(*parts)), axis)


def split_sizes(call: Call, length: int, sizes: Any, parts: int) -> list[int]:
    """The sizes of parts: given, or even ones of which the last may be shorter."""
    given = call.axes(sizes, "split")
    if given is not None:
        return given
    size = -(-length // parts)
    return [max(min(size, length - i * size), 0) for i in range(parts)]


def split_along(x: Any, axis: int, sizes: Sequence[int]) -> tuple[Any, ...]:
    if sum(sizes) != x.shape[axis]:
        raise ShapeError(f"parts of {list(sizes)} are not {x.shape[axis]}, the size of axis {axis}")
    if is_array(x):
        return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))
    return tuple(functions.split(x, list(sizes), axis))


@operator("Split", on_host=SAME, reads=(1,))
def split(call: Call, x: Any, sizes: Any = None) -> Any:
    axis = call.get("axis", 0)
    parts = call.get("num_outputs") or len(call.node.outputs)
    return split_along(x, axis, split_sizes(call, x.shape[axis], sizes, parts))


@operator("Slice", on_host=SAME, reads=(1, 2, 3, 4))
def slice_axes(
    call: Call, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None
) -> Any:
    """Inputs from opset 10 on, attributes before."""
    first, last = call.axes(starts, "starts") or [], call.axes(ends, "ends") or []
    chosen = call.axes(axes)
    chosen = list(range(len(first))) if chosen is None else chosen
    step = [1] * len(first) if steps is None else call.ints(steps)
    index = [slice(None)] * len(x.shape)
    for axis, start, end, stride in zip(chosen, first, last, step, strict=True):
        stop = None if stride < 0 and end < -x.shape[axis] else end
        index[axis] = slice(start, stop, stride)
    if is_array(x):
        return x[tuple(index)]
    for axis, part in enumerate(index):
        if part.step is not None and part.step < 0:  # a tensor's slices go forwards
            indices = np.arange(x.shape[axis])[part]
            x, index[axis] = functions.index_select(x, axis, call.tensor(indices)), slice(None)
    return x[tuple(index)]


@operator("DepthToSpace")
def depth_to_space(call: Call, x: Any) -> Any:
    x, block = call.tensor(x), call.get("blocksize")
    if call.choice("mode", "DCR", ("CRD",)) == "CRD":
        return F.pixel_shuffle(x, block)
    n, channels, height, width = x.shape
    parts = x.reshape(n, block, block, channels // block**2, height, width).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(n, channels // block**2, height * block, width * block)


@operator("SpaceToDepth")
def space_to_depth(call: Call, x: Any) -> Any:
    x, block = call.tensor(x), call.get("blocksize")
    n, channels, height, width = x.shape
    parts = x.reshape(n, channels, height // block, block, width // block, block)
    order = (0, 1, 3, 5, 2, 4) if call.choice("mode", "DCR", ("CRD",)) == "CRD" else (0, 3, 5, 1, 2, 4)
    return parts.permute(*order).reshape(n, channels * block**2, height // block, width // block)


PAD_MODES = ("edge", "reflect", "wrap")
"""NumPy's names, too."""


@operator("Pad", reads=(1, 2, 3))
def pad(call: Call, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    """Inputs from opset 11 on, attributes before. A negative width cuts."""
    x, widths = call.tensor(x), call.axes(pads, "pads") or []
    chosen = range(x.ndim) if axes is None else [axis % x.ndim for axis in call.ints(axes)]
    both = {axis: (widths[i], widths[i + len(widths) // 2]) for i, axis in enumerate(chosen)}
    mode = call.choice("mode", "constant", PAD_MODES)
    if mode == "constant":
        filled = call.get("value", 0.0) if value is None else call.number(value)
        flat = [width for axis in reversed(range(x.ndim)) for width in both.get(axis, (0, 0))]
        if x.dtype == np.bool_:
            return F.pad(x.to("uint8"), flat, value=int(filled)).bool()
        return F.pad(x, flat, value=filled)
    for axis, (low, high) in both.items():
        if low or high:
            indices = np.arange(max(-low, 0), x.shape[axis] - max(-high, 0))
            indices = np.pad(indices, (max(low, 0), max(high, 0)), mode)  # type: ignore[call-overload]
            x = functions.index_select(x, axis, call.tensor(indices))
    return x


@operator("Trilu", reads=(1,))
def triangle(call: Call, x: Any, diagonal: Any = None) -> Any:
    x, function = call.tensor(x), functions.triu if call.flag("upper", True) else functions.tril
    return function(x, call.number(diagonal, 0))


@operator("ReverseSequence", reads=(1,))
def reverse_sequence(call: Call, x: Any, lengths: Any) -> Any:
    """The first elements of each row reversed, as many as its length says."""
    x, batch, time = call.tensor(x), call.get("batch_axis", 1), call.get("time_axis", 0)
    indices = reversed_indices(call.host(lengths), x.shape[time])  # (batch, time)
    indices = indices if batch < time else indices.T
    sizes = [1] * x.ndim
    sizes[batch], sizes[time] = x.shape[batch], x.shape[time]
    index = functions.broadcast_to(call.tensor(indices.reshape(sizes)), tuple(x.shape))
    return functions.gather(x, time, index)


def reversed_indices(lengths: Any, count: int) -> Any:
    """For each row, where the elements of its reversed beginning were.

    >>> reversed_indices(np.array([3, 1]), 4).tolist()
    [[2, 1, 0, 3], [0, 1, 2, 3]]
    """
    steps, ends = np.arange(count)[None], np.asarray(lengths).reshape(-1, 1)
    return np.where(steps < ends, ends - 1 - steps, steps)


@operator("CenterCropPad", reads=(1,))
def center_crop_pad(call: Call, x: Any, sizes: Any) -> Any:
    """An axis is cut where it is larger, and padded by zeros where it is smaller."""
    x = call.tensor(x)
    chosen = call.get("axes", list(range(x.ndim)))
    flat = [0] * (2 * x.ndim)
    for axis, new in zip(chosen, call.ints(sizes), strict=True):
        extra = new - x.shape[axis]
        low = extra // 2 if extra > 0 else -(-extra // 2)
        at = 2 * (x.ndim - 1 - axis % x.ndim)
        flat[at : at + 2] = low, extra - low
    return F.pad(x, flat)
