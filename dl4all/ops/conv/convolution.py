"""Convolution along one, two or three axes, and its gradients.

The convolution y = conv(x, w) is linear in each of x and w. With the gradient g of y, the three sums over
y g, x conv_input(g, w) and w conv_weight(g, x) are equal. So each of the three functions has the other two as
its gradients, and all of them can be differentiated any number of times.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dl4all.errors import ArgumentError, ShapeError
from dl4all.ops.conv import algorithms, integers
from dl4all.ops.conv.on_host import convolution as host
from dl4all.ops.conv.problem import problem_of
from dl4all.ops.conv.window import Window, checked_output_size, sizes, window
from dl4all.ops.core.arguments.call_forms import sample
from dl4all.ops.core.checks import check_float, check_images, check_numbers
from dl4all.ops.core.dtypes import kind_of
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.short_floats import by_float32
from dl4all.ops.core.op import Kernel, Op, Result, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase
from dl4all.ops.memory.views import contiguous, reshape
from dl4all.ops.reduce.sums import sum_to

KERNEL_AXES = {1: "KL", 2: "KH, KW", 3: "KD, KH, KW"}


class ConvArgs(NamedTuple):
    """The arguments that all convolutions share, as the caller wrote them."""

    stride: int | Sequence[int] = 1
    padding: int | Sequence[int] | str = 0
    dilation: int | Sequence[int] = 1
    groups: int = 1

    def checked_window(self, name: str, kernel: Sequence[int]) -> Window:
        """The window of an op called `name`.

        Raises:
            ArgumentError: a size is not an int, or is too small.
        """
        return window(name, tuple(kernel), self.stride, self.padding, self.dilation, len(kernel))

    def window(self, kernel: Sequence[int]) -> Window:
        """The window, of arguments that the op's shape rule has checked."""
        arguments = (tuple(a) if isinstance(a, list) else a for a in (kernel, *self[:3]))
        return _cached_window(*arguments)


@functools.lru_cache(maxsize=1024)
def _cached_window(kernel: Any, stride: Any, padding: Any, dilation: Any) -> Window:
    return window("convolution", kernel, stride, padding, dilation, len(kernel))


# The convolution


def _check_weight(name: str, weight: TensorBase, axes: int, groups: int) -> None:
    """Raise unless `weight` has a convolution's shape, and its filters split into groups.

    Raises:
        ShapeError, ArgumentError
    """
    if len(weight.shape) != axes + 2:
        raise ShapeError(
            f"[{name}] expected a weight of shape (out, in / groups, {KERNEL_AXES[axes]}), got {weight.shape}"
        )
    if groups < 1 or weight.shape[0] % groups:
        raise ArgumentError(f"[{name}] {weight.shape[0]} filters do not split into {groups} groups")


def _infer_conv(axes: int) -> Callable[..., Result]:
    """The shape rule of the convolution along `axes` axes."""
    name = f"conv{axes}d"

    def infer(input: TensorBase, weight: TensorBase, bias: TensorBase | None, **arguments: Any) -> Result:
        args = ConvArgs(**arguments)
        check_images(name, input, axes, integers=True)
        check_numbers(name, input, weight, bias)
        _check_weight(name, weight, axes, args.groups)
        filters, channels = weight.shape[:2]
        if input.shape[1] != channels * args.groups:
            raise ShapeError(
                f"[{name}] the weight {weight.shape} with {args.groups} group{'s' * (args.groups > 1)} takes "
                f"{channels * args.groups} channels, the input {input.shape} has {input.shape[1]}"
            )
        if bias is not None and bias.shape != (filters,):
            raise ShapeError(f"[{name}] bias must have shape ({filters},), got {bias.shape}")
        win = args.checked_window(name, weight.shape[2:])
        return (input.shape[0], filters, *checked_output_size(name, input.shape, win)), input.dtype

    return infer


def _conv_flops(input: TensorBase, weight: TensorBase, bias: TensorBase | None, **arguments: Any) -> int:
    out_size = ConvArgs(**arguments).window(weight.shape[2:]).output_size(input.shape[2:])
    return 2 * input.shape[0] * math.prod(out_size) * weight.numel()


