"""Transposed convolution: the gradient of a convolution with respect to its input, as an op of its own."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.conv import integers
from dl4all.ops.conv.convolution import ConvArgs, conv_input
from dl4all.ops.conv.window import sizes
from dl4all.ops.core.checks import check_images, check_numbers
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.tensor_base import Array, TensorBase, from_host
from dl4all.ops.elementwise.arithmetic import add
from dl4all.ops.indexing.padding import pad
from dl4all.ops.memory.views import reshape


@export("F", autocast="lower")
def conv_transpose1d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Array:
    """:func:`conv_transpose2d` along one axis: input (N, C, L) or (C, L), weight (C, F / groups, KL).

    Example:
        >>> import dl4all as dl
        >>> x, w = dl.tensor([[[1.0, 10.0]]]), dl.tensor([[[2.0, 3.0]]])
        >>> dl.nn.functional.conv_transpose1d(x, w).tolist()
        [[[2.0, 23.0, 30.0]]]
    """
    args = ConvArgs(stride, padding, dilation, groups)
    return _conv_transpose(1, input, weight, bias, output_padding, args)


@export("F", autocast="lower")
def conv_transpose2d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Array:
    """Transposed convolution of images: each pixel adds the filters, scaled, to a larger image.

    Args:
        input: floats of shape (N, C, H, W) or (C, H, W).
        weight: shape (C, F / groups, KH, KW).
        bias: shape (F,), or None.
        stride, padding, dilation: the arguments of the convolution whose input's gradient this is; one int
            for both axes or a pair (vertical, horizontal).
        output_padding: how many rows and columns the result has beyond the smallest possible size; less
            than the stride or the dilation.
        groups: into how many groups the channels and the filters are split; a channel reaches only the
            filters of its group.

    Returns:
        Shape (N, F, OH, OW), or without N as the input:
        OH = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + 1.

    Raises:
        ShapeError: shapes do not fit each other, or nothing is left of the result.
        ArgumentError: a size is not an int or is too small, or the output padding is too large.
        DTypeError: the operands are not floats of one dtype.

    Example:
        >>> import dl4all as dl
        >>> x, w = dl.tensor([[[[1.0, 10.0]]]]), dl.tensor([[[[2.0, 3.0]]]])
        >>> dl.nn.functional.conv_transpose2d(x, w, stride=2).tolist()
        [[[[2.0, 3.0, 20.0, 30.0]]]]
    """
    args = ConvArgs(stride, padding, dilation, groups)
    return _conv_transpose(2, input, weight, bias, output_padding, args)


@export("F", autocast="lower")
def conv_transpose3d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Array:
    """:func:`conv_transpose2d` along three axes: input (N, C, D, H, W) or (C, D, H, W).

    The weight has the shape (C, F / groups, KD, KH, KW).

    Example:
        >>> import dl4all as dl
        >>> x, w = dl.tensor([[[[[1.0, 10.0]]]]]), dl.tensor([[[[[2.0, 3.0]]]]])
        >>> dl.nn.functional.conv_transpose3d(x, w).tolist()
        [[[[[2.0, 23.0, 30.0]]]]]
    """
    args = ConvArgs(stride, padding, dilation, groups)
    return _conv_transpose(3, input, weight, bias, output_padding, args)


def _conv_transpose(
    axes: int, input: Any, weight: Any, bias: Any, output_padding: int | Sequence[int], args: ConvArgs
) -> Any:
    name = f"conv_transpose{axes}d"
    if isinstance(input, TensorBase) and len(input.shape) == axes + 1:  # a single sample
        batch = reshape(input, 1, *input.shape)
        result = _conv_transpose(axes, batch, weight, bias, output_padding, args)
        return reshape(result, *result.shape[1:])
    check_images(name, input, axes, integers=True)
    check_numbers(name, input, weight, bias)
    if kind_of(input.dtype) != "f":
        wide = [
            None if one is None else from_host(type(input).result_class, one, input.device, copy=False)
            for one in integers.widened(name, input, weight, bias)
        ]
        result = _conv_transpose(axes, wide[0], wide[1], wide[2], output_padding, args)
        exact = integers.narrowed(result.on_host(), input.dtype)
        return from_host(type(input).result_class, exact, input.device, copy=False)
    if len(weight.shape) != axes + 2 or weight.shape[0] != input.shape[1]:
        raise ShapeError(
            f"[{name}] expected a weight of shape (in, out / groups, ...) with {axes + 2} axes for an input "
            f"of shape {input.shape}, got {weight.shape}"
        )
    groups = args.groups
    if groups < 1 or weight.shape[0] % groups:
        raise ArgumentError(f"[{name}] {weight.shape[0]} channels do not split into {groups} groups")
    filters = weight.shape[1] * groups
    if bias is not None and bias.shape != (filters,):
        raise ShapeError(f"[{name}] bias must have shape ({filters},), got {bias.shape}")
    if isinstance(args.padding, str):
        raise ArgumentError(f"[{name}] padding must be ints, got {args.padding!r}")
    win = args.checked_window(name, weight.shape[2:])
    extra = sizes(name, "output_padding", output_padding, 0, axes)
    if any(map(operator.ge, extra, map(max, win.stride, win.dilation))):
        raise ArgumentError(
            f"[{name}] output_padding {output_padding} must be smaller than stride {args.stride} or "
            f"dilation {args.dilation}"
        )
    size = tuple(
        (count - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1
        for count, stride, padding, dilation, kernel, more in zip(
            input.shape[2:], win.stride, win.before, win.dilation, win.kernel, extra, strict=True
        )
    )
    if min(size) < 1:
        raise ShapeError(f"[{name}] nothing is left of {input.shape} with padding {args.padding}: {size}")
    if any(map(operator.ge, extra, win.stride)):  # no convolution of this size has such a result
        amounts = zip(reversed(win.before), reversed(extra), strict=True)
        cut = [amount for before, more in amounts for amount in (-before, more - before)]
        whole = tuple(n + 2 * before - more for n, before, more in zip(size, win.before, extra, strict=True))
        result = pad(conv_input(input, weight, whole, win.stride, 0, win.dilation, groups), cut)
    else:
        result = conv_input(input, weight, size, win.stride, win.before, win.dilation, groups)
    return result if bias is None else add(result, reshape(bias, -1, *(1,) * axes))
