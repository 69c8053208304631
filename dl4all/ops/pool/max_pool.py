"""The largest elements of windows over the last two axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dl4all.errors import ShapeError
from dl4all.ops.core.checks import check_float, check_images
from dl4all.ops.core.exports import export
from dl4all.ops.core.launch import check_rounds, pack, run, shader, strided_grid
from dl4all.ops.core.op import REGISTRY, Kernel, Result, empty, example, op
from dl4all.ops.core.tensor_base import Array, Shape, TensorBase, from_host
from dl4all.ops.core.vmap_hook import reads
from dl4all.ops.memory.views import contiguous
from dl4all.ops.pool import windows
from dl4all.ops.pool.windows import Pooling, adaptive, check_pooled, sliding
from dl4all.scheduler.programs import Launch

WORKGROUP = 64
# By what is computed, see the shaders, and whether the windows are adaptive.
MAX_POOL = {
    (what, parts): shader("pool/max_pool.comp", PASS=what, ADAPTIVE=int(parts))
    for what in (0, 1, 2, 3)
    for parts in (False, True)
    if not (what == 2 and parts)  # places say all
}
LARGEST, PLACES, AT, BACK = 0, 1, 2, 3  # the passes of max_pool.comp
TILES = {back: shader("pool/max_pool_tiles.comp", BACK=int(back)) for back in (False, True)}
MOST_TILE = 64  # elements of one that are held in registers


def _max_run(what: int, out: TensorBase, pooling: Pooling, *tensors: TensorBase) -> None:
    check_rounds(out.device, pooling.rounds)
    words = (1,) * 8 if pooling.win is None else pooling.win.words
    push = pack(out.numel(), tensors[0].offset, *pooling.size, *pooling.out_size, *words)
    code = MAX_POOL[what, pooling.win is None and what != AT]
    run(code, strided_grid(out.numel(), WORKGROUP), push, *tensors, out)


def _small_tiles(pooling: Pooling) -> bool:
    """Whether windows are tiles that a kernel of their own takes."""
    return pooling.tiles and pooling.rounds <= MOST_TILE


def _tiles_run(out: TensorBase, pooling: Pooling, x: TensorBase, *g: TensorBase) -> None:
    """The largest elements of tiles, or with their gradient that of the image."""
    assert pooling.win is not None
    height, width = pooling.win.kernel
    by_four = 4 % width == 0 and pooling.size[1] % 4 == 0 and x.offset % 4 == 0
    tiles = x.numel() // (height * width)
    push = pack(tiles, pooling.out_size[1], x.offset, *(tensor.offset for tensor in g or (out,)))
    groups = strided_grid(tiles // (4 // width if by_four else 1), WORKGROUP)
    launch = Launch(TILES[bool(g)], groups, push, (height, width, int(by_four)))
    out.device.launch(launch, *(tensor.storage for tensor in (x, *g, out)))


def _places(x: TensorBase, pooling: Pooling) -> TensorBase:
    """Where in each window of a contiguous tensor the largest element is, as the kernels write it."""
    shape = (*x.shape[:2], *pooling.out_size)
    places: TensorBase = empty(type(x).result_class, shape, np.dtype(np.int32), x.device)
    if 0 not in shape:
        _max_run(PLACES, places, pooling, x)
    return places


def _max_pooling(
    shape: Shape, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Pooling:
    return sliding("max_pool2d", shape, kernel_size, stride, padding, dilation, ceil_mode)


def _max_pool_shape(input: TensorBase, **given: Any) -> Result:
    check_images("max_pool2d", input)
    return (*input.shape[:2], *_max_pooling(input.shape, **given).out_size), input.dtype


def _max_pool_run(out: TensorBase, input: TensorBase, **given: Any) -> None:
    pooling, x = _max_pooling(input.shape, **given), contiguous(input)
    if _small_tiles(pooling):
        _tiles_run(out, pooling, x)
    else:
        _max_run(LARGEST, out, pooling, x)


def _max_pool_gradient(
    g: Any, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    pooling = _max_pooling(input.shape, kernel_size, stride, padding, dilation, ceil_mode)
    return REGISTRY["max_pool_backward"](g, input, pooling)


@export("F")
@op(
    infer=_max_pool_shape,
    kernel=Kernel(_max_pool_run, (MAX_POOL[LARGEST, False], TILES[False])),
    examples=(
        example((2, 3, 13, 11), kernel_size=3, stride=2, padding=1),
        example((1, 2, 7, 9), kernel_size=(2, 3), stride=None),
        example((2, 1, 11, 17), kernel_size=(3, 2), stride=(1, 3), padding=(1, 0), dilation=(2, 3)),
        example((2, 2, 6, 4), kernel_size=3, stride=2, padding=1, ceil_mode=True),
        example((1, 1, 1, 1), kernel_size=1),
        example((0, 3, 5, 5), kernel_size=2),
    ),
    grad=_max_pool_gradient,
)
def max_pool2d(
    input: Array,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Array:
    """The largest element in each window; the padding never wins, nan always does.

    Args:
        input: floats of shape (N, C, H, W).
        kernel_size, stride, padding, dilation: one int for both axes or a pair (vertical,
            horizontal). The stride is the kernel size unless given.
        ceil_mode: take a last window that begins inside but does not fit.

    Returns:
        Shape (N, C, OH, OW), OH = (H + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1.

    Raises:
        ShapeError: the input is not 4-d or the window does not fit into it.
        ArgumentError: a size is not an int or too small, or the padding exceeds half the window.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.max_pool2d(dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]]), 2).tolist()
        [[[[4.0]]]]
    """
    pooling = _max_pooling(input.shape, kernel_size, stride, padding, dilation, ceil_mode)
    return windows.largest(input, pooling)


def _adaptive_max_shape(input: TensorBase, *, output_size: Any) -> Result:
    check_images("adaptive_max_pool2d", input)
    return (
        *input.shape[:2],
        *adaptive("adaptive_max_pool2d", input.shape, output_size).out_size,
    ), input.dtype


def _adaptive_max_run(out: TensorBase, input: TensorBase, *, output_size: Any) -> None:
    pooling = adaptive("adaptive_max_pool2d", input.shape, output_size)
    _max_run(LARGEST, out, pooling, contiguous(input))


@export("F")
@op(
    infer=_adaptive_max_shape,
    kernel=Kernel(_adaptive_max_run, (MAX_POOL[LARGEST, True],)),
    examples=(
        example((2, 5, 7, 7), output_size=1),
        example((2, 3, 13, 11), output_size=(3, 5)),
        example((1, 2, 3, 2), output_size=(5, 7)),
        example((1, 2, 5, 4), output_size=(3, None)),
        example((0, 3, 5, 5), output_size=1),
    ),
    grad=lambda g, input, output_size: REGISTRY["max_pool_backward"](
        g, input, adaptive("adaptive_max_pool2d", input.shape, output_size)
    ),
)
def adaptive_max_pool2d(input: Array, output_size: Any) -> Array:
    """The largest element in each of the windows that cut the input into `output_size` parts.

    Args:
        input: floats of shape (N, C, H, W).
        output_size: as in :func:`adaptive_avg_pool2d`.

    Returns:
        Shape (N, C, OH, OW).

    Raises:
        ShapeError: the input is not 4-d.
        ArgumentError: the size is not positive, or the input has no pixels.

    Example:
        >>> import dl4all as dl
        >>> dl.nn.functional.adaptive_max_pool2d(dl.tensor([[[[1.0, 4.0], [3.0, 2.0]]]]), 1).tolist()
        [[[[4.0]]]]
    """
    return windows.largest(input, adaptive("adaptive_max_pool2d", input.shape, output_size))


def _max_backward_shape(grad: TensorBase, input: TensorBase, *, pooling: Pooling) -> Result:
    check_float("max_pool_backward", grad, input)
    check_pooled("max_pool_backward", grad, input.shape, pooling)
    return input.shape, grad.dtype


def _max_backward_run(out: TensorBase, grad: TensorBase, input: TensorBase, *, pooling: Pooling) -> None:
    if _small_tiles(pooling):
        _tiles_run(out, pooling, contiguous(input), contiguous(grad))
        return
    _max_run(BACK, out, pooling, contiguous(grad), _places(contiguous(input), pooling))


_SLIDING = sliding("max_pool2d", (1, 1, 5, 4), 3, 2, 1, 1, True)
_TILES = sliding("max_pool2d", (1, 1, 6, 10), (3, 2), None, 0, 1, False)
_PARTS = adaptive("adaptive_max_pool2d", (1, 1, 5, 3), (3, 2))


@export()
@op(
    infer=_max_backward_shape,
    kernel=Kernel(
        _max_backward_run,
        (*(code for (what, _), code in MAX_POOL.items() if what in (PLACES, BACK)), TILES[True]),
    ),
    examples=(
        example((2, 3, 2, 5), (2, 3, 6, 10), pooling=_TILES),
        example((1, 2, 3, 3), (1, 2, 5, 4), pooling=_SLIDING),
        example((2, 1, 3, 2), (2, 1, 5, 3), pooling=_PARTS),
        example((0, 1, 3, 2), (0, 1, 5, 3), pooling=_PARTS),
    ),
    grad=(lambda g, input, pooling: REGISTRY["max_pool_at"](g, input, pooling), None),
)
def max_pool_backward(grad: Array, input: Array, pooling: Any) -> Array:
    """The gradient of :func:`max_pool2d`: what each pixel was the largest of.

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
    return windows.largest_gradient(grad, input, pooling)


