"""Ops of layer, group, instance and RMS normalisation, which all normalise rows of contiguous elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core import tape
from dl4all.ops.core.checks import check_float
from dl4all.ops.core.dtypes import FLOAT32, widened
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import NoKernel, run
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase
from dl4all.ops.elementwise.transcendental import rsqrt
from dl4all.ops.memory.views import contiguous, reshape
from dl4all.ops.normalization.batch_normalization import check_channels
from dl4all.ops.normalization.host import along_channels, channel_axes, float64_sum, row_sums
from dl4all.ops.normalization.one_pass import in_one_pass, rows_gradients_pass
from dl4all.ops.reduce.channel_sums import SUMS_SHADERS, launch_sums
from dl4all.ops.reduce.row_kernels import FORMS, ROW_PUSH, RowShaders, row_launch, row_shaders
from dl4all.ops.reduce.sums import sum_to

_ROWS = f"{ROW_PUSH} uint channels, channel_elements; float eps;"
ROWS_PUSH = {
    1: PushBlock("normalization/rows.comp", f"{_ROWS} uint x_offset, weight_offset, bias_offset;"),
    2: PushBlock("normalization/rows_backward.comp", f"{_ROWS} uint g_offset, x_offset, weight_offset;"),
}
"""By the number of operands: for the result and for the gradient."""
ROWS = {
    (weight, bias, center): row_shaders(
        "normalization/rows.comp", FORMS, WEIGHT=int(weight), BIAS=int(bias), CENTER=int(center)
    )
    for weight in (False, True)
    for bias in (False, True)
    for center in (False, True)
}
ROWS_FOLD = {
    center: row_shaders("normalization/rows.comp", FORMS, FOLD=1, CENTER=int(center))
    for center in (False, True)
}
ROWS_BACKWARD = {
    (weight, center): row_shaders(
        "normalization/rows_backward.comp", FORMS, WEIGHT=int(weight), CENTER=int(center), GIVEN=0
    )
    for weight in (False, True)
    for center in (False, True)
}


def check_groups(name: str, channels: int, groups: int) -> None:
    """Raise unless the channels can be split into `groups`.

    Raises:
        ArgumentError
    """
    if not isinstance(groups, int) or groups < 1 or channels % groups:
        raise ArgumentError(f"[{name}] {channels} channels do not split into {groups!r} groups")


def rows_shape(shape: Shape, groups: int) -> tuple[int, int]:
    """The number of rows to normalise, and their length."""
    count = shape[0] * groups
    return count, math.prod(shape) // count if count else 0


def _normalised_rows(x: Any, groups: int, eps: float, center: bool) -> tuple[Any, Any]:
    """NumPy: `x` with its rows normalised, and 1 / deviation of each row."""
    rows = x.reshape(rows_shape(x.shape, groups))
    length = rows.shape[1]
    centered = rows - row_sums(rows) / length if center else rows
    scale = 1 / np.sqrt(row_sums(centered * centered) / length + np.asarray(eps, x.dtype))
    return np.multiply(centered, scale, out=centered if center else None).reshape(x.shape), scale


def launch_rows(
    shaders: RowShaders,
    out: TensorBase,
    operands: Sequence[TensorBase],
    of_channels: Sequence[TensorBase | None],
    groups: int,
    eps: float,
    *,
    of_rows: Sequence[TensorBase] = (),
) -> None:
    """Launches a row kernel on operands of one shape, and on operands with one element for each channel.

    Those `of_rows` are bound as they are.
    """
    shape = operands[0].shape
    count, length = rows_shape(shape, groups)
    channels, inner = shape[1], math.prod(shape[2:])
    sources = [contiguous(t) for t in operands]
    optional = [None if t is None else contiguous(t) for t in of_channels]
    present = [t for t in optional if t is not None]
    adjacent = inner == 1 and bool(present)
    by_four = all(t.offset % 4 == 0 for t in present) if adjacent else inner % 4 == 0 or not present
    rows = row_launch(shaders, count, length, 1, *sources, vec4=by_four)
    width = rows.width if adjacent else 1
    push = ROWS_PUSH[len(sources)].after(
        rows.push, channels // width, inner, float(eps),
        *(t.offset // rows.width for t in sources),
        *(0 if t is None else t.offset // width for t in optional),
    )  # fmt: skip
    constants = (int(adjacent), *rows.constants) if present or rows.constants else ()
    run(rows.code, rows.groups, push, *sources, *present, *of_rows, out, constants=constants)


def _infer_grouped_norm(
    input: TensorBase,
    weight: TensorBase | None,
    bias: TensorBase | None,
    *,
    groups: int,
    eps: float,
    center: bool,
) -> Result:
    check_channels("grouped_norm", input, weight=weight, bias=bias)
    check_groups("grouped_norm", input.shape[1], groups)
    return input.shape, input.dtype


def _run_grouped_norm(
    out: TensorBase,
    input: TensorBase,
    weight: TensorBase | None,
    bias: TensorBase | None,
    *,
    groups: int,
    eps: float,
    center: bool,
) -> None:
    shaders = ROWS[weight is not None, bias is not None, center]
    launch_rows(shaders, out, [input], [weight, bias], groups, eps)


def _grouped_norm_gradient(
    g: Any, input: Any, weight: Any, groups: int, eps: float, center: bool, needs: tuple[bool, ...]
) -> tuple[Any, ...]:
    options: dict[str, Any] = {"groups": groups, "eps": eps, "center": center}
    if needs[0] and (needs[1] or needs[2]) and not tape.state.enabled and in_one_pass(g):
        return rows_gradients_pass(partial(_write_gradients, options), g, input, weight, **options)
    input_gradient = grouped_norm_backward(g, input, weight, **options) if needs[0] else None
    if not (needs[1] or needs[2]):
        return input_gradient, None, None
    sums = grouped_norm_sums(g, input, **options)
    return input_gradient, sums[1], sums[0]


def _write_gradients(options: dict[str, Any], *arrays: Any) -> None:
    """NumPy: the gradients of the input, and sums for those of weight and bias."""
    *operands, result, sums = arrays
    result[...] = grouped_norm_backward.body(*operands, **options)
    sums[...] = grouped_norm_sums.body(*operands[:2], **options)


@export()
@op(
    infer=_infer_grouped_norm,
    kernel=Kernel(_run_grouped_norm, tuple(code for rows in ROWS.values() for code in rows.values())),
    examples=(
        example((3, 6, 5), (6,), (6,), groups=3),
        example((5, 13), (13,), (13,)),
        example((2, 7), (7,), None, center=False, eps=1e-3),
        example((2, 7), None, (7,)),
        example((3, 7), (7,), None),
        example((3, 2, 5), None, None, groups=2),
        example((2, 5, 3), None, None, center=False),
        example((2, 5, 3), (5,), (5,), center=False),
        example((2, 5, 3), None, (5,), center=False),
        example((2, 4, 11, 13), (4,), (4,), groups=2),
        example((7, 131), None, None),
        # Rows read four elements at once; channels change with each element, every four, or in between.
        example((3, 132), (132,), (132,)),
        example((3, 24), (24,), (24,), groups=2),
        example((2, 4, 12), (4,), (4,), groups=2),
        example((2, 4, 6), (4,), (4,), groups=2),
        example((3, 132), None, None),
        example((3, 132), (132,), None),
        example((3, 132), None, (132,)),
        example((3, 132), (132,), None, center=False),
        example((3, 132), (132,), (132,), center=False),
        example((3, 132), None, (132,), center=False),
        example((3, 132), None, None, center=False),
        example((0, 5), (5,), (5,)),
        example((3, 5, 0), (5,), (5,)),
    ),
    grad=_grouped_norm_gradient,
)
def grouped_norm(
    input: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    groups: int = 1,
    eps: float = 1e-5,
    center: bool = True,
) -> Array:
    """Each group of channels of each sample, normalised by its own mean and variance.

    ``(input - mean) / sqrt(var + eps) * weight + bias``. :func:`~dl4all.nn.functional.layer_norm`,
    ``group_norm``, ``instance_norm`` and ``rms_norm`` call this op.

    Args:
        input: floats of shape (N, C, ...).
        weight, bias: shape (C,).
        groups: the number of groups that the channels are split into.
        eps: keeps the square root away from 0.
        center: whether to subtract the mean; if not, the mean square replaces the variance.

    Returns:
        The input's shape.

    Raises:
        ShapeError, DTypeError
        ArgumentError: the number of channels is not a multiple of `groups`.

    Example:
        >>> import dl4all as dl
        >>> dl.ops.grouped_norm(dl.tensor([[1.0, 5.0]]), eps=0.0).tolist()
        [[-1.0, 1.0]]
    """
    result = _normalised_rows(input, groups, eps, center)[0]
    if weight is not None:
        result *= along_channels(weight, input.ndim)
    if bias is not None:
        result += along_channels(bias, input.ndim)
    return result


# Statistics


def _infer_statistics(input: TensorBase, *, groups: int, eps: float, center: bool) -> Result:
    check_channels("grouped_norm_statistics", input)
    check_groups("grouped_norm_statistics", input.shape[1], groups)
    return (2, input.shape[0] * groups), widened(input.dtype)


def _run_statistics(out: TensorBase, input: TensorBase, *, groups: int, eps: float, center: bool) -> None:
    if not input.numel():
        raise NoKernel("rows without elements have no mean")
    launch_rows(ROWS_FOLD[center], out, [input], [None, None], groups, eps)


def _statistics_gradient(v: Any, input: Any, result: Any, groups: int, center: bool) -> Any:
    """The derivative of ``1 / deviation`` by an element is ``-centered / n / deviation**3``."""
    count, length = rows_shape(input.shape, groups)
    rows = reshape(input, count, length)
    mean_share, scale = reshape(v[0] / max(length, 1), count, 1), reshape(result[1], count, 1)
    centered = rows - reshape(result[0], count, 1) if center else rows
    gradient = centered * (scale * scale * scale * reshape(v[1] * (-1 / max(length, 1)), count, 1))
    return reshape(gradient + mean_share if center else gradient, input.shape)


@export()
@op(
    infer=_infer_statistics,
    kernel=Kernel(_run_statistics, tuple(code for rows in ROWS_FOLD.values() for code in rows.values())),
    examples=(
        example((3, 6, 5), groups=3),
        example((5, 13)),
        example((2, 7), center=False, eps=1e-3),
        example((2, 4, 12), groups=2),
        example((3, 132), center=False),
        example((7, 131)),
        example((0, 5)),
    ),
    grad=_statistics_gradient,
)
def grouped_norm_statistics(input: Array, groups: int = 1, eps: float = 1e-5, center: bool = True) -> Array:
    """The number that :func:`grouped_norm` subtracts from each row, and its factor.

    Args:
        input, groups, eps, center: the arguments of :func:`grouped_norm`.

    Returns:
        Shape (2, N * groups): the means, and ``1 / sqrt(var + eps)``; 0 in place of the means if `center` is
        false.

    Raises:
        ShapeError, DTypeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.grouped_norm_statistics(dl.tensor([[1.0, 5.0]]), eps=0.0).tolist()
        [[3.0], [0.5]]
    """
    rows = input.reshape(rows_shape(input.shape, groups))
    count, length = rows.shape
    mean = row_sums(rows) / length if center else np.zeros((count, 1), input.dtype)
    centered = rows - mean
    scale = 1 / np.sqrt(row_sums(centered * centered) / length + np.asarray(eps, input.dtype))
    return np.stack([mean.reshape(count), scale.reshape(count)]).astype(input.dtype, copy=False)


# Gradients


def _infer_backward(
    grad: TensorBase, input: TensorBase, weight: TensorBase | None, *, groups: int, eps: float, center: bool
) -> Result:
    check_channels("grouped_norm_backward", input, weight=weight)
    check_float("grouped_norm_backward", grad, input)
    check_groups("grouped_norm_backward", input.shape[1], groups)
    return input.shape, input.dtype


def _run_backward(
    out: TensorBase,
    grad: TensorBase,
    input: TensorBase,
    weight: TensorBase | None,
    *,
    groups: int,
    eps: float,
    center: bool,
) -> None:
    launch_rows(ROWS_BACKWARD[weight is not None, center], out, [grad, input], [weight], groups, eps)


def _backward_gradient(
    v: Any,
    grad: Any,
    input: Any,
    weight: Any,
    groups: int,
    eps: float,
    center: bool,
    needs: tuple[bool, ...],
) -> tuple[Any, ...]:
    """As a function of ``h = grad * weight`` the result is linear and symmetric: B(h).

    With n elements in a row, the normalised row y and r = 1 / deviation, the derivative of ``v * B(h)`` by
    the input is ``-r * (mean(v * B(h)) * y + mean(h * y) * B(v) + mean(v * y) * B(h))``.
    """
    shape, rank = input.shape, len(input.shape)
    options: dict[str, Any] = {"groups": groups, "eps": eps, "center": center}
    unweighted = grouped_norm_backward(v, input, None, **options)
    w = None if weight is None else along_channels(weight, rank)
    grad_gradient = unweighted if w is None else unweighted * w
    weight_gradient = None
    if needs[2]:
        channel_shape = (1, shape[1]) + (1,) * (rank - 2)
        weight_gradient = reshape(sum_to(grad * unweighted, channel_shape), shape[1])
    if not needs[1]:
        return grad_gradient, None, weight_gradient

    count, length = rows_shape(shape, groups)

    def mean(tensor: Any) -> Any:
        return sum_to(reshape(tensor, count, length), (count, 1)) * (1 / max(length, 1))

    def in_rows(tensor: Any) -> Any:
        return reshape(tensor, count, length)

    h = grad if w is None else grad * w
    x = in_rows(input)
    centered = x - mean(input) if center else x
    deviation = rsqrt(mean(centered * centered) + eps)
    y = centered * deviation
    backward = in_rows(grouped_norm_backward(grad, input, weight, **options))
    input_gradient = (
        y * mean(in_rows(v) * backward)
        + in_rows(unweighted) * mean(in_rows(h) * y)
        + backward * mean(in_rows(v) * y)
    ) * -deviation
    return grad_gradient, reshape(input_gradient, shape), weight_gradient


@export()
@op(
    infer=_infer_backward,
    kernel=Kernel(_run_backward, tuple(code for rows in ROWS_BACKWARD.values() for code in rows.values())),
    examples=(
        example((3, 6, 2), (3, 6, 2), (6,), groups=2),
        example((2, 13), (2, 13), (13,)),
        example((2, 7), (2, 7), (7,), center=False, eps=1e-3),
        example((2, 3, 5), (2, 3, 5), None, groups=3),
        example((2, 5, 3), (2, 5, 3), None, center=False),
        example((3, 132), (3, 132), (132,)),
        example((2, 4, 12), (2, 4, 12), (4,), groups=2),
        example((3, 132), (3, 132), None),
        example((3, 132), (3, 132), (132,), center=False),
        example((3, 132), (3, 132), None, center=False),
        example((0, 5), (0, 5), (5,)),
    ),
    grad=_backward_gradient,
)
def grouped_norm_backward(
    grad: Array,
    input: Array,
    weight: Array | None = None,
    groups: int = 1,
    eps: float = 1e-5,
    center: bool = True,
) -> Array:
    """The gradient of :func:`grouped_norm` with respect to its input.

    Args:
        grad: the result's gradient, of the input's shape.
        input, weight, groups, eps, center: the arguments of :func:`grouped_norm`.

    Returns:
        The input's shape.

    Raises:
        ShapeError, DTypeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.grouped_norm_backward(dl.ones(2, 3), dl.tensor([[1.0, 2.0, 3.0]] * 2)).tolist()
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    in_rows = rows_shape(input.shape, groups)
    normalised, scale = _normalised_rows(input, groups, eps, center)
    y = normalised.reshape(in_rows)
    h = (grad if weight is None else grad * along_channels(weight, input.ndim)).reshape(in_rows)
    result = h * y
    np.multiply(y, row_sums(result) / in_rows[1], out=y)
    np.subtract(h, y, out=result)
    if center:
        result -= row_sums(h) / in_rows[1]
    result *= scale
    return result.reshape(input.shape)


