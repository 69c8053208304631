"""Ops of average pooling over the last two axes, and their gradient."""

from __future__ import annotations

import math
from typing import Any

from dl4all.ops.core.arguments.call_forms import sample
from dl4all.ops.core.checks import check_images
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.launch import check_rounds, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase
from dl4all.ops.elementwise.arithmetic import mul
from dl4all.ops.memory.views import contiguous, expand
from dl4all.ops.pool import host
from dl4all.ops.pool.windows import OutputSizes, Pooling, Sizes, adaptive, check_pooled, sliding

WORKGROUP = 64
AVG_POOL_PUSH = PushBlock(
    "pool/avg_pool.comp",
    "uint n, x_offset; int height, width, out_height, out_width, kernel_h, kernel_w, stride_h, stride_w, "
    "padding_h, padding_w, include_pad, divisor;",
)
# By whether the gradient is computed, and whether the windows are adaptive.
AVG_POOL = {
    (backward, is_adaptive): shader("pool/avg_pool.comp", BACKWARD=int(backward), ADAPTIVE=int(is_adaptive))
    for backward in (False, True)
    for is_adaptive in (False, True)
}


def _run_avg_pool(backward: bool, out: TensorBase, pooling: Pooling, x: TensorBase) -> None:
    check_rounds(out.device, pooling.rounds)
    win = pooling.win
    words = (1,) * 6 if win is None else (*win.kernel, *win.stride, *win.before)
    push = AVG_POOL_PUSH.pack(
        out.numel(),
        x.offset,
        *pooling.size,
        *pooling.out_size,
        *words,
        int(pooling.include_pad),
        pooling.divisor or 0,
    )
    run(AVG_POOL[backward, win is None], strided_grid(out.numel(), WORKGROUP), push, x, out)


