"""Distances between vectors: dist, cdist, pairwise_distance and pdist."""

from __future__ import annotations

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core.exports import export
from dl4all.ops.core.limits import host_memory
from dl4all.ops.core.tensor_base import Array, check_repeated
from dl4all.ops.elementwise.arithmetic import sub
from dl4all.ops.memory.views import unsqueeze
from dl4all.ops.reduce.vector_norm import norm


@export("dl", "Tensor", autocast="float32")
def dist(input: Array, other: Array, p: float = 2) -> Array:
    """The norm of the difference of two tensors, whose shapes broadcast.

    Example:
        >>> import dl4all as dl
        >>> dl.dist(dl.tensor([1.0, 2.0]), dl.tensor([4.0, 6.0])).item()
        5.0
    """
    return norm(sub(input, other), p)


@export("dl", autocast="float32")
def cdist(
    x1: Array, x2: Array, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary"
) -> Array:
    """The distance of each vector of one tensor from each vector of another.

    Args:
        x1: shape (..., P, M).
        x2: shape (..., R, M); the leading axes broadcast.
        p: the order of the norm, 0 or larger.
        compute_mode: has no effect: differences are always computed one by one.

    Returns:
        Shape (..., P, R).

    Raises:
        ShapeError: the vectors differ in size.
        ArgumentError: the order is negative.

    Example:
        >>> import dl4all as dl
        >>> dl.cdist(dl.tensor([[0.0, 0.0]]), dl.tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
        [[5.0, 1.0]]
    """
    if len(x1.shape) < 2 or len(x2.shape) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"[cdist] expected (..., P, M) and (..., R, M), got {x1.shape} and {x2.shape}")
    if p < 0:
        raise ArgumentError(f"[cdist] expected an order of at least 0, got {p}")
    return norm(sub(unsqueeze(x1, -2), unsqueeze(x2, -3)), p, -1)


@export("dl", "F")
def pairwise_distance(
    x1: Array, x2: Array, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Array:
    """The distance of each pair of vectors along the last axis.

    Args:
        x1, x2: their shapes broadcast.
        p: the order of the norm.
        eps: added to each difference.
        keepdim: whether the last axis stays, with size 1.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.tensor([[0.0, 0.0]]), dl.tensor([[3.0, 4.0]])
        >>> dl.nn.functional.pairwise_distance(x, y, eps=0).tolist()
        [5.0]
    """
    return norm(sub(x1, x2) + eps, p, -1, keepdim)


@export("dl", "F", autocast="float32")
def pdist(input: Array, p: float = 2.0) -> Array:
    """The distance of each pair of rows of a matrix: of the first row from all later ones, and so on.

    Raises:
        ShapeError: the input is not a matrix.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.pdist(dl.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))[:2].tolist()
        [5.0, 1.0]
    """
    if len(input.shape) != 2:
        raise ShapeError(f"[pdist] expected a matrix, got shape {input.shape}")
    check_repeated("pdist", input)
    with host_memory("pdist"):
        first, second = np.triu_indices(input.shape[0], 1)
    return norm(sub(input[first], input[second]), p, -1)