def _infer_sums(grad: TensorBase, input: TensorBase, *, groups: int, eps: float, center: bool) -> Result:
    check_channels("grouped_norm_sums", input)
    check_float("grouped_norm_sums", grad, input)
    check_groups("grouped_norm_sums", input.shape[1], groups)
    return (2, input.shape[1]), widened(input.dtype)


def _run_sums(
    out: TensorBase, grad: TensorBase, input: TensorBase, *, groups: int, eps: float, center: bool
) -> None:
    x = contiguous(input)
    rows, length = rows_shape(x.shape, groups)
    mean_and_scale = empty(type(out), (2, rows), FLOAT32, out.device)
    if rows and length:
        launch_rows(ROWS_FOLD[center], mean_and_scale, [x], [None, None], groups, eps)
    launch_sums(out, grad, x, mean_and_scale, max(length, 1))


def _sums_gradient(
    v: Any, grad: Any, input: Any, groups: int, eps: float, center: bool, needs: tuple[bool, ...]
) -> tuple[Any, ...]:
    options: dict[str, Any] = {"groups": groups, "eps": eps, "center": center}
    return (
        grouped_norm(input, v[1], v[0], **options) if needs[0] else None,
        grouped_norm_backward(grad, input, v[1], **options) if needs[1] else None,
    )


