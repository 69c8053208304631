"""Ops of max pooling over the last two axes, their gradients, and the indices of the maxima."""

from __future__ import annotations

import enum
from functools import partial
from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.core.arguments.call_forms import sample
from dl4all.ops.core.checks import check_float, check_images
from dl4all.ops.core.exports import export
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work
from dl4all.ops.core.kernels.launch import check_rounds, run, shader, strided_grid
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import KERNEL_REFUSALS, Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase, from_host
from dl4all.ops.memory.views import contiguous
from dl4all.ops.pool import host
from dl4all.ops.pool.windows import OutputSizes, Pooling, Sizes, adaptive, check_pooled, sliding
from dl4all.ops.sorting.selection import wide_indices
from dl4all.scheduler import fallback

WORKGROUP = 64

# Largest window of the kernel for tiles, which holds its elements in registers.
MAX_TILE_ELEMENTS = 64


class PoolPass(enum.Enum):
    """The computation of max_pool.comp; the values are those of its PASS."""

    MAXIMA = 0
    INDICES = 1
    TAKE = 2
    BACKWARD = 3


MAX_POOL_TILES_PUSH = PushBlock("pool/max_pool_tiles.comp", "uint n, out_width, x_offset, g_offset;")
MAX_POOL_PUSH = PushBlock(
    "pool/max_pool.comp",
    "uint n, x_offset; int height, width, out_height, out_width, kernel_h, kernel_w, stride_h, stride_w, "
    "padding_h, padding_w, dilation_h, dilation_w;",
)
# By pass and by whether the windows are adaptive. TAKE needs no windows: the indices say all.
MAX_POOL = {
    (kernel_pass, is_adaptive): shader(
        "pool/max_pool.comp", PASS=kernel_pass.value, ADAPTIVE=int(is_adaptive)
    )
    for kernel_pass in PoolPass
    for is_adaptive in (False, True)
    if not (kernel_pass is PoolPass.TAKE and is_adaptive)
}
# By whether the gradient is computed.
TILES = {backward: shader("pool/max_pool_tiles.comp", BACKWARD=int(backward)) for backward in (False, True)}


def _run_max_pool(kernel_pass: PoolPass, out: TensorBase, pooling: Pooling, *tensors: TensorBase) -> None:
    check_rounds(out.device, pooling.rounds)
    words = (1,) * 8 if pooling.win is None else pooling.win.words
    push = MAX_POOL_PUSH.pack(out.numel(), tensors[0].offset, *pooling.size, *pooling.out_size, *words)
    code = MAX_POOL[kernel_pass, pooling.win is None and kernel_pass is not PoolPass.TAKE]
    run(code, strided_grid(out.numel(), WORKGROUP), push, *tensors, out)


def _has_small_tiles(pooling: Pooling) -> bool:
    """Whether the kernel for tiles takes these windows."""
    return pooling.tiles and pooling.rounds <= MAX_TILE_ELEMENTS


