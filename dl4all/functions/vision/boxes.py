"""Boxes in images: their overlap, and the choice of those without one. The names are torchvision's."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.functions.host import numbers, to_device_of
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import real
from dl4all.ops.core.tensor_base import Array, TensorBase
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.elementwise.comparison import maximum, minimum
from dl4all.ops.indexing.indices import NDArray


def _check_boxes(name: str, *boxes: TensorBase) -> None:
    """Raise unless tensors have the corners of boxes.

    Raises:
        ShapeError, DTypeError
    """
    for one in boxes:
        if len(one.shape) != 2 or one.shape[1] != 4:
            raise ShapeError(f"[{name}] expected boxes of shape (boxes, 4), got {one.shape}")
    check_float(name, *boxes)


@export()
def box_iou(boxes1: Array, boxes2: Array) -> Array:
    """Intersection over union of each box with each other one.

    Args:
        boxes1, boxes2: floats of shape (N, 4) and (M, 4): left, top, right, bottom.

    Returns:
        Shape (N, M).

    Raises:
        ShapeError, DTypeError: they are no such boxes.

    Example:
        >>> import dl4all as dl
        >>> a, b = dl.tensor([[0.0, 0.0, 2.0, 2.0]]), dl.tensor([[0.0, 1.0, 2.0, 2.0], [3.0, 3.0, 4.0, 4.0]])
        >>> dl.ops.box_iou(a, b).tolist()
        [[0.5, 0.0]]
    """
    _check_boxes("box_iou", boxes1, boxes2)
    a, b = (one[:, None] if i == 0 else one[None] for i, one in enumerate[Any]((boxes1, boxes2)))
    sides: Any = minimum(a[..., 2:], b[..., 2:]) - maximum(a[..., :2], b[..., :2])
    common = sides.clamp(min=0).prod(-1)
    areas = [(one[..., 2:] - one[..., :2]).prod(-1) for one in (a, b)]
    result: Array = common / (areas[0] + areas[1] - common)
    return result


@export()
@reads("boxes", "scores")
def nms(boxes: Array, scores: Array, iou_threshold: float) -> Array:
    """The boxes that overlap none of a higher score that is kept (greedy non-maximum suppression).

    The choice is the host's, on every device.

    Args:
        boxes: floats of shape (N, 4): left, top, right, bottom.
        scores: shape (N,); of equal ones the first counts as the higher.
        iou_threshold: intersection over union beyond which a box is dropped.

    Returns:
        Their numbers, int64 of shape (kept,), by falling scores.

    Raises:
        ShapeError, DTypeError: they are no such boxes, or have other scores.

    Example:
        >>> import dl4all as dl
        >>> boxes = dl.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [3.0, 3.0, 4.0, 4.0]])
        >>> dl.ops.nms(boxes, dl.tensor([0.5, 0.9, 0.1]), 0.5).tolist()
        [1, 2]
    """
    _check_boxes("nms", boxes)
    if tuple(scores.shape) != (boxes.shape[0],):
        raise ShapeError(f"[nms] expected a score for each of {boxes.shape[0]} boxes, got {scores.shape}")
    check_float("nms", boxes, scores)
    threshold = real("nms", "iou_threshold", iou_threshold)
    return to_device_of(boxes, nms_on_host(numbers(boxes), numbers(scores), threshold))


@export()
@reads("boxes", "scores", "idxs")
def batched_nms(boxes: Array, scores: Array, idxs: Array, iou_threshold: float) -> Array:
    """:func:`nms` among the boxes of each class (or image) by itself.

    Args:
        boxes, scores, iou_threshold: as for :func:`nms`.
        idxs: the class of each box, ints of shape (N,).

    Returns:
        The numbers of all that are kept, int64 of shape (kept,), by falling scores.

    Raises:
        ShapeError, DTypeError: they are no such boxes, or have other scores or classes.

    Example:
        >>> import dl4all as dl
        >>> boxes = dl.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [0.0, 0.0, 2.0, 2.0]])
        >>> dl.ops.batched_nms(boxes, dl.tensor([0.5, 0.9, 0.1]), dl.tensor([0, 0, 1]), 0.5).tolist()
        [1, 2]
    """
    _check_boxes("batched_nms", boxes)
    if not tuple(scores.shape) == tuple(idxs.shape) == (boxes.shape[0],):
        raise ShapeError(
            f"[batched_nms] expected a score and a class for each of {boxes.shape[0]} boxes, got "
            f"{scores.shape} and {idxs.shape}"
        )
    check_float("batched_nms", boxes, scores)
    threshold = real("batched_nms", "iou_threshold", iou_threshold)
    corners, values, classes = numbers(boxes), numbers(scores), numbers(idxs)
    kept = []
    for one in np.unique(classes):
        places = np.flatnonzero(classes == one)
        kept.append(places[nms_on_host(corners[places], values[places], threshold)])
    chosen = np.sort(np.concatenate(kept)) if kept else np.zeros(0, np.int64)
    return to_device_of(boxes, chosen[np.argsort(-values[chosen], kind="stable")])


def nms_on_host(boxes: NDArray, scores: NDArray, threshold: float, most: int | None = None) -> NDArray:
    """The boxes that overlap none of a higher score that is kept (greedy non-maximum suppression).

    Args:
        boxes: floats of shape (N, 4): two corners, the smaller coordinates first.
        scores: shape (N,); of equal ones the first counts as the higher.
        threshold: intersection over union from which on, beyond it, a box is dropped.
        most: the largest number of boxes; all if None.

    Returns:
        int64 of shape (kept,), by falling scores.

    Example:
        >>> boxes = np.array([[0, 0, 2, 2], [0, 0, 2, 1.9], [3, 3, 4, 4]])
        >>> nms_on_host(boxes, np.array([0.5, 0.9, 0.1]), 0.5).tolist()
        [1, 2]
    """
    order = np.argsort(-scores, kind="stable")
    low, high = boxes[:, :2], boxes[:, 2:]
    areas = np.prod(high - low, 1)
    kept: list[int] = []
    while len(order) and (most is None or len(kept) < most):
        best, order = order[0], order[1:]
        kept.append(int(best))
        sides = np.minimum(high[best], high[order]) - np.maximum(low[best], low[order])
        common = np.prod(np.maximum(sides, 0), 1)
        union = areas[best] + areas[order] - common
        overlap = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
        order = order[overlap <= threshold]
    return np.array(kept, np.int64)