@export()
@op(
    infer=_infer_sums,
    kernel=Kernel(
        _run_sums,
        (
            *(code for rows in ROWS_FOLD.values() for code in rows.values()),
            *SUMS_SHADERS[True],
        ),
    ),
    examples=(
        example((3, 6, 2), (3, 6, 2), groups=2),
        example((5, 7), (5, 7)),
        example((3, 13), (3, 13), center=False, eps=1e-3),
        example((2, 3, 5), (2, 3, 5), groups=3, center=False),
        example((2, 6, 12), (2, 6, 12), groups=3, center=False),
        example((2, 6, 4, 5), (2, 6, 4, 5), groups=2),
        example((4099, 5), (4099, 5)),
        example((2, 3, 1499), (2, 3, 1499)),
        example((5000, 2, 1), (5000, 2, 1), center=False),
        example((2, 4099, 1), (2, 4099, 1), center=False),
        example((0, 5), (0, 5)),
        example((2, 0), (2, 0)),
        example((2, 5, 0), (2, 5, 0)),
    ),
    grad=_sums_gradient,
)
def grouped_norm_sums(
    grad: Array, input: Array, groups: int = 1, eps: float = 1e-5, center: bool = True
) -> Array:
    """The gradients of bias and weight of :func:`grouped_norm`: sums over each channel.

    Args:
        grad: the result's gradient.
        input, groups, eps, center: the arguments of :func:`grouped_norm`.

    Returns:
        Shape (2, C): sums of `grad`, and of `grad` times the normalised input.

    Raises:
        ShapeError, DTypeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.ops.grouped_norm_sums(dl.ones(1, 2), dl.tensor([[1.0, 5.0]]), eps=0.0).tolist()
        [[1.0, 1.0], [-1.0, 1.0]]
    """
    axes = channel_axes(input.ndim)
    normalised = _normalised_rows(input, groups, eps, center)[0]
    np.multiply(grad, normalised, out=normalised)
    return np.stack([float64_sum(grad, axes), float64_sum(normalised, axes)])
