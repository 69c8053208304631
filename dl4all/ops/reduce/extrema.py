"""The largest and smallest elements along axes, and where they are. A nan is larger and smaller than all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.core import tape
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.exports import export
from dl4all.ops.core.launch import shader
from dl4all.ops.core.op import REGISTRY, Kernel, Op, Result, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase
from dl4all.ops.elementwise.comparison import eq
from dl4all.ops.indexing.gather_scatter import gather
from dl4all.ops.memory.conversion import cast
from dl4all.ops.memory.views import reshape
from dl4all.ops.reduce.reduction_kernel import Reduction, axes_of, on_host, one_axis, reduced
from dl4all.ops.reduce.row_kernels import RowShaders, run_rows
from dl4all.ops.reduce.sums import AXES, spread, sum

LARGEST = Reduction("LARGEST", "s.value")
SMALLEST = Reduction("SMALLEST", "s.value")
ARGMAX = Reduction("ARGMAX", "s.index", ordered=True, wide=True)
ARGMIN = Reduction("ARGMIN", "s.index", ordered=True, wide=True)

ONE_AXIS = (
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
    """The extreme values along an axis, and where they were."""

    values: Any
    indices: Any


def _not_empty(name: str, shape: Shape, axes: tuple[int, ...]) -> None:
    for axis in axes:
        if shape[axis] == 0:
            raise ShapeError(
                f"[{name}] expected elements along axis {axis}, the shape is {shape}: of none there is no "
                "extreme; reduce other axes"
            )


def _infer(name: str) -> Callable[..., Result]:
    def infer(input: TensorBase, *, dim: Any, keepdim: bool) -> Result:
        axes = axes_of(name, dim, len(input.shape))
        _not_empty(name, input.shape, axes)
        return reduced(input.shape, axes, keepdim), input.dtype

    return infer


def _kernel(name: str, reduction: Reduction) -> Kernel:
    def launch(out: TensorBase, input: TensorBase, *, dim: Any, keepdim: bool) -> None:
        reduction(out, input, axes_of(name, dim, len(input.shape)))

    return Kernel(launch, reduction.shaders)


def _shared(g: Any, input: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    """The gradient in equal shares for all elements that are the extreme."""
    ties = cast(eq(input, spread(result, input.shape, dim, keepdim)), input.dtype.name)
    share = ties / sum(ties, dim, keepdim=True)
    return spread(g, input.shape, dim, keepdim) * share


@export("dl", "Tensor")
@op(infer=_infer("amax"), kernel=_kernel("amax", LARGEST), examples=AXES, grad=_shared)
def amax(input: Array, dim: Any = (), keepdim: bool = False) -> Array:
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
    return np.amax(input, axis=axes_of("amax", dim, input.ndim), keepdims=keepdim)


@export("dl", "Tensor")
@op(infer=_infer("amin"), kernel=_kernel("amin", SMALLEST), examples=AXES, grad=_shared)
def amin(input: Array, dim: Any = (), keepdim: bool = False) -> Array:
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
    return np.amin(input, axis=axes_of("amin", dim, input.ndim), keepdims=keepdim)


def _place_axes(name: str, dim: Any, ndim: int) -> tuple[int, ...]:
    if dim is None:
        return tuple(range(ndim))
    found = one_axis(name, dim, ndim)
    return (found,) if ndim else ()


def _infer_place(name: str) -> Callable[..., Result]:
    def infer(input: TensorBase, *, dim: Any, keepdim: bool) -> Result:
        axes = _place_axes(name, dim, len(input.shape))
        _not_empty(name, input.shape, axes)
        return reduced(input.shape, axes, keepdim), np.dtype(np.int64)

    return infer


def _place_kernel(name: str, reduction: Reduction, body: Callable[..., Any]) -> Kernel:
    def launch(out: TensorBase, input: TensorBase, *, dim: Any, keepdim: bool) -> None:
        if input.dtype != np.float32:
            on_host(out, body(input.on_host(), dim, keepdim))
        else:
            reduction(out, input, _place_axes(name, dim, len(input.shape)))

    return Kernel(launch, reduction.shaders, ("int64",))


def _argmax(input: Any, dim: Any, keepdim: bool) -> Any:
    return np.argmax(input, axis=dim if input.ndim else None, keepdims=keepdim)


def _argmin(input: Any, dim: Any, keepdim: bool) -> Any:
    return np.argmin(input, axis=dim if input.ndim else None, keepdims=keepdim)


@export("dl", "Tensor")
@op(
    infer=_infer_place("argmax"),
    kernel=_place_kernel("argmax", ARGMAX, _argmax),
    examples=ONE_AXIS,
    grad=(None,),
)
def argmax(input: Array, dim: Any = None, keepdim: bool = False) -> Array:
    """Where the largest element along an axis is: the first one among equals, or the first nan.

    Args:
        input: any shape and dtype.
        dim: the axis; by default all elements are counted in row-major order.
        keepdim: whether the axes stay, with size 1.

    Returns:
        int64, of the input's shape without the axis.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: it has no elements.

    Example:
        >>> import dl4all as dl
        >>> dl.argmax(dl.tensor([[1.0, 4.0], [3.0, 2.0]]), dim=0).tolist()
        [1, 0]
    """
    return _argmax(input, dim, keepdim)


@export("dl", "Tensor")
@op(
    infer=_infer_place("argmin"),
    kernel=_place_kernel("argmin", ARGMIN, _argmin),
    examples=ONE_AXIS,
    grad=(None,),
)
def argmin(input: Array, dim: Any = None, keepdim: bool = False) -> Array:
    """Where the smallest element along an axis is: the first one among equals, or the first nan.

    Args:
        input: any shape and dtype.
        dim: the axis; by default all elements are counted in row-major order.
        keepdim: whether the axes stay, with size 1.

    Returns:
        int64, of the input's shape without the axis.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: it has no elements.

    Example:
        >>> import dl4all as dl
        >>> dl.argmin(dl.tensor([[1.0, 4.0], [3.0, 2.0]]), dim=0).tolist()
        [0, 1]
    """
    return _argmin(input, dim, keepdim)


@export("dl", "Tensor")
def max(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest element; with `dim`, the largest along that axis and where they are.

    As PyTorch's, it also takes a second tensor in the place of `dim`, for :func:`maximum`. Of equal elements
    the first one along the axis is chosen, and has the gradient; without `dim` they share it.

    Returns:
        A tensor, or with `dim` a pair of `values` and int64 `indices`.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: it has no elements.

    Example:
        >>> import dl4all as dl
        >>> found = dl.max(dl.tensor([[1.0, 4.0], [3.0, 2.0]]), dim=1)
        >>> found.values.tolist(), found.indices.tolist()
        ([4.0, 3.0], [1, 0])
    """
    return _extreme("max", input, dim, keepdim, amax, argmax)


