"""Bilinear forms of two inputs."""

from __future__ import annotations

from dl4all.errors import ShapeError
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.linalg.contractions import tensordot
from dl4all.ops.memory.conversion import in_float32
from dl4all.ops.memory.views import unsqueeze
from dl4all.ops.reduce.sums import sum


@export("F", autocast="widest")
def bilinear(input1: Array, input2: Array, weight: Array, bias: Array | None = None) -> Array:
    """A bilinear form for each output: ``input1 @ weight[i] @ input2 + bias[i]``.

    Args:
        input1: floats of shape (..., in1).
        input2: floats of shape (..., in2), with the same leading axes.
        weight: shape (out, in1, in2).
        bias: shape (out,), or None.

    Returns:
        Shape (..., out).

    Raises:
        ShapeError: the shapes do not fit.

    Example:
        >>> import dl4all as dl
        >>> x, y = dl.tensor([[1.0, 2.0]]), dl.tensor([[3.0]])
        >>> dl.nn.functional.bilinear(x, y, dl.ones(1, 2, 1)).tolist()
        [[9.0]]
    """
    if (
        len(weight.shape) != 3
        or not input1.shape
        or not input2.shape
        or (input1.shape[-1], input2.shape[-1]) != weight.shape[1:]
        or input1.shape[:-1] != input2.shape[:-1]
    ):
        raise ShapeError(
            f"[bilinear] inputs of shapes {input1.shape} and {input2.shape} do not fit a weight of shape "
            f"{weight.shape}"
        )
    product = in_float32(_products, input1, input2, weight)
    return product if bias is None else product + bias


def _products(input1: Array, input2: Array, weight: Array) -> Array:
    rows = tensordot(input1, weight, ([-1], [1]))
    return sum(mul(rows, unsqueeze(input2, -2)), -1)
