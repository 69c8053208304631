"""Cross entropy over all rows as one kernel of the CPU for each pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dl4all.ops.core import tape
from dl4all.ops.core.kernels.host_kernel import kernel_of
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work, takes_in_one_pass
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import Shape, TensorBase, host_array
from dl4all.ops.indexing.indices import Indices
from dl4all.ops.loss.cross_entropy_ops import cross_entropy_backward, cross_entropy_each
from dl4all.ops.memory.views import contiguous, expand, reshape
from dl4all.scheduler import listeners

FORWARD, BACKWARD = "cross_entropy_loss", "cross_entropy_loss_backward"
FLOAT = np.dtype("float32")
CLASSES = (np.dtype("int64"), np.dtype("int32"))


def in_one_pass(input: TensorBase, target: Any, weight: TensorBase | None) -> bool:
    """Whether a kernel takes the whole loss."""
    return (
        isinstance(target, TensorBase)
        and target.device is input.device
        and target.dtype in CLASSES
        and takes_in_one_pass(FORWARD, input, target, weight)
    )


def cross_entropy_loss(
    input: TensorBase,
    target: Any,
    weight: TensorBase | None,
    ignore_index: int,
    mean: bool,
    label_smoothing: float,
    rows: Shape,
    indices: Callable[[TensorBase], Indices],
) -> Any:
    """The mean or sum of the rows' losses.

    Args:
        rows: the input's shape as (N, C, inner).
        indices: checks targets, and returns them with -1 for those that are ignored.

    Raises:
        ArgumentError: a target is no class, as `indices` says it.
    """
    cls, device = type(input).result_class, input.device
    constants = (ignore_index, mean, float(label_smoothing))
    state = empty(cls, (2,), FLOAT, device, FORWARD)  # the weight of all rows, and how many are of no class
    result = empty(cls, (), FLOAT, device, FORWARD)
    with tape.gradients(False):
        reads = [contiguous(tensor) for tensor in (input, target, weight) if tensor is not None]
    host_work(
        FORWARD, partial(_loss, rows, *constants), reads, [result, state], (), WorkKernel(FORWARD, constants)
    )
    if not listeners.captured() and host_array(state)[1]:
        indices(target)

    def backward(grads: Any, saved: tuple[Any, ...], needs: tuple[bool, ...]) -> list[Any]:
        g, (x, targets, w, saved_state) = grads[0], saved
        if not tape.state.enabled and g.dtype == FLOAT and kernel_of(BACKWARD) is not None:
            gradient = empty(cls, x.shape, FLOAT, device, BACKWARD)
            operands = (x, targets, g, saved_state, w)
            reads = [contiguous(tensor) for tensor in operands if tensor is not None]
            work, kernel = partial(_gradient, rows, *constants), WorkKernel(BACKWARD, constants)
            host_work(BACKWARD, work, reads, [gradient], (), kernel)
            return [gradient, None]
        share = g / saved_state[0] if mean else g
        of_rows = expand(reshape(share, 1, 1), rows[0], rows[2])
        options: dict[str, Any] = {"target": indices(targets), "label_smoothing": label_smoothing}
        return [reshape(cross_entropy_backward(of_rows, reshape(x, *rows), w, **options), x.shape), None]

    tape.add_node("cross_entropy", [input, weight], [result], backward, [input, target, weight, state])
    return result


def _rows(target: Any, rows: Shape, ignore_index: int) -> tuple[Indices, int]:
    """NumPy: the classes, -1 where they do not count, and how many are none."""
    counts = target != ignore_index
    valid = (target >= 0) & (target < rows[1])
    return Indices(np.where(counts & valid, target, -1)), int(np.count_nonzero(counts & ~valid))


def _loss(rows: Shape, ignore_index: int, mean: bool, smoothing: float, *arrays: Any) -> None:
    x, target, *weight, result, state = arrays
    classes, wrong = _rows(target, rows, ignore_index)
    options: dict[str, Any] = {"target": classes, "label_smoothing": smoothing}
    total = cross_entropy_each.body(x.reshape(rows), *(weight or [None]), **options).sum(dtype=np.float64)
    counted = classes.array[classes.array >= 0]
    state[...] = weight[0][counted].sum(dtype=np.float64) if weight else len(counted), wrong
    result[...] = total / state[0] if mean else total


def _gradient(rows: Shape, ignore_index: int, mean: bool, smoothing: float, *arrays: Any) -> None:
    x, target, g, state, *weight, gradient = arrays
    of_rows = np.full((rows[0], rows[2]), g / state[0] if mean else g, x.dtype)
    options: dict[str, Any] = {"target": _rows(target, rows, ignore_index)[0], "label_smoothing": smoothing}
    result = cross_entropy_backward.body(of_rows, x.reshape(rows), *(weight or [None]), **options)
    gradient[...] = result.reshape(x.shape)
