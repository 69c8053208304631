"""The length of many tensors as one vector."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dl4all.ops import launch
from dl4all.ops.base import TensorBase, from_host
from dl4all.ops.launch import ceil_div, pack, run, shader
from dl4all.ops.op import SHARED
from dl4all.ops.op import empty as empty_tensor
from dl4all.ops.views import contiguous

WORKGROUP = 128
EACH = 32  # elements that an invocation adds up, in tensors that keep few workgroups busy
PARTS = 256  # of a tensor, at most
SQUARES = shader("optim/squares.comp")
SHARED.append(SQUARES)


def squares(tensors: Sequence[TensorBase]) -> Any:
    """Numbers whose sum is that of the squares of all elements: of float32, on the tensors' device.

    One dispatch for each tensor, and nothing in memory but the numbers. All tensors must be of float32 and
    live on one device. Nothing is recorded for gradients.

    >>> import dl4all as dl
    >>> squares([dl.tensor([3.0, 4.0]), dl.tensor(1.0)]).tolist()
    [25.0, 1.0]
    """
    first = tensors[0]
    cls, device = type(first).result_class, first.device
    if device.is_host:
        sums = [np.square(t.on_host()).sum(dtype=np.float32) for t in tensors]
        return from_host(cls, np.array(sums, np.float32), device, copy=False)
    filled = [contiguous(t) for t in tensors if t.numel()]
    most = min(PARTS, launch.MAX_GROUPS)
    groups = [min(ceil_div(t.numel(), WORKGROUP * EACH), most) for t in filled]
    starts = [0, *itertools.accumulate(groups)]
    if not filled:
        return from_host(cls, np.zeros(1, np.float32), device, copy=False)
    parts = empty_tensor(cls, (starts[-1],), np.dtype(np.float32), device)
    for tensor, count, start in zip(filled, groups, starts, strict=False):
        run(SQUARES, (count, 1, 1), pack(tensor.numel(), tensor.offset, start), tensor, parts)
    return parts
