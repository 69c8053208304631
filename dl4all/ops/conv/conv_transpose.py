"""Transposed convolution: what the gradient of a convolution's input computes, as a layer."""

from __future__ import annotations

from typing import Any

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.conv.convolution import conv_input
from dl4all.ops.conv.window import sizes, window
from dl4all.ops.core.checks import check_float, check_images
from dl4all.ops.core.exports import export
from dl4all.ops.elementwise.arithmetic import add
from dl4all.ops.memory.views import reshape


@export("F")
def conv_transpose1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """:func:`conv_transpose2d` along one axis: input (N, C, L), weight (C, F / groups, KL).

    Example:
        >>> import dl4all as dl
        >>> x, w = dl.tensor([[[1.0, 10.0]]]), dl.tensor([[[2.0, 3.0]]])
        >>> dl.nn.functional.conv_transpose1d(x, w).tolist()
        [[[2.0, 23.0, 30.0]]]
    """
    given = (stride, padding, output_padding, groups, dilation)
    return _transposed("conv_transpose1d", 1, input, weight, bias, *given)


@export("F")
def conv_transpose2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """Transposed convolution of images: each pixel adds the filters, scaled, to a larger image.

    Args:
        input: floats of shape (N, C, H, W).
        weight: shape (C, F / groups, KH, KW).
        bias: shape (F,), or None.
        stride, padding, dilation: those of the convolution whose input's gradient this is; one int for
            both axes or a pair (vertical, horizontal).
        output_padding: rows and columns that the result has beyond the least; less than the stride.
        groups: filters and channels are split into so many groups that do not see each other.

    Returns:
        Shape (N, F, OH, OW), OH = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + 1.

    Raises:
        ShapeError: shapes do not fit each other, or nothing is left of the result.
        ArgumentError: a size is not an int or too small, or the output padding too large.
        DTypeError: the operands are not floats of one dtype.

    Example:
        >>> import dl4all as dl
        >>> x, w = dl.tensor([[[[1.0, 10.0]]]]), dl.tensor([[[[2.0, 3.0]]]])
        >>> dl.nn.functional.conv_transpose2d(x, w, stride=2).tolist()
        [[[[2.0, 3.0, 20.0, 30.0]]]]
    """
    given = (stride, padding, output_padding, groups, dilation)
    return _transposed("conv_transpose2d", 2, input, weight, bias, *given)


@export("F")
def conv_transpose3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """:func:`conv_transpose2d` along three axes: input (N, C, D, H, W), weight (C, F / groups, KD, KH, KW).

    Example:
        >>> import dl4all as dl
        >>> x, w = dl.tensor([[[[[1.0, 10.0]]]]]), dl.tensor([[[[[2.0, 3.0]]]]])
        >>> dl.nn.functional.conv_transpose3d(x, w).tolist()
        [[[[[2.0, 23.0, 30.0]]]]]
    """
    given = (stride, padding, output_padding, groups, dilation)
    return _transposed("conv_transpose3d", 3, input, weight, bias, *given)


def _transposed(
    op: str,
    axes: int,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Any:
    check_images(op, input, axes)
    check_float(op, input, weight, bias)
    if len(weight.shape) != axes + 2 or weight.shape[0] != input.shape[1]:
        raise ShapeError(
            f"[{op}] expected a weight of shape (in, out / groups, ...) with {axes + 2} axes for an input "
            f"of shape {input.shape}, got {weight.shape}"
        )
    if groups < 1 or weight.shape[0] % groups:
        raise ArgumentError(f"[{op}] {weight.shape[0]} channels do not split into {groups} groups")
    filters = weight.shape[1] * groups
    if bias is not None and bias.shape != (filters,):
        raise ShapeError(f"[{op}] bias must have shape ({filters},), got {bias.shape}")
    if isinstance(padding, str):
        raise ArgumentError(f"[{op}] padding must be ints, got {padding!r}")
    win = window(op, weight.shape[2:], stride, padding, dilation, axes)
    extra = sizes(op, "output_padding", output_padding, 0, axes)
    if any(more >= step for more, step in zip(extra, win.stride, strict=True)):
        raise ArgumentError(f"[{op}] output_padding {output_padding} must be smaller than stride {stride}")
    size = tuple(
        (count - 1) * step - 2 * pad + d * (kernel - 1) + more + 1
        for count, step, pad, d, kernel, more in zip(
            input.shape[2:], win.stride, win.before, win.dilation, win.kernel, extra, strict=True
        )
    )
    if min(size) < 1:
        raise ShapeError(f"[{op}] nothing is left of {input.shape} with padding {padding}: {size}")
    found = conv_input(input, weight, size, win.stride, win.before, win.dilation, groups)
    return found if bias is None else add(found, reshape(bias, -1, *(1,) * axes))
