"""Images resized and sampled, and boxes in them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dl4all.functions import names as functions
from dl4all.functions.vision.boxes import nms_on_host
from dl4all.functions.vision.interpolation import weighted_sum
from dl4all.functions.vision.regions import pooled_regions
from dl4all.nn import functional as F
from dl4all.onnx.call import Call
from dl4all.onnx.operators.interpolation import (
    ROUNDED,
    TRANSFORMS,
    ResizeRule,
    nearest_indices,
    taps,
)
from dl4all.onnx.registry import operator
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.indexing.indices import Indices
from dl4all.ops.indexing.rows import select_indices
from dl4all.tensor.creation import as_tensor


@operator("Upsample", "Resize", until=10, reads=(1,))
def resize_by_scales(call: Call, x: Any, scales: Any = None) -> Any:
    """Resize as it was: by scales, from the corners of pixels on; an attribute before opset 9."""
    x, mode = call.tensor(x), call.choice("mode", "nearest", ("linear", "bilinear"))
    factors = call.get("scales") if scales is None else call.host(scales).tolist()
    mode = "nearest" if mode == "nearest" else "linear"
    for axis, factor in enumerate(factors):
        rule = ResizeRule(mode, "asymmetric", nearest_mode="floor")
        x = _resized(x, axis, math.floor(x.shape[axis] * factor), factor, rule)
    return x


@operator("Resize", since=11, reads=(1, 2, 3))
def resize(call: Call, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    """Axis by axis: all modes are products of what they do along one."""
    x = call.tensor(x)
    chosen = [axis % x.ndim for axis in call.get("axes") or range(x.ndim)]
    old = [x.shape[axis] for axis in chosen]
    if sizes is not None and sizes.size:
        new = call.ints(sizes)
        factors = [n / o for n, o in zip(new, old, strict=True)]
        policy = call.choice("keep_aspect_ratio_policy", "stretch", ("not_larger", "not_smaller"))
        if policy != "stretch":
            factors = [(min if policy == "not_larger" else max)(factors)] * len(old)
            new = [math.floor(factor * o + 0.5) for factor, o in zip(factors, old, strict=True)]
    else:
        factors = [float(factor) for factor in call.host(scales).reshape(-1)]
        new = [math.floor(factor * o) for factor, o in zip(factors, old, strict=True)]
    mode = call.choice("coordinate_transformation_mode", "half_pixel", TRANSFORMS)
    corners = (
        call.host(roi).reshape(2, -1).T.tolist() if mode == "tf_crop_and_resize" else [(0.0, 1.0)] * len(old)
    )
    for axis, size, factor, (start, end) in zip(chosen, new, factors, corners, strict=True):
        rule = ResizeRule(
            call.choice("mode", "nearest", ("linear", "cubic")), mode,
            call.choice("nearest_mode", "round_prefer_floor", tuple(ROUNDED)), start, end,
            call.get("cubic_coeff_a", -0.75), call.flag("exclude_outside"),
            call.get("extrapolation_value", 0.0), call.flag("antialias"),
        )  # fmt: skip
        x = _resized(x, axis, size, factor, rule)
    return x


def _resized(x: Any, axis: int, size: int, factor: float, rule: ResizeRule) -> Any:
    """One axis in another size."""
    old = x.shape[axis]
    if size == old and factor == 1 and rule.transform != "tf_crop_and_resize":
        return x
    if rule.mode == "nearest":
        indices, outside = nearest_indices(old, size, factor, rule)
        y = select_indices(x, axis, Indices(indices))
    else:
        parts, outside = taps(old, size, factor, rule)
        wide = x if kind_of(x.dtype) == "f" else x.float()
        y = weighted_sum(wide, axis, parts).to(x.dtype)
    if outside.any():
        where = outside.reshape([size if i == axis else 1 for i in range(x.ndim)])
        mask = functions.broadcast_to(as_tensor(where, device=x.device), tuple(y.shape))
        y = functions.masked_fill(y, mask, rule.extrapolation)
    return y


MODES = {"linear": "bilinear", "cubic": "bicubic"}
"""PyTorch's names of modes that have others since opset 20."""