def _run_conv(
    out: TensorBase, input: TensorBase, weight: TensorBase, bias: TensorBase | None, **arguments: Any
) -> None:
    args = ConvArgs(**arguments)
    x, w = contiguous(input), contiguous(weight)
    bias = None if bias is None else contiguous(bias)
    problem = problem_of(x, out, args.window(w.shape[2:]), args.groups)
    algorithms.forward(out, x, w, bias, problem)


KERNEL = Kernel(_run_conv, algorithms.shaders("forward"))


def _conv_on_host(input: Any, weight: Any, bias: Any, args: ConvArgs) -> Any:
    if kind_of(input.dtype) != "f":
        wide = _conv_on_host(*integers.widened("conv", input, weight, bias), args)
        return integers.narrowed(wide, input.dtype)
    return host.forward(input, weight, bias, args.window(weight.shape[2:]), args.groups)


@export("F", autocast="lower")
@op(
    infer=_infer_conv(1),
    flops=_conv_flops,
    kernel=KERNEL,
    examples=(
        example((2, 3, 13), (5, 3, 3), (5,), padding=1),
        example((1, 4, 11), (6, 2, 2), None, stride=2, padding=2, dilation=3, groups=2),
        example((2, 2, 7), (4, 1, 4), (4,), padding="same", groups=2),
        example((0, 3, 5), (4, 3, 3), (4,)),
    ),
)
def conv1d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Array:
    """Cross-correlation of sequences with filters, as neural networks call convolution.

    Args:
        input: floats of shape (N, C, L) or (C, L).
        weight: shape (F, C / groups, KL).
        bias: shape (F,), or None.
        stride, padding, dilation, groups: as in :func:`conv2d`, along one axis.

    Returns:
        Shape (N, F, OL), or without N as the input:
        OL = (L + 2 padding - dilation (KL - 1) - 1) // stride + 1.

    Raises:
        ShapeError: shapes do not fit each other, or the window does not fit into the input.
        ArgumentError: a size is not an int, or is too small.
        DTypeError: the operands are not floats of one dtype.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[1.0, 2.0, 4.0]]])
        >>> dl.nn.functional.conv1d(x, dl.tensor([[[1.0, -1.0]]])).tolist()
        [[[-1.0, -2.0]]]
    """
    return _conv_on_host(input, weight, bias, ConvArgs(stride, padding, dilation, groups))


@export("F", autocast="lower")
@op(
    infer=_infer_conv(2),
    flops=_conv_flops,
    kernel=KERNEL,
    examples=(
        example((2, 3, 13, 11), (5, 3, 3, 3), (5,), padding=1),
        example((1, 3, 23, 29), (8, 3, 7, 7), None, stride=2, padding=3),
        example((2, 8, 7, 7), (12, 8, 1, 1), (12,)),
        example((1, 4, 9, 5), (6, 4, 1, 1), None, stride=2),
        example((2, 6, 11, 13), (9, 2, 3, 2), (9,), stride=(2, 1), padding=(0, 2), dilation=(1, 3), groups=3),
        example((1, 5, 7, 7), (5, 1, 3, 3), (5,), padding=1, groups=5),
        example((2, 3, 5, 7), (6, 1, 3, 2), None, stride=2, padding=(2, 0), groups=3),
        example((1, 1, 1, 1), (1, 1, 1, 1), (1,)),
        example((3, 64, 14, 14), (67, 64, 3, 3), (67,), padding=1),
        example((8, 8, 8, 8), (3, 8, 3, 3), (3,), padding=1),
        example((8, 64, 2, 2), (3, 64, 3, 3), None, padding=1),
        example((1, 2, 5, 5), (2, 2, 2, 3), (2,), padding="same", dilation=(1, 2)),
        example((2, 2, 4, 3), (2, 1, 3, 2), (2,), stride=(2, 1), padding=1, groups=2),
        example((0, 3, 5, 5), (4, 3, 3, 3), (4,)),
        example((2, 0, 5, 5), (4, 0, 3, 3), (4,)),
    ),
)
def conv2d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Array:
    """Cross-correlation of images with filters, as neural networks call convolution.

    Args:
        input: floats of shape (N, C, H, W) or (C, H, W).
        weight: shape (F, C / groups, KH, KW).
        bias: shape (F,), or None.
        stride, padding, dilation: one int for both axes or a pair (vertical, horizontal). The padding
            consists of zeros; ``"valid"`` is no padding, and ``"same"`` pads such that the result has
            the input's size, with one more behind than before if the total is odd.
        groups: into how many groups the channels and the filters are split; a filter sees only the
            channels of its group.

    Returns:
        Shape (N, F, OH, OW), or without N as the input:
        OH = (H + 2 padding - dilation (KH - 1) - 1) // stride + 1.

    Raises:
        ShapeError: shapes do not fit each other, or the window does not fit into the input.
        ArgumentError: a size is not an int, or is too small.
        DTypeError: the operands are not floats of one dtype.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[[1.0, 2.0, 3.0]]]])
        >>> dl.nn.functional.conv2d(x, dl.tensor([[[[1.0, -1.0]]]])).tolist()
        [[[[-1.0, -1.0]]]]
    """
    return _conv_on_host(input, weight, bias, ConvArgs(stride, padding, dilation, groups))


