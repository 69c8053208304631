"""The order of axes in memory of elementwise results, as PyTorch's TensorIterator chooses it.

Its rule (``TensorIteratorBase::reorder_dimensions`` in ATen/TensorIterator.cpp): axes are sorted by the
operands' strides, the first operand that tells two axes apart decides, and axes that none tells apart keep
their order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.core.tensor_base import Shape, TensorBase, contiguous_strides
from dl4all.ops.elementwise.kernels import broadcast_view


@functools.lru_cache(maxsize=4096)
def axis_order(shape: Shape, strides: tuple[Shape, ...]) -> tuple[int, ...]:
    """The axes from the outermost in memory to the innermost.

    Args:
        shape: of the result.
        strides: of each operand, broadcast to it.

    >>> axis_order((2, 3, 5), ((15, 1, 3),))
    (0, 2, 1)
    """
    order = list(reversed(range(len(shape))))  # from the innermost

    def swap(inner: int, outer: int) -> int:
        for one in strides:
            a, b = one[inner], one[outer]
            if not a or not b:
                continue
            if a != b:
                return 1 if a > b else -1
            if shape[inner] > shape[outer]:
                return 1
        return 0

    for i in range(1, len(order)):
        at = i
        for before in reversed(range(i)):
            answer = swap(order[before], order[at])
            if answer > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif answer < 0:
                break
    return tuple(reversed(order))


def computed_layout(operands: list[Any]) -> tuple[list[Any], Callable[[Shape], tuple[Shape, Shape]]]:
    """The operands with axes in the order in which an elementwise op is to compute.

    Returns:
        The operands, tensors permuted; and what gives shape and strides for PyTorch of a contiguous result.
    """
    tensors = [one for one in operands if isinstance(one, TensorBase)]
    shape = broadcast_shape([one.shape for one in tensors])
    views = {id(one): broadcast_view(one, shape) for one in tensors}
    order = axis_order(shape, tuple(views[id(one)].strides for one in tensors))
    if order == tuple(range(len(shape))):
        return operands, lambda computed: (computed, contiguous_strides(computed))

    def permute(one: TensorBase) -> Any:
        view = views[id(one)]
        axes, strides = tuple(shape[axis] for axis in order), tuple(view.strides[axis] for axis in order)
        return one.strided_view(axes, strides, view.offset)

    def restore(computed: Shape) -> tuple[Shape, Shape]:
        strides = contiguous_strides(computed)
        where = {axis: at for at, axis in enumerate(order)}
        return shape, tuple(strides[where[axis]] for axis in range(len(shape)))

    return [permute(one) if isinstance(one, TensorBase) else one for one in operands], restore


def broadcast_shape(shapes: list[Shape]) -> Shape:
    """The shape that all these are broadcast to.

    Raises:
        ShapeError: they do not fit.

    >>> broadcast_shape([(3, 1), (4,)])
    (3, 4)
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise ShapeError(f"[elementwise] {error}") from None
