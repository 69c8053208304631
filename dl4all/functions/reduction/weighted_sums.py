"""Weighted sums of elements along an axis as one kernel of the CPU."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.ops.core import tape
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work, takes_in_one_pass
from dl4all.ops.core.op import empty
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.memory.views import contiguous

NAME = "resampled"
NDArray = npt.NDArray[Any]


def in_one_pass(input: TensorBase) -> bool:
    """Whether a kernel takes all taps."""
    return takes_in_one_pass(NAME, input)


def resampled(
    input: TensorBase, axis: int, places: NDArray, weights: NDArray, size: int, *, transposed: bool = False
) -> Any:
    """Sums of elements of an axis, or, transposed, the gradient of such sums.

    Args:
        input: float32.
        axis: of the input.
        places, weights: shape (taps, n): what each element of the result is the sum of, with which factors.
        size: of the result's axis; n, unless `transposed`.
        transposed: whether elements are added to their places instead.
    """
    cls, device, shape = type(input).result_class, input.device, input.shape
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    result = empty(cls, (*shape[:axis], size, *shape[axis + 1 :]), input.dtype, device, NAME)
    with tape.gradients(False):
        x = contiguous(input)
        source = cls(x.storage, (outer, shape[axis], inner), x.dtype, device, None, x.offset)
        target = cls(result.storage, (outer, size, inner), x.dtype, device)
        tables = [from_host(cls, table, device, copy=False) for table in (places, weights)]
        kernel = WorkKernel(NAME, (transposed,))
        host_work(NAME, partial(_resample, transposed), [source, *tables], [target], (), kernel)
    length = shape[axis]

    def backward(grads: Any, saved: tuple[Any, ...], needs: tuple[bool, ...]) -> list[Any]:
        return [resampled(grads[0], axis, places, weights, length, transposed=not transposed)]

    tape.add_node(NAME, [input], [result], backward, single_use=True)
    return result


def _resample(transposed: bool, source: NDArray, places: NDArray, weights: NDArray, target: NDArray) -> None:
    target[...] = 0
    lines = np.swapaxes(target, 0, 1)
    for place, weight in zip(places, weights, strict=True):
        if transposed:
            np.add.at(lines, place, np.swapaxes(source * weight[:, None], 0, 1))
        else:
            target += source[:, place] * weight[:, None]