@operator("GridSample")
def grid_sample(call: Call, x: Any, grid: Any) -> Any:
    mode: Any = call.get("mode", "bilinear")
    around: Any = call.get("padding_mode", "zeros")
    x, grid = call.tensors(x, grid)
    return F.grid_sample(x, grid, MODES.get(mode, mode), around, call.flag("align_corners"))


@operator("AffineGrid", reads=(1,))
def affine_grid(call: Call, theta: Any, sizes: Any) -> Any:
    return F.affine_grid(call.tensor(theta), call.ints(sizes), call.flag("align_corners"))


@operator("NonMaxSuppression", reads=(0, 1, 2, 3, 4))
def non_max_suppression(
    call: Call, boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None
) -> Any:
    """For each image and class the boxes that overlap none of a higher score: chosen on the host."""
    corners, values = call.host(boxes).astype(np.float32), call.host(scores)
    if call.get("center_point_box", 0):
        x, y, width, height = np.moveaxis(corners, -1, 0)
        corners = np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], -1)
    low, high = np.minimum(corners[..., :2], corners[..., 2:]), np.maximum(corners[..., :2], corners[..., 2:])
    corners = np.concatenate([low, high], -1)
    limit, threshold = int(call.number(most, 0)), call.number(overlap, 0.0)
    chosen = []
    for image, per_class in enumerate(values):
        for kind, row in enumerate(per_class):
            candidates = (
                np.flatnonzero(row > call.number(least)) if least is not None else np.arange(len(row))
            )
            kept = candidates[nms_on_host(corners[image][candidates], row[candidates], threshold, limit)]
            chosen += [(image, kind, int(box)) for box in kept]
    return np.array(chosen, np.int64).reshape(-1, 3)


@operator("RoiAlign")
def roi_align(call: Call, x: Any, rois: Any, images: Any) -> Any:
    """Means, or largest terms, of samples in the parts of regions (He et al., arXiv:1703.06870)."""
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    rules = ("half_pixel", "output_half_pixel")
    aligned = call.choice("coordinate_transformation_mode", default, rules) == "half_pixel"
    size = call.get("output_height", 1), call.get("output_width", 1)
    x, images = call.tensor(x), call.tensor(images).long()
    corners = call.tensor(rois) * call.get("spatial_scale", 1.0)
    largest = call.choice("mode", "avg", ("max",)) == "max"
    samples = call.get("sampling_ratio", 0)
    if samples <= 0:
        held = call.host(rois)
        samples = held * held.dtype.type(call.get("spatial_scale", 1.0))
    return pooled_regions(x, corners, images, size, samples, aligned=aligned, largest=largest)


@operator("MaxRoiPool", reads=(1,))
def max_roi_pool(call: Call, x: Any, rois: Any) -> Any:
    """The largest elements of the parts of regions, whose corners are rounded to pixels."""
    x, (height, width) = call.tensor(x), call.get("pooled_shape")
    rows = []
    for image, *corners in call.host(rois).tolist():
        left, top, right, bottom = (round(c * call.get("spatial_scale", 1.0)) for c in corners)
        parts = []
        for row in _parts(top, bottom, height, x.shape[2]):
            for column in _parts(left, right, width, x.shape[3]):
                window = x[int(image), :, row, column]
                empty = 0 in window.shape
                parts.append(x.new_zeros((x.shape[1],)) if empty else functions.amax(window, (1, 2)))
        rows.append(functions.stack(parts, 1).reshape(x.shape[1], height, width))
    return functions.stack(rows) if rows else x.new_zeros((0, x.shape[1], height, width))


def _parts(first: int, last: int, count: int, size: int) -> list[slice]:
    """The pixels of equal parts of a region, which may share those at their borders."""
    length = max(last - first + 1, 1) / count
    edges = [(math.floor(i * length) + first, math.ceil((i + 1) * length) + first) for i in range(count)]
    return [slice(min(max(a, 0), size), min(max(b, 0), size)) for a, b in edges]