def avg_pooling(
    shape: Shape,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Pooling:
    """The windows of :func:`avg_pool2d` for images of `shape`."""
    return sliding(
        "avg_pool2d", shape, kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override
    )


def _infer_avg_pool2d(input: TensorBase, **arguments: Any) -> Result:
    check_images("avg_pool2d", input, integers=True)
    return (*input.shape[:2], *avg_pooling(input.shape, **arguments).out_size), input.dtype


def _run_avg_pool2d(out: TensorBase, input: TensorBase, **arguments: Any) -> None:
    _run_avg_pool(False, out, avg_pooling(input.shape, **arguments), contiguous(input))


@export("F")
@op(
    infer=_infer_avg_pool2d,
    kernel=Kernel(_run_avg_pool2d, (AVG_POOL[False, False],)),
    examples=(
        example((2, 3, 13, 11), kernel_size=3, stride=2, padding=1),
        example((1, 2, 7, 5), kernel_size=(2, 3), stride=None, count_include_pad=False),
        example((2, 1, 6, 5), kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
        example((1, 2, 5, 6), kernel_size=3, stride=2, padding=1, ceil_mode=True),
        example((1, 2, 2, 3), kernel_size=(5, 7), padding=(1, 0), ceil_mode=True),
        example((1, 1, 4, 4), kernel_size=2, divisor_override=3),
        example((0, 3, 5, 5), kernel_size=2),
    ),
)
def avg_pool2d(
    input: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """The mean of each window.

    Args:
        input: floats or integers of shape (N, C, H, W) or (C, H, W); means of integers are rounded towards 0.
        kernel_size, stride, padding: one int for both axes or a pair (vertical, horizontal). The
            stride is the kernel size unless given.
        ceil_mode: take a last window that begins inside but does not fit.
        count_include_pad: whether the zeros of the padding count.
        divisor_override: divides the sums in place of the number of elements.

    Returns:
        Shape (N, C, OH, OW), or without N as the input, OH = (H + 2 padding - kernel_size) // stride + 1.

    Raises:
        ShapeError: the input is neither 4-d nor 3-d or the window does not fit into it.
        ArgumentError: a size is not an int or too small, or the padding exceeds half the window.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.avg_pool2d(dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]]), (1, 2)).tolist()
        [[[[2.5], [2.5]]]]
    """
    arguments = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return host.avg_pool(input, avg_pooling(input.shape, *arguments))


def _infer_adaptive_avg_pool2d(input: TensorBase, *, output_size: Any) -> Result:
    check_images("adaptive_avg_pool2d", input)
    pooling = adaptive("adaptive_avg_pool2d", input.shape, output_size)
    return (*input.shape[:2], *pooling.out_size), input.dtype


def _run_adaptive_avg_pool2d(out: TensorBase, input: TensorBase, *, output_size: Any) -> None:
    _run_avg_pool(False, out, adaptive("adaptive_avg_pool2d", input.shape, output_size), contiguous(input))


@export("F")
@op(
    infer=_infer_adaptive_avg_pool2d,
    kernel=Kernel(_run_adaptive_avg_pool2d, (AVG_POOL[False, True],)),
    examples=(
        example((2, 5, 7, 7), output_size=1),
        example((2, 3, 13, 11), output_size=(3, 5)),
        example((1, 2, 3, 2), output_size=(5, 7)),
        example((1, 2, 5, 4), output_size=(None, 3)),
        example((0, 3, 5, 5), output_size=1),
    ),
)
def adaptive_avg_pool2d(input: Array, output_size: OutputSizes) -> Array:
    """The means of the windows that divide the input into `output_size` parts; size 1 is the global mean.

    Args:
        input: floats of shape (N, C, H, W) or (C, H, W).
        output_size: an int for both axes or a pair (OH, OW), None for the input's size. Part i of OH
            covers the rows from floor(i H / OH) up to ceil((i + 1) H / OH).

    Returns:
        Shape (N, C, OH, OW), or without N as the input.

    Raises:
        ShapeError: the input is neither 4-d nor 3-d.
        ArgumentError: the size is not positive, or the input has no pixels.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.adaptive_avg_pool2d(dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]]), 1).tolist()
        [[[[2.5]]]]
    """
    return host.avg_pool(input, adaptive("adaptive_avg_pool2d", input.shape, output_size))


def _infer_avg_pool_backward(grad: TensorBase, *, pooling: Pooling) -> Result:
    check_images("avg_pool_backward", grad)
    shape = (*grad.shape[:2], *pooling.size)
    check_pooled("avg_pool_backward", grad, shape, pooling)
    return shape, grad.dtype


def _run_avg_pool_backward(out: TensorBase, grad: TensorBase, *, pooling: Pooling) -> None:
    _run_avg_pool(True, out, pooling, contiguous(grad))


def _avg_pool_backward_gradient(g: Any, pooling: Pooling) -> Any:
    win = pooling.win
    if win is None:
        return adaptive_avg_pool2d(g, pooling.out_size)
    options = (pooling.ceil_mode, pooling.include_pad, pooling.divisor)
    return avg_pool2d(g, win.kernel, win.stride, win.before, *options)


@export()
@op(
    infer=_infer_avg_pool_backward,
    kernel=Kernel(_run_avg_pool_backward, (AVG_POOL[True, False], AVG_POOL[True, True])),
    examples=(
        example((1, 2, 3, 3), pooling=sliding("avg_pool2d", (1, 2, 5, 4), 3, 2, 1, 1, True, False)),
        example((1, 5, 3, 3), pooling=sliding("avg_pool2d", (1, 5, 5, 4), 3, 2, 1, 1, True)),
        example((2, 1, 3, 2), pooling=adaptive("avg_pool2d", (1, 1, 5, 3), (3, 2))),
        example((0, 1, 3, 2), pooling=adaptive("avg_pool2d", (1, 1, 5, 3), (3, 2))),
    ),
    grad=_avg_pool_backward_gradient,
)
def avg_pool_backward(grad: Array, pooling: Pooling) -> Array:
    """The gradient of :func:`avg_pool2d`: the sum of each pixel's shares in the means.

    Args:
        grad: the gradient of the result, floats of shape (N, C, OH, OW).
        pooling: the windows.

    Returns:
        Shape (N, C, H, W).

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]]).requires_grad_()
        >>> dl.nn.functional.avg_pool2d(x, 2).backward(dl.tensor([[[[8.0]]]]))
        >>> x.grad.tolist()
        [[[[2.0, 2.0], [2.0, 2.0]]]]
    """
    return host.avg_pool_gradient(grad, pooling)


def _avg_pool2d_gradient(
    g: Any,
    shapes: tuple[Shape],
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    arguments = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return avg_pool_backward(g, avg_pooling(shapes[0], *arguments))


avg_pool2d.forms += (sample(3),)
adaptive_avg_pool2d.forms += (sample(3),)
avg_pool2d.defgrad(_avg_pool2d_gradient)


def _adaptive_avg_pool2d_gradient(g: Any, shapes: tuple[Shape], output_size: Any) -> Any:
    pooling = adaptive("adaptive_avg_pool2d", shapes[0], output_size)
    if pooling.out_size == (1, 1):  # each pixel has the same share: a view of one number for each image
        return expand(mul(g, 1 / math.prod(pooling.size)), shapes[0])
    return avg_pool_backward(g, pooling)


adaptive_avg_pool2d.defgrad(_adaptive_avg_pool2d_gradient)
