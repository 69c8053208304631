"""Rows added, multiplied or compared into a copy of a tensor by index, in one pass of the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dl4all.ops.core import tape
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import Shape, TensorBase, contiguous_strides
from dl4all.ops.core.vmap_hook import BatchedTensorBase
from dl4all.ops.elementwise.arithmetic import mul, sub, true_divide
from dl4all.ops.elementwise.comparison import eq
from dl4all.ops.elementwise.logic import where
from dl4all.ops.indexing.indices import Indices
from dl4all.ops.indexing.rows import take_rows
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import contiguous, reshape

COMBINED_DTYPES = ("float32", "float64", "int64", "int32")
UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum,
}  # fmt: skip


def combines_on_host(input: TensorBase, rows: Any, indices: Indices) -> bool:
    """Whether :func:`combined_rows` takes these: tensors of one dtype on the CPU, and indices beside them."""
    return (
        input.device.is_cpu
        and not isinstance(input, BatchedTensorBase)
        and isinstance(rows, TensorBase)
        and not isinstance(rows, BatchedTensorBase)
        and rows.dtype == input.dtype
        and input.dtype.name in COMBINED_DTYPES
        and indices.stays_on(input) is not None
        and 0 not in input.shape
    )


def combined_rows(mode: str, input: Any, rows: Any, indices: Indices, axes: Shape) -> Any:
    """A copy of the input with rows combined into it, in their order, on the CPU.

    Equal extremes share the gradient.

    Args:
        mode: "sum", "prod", "amax" or "amin".
        input: seen as shape (outer, size, inner).
        rows: seen as shape (outer, count, inner).
        indices: `count` ints below `size`; in a sum, rows with a negative index are left out.
        axes: outer, size and inner.

    Returns:
        The input's shape.
    """
    row_axes = (axes[0], len(indices), axes[2])
    result = empty(type(input).result_class, input.shape, input.dtype, input.device, "combine_rows")
    function = partial(_combine_rows, mode)
    sources = [reshape(tape.alias(input), axes), reshape(tape.alias(rows), row_axes)]
    reads = [*map(contiguous, sources), indices.on(input)]
    written = result.strided_view(axes, contiguous_strides(axes), 0)
    host_work("combine_rows", function, reads, [written], kernel=WorkKernel("combine_rows", (mode,)))

    def backward(grads: Any, saved: Any, needs: Sequence[bool]) -> list[Any]:
        g = reshape(grads[0], axes)
        if mode == "sum":
            return [grads[0], reshape(take_rows(g, indices), rows_shape) if needs[1] else None]
        x, terms, total = (reshape(t, shape) for t, shape in zip(saved, (axes, row_axes, axes), strict=True))
        gradients_of = _product_gradients if mode == "prod" else _extreme_gradients
        gradients = gradients_of(indices, g, x, terms, total, needs)
        return [
            None if gradient is None else reshape(gradient, shape)
            for gradient, shape in zip(gradients, (input_shape, rows_shape), strict=True)
        ]

    input_shape, rows_shape = input.shape, rows.shape
    saved = [] if mode == "sum" else [input, rows, result]
    tape.add_node("combine_rows", [input, rows], [result], backward, saved, single_use=True)
    return result


def _combine_rows(mode: str, input: Any, rows: Any, index: Any, result: Any) -> None:
    result[...] = input
    index = index.reshape(-1)
    for outer, terms in zip(result, rows, strict=True):
        UFUNCS[mode].at(outer, index[index >= 0], terms[index >= 0])


def _extreme_gradients(
    indices: Indices, g: Any, input: Any, rows: Any, result: Any, needs: Sequence[bool]
) -> list[Any]:
    """The gradient in equal shares for all elements that are the extreme."""
    name = result.dtype.name
    own = cast(eq(input, result), name)
    chosen = cast(eq(rows, take_rows(result, indices)), name)
    shares = true_divide(g, combined_rows("sum", own, chosen, indices, input.shape))
    return [
        mul(own, shares) if needs[0] else None,
        mul(chosen, take_rows(shares, indices)) if needs[1] else None,
    ]


def _product_gradients(
    indices: Indices, g: Any, input: Any, rows: Any, result: Any, needs: Sequence[bool]
) -> list[Any]:
    """The gradient times the product of the other factors, which is 0 if one of these is."""
    name = result.dtype.name
    zero, zero_rows = eq(input, 0), eq(rows, 0)
    own, own_rows = cast(zero, name), cast(zero_rows, name)
    factors, factor_rows = where(zero, 1, input), where(zero_rows, 1, rows)
    product = mul(g, combined_rows("prod", factors, factor_rows, indices, input.shape))
    zeros = combined_rows("sum", own, own_rows, indices, input.shape)

    def gradient(products: Any, zeros: Any, own: Any, factors: Any) -> Any:
        return where(eq(sub(zeros, own), 0), true_divide(products, factors), 0)

    taken = partial(take_rows, index=indices)
    return [
        gradient(product, zeros, own, factors) if needs[0] else None,
        gradient(taken(product), taken(zeros), own_rows, factor_rows) if needs[1] else None,
    ]
