"""Cosine similarity, and losses of pairs: embedding and ranking losses."""

from __future__ import annotations

from dl4all.errors import ShapeError
from dl4all.ops.core import strides
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, Shape
from dl4all.ops.elementwise.comparison import clamp_min
from dl4all.ops.elementwise.logic import where
from dl4all.ops.loss.reduction import check_reduction, check_tensors, legacy_reduction, reduced
from dl4all.ops.memory.views import expand, reshape
from dl4all.ops.reduce.sums import sum
from dl4all.ops.reduce.vector_norm import norm


@export("F", autocast="float32")
def cosine_similarity(x1: Array, x2: Array, dim: int = 1, eps: float = 1e-8) -> Array:
    """The cosine of the angle between vectors.

    Args:
        x1, x2: floats whose shapes broadcast.
        dim: the axis of the vectors.
        eps: lower bound of the vectors' norms.

    Returns:
        The common shape without axis `dim`.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.cosine_similarity(dl.tensor([[3.0, 4.0]]), dl.tensor([[-6.0, -8.0]])).item()
        -1.0
    """
    check_tensors("cosine_similarity", x1, x2)
    shape = (x1 * x2).shape
    axis = strides.axis("cosine_similarity", dim, len(shape)) if shape else 0
    first, second = (_with_length(x, shape, axis) for x in (x1, x2))
    units = [_unit(x, dim, eps) for x in (first, second)]
    # Vectors are scaled before they are multiplied: the product of two large norms may overflow.
    return sum(units[0] * units[1], dim)


def _unit(x: Array, dim: int, eps: float) -> Array:
    length = norm(x, 2, dim, keepdim=True, dtype=None if kind_of(x.dtype) == "f" else "float32")
    return x / clamp_min(length, eps)


def _with_length(x: Array, shape: Shape, axis: int) -> Array:
    """A tensor that broadcasts to `shape`, with all of the axis whose elements make its vectors."""
    aligned = reshape(x, *(1,) * (len(shape) - len(x.shape)), *x.shape)  # broadcasting adds axes in front
    if aligned.shape[axis : axis + 1] == shape[axis : axis + 1]:
        return aligned
    return expand(aligned, (*aligned.shape[:axis], shape[axis], *aligned.shape[axis + 1 :]))


@export("F", autocast="float32")
def cosine_embedding_loss(
    input1: Array,
    input2: Array,
    target: Array,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """``1 - cos`` for similar pairs (target 1), ``max(0, cos - margin)`` for dissimilar ones (target -1).

    Args:
        input1, input2: floats of shape (N, D) or (D,).
        target: 1 and -1, of shape (N,) or ().
        margin: the cosine up to which a dissimilar pair costs nothing.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each pair.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Returns:
        A 0-d tensor; with ``"none"`` the target's shape.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[1.0, 0.0]])
        >>> dl.nn.functional.cosine_embedding_loss(x, x, dl.tensor([-1.0]), margin=0.25).item()
        0.75
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    name = "cosine_embedding_loss"
    check_reduction(name, reduction)
    check_tensors(name, input1, input2, target)
    if input1.shape != input2.shape or input1.shape[:-1] != target.shape or not input1.shape:
        raise ShapeError(
            f"[{name}] expected shapes (N, D), (N, D) and (N,), or without N, got "
            f"{input1.shape}, {input2.shape} and {target.shape}"
        )
    cosine = cosine_similarity(input1, input2, dim=-1, eps=1e-6)
    similar = where(target == 1, 1.0 - cosine, 0.0)
    dissimilar = where(target == -1, clamp_min(cosine - margin, 0.0), 0.0)
    return reduced(similar + dissimilar, reduction)


@export("F", autocast="float32")
def hinge_embedding_loss(
    input: Array,
    target: Array,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """A distance where the target is 1, ``max(0, margin - distance)`` where it is -1.

    Args:
        input: distances, floats of any shape.
        target: 1 and -1, of the same shape.
        margin: the distance from which a dissimilar pair costs nothing.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each element.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Returns:
        A 0-d tensor; with ``"none"`` the input's shape.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.hinge_embedding_loss(dl.tensor([0.25, 0.25]), dl.tensor([1.0, -1.0])).item()
        0.5
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    check_reduction("hinge_embedding_loss", reduction)
    check_tensors("hinge_embedding_loss", input, target)
    dissimilar = where(target == 1, 0.0, clamp_min(margin - input, 0.0))
    return reduced(dissimilar + where(target == -1, 0.0, input), reduction)


@export("F", autocast="float32")
def margin_ranking_loss(
    input1: Array,
    input2: Array,
    target: Array,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """``max(0, -target * (input1 - input2) + margin)``: the loss of ranking two inputs.

    Args:
        input1, input2: floats of any shape.
        target: 1 where `input1` should be larger, -1 where `input2` should.
        margin: by how much it should be larger.
        reduction: ``"mean"``, ``"sum"``, or ``"none"`` for the loss of each pair.
        size_average, reduce: PyTorch's older names: False for a sum, False for each loss.

    Returns:
        A 0-d tensor; with ``"none"`` the input's shape.

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> a, b = dl.tensor([1.0, 4.0]), dl.tensor([2.0, 2.0])
        >>> dl.nn.functional.margin_ranking_loss(a, b, dl.tensor([1.0, 1.0])).item()
        0.5
    """
    reduction = legacy_reduction(reduction, size_average, reduce)
    check_reduction("margin_ranking_loss", reduction)
    check_tensors("margin_ranking_loss", input1, input2, target)
    return reduced(clamp_min(target * (input2 - input1) + margin, 0.0), reduction)
