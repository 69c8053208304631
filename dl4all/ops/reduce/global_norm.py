"""The Euclidean norm of many tensors as one vector, and scaling them, for gradient clipping."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from dl4all.errors import PipelineError
from dl4all.ops.core.kernels import launch
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work
from dl4all.ops.core.kernels.launch import ceil_div, run, shader
from dl4all.ops.core.kernels.multi_tensor import MultiTensor, MultiTensorPlan, Role
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import KERNEL_REFUSALS, SHARED
from dl4all.ops.core.op import empty as empty_tensor
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.ops.memory.views import contiguous
from dl4all.scheduler import fallback
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch

T = TypeVar("T", bound=TensorBase)

WORKGROUP = 128
ELEMENTS_PER_INVOCATION = 32  # in tensors that keep few workgroups busy
MAX_PARTS = 256  # workgroups, and partial sums, of a tensor
SQUARES_OF_ONE_PUSH = PushBlock("optim/squares.comp", "uint n, x_offset, out_offset;", MULTI_TENSOR=0)
SQUARES_PUSH = PushBlock(
    "optim/squares.comp",
    "uint first_row, last_row, workgroup_elements, out_offset;",
    MULTI_TENSOR=1,
)
SCALE_PUSH = PushBlock("optim/scale.comp", "uint first_row, last_row, workgroup_elements;")
SQUARES, SQUARES_OF_BATCH = (shader("optim/squares.comp", MULTI_TENSOR=multi) for multi in (0, 1))
SCALE = shader("optim/scale.comp")
SHARED.extend((SQUARES, SQUARES_OF_BATCH, SCALE))


def partial_square_sums(tensors: Sequence[TensorBase]) -> Any:
    """Partial sums of the squares of all elements, which add up to the squared norm.

    The result is of float32, on the tensors' device.

    It allocates no memory but for the partial sums. All tensors must be of float32 and live on one device.
    Nothing is recorded for gradients.

    >>> import dl4all as dl
    >>> partial_square_sums([dl.tensor([3.0, 4.0]), dl.tensor(1.0)]).sum().item()
    26.0
    """
    first = tensors[0]
    cls, device = type(first).result_class, first.device
    if device.is_host:
        nonempty = [contiguous(t) for t in tensors if t.numel()]
        if not nonempty:
            return from_host(cls, np.zeros(1, np.float32), device, copy=False)
        parts = empty_tensor(cls, (1,), np.dtype(np.float32), device)
        host_work("partial_square_sums", _sum_squares, nonempty, [parts], kernel=WorkKernel("square sum"))
        return parts
    cause = fallback.too_large(device, "float32")
    if device.memory.binds(*(t.storage for t in tensors)):
        try:
            return _sums_on_device(tensors)
        except KERNEL_REFUSALS as error:
            cause = fallback.refused(device, error, "float32")
    with fallback.on_host("partial_square_sums", device, cause):
        sums = np.empty(1, np.float32)
        _sum_squares(*(t.on_host() for t in tensors), sums)
        return from_host(cls, sums, device, copy=False)


def _sum_squares(*arrays: Any) -> None:
    """The sum of the squares of all arrays but the last, in that one."""
    *operands, sums = arrays
    sums[...] = np.sum([np.square(array).sum(dtype=np.float32) for array in operands])


def _scale(factor: Any, *arrays: Any) -> None:
    """Multiply arrays by a number in place."""
    for array in arrays:
        array *= factor.item()


def _sums_on_device(tensors: Sequence[TensorBase]) -> Any:
    """The partial sums, by kernels."""
    cls, device = type(tensors[0]).result_class, tensors[0].device
    nonempty = [contiguous(t) for t in tensors if t.numel()]
    if not nonempty:
        return from_host(cls, np.zeros(1, np.float32), device, copy=False)
    plan = _plan(nonempty, device, written=False)
    max_groups, step = min(MAX_PARTS, launch.STRIDED_GRID_CAP), WORKGROUP * ELEMENTS_PER_INVOCATION
    groups = [batch.groups for batch in plan.batches]
    groups += [min(ceil_div(nonempty[i].numel(), step), max_groups) for i in plan.alone]
    starts = [0, *itertools.accumulate(groups)]
    parts = empty_tensor(cls, (starts[-1],), np.dtype(np.float32), device)
    for batch, start in zip(plan.batches, starts, strict=False):
        push = SQUARES_PUSH.pack(*batch.rows, start)
        code = Launch(SQUARES_OF_BATCH, (batch.groups, 1, 1), push)
        device.launch(code, batch.table, *batch.spans, parts.storage)
    batches = len(plan.batches)
    for i, count, start in zip(plan.alone, groups[batches:], starts[batches:], strict=False):
        tensor = nonempty[i]
        run(
            SQUARES,
            (count, 1, 1),
            SQUARES_OF_ONE_PUSH.pack(tensor.numel(), tensor.offset, start),
            tensor,
            parts,
        )
    return parts


def scale_in_place(tensors: Sequence[T], factor: TensorBase) -> list[T]:
    """Multiply tensors by one number in place, where one dispatch serves several of them.

    Nothing is recorded for gradients.

    Args:
        tensors: none of them empty.
        factor: a float32 tensor of one element.

    Returns:
        The tensors that were not multiplied: alone in a buffer, of other devices, dtypes or layouts, or on a
        device that does not build the kernel.

    >>> import dl4all as dl
    >>> x = dl.tensor([1.0, 2.0], device="cpu")
    >>> scale_in_place([x], dl.tensor(2.0, device="cpu")), x.tolist()
    ([], [2.0, 4.0])
    """
    device = factor.device
    rest, fitting = list[T](), list[T]()
    for tensor in tensors:
        fits = tensor.device is device and tensor.dtype == np.float32 and tensor.is_contiguous()
        (fitting if fits else rest).append(tensor)
    if not fitting:
        return rest
    if device.is_host:
        host_work("scale", _scale, [factor], fitting, kernel=WorkKernel("scale"))
        for tensor in fitting:
            tensor.storage.version += 1
        return rest
    plan = _plan(fitting, device, written=True)
    for batch in plan.batches:
        code = Launch(SCALE, (batch.groups, 1, 1), SCALE_PUSH.pack(*batch.rows))
        try:
            device.launch(code, batch.table, factor.storage, *batch.spans)
        except PipelineError:
            rest += [fitting[i] for i in batch.jobs]
            continue
        for i in batch.jobs:
            fitting[i].storage.version += 1
    return rest + [fitting[i] for i in plan.alone]


def _plan(tensors: Sequence[TensorBase], device: Device, *, written: bool) -> MultiTensorPlan:
    plans = device.tables.setdefault("norms", MultiTensor())
    plan: MultiTensorPlan = plans.plan(
        [(tensor,) for tensor in tensors], [Role(written=written)], slot=written
    )
    return plan