@export("dl", "Tensor")
def min(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest element; with `dim`, the smallest along that axis and where they are.

    As PyTorch's, it also takes a second tensor in the place of `dim`, for :func:`minimum`. Of equal elements
    the first one along the axis is chosen, and has the gradient; without `dim` they share it.

    Returns:
        A tensor, or with `dim` a pair of `values` and int64 `indices`.

    Raises:
        ArgumentError: there is no such axis.
        ShapeError: it has no elements.

    Example:
        >>> import dl4all as dl
        >>> dl.min(dl.tensor([[1.0, 4.0], [3.0, 2.0]])).item()
        1.0
    """
    return _extreme("min", input, dim, keepdim, amin, argmin)


def _extreme(name: str, input: Any, dim: Any, keepdim: bool, value: Op[...], place: Op[...]) -> Any:
    if isinstance(dim, TensorBase):
        return REGISTRY[f"{name}imum"](input, dim)
    if dim is None:
        return value(input, None, keepdim)
    if isinstance(dim, (tuple, list)):
        raise ArgumentError(f"[{name}] expected one axis, got dim={dim!r}; dl.a{name} takes several")
    with tape.gradients(False):
        found = Extremes(value(input, dim, keepdim), place(input, dim, keepdim))

    def backward(grads: Any, saved: Any, needs: Any) -> list[Any]:
        whole = reduced(saved[0].shape, (dim % len(saved[0].shape),), True) if saved[0].shape else ()
        return [extreme_backward(reshape(grads[0], *whole), saved[0], dim, name == "max")]

    tape.add_node(name, [input], found, backward, (input,))
    return found


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


def _extreme_backward_shape(grad: TensorBase, input: TensorBase, *, dim: int, largest: bool) -> Result:
    check_float("extreme_backward", grad, input)
    axes = _place_axes("extreme_backward", dim, len(input.shape))
    wanted = reduced(input.shape, axes, True)
    if grad.shape != wanted:
        raise ShapeError(
            f"[extreme_backward] expected a gradient of shape {wanted} for an input of shape {input.shape}, "
            f"got {grad.shape}"
        )
    return input.shape, input.dtype


def _extreme_backward_run(
    out: TensorBase, grad: TensorBase, input: TensorBase, *, dim: int, largest: bool
) -> None:
    run_rows(EXTREME_BACKWARD[largest], out, dim, grad, input)


@export()
@op(
    infer=_extreme_backward_shape,
    kernel=Kernel(
        _extreme_backward_run, tuple(shaders[False, False] for shaders in EXTREME_BACKWARD.values())
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
    """The gradient of :func:`max` and :func:`min` along an axis: that of a value, where the value was.

    Args:
        grad: floats of the input's shape, but of size 1 along the axis.
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
    places = (_argmax if largest else _argmin)(input, dim, True)
    np.put_along_axis(result, places, grad, dim)
    return result
