"""Means of windows over the last two axes."""

from __future__ import annotations

from typing import Any

from dl4all.ops.core.checks import check_images
from dl4all.ops.core.exports import export
from dl4all.ops.core.launch import check_rounds, pack, run, shader, strided_grid
from dl4all.ops.core.op import REGISTRY, Kernel, Result, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase
from dl4all.ops.memory.views import contiguous
from dl4all.ops.pool import windows
from dl4all.ops.pool.windows import Pooling, adaptive, check_pooled, sliding

WORKGROUP = 64
# By what is computed, see the shader, and whether the windows are adaptive.
AVG_POOL = {
    (what, parts): shader("pool/avg_pool.comp", PASS=what, ADAPTIVE=int(parts))
    for what in (0, 1)
    for parts in (False, True)
}


def _avg_run(what: int, out: TensorBase, pooling: Pooling, x: TensorBase) -> None:
    check_rounds(out.device, pooling.rounds)
    win = pooling.win
    words = (1,) * 6 if win is None else (*win.kernel, *win.stride, *win.before)
    push = pack(
        out.numel(),
        x.offset,
        *pooling.size,
        *pooling.out_size,
        *words,
        int(pooling.include_pad),
        pooling.divisor or 0,
    )
    run(AVG_POOL[what, win is None], strided_grid(out.numel(), WORKGROUP), push, x, out)


def _avg_pooling(
    shape: Shape,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Pooling:
    return sliding(
        "avg_pool2d", shape, kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override
    )


def _avg_pool_shape(input: TensorBase, **given: Any) -> Result:
    check_images("avg_pool2d", input)
    return (*input.shape[:2], *_avg_pooling(input.shape, **given).out_size), input.dtype


def _avg_pool_run(out: TensorBase, input: TensorBase, **given: Any) -> None:
    _avg_run(0, out, _avg_pooling(input.shape, **given), contiguous(input))


def _avg_pool_gradient(
    g: Any,
    shapes: tuple[Shape],
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    given = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return REGISTRY["avg_pool_backward"](g, _avg_pooling(shapes[0], *given))


@export("F")
@op(
    infer=_avg_pool_shape,
    kernel=Kernel(_avg_pool_run, (AVG_POOL[0, False],)),
    examples=(
        example((2, 3, 13, 11), kernel_size=3, stride=2, padding=1),
        example((1, 2, 7, 5), kernel_size=(2, 3), stride=None, count_include_pad=False),
        example((2, 1, 6, 5), kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
        example((1, 2, 5, 6), kernel_size=3, stride=2, padding=1, ceil_mode=True),
        example((1, 1, 4, 4), kernel_size=2, divisor_override=3),
        example((0, 3, 5, 5), kernel_size=2),
    ),
    grad=_avg_pool_gradient,
)
def avg_pool2d(
    input: Array,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """The mean of each window.

    Args:
        input: floats of shape (N, C, H, W).
        kernel_size, stride, padding: one int for both axes or a pair (vertical, horizontal). The
            stride is the kernel size unless given.
        ceil_mode: take a last window that begins inside but does not fit.
        count_include_pad: whether the zeros of the padding count.
        divisor_override: what to divide the sums by instead.

    Returns:
        Shape (N, C, OH, OW), OH = (H + 2 padding - kernel_size) // stride + 1.

    Raises:
        ShapeError: the input is not 4-d or the window does not fit into it.
        ArgumentError: a size is not an int or too small, or the padding exceeds half the window.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.avg_pool2d(dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]]), (1, 2)).tolist()
        [[[[2.5], [2.5]]]]
    """
    given = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return windows.means(input, _avg_pooling(input.shape, *given))


def _adaptive_avg_shape(input: TensorBase, *, output_size: Any) -> Result:
    check_images("adaptive_avg_pool2d", input)
    return (
        *input.shape[:2],
        *adaptive("adaptive_avg_pool2d", input.shape, output_size).out_size,
    ), input.dtype


def _adaptive_avg_run(out: TensorBase, input: TensorBase, *, output_size: Any) -> None:
    _avg_run(0, out, adaptive("adaptive_avg_pool2d", input.shape, output_size), contiguous(input))


@export("F")
@op(
    infer=_adaptive_avg_shape,
    kernel=Kernel(_adaptive_avg_run, (AVG_POOL[0, True],)),
    examples=(
        example((2, 5, 7, 7), output_size=1),
        example((2, 3, 13, 11), output_size=(3, 5)),
        example((1, 2, 3, 2), output_size=(5, 7)),
        example((1, 2, 5, 4), output_size=(None, 3)),
        example((0, 3, 5, 5), output_size=1),
    ),
    grad=lambda g, shapes, output_size: REGISTRY["avg_pool_backward"](
        g, adaptive("adaptive_avg_pool2d", shapes[0], output_size)
    ),
)
def adaptive_avg_pool2d(input: Array, output_size: Any) -> Array:
    """Means over windows that cut the input into `output_size` parts; size 1 is the global mean.

    Args:
        input: floats of shape (N, C, H, W).
        output_size: an int for both axes or a pair (OH, OW), None for the input's size. Part i of OH
            covers the rows from floor(i H / OH) up to ceil((i + 1) H / OH).

    Returns:
        Shape (N, C, OH, OW).

    Raises:
        ShapeError: the input is not 4-d.
        ArgumentError: the size is not positive, or the input has no pixels.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.adaptive_avg_pool2d(dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]]), 1).tolist()
        [[[[2.5]]]]
    """
    return windows.means(input, adaptive("adaptive_avg_pool2d", input.shape, output_size))


def _avg_backward_shape(grad: TensorBase, *, pooling: Pooling) -> Result:
    check_images("avg_pool_backward", grad)
    shape = (*grad.shape[:2], *pooling.size)
    check_pooled("avg_pool_backward", grad, shape, pooling)
    return shape, grad.dtype


def _avg_backward_run(out: TensorBase, grad: TensorBase, *, pooling: Pooling) -> None:
    _avg_run(1, out, pooling, contiguous(grad))


def _avg_again(g: Any, pooling: Pooling) -> Any:
    win = pooling.win
    if win is None:
        return adaptive_avg_pool2d(g, pooling.out_size)
    rest = (pooling.ceil_mode, pooling.include_pad, pooling.divisor)
    return avg_pool2d(g, win.kernel, win.stride, win.before, *rest)


@export()
@op(
    infer=_avg_backward_shape,
    kernel=Kernel(_avg_backward_run, (AVG_POOL[1, False], AVG_POOL[1, True])),
    examples=(
        example((1, 2, 3, 3), pooling=sliding("avg_pool2d", (1, 2, 5, 4), 3, 2, 1, 1, True, False)),
        example((1, 5, 3, 3), pooling=sliding("avg_pool2d", (1, 5, 5, 4), 3, 2, 1, 1, True)),
        example((2, 1, 3, 2), pooling=adaptive("avg_pool2d", (1, 1, 5, 3), (3, 2))),
        example((0, 1, 3, 2), pooling=adaptive("avg_pool2d", (1, 1, 5, 3), (3, 2))),
    ),
    grad=_avg_again,
)
def avg_pool_backward(grad: Array, pooling: Any) -> Array:
    """The gradient of :func:`avg_pool2d`: each pixel's share of the means that it is part of.

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
    return windows.means_gradient(grad, pooling)
