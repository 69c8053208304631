"""max, min, amax, amin, argmax, argmin and aminmax. A nan is both larger and smaller than all numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.dtypes import FLOATS
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import shader
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, empty, example, op, primitives
from dl4all.ops.core.tensor_base import Array, Dims, Shape, TensorBase, from_host
from dl4all.ops.elementwise.comparison import eq, maximum, minimum
from dl4all.ops.indexing.gather_scatter import gather
from dl4all.ops.indexing.host_selection import put_along
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import in_shape
from dl4all.ops.reduce.reduction_kernel import Reduction, axes_of, one_axis, reduced_shape
from dl4all.ops.reduce.repetition import fold_alike, index_in_view, repetition
from dl4all.ops.reduce.row_kernels import ROW_PUSH, RowShaders, run_rows
from dl4all.ops.reduce.sums import AXES_EXAMPLES, named_axes, sum
from dl4all.ops.sorting.integer_reduction import reduce_integers

MAX_REDUCTION = Reduction("LARGEST", "s.value")
MIN_REDUCTION = Reduction("SMALLEST", "s.value")
ARGMAX_REDUCTION = Reduction("ARGMAX", "s.index", ordered=True, wide=True)
ARGMIN_REDUCTION = Reduction("ARGMIN", "s.index", ordered=True, wide=True)

ONE_AXIS_EXAMPLES = (
    example((7, 13), dim=None),
    example((5, 3, 7), dim=1),
    example((5, 3, 7), dim=-1, keepdim=True),
    example((2, 2, 2, 3, 2, 2), dim=3),
    example((2, 3, 5), dim=None, keepdim=True),
    example((5, 12), dim=1),
    example((67, 131), dim=0),
    example((70001,), dim=0),
    example((), dim=0),
    example((3, 1), dim=1),
    example((0, 5), dim=1),
)


class Extremes(NamedTuple):
    """The extreme values along an axis, and their indices."""

    values: Array
    indices: Array


class Range(NamedTuple):
    """The smallest and the largest elements."""

    min: Array
    max: Array


def _check_not_empty(name: str, shape: Shape, axes: tuple[int, ...]) -> None:
    for axis in axes:
        if shape[axis] == 0:
            raise ShapeError(
                f"[{name}] expected elements along axis {axis}, the shape is {shape}: of none there is no "
                "extreme; reduce other axes"
            )


def _infer_extreme(name: str) -> Callable[..., Result]:
    def infer(input: TensorBase, *, dim: Any, keepdim: bool) -> Result:
        axes = axes_of(name, dim, len(input.shape))
        _check_not_empty(name, input.shape, axes)
        return reduced_shape(input.shape, axes, keepdim), input.dtype

    return infer


def _extreme_kernel(name: Literal["amax", "amin"], reduction: Reduction) -> Kernel:
    def run(out: TensorBase, input: TensorBase, *, dim: Any, keepdim: bool) -> None:
        axes = axes_of(name, dim, len(input.shape))
        if out.dtype in FLOATS:
            reduction(out, input, axes)
        elif out.dtype.itemsize >= 4:
            reduce_integers(out, input, axes, name)
        else:
            extremes = empty(type(out).result_class, out.shape, np.dtype(np.int32), out.device)
            reduce_integers(extremes, input, axes, name)
            conversion = primitives.cast.kernel
            assert conversion is not None
            conversion.run(out, extremes, dtype=out.dtype.name)

    return Kernel(run, reduction.shaders, ("float32", "int64", "int32", "uint8", "bool"))


def _extreme_gradient(g: Any, input: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    """The gradient in equal shares for all elements that are the extreme."""
    axes = axes_of("amax", dim, len(input.shape))
    kept = reduced_shape(input.shape, axes, True)
    ties = cast(eq(input, in_shape(result, *kept)), input.dtype.name)
    return in_shape(g, *kept) / sum(ties, axes, keepdim=True) * ties


@export("dl", "Tensor", out=True)
@op(
    infer=_infer_extreme("amax"),
    kernel=_extreme_kernel("amax", MAX_REDUCTION),
    examples=AXES_EXAMPLES,
    grad=_extreme_gradient,
)
def amax(input: Array, dim: Dims = (), keepdim: bool = False) -> Array:
    """The largest element along axes; nan if there is one.

    The gradient is shared equally among elements that are equally large.

    Args:
        input: any shape and dtype.
        dim: an axis or several; all by default.
        keepdim: whether the axes stay, with size 1.

    Returns:
        The input's shape without the axes.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.
        ShapeError: an axis has no elements.

    Example:
        >>> import dl4all as dl
        >>> dl.amax(dl.tensor([[1.0, 4.0], [3.0, 2.0]]), dim=0).tolist()
        [3.0, 4.0]
    """
    return input.max(axis=axes_of("amax", dim, input.ndim), keepdims=keepdim)


@export("dl", "Tensor", out=True)
@op(
    infer=_infer_extreme("amin"),
    kernel=_extreme_kernel("amin", MIN_REDUCTION),
    examples=AXES_EXAMPLES,
    grad=_extreme_gradient,
)
def amin(input: Array, dim: Dims = (), keepdim: bool = False) -> Array:
    """The smallest element along axes; nan if there is one.

    The gradient is shared equally among elements that are equally small.

    Args:
        input: any shape and dtype.
        dim: an axis or several; all by default.
        keepdim: whether the axes stay, with size 1.

    Returns:
        The input's shape without the axes.

    Raises:
        ArgumentError: there is no such axis, or it is named twice.
        ShapeError: an axis has no elements.

    Example:
        >>> import dl4all as dl
        >>> dl.amin(dl.tensor([[1.0, 4.0], [3.0, 2.0]]), dim=0).tolist()
        [1.0, 2.0]
    """
    return input.min(axis=axes_of("amin", dim, input.ndim), keepdims=keepdim)


amax.define_fold(fold_alike(amax, named_axes))
amin.define_fold(fold_alike(amin, named_axes))


def _index_axes(name: str, dim: Any, ndim: int) -> tuple[int, ...]:
    if dim is None:
        return tuple(range(ndim))
    axis = one_axis(name, dim, ndim)
    return (axis,) if ndim else ()


def _infer_index(name: str) -> Callable[..., Result]:
    def infer(input: TensorBase, *, dim: Any, keepdim: bool) -> Result:
        axes = _index_axes(name, dim, len(input.shape))
        _check_not_empty(name, input.shape, axes)
        return reduced_shape(input.shape, axes, keepdim), np.dtype(np.int64)

    return infer


def _index_kernel(name: Literal["argmax", "argmin"], reduction: Reduction) -> Kernel:
    def run(out: TensorBase, input: TensorBase, *, dim: Any, keepdim: bool) -> None:
        axes = _index_axes(name, dim, len(input.shape))
        if input.dtype in FLOATS:
            reduction(out, input, axes)
        else:
            reduce_integers(out, input, axes, name)

    return Kernel(run, reduction.shaders, ("int64",))


def _host_index(name: str, input: Any, dim: Any, keepdim: bool) -> Any:
    """NumPy's argmax or argmin; a 0-d array counts as a vector of one element."""
    return getattr(np, name)(input, axis=dim if input.ndim else None, keepdims=keepdim)