def _max_at_shape(input: TensorBase, by: TensorBase, *, pooling: Pooling) -> Result:
    check_float("max_pool_at", input, by)
    if input.shape != by.shape or input.shape[-2:] != pooling.size:
        raise ShapeError(f"[max_pool_at] expected two of size {pooling.size}, got {input.shape}, {by.shape}")
    return (*input.shape[:2], *pooling.out_size), input.dtype


def _max_at_run(out: TensorBase, input: TensorBase, by: TensorBase, *, pooling: Pooling) -> None:
    _max_run(AT, out, pooling, contiguous(input), _places(contiguous(by), pooling))


@export()
@op(
    infer=_max_at_shape,
    kernel=Kernel(_max_at_run, (MAX_POOL[AT, False], *(MAX_POOL[PLACES, parts] for parts in (False, True)))),
    examples=(
        example((1, 2, 5, 4), (1, 2, 5, 4), pooling=_SLIDING),
        example((2, 1, 5, 3), (2, 1, 5, 3), pooling=_PARTS),
        example((0, 1, 5, 3), (0, 1, 5, 3), pooling=_PARTS),
    ),
    grad=(lambda g, by, pooling: max_pool_backward(g, by, pooling), None),
)
def max_pool_at(input: Array, by: Array, pooling: Any) -> Array:
    """The elements of `input` where the largest of another tensor lie: what undoes :func:`max_pool_backward`.

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
    at = windows.places(by, pooling)
    flat = input.reshape(*input.shape[:2], pooling.size[0] * pooling.size[1])
    chosen = np.take_along_axis(flat, at.reshape(*at.shape[:2], at.shape[2] * at.shape[3]), -1)
    return np.where(at < 0, np.zeros((), input.dtype), chosen.reshape(at.shape))


@export("F")
@reads("input")
def max_pool2d_with_indices(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Any, Any]:
    """:func:`max_pool2d`, and where each largest element is: int64, row * W + column."""
    values = max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode)
    return values, _indices(
        input, _max_pooling(input.shape, kernel_size, stride, padding, dilation, ceil_mode)
    )


@export("F")
@reads("input")
def adaptive_max_pool2d_with_indices(input: Any, output_size: Any) -> tuple[Any, Any]:
    """:func:`adaptive_max_pool2d`, and where each largest element is: int64, row * W + column."""
    values = adaptive_max_pool2d(input, output_size)
    return values, _indices(input, adaptive("adaptive_max_pool2d", input.shape, output_size))


def _indices(input: TensorBase, pooling: Pooling) -> TensorBase:
    if input.device.is_host or input.dtype != np.float32:
        at = windows.places(input.on_host(), pooling)
    else:
        at = _places(contiguous(input), pooling).on_host().astype(np.int64)
    made: TensorBase = from_host(type(input).result_class, at, input.device, copy=False)
    return made
