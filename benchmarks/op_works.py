"""Every op with a kernel at work on tensors of so many elements, from its declaration.

An elementwise op says itself what it takes. The others have shapes here: rows of 1024 elements, images of 64
channels and 64 x 64 pixels, and for what multiplies matrices, whose size does not depend on the count, one of
ResNet-18's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import dl4all as dl
from dl4all.ops.conv.window import Window
from dl4all.ops.core.op import REGISTRY, Op
from dl4all.ops.core.tensor_base import Shape
from dl4all.ops.elementwise.declare import Elementwise
from dl4all.ops.pool.windows import Pooling

ROW, CHANNELS, SIDE, HIDDEN = 1024, 64, 64, 256
SEED = 0

WITHOUT = {
    "flash_attention": "how many multiplications it needs is not declared",
    "flash_attention_backward": "how many multiplications it needs is not declared",
    "max_pool_at": "what it reads depends on where the largest are",
    "recurrent_sequence": "benchmarks/recurrent.py measures it beside an earlier commit",
    "recurrent_sequence_backward": "benchmarks/recurrent.py measures it beside an earlier commit",
    "nll_each": "it reads one element of a row",
}
"""Ops with kernels that have no floor here, and why."""


class Task(NamedTuple):
    """Shapes of an op's operands and its arguments; `nbytes` where it need not read all of the operands."""

    shapes: tuple[Shape | None, ...]
    arguments: Mapping[str, Any]
    nbytes: int | None = None


class Work(NamedTuple):
    """What to time, and what it must move or compute at least."""

    run: Callable[[], object]
    nbytes: int
    flops: int = 0


def task(*shapes: Shape | None, **arguments: Any) -> Task:
    return Task(shapes, arguments)


def along_rows(rows: int) -> dict[str, Task]:
    """Reductions, scans, losses and norms of matrices; what is computed of each row on its own."""
    matrix, column, row = (rows, ROW), (rows, 1), (ROW,)
    scores = (*matrix, 1)
    target = tuple(i * 7 % ROW for i in range(rows))
    reductions = "amax amin argmax argmin sum mean prod var std norm logsumexp count_nonzero"
    scans = "softmax log_softmax cumsum cumprod cumsum_backward"
    return {
        **{name: task(matrix, dim=1) for name in f"{reductions} {scans}".split()},
        **{f"{name}_backward": task(matrix, matrix, dim=1) for name in ("softmax", "log_softmax")},
        "extreme_backward": task(column, matrix, dim=1, largest=True),
        "sum_to": task(matrix, shape=row),
        "dot": task((rows * ROW,), (rows * ROW,)),
        "grouped_norm": task(matrix, row, row),
        "grouped_norm_backward": task(matrix, matrix, row),
        "grouped_norm_sums": task(matrix, matrix),
        "grouped_norm_statistics": task(matrix),
        **{f"normalized_{name}": task(matrix, matrix, (2, rows)) for name in ("backward", "sums")},
        "cross_entropy_each": task(scores, None, target=target),
        "cross_entropy_backward": task(column, scores, None, target=target),
        "nll_backward": task(column, None, target=target, classes=ROW),
    }