@export("dl", "Tensor", out=True)
@op(
    infer=_infer_index("argmax"),
    kernel=_index_kernel("argmax", ARGMAX_REDUCTION),
    examples=ONE_AXIS_EXAMPLES,
    grad=(None,),
)
def argmax(input: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """The index of the largest element along an axis: of the first one among equals, or the first nan.

    Args:
        input: any shape and dtype.
        dim: the axis; by default the index counts all elements in row-major order.
        keepdim: whether the axes stay, with size 1.

    Returns:
        int64, of the input's shape without the axis.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: the axis has no elements.

    Example:
        >>> import dl4all as dl
        >>> dl.argmax(dl.tensor([[1.0, 4.0], [3.0, 2.0]]), dim=0).tolist()
        [1, 0]
    """
    return _host_index("argmax", input, dim, keepdim)


@export("dl", "Tensor", out=True)
@op(
    infer=_infer_index("argmin"),
    kernel=_index_kernel("argmin", ARGMIN_REDUCTION),
    examples=ONE_AXIS_EXAMPLES,
    grad=(None,),
)
def argmin(input: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    """The index of the smallest element along an axis: of the first one among equals, or the first nan.

    Args:
        input: any shape and dtype.
        dim: the axis; by default the index counts all elements in row-major order.
        keepdim: whether the axes stay, with size 1.

    Returns:
        int64, of the input's shape without the axis.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: the axis has no elements.

    Example:
        >>> import dl4all as dl
        >>> dl.argmin(dl.tensor([[1.0, 4.0], [3.0, 2.0]]), dim=0).tolist()
        [0, 1]
    """
    return _host_index("argmin", input, dim, keepdim)


def _fold_index(index: Callable[..., Any]) -> Callable[..., Any]:
    """The fold of `index`, which is argmax or argmin: the first copy of an element counts."""

    def fold(input: TensorBase, *, dim: int | None, keepdim: bool) -> Any:
        found = repetition(input, _index_axes(index.__name__, dim, len(input.shape)))
        if found is None:
            return None
        result = index(found.elements, dim, keepdim)
        if dim is not None:
            return result
        place = index_in_view(int(result.on_host().item()), found.elements.shape, input.shape)
        return from_host(type(result), np.full(result.shape, place), input.device, copy=False)

    return fold


argmax.define_fold(_fold_index(argmax))
argmin.define_fold(_fold_index(argmin))


@overload
def max(input: Array, dim: None = None, keepdim: bool = False) -> Array: ...
@overload
def max(input: Array, dim: int, keepdim: bool = False) -> Extremes: ...
@overload
def max(input: Array, dim: TensorBase) -> Array: ...
@overload
def max(input: Array, *, other: TensorBase) -> Array: ...
@export("dl", "Tensor", out=True)
def max(
    input: Array,
    dim: int | TensorBase | None = None,
    keepdim: bool = False,
    *,
    other: TensorBase | None = None,
) -> Array | Extremes:
    """The largest element; with `dim`, the largest along that axis and their indices.

    As in PyTorch, a second tensor may stand in place of `dim`, or be `other`: see :func:`maximum`.
    Of equal elements the first one along the axis is chosen, and gets the gradient; without `dim` they
    share it.

    Returns:
        A tensor, or with `dim` a pair of `values` and int64 `indices`.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: the axis has no elements.

    Example:
        >>> import dl4all as dl
        >>> result = dl.max(dl.tensor([[1.0, 4.0], [3.0, 2.0]]), dim=1)
        >>> result.values.tolist(), result.indices.tolist()
        ([4.0, 3.0], [1, 0])
    """
    if other is not None or isinstance(dim, TensorBase):
        return maximum(input, dim if other is None else other)
    return amax(input, None, keepdim) if dim is None else _extreme_along_axis("max", input, dim, keepdim)


@overload
def min(input: Array, dim: None = None, keepdim: bool = False) -> Array: ...
@overload
def min(input: Array, dim: int, keepdim: bool = False) -> Extremes: ...
@overload
def min(input: Array, dim: TensorBase) -> Array: ...
@overload
def min(input: Array, *, other: TensorBase) -> Array: ...
@export("dl", "Tensor", out=True)
def min(
    input: Array,
    dim: int | TensorBase | None = None,
    keepdim: bool = False,
    *,
    other: TensorBase | None = None,
) -> Array | Extremes:
    """The smallest element; with `dim`, the smallest along that axis and their indices.

    As in PyTorch, a second tensor may stand in place of `dim`, or be `other`: see :func:`minimum`.
    Of equal elements the first one along the axis is chosen, and gets the gradient; without `dim` they
    share it.

    Returns:
        A tensor, or with `dim` a pair of `values` and int64 `indices`.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: the axis has no elements.

    Example:
        >>> import dl4all as dl
        >>> dl.min(dl.tensor([[1.0, 4.0], [3.0, 2.0]])).item()
        1.0
    """
    if other is not None or isinstance(dim, TensorBase):
        return minimum(input, dim if other is None else other)
    return amin(input, None, keepdim) if dim is None else _extreme_along_axis("min", input, dim, keepdim)


def _extreme_along_axis(name: str, input: Any, dim: int, keepdim: bool) -> Extremes:
    """The values and indices of :func:`max` or :func:`min` along one axis."""
    if isinstance(dim, (tuple, list)):
        raise ArgumentError(f"[{name}] expected one axis, got dim={dim!r}; dl.a{name} takes several")
    found = repetition(input, _index_axes(name, dim, len(input.shape)))
    if found is not None:
        return _extreme_along_axis(name, found.elements, dim, keepdim)
    value, index = (amax, argmax) if name == "max" else (amin, argmin)
    with tape.gradients(False):
        result = Extremes(value(input, dim, keepdim), index(input, dim, keepdim))

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        x, indices = saved
        shape = x.shape
        kept = reduced_shape(shape, (dim % len(shape),), True) if shape else ()
        g = in_shape(grads[0], *kept)
        if shape and not tape.state.enabled:
            gradient = put_along(name, g, in_shape(indices, *kept), dim % len(shape), shape)
            if gradient is not None:
                return [gradient]
        return [extreme_backward(g, x, dim, name == "max")]

    tape.add_node(name, [input], result, backward, (input, result.indices))
    return result


@export("dl", "Tensor", out=True)
def aminmax(input: Array, *, dim: int | None = None, keepdim: bool = False) -> Range:
    """The smallest and the largest element, along axis `dim` if it is given.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: the axis has no elements.

    Example:
        >>> import dl4all as dl
        >>> result = dl.aminmax(dl.tensor([1.0, 3.0, 2.0]))
        >>> result.min.item(), result.max.item()
        (1.0, 3.0)
    """
    return Range(amin(input, dim, keepdim), amax(input, dim, keepdim))


EXTREME_BACKWARD_PUSH = PushBlock("reduce/extrema_backward.comp", f"{ROW_PUSH} uint g_offset, x_offset;")
EXTREME_BACKWARD: dict[bool, RowShaders] = {
    largest: {
        (False, False): shader(
            "reduce/extrema_backward.comp",
            KIND="ARGMAX" if largest else "ARGMIN",
            SUBGROUPS=0,
            FOURS=0,
        )
    }
    for largest in (True, False)
}


def _infer_extreme_backward(grad: TensorBase, input: TensorBase, *, dim: int, largest: bool) -> Result:
    check_float("extreme_backward", grad, input)
    axes = _index_axes("extreme_backward", dim, len(input.shape))
    expected = reduced_shape(input.shape, axes, True)
    if grad.shape != expected:
        raise ShapeError(
            f"[extreme_backward] expected a gradient of shape {expected} for an input of shape "
            f"{input.shape}, got {grad.shape}"
        )
    return input.shape, input.dtype


def _run_extreme_backward(
    out: TensorBase, grad: TensorBase, input: TensorBase, *, dim: int, largest: bool
) -> None:
    run_rows(EXTREME_BACKWARD[largest], EXTREME_BACKWARD_PUSH, out, dim, grad, input)


@export()
@op(
    infer=_infer_extreme_backward,
    kernel=Kernel(
        _run_extreme_backward, tuple(shaders[False, False] for shaders in EXTREME_BACKWARD.values())
    ),
    examples=(
        example((7, 1), (7, 13), dim=1, largest=True),
        example((5, 1, 7), (5, 3, 7), dim=1, largest=False),
        example((1, 5), (67, 5), dim=0, largest=True),
        example((3001, 1), (3001, 5), dim=-1, largest=True),
        example((), (), dim=0, largest=False),
        example((0, 1), (0, 5), dim=1, largest=True),
    ),
    grad=(
        lambda g, input, dim, largest: gather(g, dim, (argmax if largest else argmin)(input, dim, True)),
        None,
    ),
)
def extreme_backward(grad: Array, input: Array, dim: int, largest: bool) -> Array:
    """The gradient of :func:`max` and :func:`min` along an axis: zeros, but `grad` at the extreme elements.

    Args:
        grad: the gradient of the values, of the input's shape but size 1 along the axis.
        input: floats of the same dtype.
        dim: the axis.
        largest: whether the gradient is that of the maximum.

    Returns:
        The input's shape: 0 where `input` is not the extreme.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: the shapes do not fit.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.extreme_backward(dl.tensor([5.0]), dl.tensor([1.0, 3.0, 2.0]), 0, True).tolist()
        [0.0, 5.0, 0.0]
    """
    if input.ndim == 0:
        return grad
    result = np.zeros_like(input)
    indices = _host_index("argmax" if largest else "argmin", input, dim, True)
    np.put_along_axis(result, indices, grad, dim)
    return result
