"""Boxes, features of regions and deformable convolutions beside plain loops and PyTorch's grid sampling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ArgumentError, DTypeError, ShapeError
from tests.support.compare_torch import check_against_torch, torch
from tests.support.subcases import each

NDArray = np.ndarray[Any, Any]


def boxes(count: int, seed: int = 0) -> NDArray:
    generator = np.random.default_rng(seed)
    corners = generator.random((count, 4), np.float32) * 5
    corners[:, 2:] += corners[:, :2]
    return corners


def overlap(a: NDArray, b: NDArray) -> float:
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    common = sides.prod()
    return float(common / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - common))


def chosen(corners: NDArray, scores: NDArray, threshold: float) -> list[int]:
    """The boxes that a plain loop keeps."""
    waiting, kept = list(np.argsort(-scores, kind="stable")), list[int]()
    while waiting:
        best = waiting.pop(0)
        kept.append(int(best))
        waiting = [i for i in waiting if overlap(corners[best], corners[i]) <= threshold]
    return kept


@each("count, threshold", [(0, 0.5), (1, 0.5), (40, 0.0), (40, 0.3), (61, 0.9)])
def test_boxes_that_are_kept(count: int, threshold: float, device: str) -> None:
    corners, generator = boxes(count), np.random.default_rng(1)
    scores, classes = generator.random(count, np.float32), generator.integers(0, 3, count)
    given, values, kinds = (dl.tensor(array, device=device) for array in (corners, scores, classes))
    kept = dl.ops.nms(given, values, threshold)
    assert str(kept.device) == device
    assert kept.dtype == np.int64
    assert kept.tolist() == chosen(corners, scores, threshold)
    expected = []
    for one in range(3):
        places = np.flatnonzero(classes == one)
        expected += [int(places[i]) for i in chosen(corners[places], scores[places], threshold)]
    assert dl.ops.batched_nms(given, values, kinds, threshold).tolist() == sorted(
        expected, key=lambda i: -scores[i]
    )


def test_overlaps(device: str) -> None:
    a, b = boxes(7), boxes(5, seed=1)
    got = dl.ops.box_iou(dl.tensor(a, device=device), dl.tensor(b, device=device)).numpy()
    np.testing.assert_allclose(got, [[overlap(x, y) for y in b] for x in a], rtol=1e-5)


def sampled(x: Any, y: Any, z: Any) -> Any:
    """PyTorch's bilinear samples at pixels (y, z), with zeros around; x has the batch (regions, C, H, W)."""
    height, width = x.shape[2:]
    grid = torch.stack([(2 * z + 1) / width - 1, (2 * y + 1) / height - 1], -1)
    return torch.nn.functional.grid_sample(x, grid, align_corners=False)


def aligned_by_torch(x: Any, rois: NDArray, size: tuple[int, int], ratio: int, aligned: bool) -> Any:
    """Means over samples of boxes that lie within the image."""
    pooled = []
    for image, *corners in rois:
        left, top, right, bottom = corners - np.float32(0.5 if aligned else 0)
        sizes = [bottom - top, right - left] if aligned else [max(bottom - top, 1), max(right - left, 1)]
        axes, counts = [], []
        for start, length, parts in zip((top, left), sizes, size, strict=True):
            samples = ratio if ratio > 0 else int(np.ceil(np.float32(length) / parts))
            steps = (np.arange(samples) + 0.5) / samples
            axes.append(start + length / parts * (np.arange(parts)[:, None] + steps).reshape(-1))
            counts.append(samples)
        y, z = (torch.tensor(grid)[None].to(x.dtype) for grid in np.meshgrid(*axes, indexing="ij"))
        pooled.append(torch.nn.functional.avg_pool2d(sampled(x[int(image)][None], y, z), tuple(counts)))
    return torch.cat(pooled) if pooled else x.new_zeros((0, x.shape[1], *size))


@each("size, ratio, aligned", [((2, 3), 2, True), ((1, 1), 3, False), ((3, 2), -1, True), ((2, 2), 0, False)])
def test_features_of_boxes(size: tuple[int, int], ratio: int, aligned: bool, device: str) -> None:
    generator = np.random.default_rng(2)
    x = generator.standard_normal((2, 3, 9, 11)).astype(np.float32)
    corners = boxes(5) * 0.6 + 1
    rois = np.concatenate([generator.integers(0, 2, (5, 1)), corners], 1).astype(np.float32)
    given = dl.tensor(rois * [1, 2, 2, 2, 2], dtype="float32", device=device)
    check_against_torch(
        device,
        lambda x: dl.ops.roi_align(x, given, size, 0.5, ratio, aligned),
        x,
        g=lambda x: aligned_by_torch(x, rois, size, ratio, aligned),
    )
    listed = [dl.tensor(corners[rois[:, 0] == i], device=device) for i in range(2)]
    order = np.argsort(rois[:, 0], kind="stable")
    whole = dl.ops.roi_align(dl.tensor(x, device=device), listed, size, 1.0, ratio, aligned)
    one = dl.ops.roi_align(dl.tensor(x, device=device), given, size, 0.5, ratio, aligned)
    np.testing.assert_allclose(whole.numpy(), one.numpy()[order], rtol=1e-5, atol=1e-6)
    none = dl.ops.roi_align(dl.tensor(x, device=device), given[:0], size, 0.5, ratio, aligned)
    assert none.shape == (0, 3, *size)


