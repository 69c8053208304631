"""Dispatches of multi-tensor launches, when the memory of their tensors is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dl4all.allocator.storage import Storage
from dl4all.graph.ir.graph import Binding, MultiTensorLaunch
from dl4all.ops.core.kernels.launch import pack
from dl4all.ops.core.kernels.multi_tensor import BATCH_PUSH, MultiTensor, Role
from dl4all.ops.core.kernels.push_block import words_of
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.protocols import Span
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch

ROW_BYTES = BATCH_PUSH.size
"""Push constants in front of ``MultiTensorLaunch.push``: in a dispatch varying words lie that much later."""


def expand(
    launch: MultiTensorLaunch, tensor_of: Callable[[Binding], TensorBase], device: Device, plans: MultiTensor
) -> list[tuple[Launch, tuple[Storage, ...]]]:
    """The dispatches of a launch, and what each binds; one if all tensors lie in the same few buffers.

    Args:
        launch: the launch.
        tensor_of: gives the float32 words of a binding as a tensor, on `device`.
        device: runs the dispatches.
        plans: keeps the table that they read, as long as it lives; the next call with the same launch
            writes over it.

    Raises:
        OutOfMemoryError
    """
    jobs = [tuple(map(tensor_of, job)) for job in launch.jobs]
    roles = [Role(written, width) for written, width in zip(launch.writes, launch.widths, strict=True)]
    before, after = (
        [_piece(tensor_of(binding)) for binding in bindings] for bindings in (launch.before, launch.after)
    )
    dispatches, groups = list[tuple[Launch, tuple[Storage, ...]]](), 0
    for batch in plans.batches(jobs, roles, launch, launch.group_elements):
        push = launch.push
        if launch.numbered:
            push = pack(words_of(push)[0] + groups) + push[4:]
        grid = (batch.groups, 1, 1)
        dispatch = replace(launch.launch, groups=grid, push=BATCH_PUSH.pack(*batch.rows) + push)
        dispatches.append((dispatch, (batch.table, *before, *batch.spans, *after)))
        groups += batch.groups
    return dispatches


def _piece(tensor: TensorBase) -> Storage:
    """A storage of a contiguous tensor's words alone."""
    storage, nbytes = tensor.storage, 4 * tensor.numel()
    if tensor.offset == 0 and storage.nbytes == nbytes:
        return storage
    span = Span(storage.buffer, storage.span.offset + 4 * tensor.offset, nbytes)
    return Storage(span, nbytes, storage.allocation, storage)