def moving(rows: int) -> dict[str, Task]:
    """What copies elements, or leaves some out."""
    matrix, half = (rows, ROW), (rows // 2, ROW)
    chosen = tuple(i * 7 % rows for i in range(rows // 2))
    nbytes = 4 * rows * ROW
    return {
        "cast": task(matrix, dtype="int32"),
        "tril": task(matrix, diagonal=0),
        "triu": task(matrix, diagonal=0),
        "random_dropout": task(matrix, p=0.5, seed=1, offset=0),
        "take_rows": Task(((1, rows, ROW),), {"index": chosen}, nbytes),
        "take_rows_backward": task((1, *half), index=chosen, size=rows),
        "put_rows": Task((matrix, half), {"index": tuple(range(0, 2 * (rows // 2), 2))}, 2 * nbytes),
        "index_backward": task(half, key=(slice(0, rows // 2), slice(None)), shape=matrix),
    }


def of_images(count: int) -> dict[str, Task]:
    """Pooling and batch normalisation."""
    images, channels = (count, CHANNELS, SIDE, SIDE), (CHANNELS,)
    pooled = (count, CHANNELS, SIDE // 2, SIDE // 2)
    win = Window((2, 2), (2, 2), (0, 0), (0, 0), (1, 1))
    pooling = Pooling((SIDE, SIDE), (SIDE // 2, SIDE // 2), win)
    pools = {f"{kind}_pool2d": task(images, kernel_size=2) for kind in ("max", "avg")}
    adaptive = {f"adaptive_{kind}_pool2d": task(images, output_size=SIDE // 2) for kind in ("max", "avg")}
    return {
        **pools,
        **adaptive,
        "avg_pool_backward": task(pooled, pooling=pooling),
        "max_pool_backward": task(pooled, images, pooling=pooling),
        "batch_norm_stats": task(images),
        "batch_norm_apply": task(images, channels, channels, channels, channels),
        "batch_norm_sums": task(images, images, channels, channels),
        "batch_norm_backward": task(images, images, channels, channels, (2, *channels), channels),
    }


def of_steps(count: int) -> dict[str, Task]:
    """Steps of recurrent layers."""
    three, four, hidden = (count, 3 * HIDDEN), (count, 4 * HIDDEN), (count, HIDDEN)
    return {
        "gru_step": task(three, three, hidden),
        "gru_step_backward": task(hidden, three, three, hidden),
        "lstm_step": task(four, four, hidden),
        "lstm_step_backward": task((2, *hidden), four, hidden),
    }


def of_products() -> dict[str, Task]:
    """What multiplies matrices, or can be computed by that."""
    image, filters = (1, 128, 28, 28), (128, 128, 3, 3)
    return {
        "matmul": task((512, 512), (512, 512)),
        "linear": task((256, 512), (1000, 512), (1000,)),
        "conv1d": task((4, 128, 784), (128, 128, 3), None, padding=1),
        "conv2d": task(image, filters, None, padding=1),
        "conv3d": task((1, 32, 8, 28, 28), (32, 32, 3, 3, 3), None, padding=1),
        "conv_input": task(image, filters, input_size=(28, 28), padding=1),
        "conv_weight": task(image, image, kernel_size=(3, 3), padding=1),
    }


def tasks(count: int) -> dict[str, Task]:
    """Those of all ops with a kernel, but for what is in `WITHOUT`."""
    found = {name: _elementwise(op, count) for name, op in REGISTRY.items() if isinstance(op, Elementwise)}
    rows, images = max(2, count // ROW), max(1, count // (CHANNELS * SIDE**2))
    found |= along_rows(rows) | moving(rows) | of_images(images) | of_products()
    return found | of_steps(max(1, count // (4 * HIDDEN)))


def works(device: str, count: int, names: Collection[str] = ()) -> Iterator[tuple[str, Work]]:
    """All, or those of some ops; one after the other, so that there is memory for each."""
    for name, found in sorted(tasks(count).items()):
        if name in names or not names:
            yield name, work(REGISTRY[name], found, device)


def variants(device: str, count: int) -> dict[str, Work]:
    """Ops once more, with other operands."""
    rng, nbytes = np.random.default_rng(SEED), 4 * count
    a, b = (dl.tensor(rng.uniform(0.5, 2, count).astype(np.float32), device=device) for _ in range(2))
    matrix, row = a.reshape(-1, ROW), b[:ROW].clone()
    return {
        "add a number": Work(lambda: a + 1.5, 2 * nbytes),
        "add a row to a matrix": Work(lambda: matrix + row, 2 * nbytes),
        "transpose": Work(lambda: matrix.T.contiguous(), 2 * nbytes),
        "sum of all": Work(lambda: a.sum(), nbytes),
        "sum of columns": Work(lambda: matrix.sum(0), nbytes),
    }


def work(op: Op[...], found: Task, device: str) -> Work:
    """An op with its operands on a device, made ready to run."""
    rng = np.random.default_rng(SEED)
    pairs = zip(op.arrays, found.shapes, strict=True)
    operands = [None if s is None else dl.tensor(draw(op, n, rng, s), device=device) for n, s in pairs]
    call: Any = op
    moved = found.nbytes
    if moved is None:
        moved = sum(o.nbytes for o in (*operands, call(*operands, **found.arguments)) if o is not None)
    declared = {name: p.default for name, p in op.signature.parameters.items() if name in op.arguments}
    flops = 0 if op.flops is None else op.flops(*operands, **(declared | dict(found.arguments)))
    return Work(lambda: call(*operands, **found.arguments), moved, flops)


def draw(op: Op[...], name: str, rng: np.random.Generator, shape: Shape) -> npt.NDArray[Any]:
    """Values that an operand may have, away from 0."""
    low, high = 0.5, 2.0
    if isinstance(op, Elementwise):
        if op.conditions[op.arrays.index(name)]:
            return rng.integers(0, 2, shape).astype(np.bool_)
        if "float32" not in op.by_dtype:
            return rng.integers(1, 6, shape).astype(np.int32)
        low, high = op.domain.get(name, (low, high))
    return rng.uniform(low, high, shape).astype(np.float32)


def _elementwise(op: Elementwise[...], count: int) -> Task:
    return Task(((count,),) * len(op.arrays), dict(op.examples[0].arguments))
