"""The choice of boxes that do not overlap."""

from __future__ import annotations

import numpy as np

from dl4all.ops.indexing.indices import NDArray


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
