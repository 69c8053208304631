"""Normalisation and softmax."""

from __future__ import annotations

import math

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.base import Array, TensorBase
from dl4all.ops.launch import pack, run, shader, spread
from dl4all.ops.memory import contiguous
from dl4all.ops.op import Kernel, Result, empty, example, op
from dl4all.ops.window import check_float

WORKGROUP = 64
BATCH_NORM = {affine: shader("norm/batch_norm.comp", AFFINE=int(affine)) for affine in (False, True)}
BATCH_NORM_FOLD = shader("norm/batch_norm_fold.comp")
SOFTMAX = shader("reduce/softmax.comp")


def _batch_norm_shape(
    input: TensorBase,
    running_mean: TensorBase,
    running_var: TensorBase,
    weight: TensorBase | None,
    bias: TensorBase | None,
    *,
    eps: float,
) -> Result:
    check_float("batch_norm", input, running_mean, running_var, weight, bias)
    if len(input.shape) < 2:
        raise ShapeError(f"[batch_norm] expected an input of shape (N, C, ...), got {input.shape}")
    if (weight is None) != (bias is None):
        raise ArgumentError("[batch_norm] weight and bias go together: pass both or neither")
    given = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    for name, tensor in given.items():
        if tensor is not None and tensor.shape != (input.shape[1],):
            raise ShapeError(
                f"[batch_norm] {name} must have shape ({input.shape[1]},) for an input of shape "
                f"{input.shape}, got {tensor.shape}"
            )
    return input.shape, input.dtype


def _batch_norm_run(
    out: TensorBase,
    input: TensorBase,
    running_mean: TensorBase,
    running_var: TensorBase,
    weight: TensorBase | None,
    bias: TensorBase | None,
    *,
    eps: float,
) -> None:
    x, mean, var = contiguous(input), contiguous(running_mean), contiguous(running_var)
    elements, channels, inner = out.numel(), input.shape[1], math.prod(input.shape[2:])
    groups = spread(elements, WORKGROUP)
    if weight is None or bias is None:
        push = pack(elements, channels, inner, x.offset, float(eps), mean.offset, var.offset)
        run(BATCH_NORM[False], groups, push, x, mean, var, out)
        return
    weight, bias = contiguous(weight), contiguous(bias)
    folded = empty(type(out), (2 * channels,), out.dtype, out.device)
    push = pack(channels, float(eps), mean.offset, var.offset, weight.offset)
    run(BATCH_NORM_FOLD, spread(channels, WORKGROUP), push, mean, var, weight, folded)
    push = pack(elements, channels, inner, x.offset, bias.offset)
    run(BATCH_NORM[True], groups, push, x, folded, bias, out)


@op(
    infer=_batch_norm_shape,
    kernel=Kernel(_batch_norm_run, (*BATCH_NORM.values(), BATCH_NORM_FOLD)),
    examples=(
        example((2, 5, 7, 3), (5,), (5,), (5,), (5,)),
        example((3, 7), (7,), (7,), None, None, eps=1e-2),
        example((2, 3, 11), (3,), (3,), (3,), (3,), eps=1e-3),
        example((0, 3, 5), (3,), (3,), (3,), (3,)),
    ),
)
def batch_norm(
    input: Array,
    running_mean: Array,
    running_var: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> Array:
    """Batch normalisation in inference: each channel is scaled by statistics gathered before.

    ``(input - running_mean) / sqrt(running_var + eps) * weight + bias`` (Ioffe and Szegedy,
    arXiv:1502.03167, algorithm 2).

    Args:
        input: floats of shape (N, C, ...).
        running_mean, running_var, weight, bias: shape (C,); weight and bias together or not at all.
        eps: keeps the square root away from 0.

    Returns:
        The input's shape.

    Raises:
        ShapeError, DTypeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> x, mean, var = dl.tensor([[1.0], [5.0]]), dl.tensor([3.0]), dl.tensor([4.0])
        >>> dl.nn.functional.batch_norm(x, mean, var, eps=0.0).tolist()
        [[-1.0], [1.0]]
    """
    shape = (1, -1) + (1,) * (input.ndim - 2)
    scale = 1 / np.sqrt(running_var + np.asarray(eps, input.dtype))
    shift = -running_mean * scale
    if weight is not None and bias is not None:
        scale, shift = scale * weight, shift * weight + bias
    return input * scale.reshape(shape) + shift.reshape(shape)


def _softmax_shape(input: TensorBase, *, dim: int) -> Result:
    check_float("softmax", input)
    rank = len(input.shape)
    if not (isinstance(dim, int) and -max(rank, 1) <= dim < max(rank, 1)):
        raise ArgumentError(f"[softmax] dim {dim!r} is not an axis of shape {input.shape}")
    return input.shape, input.dtype


def _softmax_run(out: TensorBase, input: TensorBase, *, dim: int) -> None:
    x = contiguous(input)
    shape = out.shape or (1,)
    axis = dim % len(shape)
    inner = math.prod(shape[axis + 1 :])
    rows = out.numel() // shape[axis]
    push = pack(rows, shape[axis], inner, x.offset)
    run(SOFTMAX, spread(rows, 1), push, x, out)


@op(
    infer=_softmax_shape,
    kernel=Kernel(_softmax_run, (SOFTMAX,)),
    examples=(
        example((3, 1000), dim=-1),
        example((2, 5, 7), dim=1),
        example((13,), dim=0),
        example((4, 1), dim=1),
        example((), dim=0),
        example((0, 5), dim=1),
    ),
)
def softmax(input: Array, dim: int = -1) -> Array:
    """Exponentials of the elements along axis `dim`, divided by their sum.

    The largest element is subtracted first, so that no exponential overflows.

    Args:
        input: floats of any shape.
        dim: the axis along which the result sums to 1.

    Returns:
        The input's shape.

    Raises:
        ArgumentError: there is no such axis.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.softmax(dl.tensor([0.0, 0.0, 0.0, 0.0]), dim=0).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """
    if input.size == 0:
        return np.empty_like(input)
    x = input.reshape(input.shape or (1,))
    exponentials = np.exp(x - x.max(dim, keepdims=True))
    return (exponentials / exponentials.sum(dim, keepdims=True)).reshape(input.shape)
