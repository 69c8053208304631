"""The length of many tensors as one vector."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from dl4all.ops.core import launch
from dl4all.ops.core.launch import ceil_div, pack, run, shader
from dl4all.ops.core.multi_tensor import MultiTensor, Plan, Role
from dl4all.ops.core.op import SHARED
from dl4all.ops.core.op import empty as empty_tensor
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.memory.views import contiguous
from dl4all.scheduler.device import Device
from dl4all.scheduler.programs import Launch

T = TypeVar("T", bound=TensorBase)

WORKGROUP = 128
EACH = 32  # elements that an invocation adds up, in tensors that keep few workgroups busy
PARTS = 256  # of a tensor, at most
SQUARES, SQUARES_TOGETHER = (shader("optim/squares.comp", MULTI_TENSOR=multi) for multi in (0, 1))
SCALE = shader("optim/scale.comp")
SHARED.extend((SQUARES, SQUARES_TOGETHER, SCALE))


def squares(tensors: Sequence[TensorBase]) -> Any:
    """Numbers whose sum is that of the squares of all elements: of float32, on the tensors' device.

    Nothing in memory but the numbers. All tensors must be of float32 and live on one device. Nothing is
    recorded for gradients.

    >>> import dl4all as dl
    >>> squares([dl.tensor([3.0, 4.0]), dl.tensor(1.0)]).tolist()
    [25.0, 1.0]
    """
    first = tensors[0]
    cls, device = type(first).result_class, first.device
    if device.is_host or not device.binds(*(t.storage for t in tensors)):
        sums = [np.square(t.on_host()).sum(dtype=np.float32) for t in tensors]
        return from_host(cls, np.array(sums, np.float32), device, copy=False)
    filled = [contiguous(t) for t in tensors if t.numel()]
    if not filled:
        return from_host(cls, np.zeros(1, np.float32), device, copy=False)
    plan = _plan(filled, device, written=False)
    most = min(PARTS, launch.STRIDED_GRID_CAP)
    groups = [batch.groups for batch in plan.batches]
    groups += [min(ceil_div(filled[i].numel(), WORKGROUP * EACH), most) for i in plan.alone]
    starts = [0, *itertools.accumulate(groups)]
    parts = empty_tensor(cls, (starts[-1],), np.dtype(np.float32), device)
    for batch, start in zip(plan.batches, starts, strict=False):
        push = pack(*batch.rows, start)
        code = Launch(SQUARES_TOGETHER, (batch.groups, 1, 1), push)
        device.launch(code, batch.table, *batch.spans, parts.storage)
    batches = len(plan.batches)
    for i, count, start in zip(plan.alone, groups[batches:], starts[batches:], strict=False):
        tensor = filled[i]
        run(SQUARES, (count, 1, 1), pack(tensor.numel(), tensor.offset, start), tensor, parts)
    return parts


def scale(tensors: Sequence[T], factor: TensorBase) -> list[T]:
    """Multiply tensors by one number in place, as far as one dispatch does that for several of them.

    Nothing is recorded for gradients.

    Args:
        tensors: with elements.
        factor: a tensor of one float32.

    Returns:
        Those that are left as they were: alone in a buffer, of other devices, dtypes or layouts.

    >>> import dl4all as dl
    >>> x = dl.tensor([1.0, 2.0], device="cpu")
    >>> scale([x], dl.tensor(2.0, device="cpu")) == [x]
    True
    """
    device = factor.device
    left, filled = list[T](), list[T]()
    for tensor in tensors:
        fits = tensor.device is device and tensor.dtype == np.float32 and tensor.is_contiguous()
        (filled if fits else left).append(tensor)
    if not filled:
        return left
    plan = _plan(filled, device, written=True)
    for batch in plan.batches:
        code = Launch(SCALE, (batch.groups, 1, 1), pack(*batch.rows))
        device.launch(code, batch.table, factor.storage, *batch.spans)
        for i in batch.jobs:
            filled[i].storage.version += 1
    return left + [filled[i] for i in plan.alone]


def _plan(tensors: Sequence[TensorBase], device: Device, *, written: bool) -> Plan:
    plans = device.tables.setdefault("norms", MultiTensor())
    made: Plan = plans.plan([(tensor,) for tensor in tensors], [Role(written=written)], slot=written)
    return made
