"""Reductions of views that repeat elements along the reduced axes, as expand makes them.

Such a view may have more elements than kernels can count and than anyone would wait for, though it takes no
memory: ``ones(1).expand(2**40).sum()``. A reduction treats all copies of an element alike, so that it follows
from one copy of each and from their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dl4all.ops.core import tape
from dl4all.ops.core.dtypes import HALVES, kind_of
from dl4all.ops.core.op import Op
from dl4all.ops.core.tensor_base import Shape, TensorBase
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import expand
from dl4all.ops.reduce.reduction_kernel import axes_of

FEWEST_FOLDED = 2**24
"""Views with fewer elements are reduced like all other tensors, in the same order as their copies."""


class Repetition(NamedTuple):
    """One copy of each element of a view, and how many copies there are."""

    elements: Any  # a tensor: the view, but with size 1 along the axes that repeat
    times: int


def repetition(x: TensorBase, axes: Sequence[int]) -> Repetition | None:
    """The repeated part of a large view along some axes; None if nothing repeats, or the view is small.

    In a backward pass the copies of an element get equal shares of its gradient.
    """
    shape = x.shape
    repeated = [i for i in axes if x.strides[i] == 0 and shape[i] > 1]
    if not repeated or math.prod(shape) < FEWEST_FOLDED:
        return None
    single = tuple(1 if i in repeated else size for i, size in enumerate(shape))
    times = math.prod(shape[i] for i in repeated)
    elements = x.strided_view(single, x.strides, x.offset)
    tape.add_node(
        "repetition",
        [x],
        [elements],
        lambda grads, saved, needs: [expand(mul(grads[0], 1 / times), *shape)],
    )
    return Repetition(elements, times)


def fold_linear(op: Op[...], reduced: Callable[..., Sequence[int]]) -> Callable[..., Any]:
    """The fold of a sum: `op` of one copy of each element, times their number.

    Args:
        op: its own gradient stays, as it needs no element.
        reduced: the reduced axes, for the input and the op's arguments.
    """

    def fold(input: TensorBase, **arguments: Any) -> Any:
        with tape.gradients(False):
            found = repetition(input, reduced(input, **arguments))
            result = None if found is None else _summed(op, found, arguments)
        if result is not None:
            op.add_node([input], arguments, result)
        return result

    return fold


def _summed(op: Op[...], found: Repetition, arguments: dict[str, Any]) -> Any:
    """The sum of all copies, in the dtype that `op` gives."""
    dtype = op.infer(found.elements, **arguments)[1]
    if dtype not in HALVES:
        return times(op(found.elements, **arguments), found.times)
    wide = {**arguments, "dtype": "float32"} if "dtype" in arguments else arguments  # the sum may overflow
    return cast(times(op(cast(found.elements, "float32"), **wide), found.times), dtype.name)


def times(x: Any, number: int) -> Any:
    """The sum of so many copies of a tensor; integers wrap."""
    if kind_of(x.dtype) == "b":
        return x
    if kind_of(x.dtype) == "f":
        return mul(x, float(number))
    return mul(x, wrapped(number, x.dtype.itemsize * 8, signed=kind_of(x.dtype) == "i"))


def fold_product(op: Op[...]) -> Callable[..., Any]:
    """The fold of a product of matrices or vectors, each of which repeats elements along the inner axis."""

    def fold(input: TensorBase, other: Any) -> Any:
        if not isinstance(other, TensorBase) or not input.shape or not other.shape:
            return None
        inner = max(len(other.shape) - 2, 0)
        if input.shape[-1] != other.shape[inner] or input.dtype != other.dtype:
            return None  # for the op to refuse
        first, second = repetition(input, (len(input.shape) - 1,)), repetition(other, (inner,))
        if first is None or second is None:
            return None
        left, right = first.elements, second.elements
        if left.dtype not in HALVES:
            return times(op(left, right), first.times)
        return cast(times(op(cast(left, "float32"), cast(right, "float32")), first.times), left.dtype.name)

    return fold


def wrapped(number: int, bits: int, *, signed: bool) -> int:
    """A number as integers of so many bits hold it.

    >>> wrapped(2**32 + 2**31, 32, signed=True)
    -2147483648
    """
    number %= 2**bits
    return number - 2**bits if signed and number >= 2 ** (bits - 1) else number


def fold_alike(op: Op[...], reduced: Callable[..., Sequence[int]]) -> Callable[..., Any]:
    """The fold of a mean or an extreme, which no copy changes: `op` of one copy of each element."""

    def fold(input: TensorBase, **arguments: Any) -> Any:
        found = repetition(input, reduced(input, **arguments))
        return None if found is None else op(found.elements, **arguments)

    return fold


def once(x: Any, dim: Any) -> Any:
    """One copy of each element of a large view along axes, for reductions that no copy changes."""
    found = repetition(x, axes_of("reduction", dim, len(x.shape)))
    return x if found is None else found.elements


def index_in_view(index: int, single: Shape, shape: Shape) -> int:
    """The place in row-major order of an element's first copy in a view, by that among one copy of each.

    >>> index_in_view(1, (1, 2), (3, 2))
    1
    >>> index_in_view(1, (2, 1), (2, 3))
    3
    """
    place, step = 0, 1
    for size, wide in zip(reversed(single), reversed(shape), strict=True):
        index, digit = divmod(index, size)
        place, step = place + digit * step, step * wide
    return place