@export("F", autocast="lower")
@op(
    infer=_infer_conv(3),
    flops=_conv_flops,
    kernel=KERNEL,
    examples=(
        example((2, 3, 5, 7, 6), (5, 3, 3, 2, 3), (5,), padding=1),
        example((1, 4, 4, 5, 7), (6, 2, 2, 3, 1), None, stride=(1, 2, 3), padding=(1, 0, 2), groups=2),
        example((1, 2, 3, 2, 3), (2, 2, 2, 1, 2), (2,), dilation=(2, 1, 1)),
        example((1, 3, 4, 5, 3), (3, 1, 3, 3, 3), (3,), padding="same", groups=3),
        example((1, 2, 1, 5, 3), (2, 2, 3, 2, 2), None, padding=(1, 0, 0)),
        example((0, 3, 5, 5, 5), (4, 3, 3, 3, 3), (4,)),
    ),
)
def conv3d(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Array:
    """Cross-correlation of volumes with filters, as neural networks call convolution.

    Args:
        input: floats of shape (N, C, D, H, W) or (C, D, H, W).
        weight: shape (F, C / groups, KD, KH, KW).
        bias: shape (F,), or None.
        stride, padding, dilation, groups: as in :func:`conv2d`, along three axes.

    Returns:
        Shape (N, F, OD, OH, OW), or without N as the input:
        OD = (D + 2 padding - dilation (KD - 1) - 1) // stride + 1.

    Raises:
        ShapeError: shapes do not fit each other, or the window does not fit into the input.
        ArgumentError: a size is not an int, or is too small.
        DTypeError: the operands are not floats of one dtype.

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[[[1.0, 2.0]], [[3.0, 5.0]]]]])
        >>> dl.nn.functional.conv3d(x, dl.tensor([[[[[1.0]], [[1.0]]]]])).tolist()
        [[[[[4.0, 7.0]]]]]
    """
    return _conv_on_host(input, weight, bias, ConvArgs(stride, padding, dilation, groups))


CONVOLUTIONS: dict[int, Op[...]] = {3: conv1d, 4: conv2d, 5: conv3d}
"""The convolutions by the number of the input's axes."""


# The gradient of the input


def _check_output(name: str, grad: TensorBase, shape: Shape, win: Window) -> None:
    """Raise unless the convolution of an input of `shape` has the size of `grad`.

    Raises:
        ShapeError
    """
    expected = checked_output_size(name, shape, win)
    if grad.shape[2:] != expected:
        raise ShapeError(f"[{name}] an input of shape {shape} has results of {expected}, got {grad.shape}")


def _infer_conv_input(
    grad: TensorBase, weight: TensorBase, *, input_size: Sequence[int], **arguments: Any
) -> Result:
    args, axes = ConvArgs(**arguments), len(input_size)
    check_images("conv_input", grad, axes)
    check_float("conv_input", grad, weight)
    _check_weight("conv_input", weight, axes, args.groups)
    if grad.shape[1] != weight.shape[0]:
        raise ShapeError(f"[conv_input] {weight.shape} has no {grad.shape[1]} filters, as {grad.shape} has")
    size = sizes("conv_input", "input_size", tuple(input_size), 1, axes)
    shape = (grad.shape[0], weight.shape[1] * args.groups, *size)
    _check_output("conv_input", grad, shape, args.checked_window("conv_input", weight.shape[2:]))
    return shape, grad.dtype


def _run_conv_input(
    out: TensorBase, grad: TensorBase, weight: TensorBase, *, input_size: Any, **arguments: Any
) -> None:
    args = ConvArgs(**arguments)
    g, w = contiguous(grad), contiguous(weight)
    problem = problem_of(out, g, args.window(w.shape[2:]), args.groups)
    algorithms.input_gradient(out, g, w, problem)


def _conv_input_flops(grad: TensorBase, weight: TensorBase, **_: Any) -> int:
    return 2 * grad.numel() * math.prod(weight.shape[1:])


@export()
@op(
    infer=_infer_conv_input,
    flops=_conv_input_flops,
    kernel=Kernel(_run_conv_input, algorithms.shaders("input_gradient")),
    examples=(
        example((2, 5, 13, 11), (5, 3, 3, 3), input_size=(13, 11), padding=1),
        example((2, 2, 3, 3), (2, 3, 2, 3), input_size=(6, 5), stride=2, padding=(0, 1)),
        example((2, 12, 7, 7), (12, 8, 1, 1), input_size=(7, 7)),
        example((3, 3, 6, 6), (3, 32, 3, 3), input_size=(6, 6), padding=1),
        example((3, 3, 8, 8), (3, 16, 3, 3), input_size=(8, 8), padding=1),
        example((1, 6, 6), (6, 2, 2), input_size=(11,), stride=2, padding=2, dilation=3, groups=2),
        example((2, 4, 3, 2), (4, 1, 3, 2), input_size=(6, 3), stride=(2, 1), padding=(1, 0), groups=2),
        example((1, 2, 2, 3, 2), (2, 2, 2, 1, 2), input_size=(3, 3, 3)),
        example((2, 3, 9, 7), (3, 2, 7, 6), input_size=(13, 10), padding=1),
        example((0, 4, 3, 3), (4, 3, 3, 3), input_size=(5, 5)),
    ),
)
def conv_input(
    grad: Array,
    weight: Array,
    input_size: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Array:
    """The gradient of a convolution with respect to its input, also called transposed convolution.

    Args:
        grad: the gradient of the result, floats of shape (N, F, ...) with one to three more axes.
        weight: shape (F, C / groups, ...).
        input_size: sizes of the input's axes after the first two.
        stride, padding, dilation, groups: the arguments of the convolution.

    Returns:
        Shape (N, C, *input_size).

    Raises:
        ShapeError: the convolution of an input of this size does not have the shape of `grad`.
        ArgumentError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> g, w = dl.tensor([[[1.0, 10.0]]]), dl.tensor([[[2.0, 3.0]]])
        >>> dl.ops.conv_input(g, w, (3,)).tolist()
        [[[2.0, 23.0, 30.0]]]
    """
    args = ConvArgs(stride, padding, dilation, groups)
    return host.input_gradient(grad, weight, tuple(input_size), args.window(weight.shape[2:]), groups)


# The gradient of the weight


def _infer_conv_weight(
    grad: TensorBase, input: TensorBase, *, kernel_size: Sequence[int], **arguments: Any
) -> Result:
    args, axes = ConvArgs(**arguments), len(kernel_size)
    groups = args.groups
    check_images("conv_weight", input, axes)
    check_images("conv_weight", grad, axes)
    check_float("conv_weight", grad, input)
    win = args.checked_window("conv_weight", kernel_size)
    if grad.shape[0] != input.shape[0]:
        raise ShapeError(f"[conv_weight] the images differ in number: {grad.shape} and {input.shape}")
    if groups < 1 or grad.shape[1] % groups or input.shape[1] % groups:
        raise ArgumentError(
            f"[conv_weight] {grad.shape[1]} filters and {input.shape[1]} channels do not split into "
            f"{groups} groups"
        )
    _check_output("conv_weight", grad, input.shape, win)
    return (grad.shape[1], input.shape[1] // groups, *win.kernel), grad.dtype


def _run_conv_weight(
    out: TensorBase, grad: TensorBase, input: TensorBase, *, kernel_size: Sequence[int], **arguments: Any
) -> None:
    args = ConvArgs(**arguments)
    g, x = contiguous(grad), contiguous(input)
    problem = problem_of(x, g, args.window(kernel_size), args.groups)
    by_float32(out, lambda sums: algorithms.weight_gradient(sums, g, x, problem))


def _conv_weight_flops(
    grad: TensorBase, input: TensorBase, *, kernel_size: Sequence[int], groups: int, **_: Any
) -> int:
    return 2 * grad.numel() * (input.shape[1] // groups) * math.prod(kernel_size)


@export()
@op(
    infer=_infer_conv_weight,
    flops=_conv_weight_flops,
    kernel=Kernel(_run_conv_weight, algorithms.shaders("weight_gradient")),
    examples=(
        example((2, 5, 13, 11), (2, 3, 13, 11), kernel_size=(3, 3), padding=1),
        example((2, 2, 3, 3), (2, 3, 6, 5), kernel_size=(2, 3), stride=2, padding=(0, 1)),
        example((2, 12, 7, 7), (2, 8, 7, 7), kernel_size=(1, 1)),
        example((8, 3, 2, 2), (8, 64, 2, 2), kernel_size=(3, 3), padding=1),
        example((8, 5, 4, 4), (8, 24, 4, 4), kernel_size=(3, 3), padding=1),
        example((1, 8, 4, 4), (1, 8, 4, 4), kernel_size=(1, 1)),
        example((1, 6, 6), (1, 4, 11), kernel_size=(2,), stride=2, padding=2, dilation=3, groups=2),
        example((1, 4, 3, 2), (1, 2, 6, 3), kernel_size=(3, 2), stride=(2, 1), padding=(1, 0), groups=2),
        example((1, 2, 2, 3, 2), (1, 2, 3, 3, 3), kernel_size=(2, 1, 2)),
        example((2, 3, 9, 7), (2, 2, 13, 10), kernel_size=(7, 6), padding=1),
        example((3, 4, 3, 3), (3, 0, 5, 5), kernel_size=(3, 3)),
    ),
)
def conv_weight(
    grad: Array,
    input: Array,
    kernel_size: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Array:
    """The gradient of a convolution with respect to its weight.

    Args:
        grad: the gradient of the result, floats of shape (N, F, ...) with one to three more axes.
        input: shape (N, C, ...).
        kernel_size: sizes of the weight's axes after the first two.
        stride, padding, dilation, groups: the arguments of the convolution.

    Returns:
        Shape (F, C / groups, *kernel_size).

    Raises:
        ShapeError: the convolution of the input does not have the shape of `grad`.
        ArgumentError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> g, x = dl.tensor([[[1.0, 10.0]]]), dl.tensor([[[2.0, 3.0, 4.0]]])
        >>> dl.ops.conv_weight(g, x, (2,)).tolist()
        [[[32.0, 43.0]]]
    """
    args = ConvArgs(stride, padding, dilation, groups)
    return host.weight_gradient(grad, input, args.window(kernel_size), groups)


# Gradients. An op keeps those operands and arguments that its gradient functions name.


def _convolve(input: Any, weight: Any, *args: Any) -> Any:
    """:func:`conv1d`, :func:`conv2d` or :func:`conv3d`, without a bias."""
    return CONVOLUTIONS[len(input.shape)](input, weight, None, *args)


for _axes, _convolution in CONVOLUTIONS.items():
    _convolution.forms += (sample(_axes - 1),)
    _convolution.defgrad(
        lambda g, weight, shapes, stride, padding, dilation, groups: conv_input(
            g, weight, shapes[0][2:], stride, padding, dilation, groups
        ),
        lambda g, input, shapes, stride, padding, dilation, groups: conv_weight(
            g, input, shapes[1][2:], stride, padding, dilation, groups
        ),
        lambda g: reshape(sum_to(g, (1, g.shape[1], *(1,) * (len(g.shape) - 2))), g.shape[1]),
    )
conv_input.defgrad(
    lambda g, weight, stride, padding, dilation, groups: _convolve(
        g, weight, stride, padding, dilation, groups
    ),
    lambda g, grad, shapes, stride, padding, dilation, groups: conv_weight(
        grad, g, shapes[1][2:], stride, padding, dilation, groups
    ),
)
conv_weight.defgrad(
    lambda g, input, stride, padding, dilation, groups: _convolve(
        input, g, stride, padding, dilation, groups
    ),
    lambda g, grad, shapes, stride, padding, dilation, groups: conv_input(
        grad, g, shapes[1][2:], stride, padding, dilation, groups
    ),
)