def test_samples_beyond_the_image_are_zero(device: str) -> None:
    x = dl.ones(1, 1, 4, 4, device=device)
    rois = dl.tensor([[0.0, 3.5, 0.0, 7.5, 4.0], [0.0, 20.0, 20.0, 24.0, 24.0]], device=device)
    got = dl.ops.roi_align(x, rois, (1, 4), sampling_ratio=1)
    np.testing.assert_array_equal(got.numpy()[:, 0, 0], [[1, 0, 0, 0], [0, 0, 0, 0]])


def deformed_by_torch(options: Any, x: Any, offset: Any, weight: Any, bias: Any, mask: Any) -> Any:
    """Each element of each window by itself."""
    stride, padding, dilation = options
    (batch, channels), (filters, own, *kernel) = x.shape[:2], weight.shape
    area, (height, width) = kernel[0] * kernel[1], offset.shape[2:]
    groups, parts = channels // own, offset.shape[1] // (2 * area)
    rows = (torch.arange(height) * stride - padding).view(1, -1, 1)
    columns = (torch.arange(width) * stride - padding).view(1, 1, -1)
    found = []
    for channel in range(channels):
        part = channel // (channels // parts)
        for element in range(area):
            place = part * area + element
            y = rows + element // kernel[1] * dilation + offset[:, 2 * place]
            z = columns + element % kernel[1] * dilation + offset[:, 2 * place + 1]
            found.append(sampled(x[:, channel : channel + 1], y, z)[:, 0] * mask[:, place])
    windows = torch.stack(found, 1).view(batch, groups, own * area, height * width)
    result = (weight.view(groups, filters // groups, -1) @ windows).reshape(batch, filters, height, width)
    return result + bias.view(1, -1, 1, 1)


@each(
    "kernel, groups, parts, options",
    [
        ((3, 3), 1, 1, (1, 1, 1)),
        ((2, 3), 2, 2, (2, 0, 1)),
        ((1, 2), 1, 4, (1, 2, 2)),
        ((3, 1), 4, 2, (2, 1, 2)),
    ],
)
def test_windows_that_are_moved(
    kernel: tuple[int, int], groups: int, parts: int, options: tuple[int, int, int], device: str
) -> None:
    stride, padding, dilation = options
    generator = np.random.default_rng(3)
    counts = [
        (n + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for n, k in zip((7, 8), kernel, strict=True)
    ]
    area = kernel[0] * kernel[1]
    moves, factors = (2, 2 * parts * area, *counts), (2, parts * area, *counts)
    shapes = (2, 4, 7, 8), moves, (8, 4 // groups, *kernel), (8,), factors
    given = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
    check_against_torch(
        device,
        lambda x, offset, weight, bias, mask: dl.ops.deform_conv2d(x, offset, weight, bias, *options, mask),
        *given,
        g=lambda *tensors: deformed_by_torch(options, *tensors),
    )


MISTAKES: list[tuple[Callable[..., Any], list[Any], type[Exception], str]] = [
    (dl.ops.nms, [dl.ones(3, 5), dl.ones(3), 0.5], ShapeError, r"boxes of shape \(boxes, 4\), got \(3, 5\)"),
    (dl.ops.nms, [dl.ones(3, 4), dl.ones(2), 0.5], ShapeError, r"a score for each of 3 boxes, got \(2,\)"),
    (dl.ops.nms, [dl.ones(3, 4).int(), dl.ones(3), 0.5], DTypeError, "expected floats of one dtype"),
    (
        dl.ops.batched_nms,
        [dl.ones(3, 4), dl.ones(3), dl.ones(2).long(), 0.5],
        ShapeError,
        "a score and a class",
    ),
    (dl.ops.box_iou, [dl.ones(3, 4), dl.ones(4)], ShapeError, r"got \(4,\)"),
    (dl.ops.roi_align, [dl.ones(1, 2, 3), dl.ones(1, 5), 2], ShapeError, r"\[roi_align\]"),
    (dl.ops.roi_align, [dl.ones(1, 2, 3, 3), dl.ones(1, 4), 2], ShapeError, "image's number in front"),
    (dl.ops.roi_align, [dl.ones(2, 2, 3, 3), [dl.ones(1, 4)], 2], ShapeError, "boxes for 2 images, got 1"),
    (
        dl.ops.roi_align,
        [dl.ones(1, 2, 3, 3), dl.ones(1, 5), 2],
        ArgumentError,
        "of an image that is not there",
    ),
    (dl.ops.roi_align, [dl.ones(1, 2, 3, 3), dl.zeros(1, 5), 0], ArgumentError, "output_size"),
    (
        dl.ops.roi_align,
        [dl.ones(1, 2, 3, 3), dl.tensor([[0.0, 0.0, 0.0, math.nan, 1.0]]), 2],
        ArgumentError,
        "a corner that is infinite or nan",
    ),
    (
        dl.ops.roi_align,
        [dl.ones(1, 2, 3, 3), dl.tensor([[0.0, 0.0, 0.0, 1e30, 1e30]]), 2],
        ArgumentError,
        r"\[roi_align\] shape .* is larger than any memory",
    ),
    (
        dl.ops.deform_conv2d,
        [dl.ones(1, 3, 4, 4), dl.ones(1, 8, 3, 3), dl.ones(2, 2, 2, 2)],
        ShapeError,
        "does not fit 3 channels",
    ),
    (
        dl.ops.deform_conv2d,
        [dl.ones(1, 2, 4, 4), dl.ones(1, 8, 4, 3), dl.ones(2, 2, 2, 2)],
        ShapeError,
        r"offsets \(1, 2 \* groups \* 4, 3, 3\)",
    ),
]


@each("function, arguments, kind, expected", MISTAKES)
def test_mistakes(
    function: Callable[..., Any], arguments: list[Any], kind: type[Exception], expected: str
) -> None:
    with pytest.raises(kind, match=expected):
        function(*arguments)