def _run_tiles(out: TensorBase, pooling: Pooling, x: TensorBase, *g: TensorBase) -> None:
    """The largest elements of tiles, or with their gradient `g` that of the image."""
    assert pooling.win is not None
    height, width = pooling.win.kernel
    by_four = 4 % width == 0 and pooling.size[1] % 4 == 0 and x.offset % 4 == 0
    tiles = x.numel() // (height * width)
    push = MAX_POOL_TILES_PUSH.pack(
        tiles, pooling.out_size[1], x.offset, *(tensor.offset for tensor in g or (out,))
    )
    groups = strided_grid(tiles // (4 // width if by_four else 1), WORKGROUP)
    run(TILES[bool(g)], groups, push, x, *g, out, constants=(height, width, int(by_four)))


def _device_indices(x: TensorBase, pooling: Pooling) -> TensorBase:
    """The indices of the maxima of a contiguous tensor, as int32."""
    shape = (*x.shape[:2], *pooling.out_size)
    indices: TensorBase = empty(type(x).result_class, shape, np.dtype(np.int32), x.device)
    if 0 not in shape:
        _run_max_pool(PoolPass.INDICES, indices, pooling, x)
    return indices


def max_pool_indices(input: TensorBase, pooling: Pooling) -> TensorBase:
    """The index of each window's largest element in its image, as int64: row * W + column."""
    indices = kernel_indices(input, pooling)
    return indices if indices.dtype == np.int64 else wide_indices(indices)


def kernel_indices(input: TensorBase, pooling: Pooling) -> TensorBase:
    """As :func:`max_pool_indices`, as int32 where a kernel computes them."""
    device, dtype, result_class = input.device, input.dtype.name, type(input).result_class
    result: TensorBase
    if device.is_cpu:
        result = empty(result_class, (*input.shape[:2], *pooling.out_size), np.dtype(np.int64), device)
        name = "max_pool2d_with_indices"
        host_work(name, partial(_write_indices, pooling), [input], [result], (), WorkKernel(name, (pooling,)))
        return result
    try:
        if input.dtype == np.float32 and not device.is_host:
            return _device_indices(contiguous(input), pooling)
        cause = fallback.no_dtype(device, dtype)
    except KERNEL_REFUSALS as error:
        cause = fallback.refused(device, error, dtype)
    with fallback.on_host("max_pool2d_with_indices", device, cause):
        indices = host.max_indices(input.on_host(), pooling)
        result = from_host(result_class, indices, device, copy=False)
    return result


def _write_indices(pooling: Pooling, input: Any, indices: Any) -> None:
    indices[...] = host.max_indices(input, pooling)


# Sliding windows


def max_pooling(
    shape: Shape,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> Pooling:
    """The windows of :func:`max_pool2d` for images of `shape`."""
    return sliding("max_pool2d", shape, kernel_size, stride, padding, dilation, ceil_mode)


def _infer_max_pool2d(input: TensorBase, **arguments: Any) -> Result:
    check_images("max_pool2d", input, integers=True)
    return (*input.shape[:2], *max_pooling(input.shape, **arguments).out_size), input.dtype


def _run_max_pool2d(out: TensorBase, input: TensorBase, **arguments: Any) -> None:
    pooling, x = max_pooling(input.shape, **arguments), contiguous(input)
    if _has_small_tiles(pooling):
        _run_tiles(out, pooling, x)
    else:
        _run_max_pool(PoolPass.MAXIMA, out, pooling, x)


@op(
    infer=_infer_max_pool2d,
    kernel=Kernel(_run_max_pool2d, (MAX_POOL[PoolPass.MAXIMA, False], TILES[False])),
    examples=(
        example((2, 3, 13, 11), kernel_size=3, stride=2, padding=1),
        example((1, 2, 7, 9), kernel_size=(2, 3), stride=None),
        example((2, 1, 11, 17), kernel_size=(3, 2), stride=(1, 3), padding=(1, 0), dilation=(2, 3)),
        example((2, 2, 6, 4), kernel_size=3, stride=2, padding=1, ceil_mode=True),
        example((1, 2, 2, 3), kernel_size=(5, 7), padding=(1, 0), ceil_mode=True),
        example((1, 1, 1, 1), kernel_size=1),
        example((0, 3, 5, 5), kernel_size=2),
    ),
)
def max_pool2d(
    input: Array,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Array:
    """The largest element in each window; the padding never wins, nan always does.

    Args:
        input: floats of shape (N, C, H, W).
        kernel_size, stride, padding, dilation, ceil_mode: see
            :func:`dl4all.nn.functional.max_pool2d`, which calls this op.

    Returns:
        Shape (N, C, OH, OW).

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.max_pool2d(dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]]), 2).tolist()
        [[[[4.0]]]]
    """
    return host.max_pool(input, max_pooling(input.shape, kernel_size, stride, padding, dilation, ceil_mode))


# Adaptive windows


def _infer_adaptive_max_pool2d(input: TensorBase, *, output_size: Any) -> Result:
    check_images("adaptive_max_pool2d", input, integers=True)
    pooling = adaptive("adaptive_max_pool2d", input.shape, output_size)
    return (*input.shape[:2], *pooling.out_size), input.dtype


def _run_adaptive_max_pool2d(out: TensorBase, input: TensorBase, *, output_size: Any) -> None:
    pooling = adaptive("adaptive_max_pool2d", input.shape, output_size)
    _run_max_pool(PoolPass.MAXIMA, out, pooling, contiguous(input))


@op(
    infer=_infer_adaptive_max_pool2d,
    kernel=Kernel(_run_adaptive_max_pool2d, (MAX_POOL[PoolPass.MAXIMA, True],)),
    examples=(
        example((2, 5, 7, 7), output_size=1),
        example((2, 3, 13, 11), output_size=(3, 5)),
        example((1, 2, 3, 2), output_size=(5, 7)),
        example((1, 2, 5, 4), output_size=(3, None)),
        example((0, 3, 5, 5), output_size=1),
    ),
)
def adaptive_max_pool2d(input: Array, output_size: OutputSizes) -> Array:
    """The largest element in each of the windows that divide the input into `output_size` parts.

    Args:
        input: floats of shape (N, C, H, W).
        output_size: as in :func:`adaptive_avg_pool2d`.

    Returns:
        Shape (N, C, OH, OW).

    Raises:
        ShapeError, ArgumentError

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.adaptive_max_pool2d(dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]]), 1).tolist()
        [[[[4.0]]]]
    """
    return host.max_pool(input, adaptive("adaptive_max_pool2d", input.shape, output_size))


# Gradients


def _infer_max_pool_backward(grad: TensorBase, input: TensorBase, *, pooling: Pooling) -> Result:
    check_float("max_pool_backward", grad, input)
    check_pooled("max_pool_backward", grad, input.shape, pooling)
    return input.shape, grad.dtype


def _run_max_pool_backward(out: TensorBase, grad: TensorBase, input: TensorBase, *, pooling: Pooling) -> None:
    if _has_small_tiles(pooling):
        _run_tiles(out, pooling, contiguous(input), contiguous(grad))
        return
    indices = _device_indices(contiguous(input), pooling)
    _run_max_pool(PoolPass.BACKWARD, out, pooling, contiguous(grad), indices)


_SLIDING = sliding("max_pool2d", (1, 1, 5, 4), 3, 2, 1, 1, True)
_TILES = sliding("max_pool2d", (1, 1, 6, 10), (3, 2), None, 0, 1, False)
_ADAPTIVE = adaptive("adaptive_max_pool2d", (1, 1, 5, 3), (3, 2))


@export()
@op(
    infer=_infer_max_pool_backward,
    kernel=Kernel(
        _run_max_pool_backward,
        (
            *(
                code
                for (kernel_pass, _), code in MAX_POOL.items()
                if kernel_pass in (PoolPass.INDICES, PoolPass.BACKWARD)
            ),
            TILES[True],
        ),
    ),
    examples=(
        example((2, 3, 2, 5), (2, 3, 6, 10), pooling=_TILES),
        example((1, 2, 3, 3), (1, 2, 5, 4), pooling=_SLIDING),
        example((2, 1, 3, 2), (2, 1, 5, 3), pooling=_ADAPTIVE),
        example((0, 1, 3, 2), (0, 1, 5, 3), pooling=_ADAPTIVE),
    ),
)
def max_pool_backward(grad: Array, input: Array, pooling: Pooling) -> Array:
    """The gradient of :func:`max_pool2d`: each pixel gets that of the windows whose maximum it is.

    Args:
        grad: the gradient of the result, floats of shape (N, C, OH, OW).
        input: shape (N, C, H, W).
        pooling: the windows.

    Returns:
        The input's shape.

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> x = dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]]).requires_grad_()
        >>> dl.nn.functional.max_pool2d(x, 2).backward(dl.tensor([[[[5.0]]]]))
        >>> x.grad.tolist()
        [[[[0.0, 5.0], [0.0, 0.0]]]]
    """
    return host.max_pool_gradient(grad, input, pooling)


def _infer_max_pool_at(input: TensorBase, by: TensorBase, *, pooling: Pooling) -> Result:
    check_float("max_pool_at", input, by)
    if input.shape != by.shape or input.shape[-2:] != pooling.size:
        raise ShapeError(f"[max_pool_at] expected two of size {pooling.size}, got {input.shape}, {by.shape}")
    return (*input.shape[:2], *pooling.out_size), input.dtype


def _run_max_pool_at(out: TensorBase, input: TensorBase, by: TensorBase, *, pooling: Pooling) -> None:
    _run_max_pool(PoolPass.TAKE, out, pooling, contiguous(input), _device_indices(contiguous(by), pooling))


@export()
@op(
    infer=_infer_max_pool_at,
    kernel=Kernel(
        _run_max_pool_at,
        (MAX_POOL[PoolPass.TAKE, False], MAX_POOL[PoolPass.INDICES, False], MAX_POOL[PoolPass.INDICES, True]),
    ),
    examples=(
        example((1, 2, 5, 4), (1, 2, 5, 4), pooling=_SLIDING),
        example((2, 1, 5, 3), (2, 1, 5, 3), pooling=_ADAPTIVE),
        example((0, 1, 5, 3), (0, 1, 5, 3), pooling=_ADAPTIVE),
    ),
    grad=(lambda g, by, pooling: max_pool_backward(g, by, pooling), None),
)
def max_pool_at(input: Array, by: Array, pooling: Pooling) -> Array:
    """The elements of `input` at the maxima of another tensor: the gradient of :func:`max_pool_backward`.

    Args:
        input, by: floats of shape (N, C, H, W).
        pooling: the windows.

    Returns:
        Shape (N, C, OH, OW).

    Raises:
        ShapeError, DTypeError

    Example:
        >>> import dl4all as dl
        >>> from dl4all.ops.pool.windows import adaptive
        >>> x, by = dl.tensor([[[[1.0, 2.0]]]]), dl.tensor([[[[5.0, 3.0]]]])
        >>> dl.ops.max_pool_at(x, by, adaptive("max_pool_at", x.shape, 1)).tolist()
        [[[[1.0]]]]
    """
    return host.take_at(input, host.max_indices(by, pooling), pooling)


def _max_pool2d_gradient(
    g: Any, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    pooling = max_pooling(input.shape, kernel_size, stride, padding, dilation, ceil_mode)
    return max_pool_backward(g, input, pooling)


max_pool2d.forms += (sample(3),)
adaptive_max_pool2d.forms += (sample(3),)
max_pool2d.defgrad(_max_pool2d_gradient)
adaptive_max_pool2d.defgrad(
    lambda g, input, output_size: max_pool_backward(
        g, input, adaptive("adaptive_max_pool2d", input.shape, output_size)
    )
)
max_pool_backward.defgrad(lambda g, input, pooling: max_pool_at(g, input, pooling), None)
