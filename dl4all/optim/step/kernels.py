"""The kernels of optimizers on devices: for one parameter, and for many at once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from dl4all.errors import PipelineError
from dl4all.ops.core.kernels.launch import run, shader, strided_grid
from dl4all.ops.core.kernels.multi_tensor import BATCH_ROWS, Job, MultiTensor, Role
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.scheduler import fallback
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch

Constants = tuple[float | int, ...]

WORKGROUP = 128


class OptimizerKernels:
    """The shaders of an optimizer: for one parameter, and for many.

    Args:
        name: of the shader's file.
        states: values of the state for each element.
        constants: of a step, as the shader declares its CONSTANTS.
        defines: further macros.
    """

    def __init__(self, name: str, states: int, constants: str, **defines: Any) -> None:
        path = f"optim/{name}.comp"
        self._one_push = PushBlock(
            path, f"uint n, p_offset, g_offset; {constants}", STATES=states, MULTI_TENSOR=0, **defines
        )
        self.batch_push = PushBlock(
            path, f"{BATCH_ROWS} {constants}", STATES=states, MULTI_TENSOR=1, **defines
        )
        self._single, self.of_many = (
            shader(path, STATES=states, MULTI_TENSOR=multi, **defines) for multi in (0, 1)
        )
        SHARED.extend((self._single, self.of_many))
        state = [Role(written=True, width=states)] if states else []
        self._roles = (Role(written=False), *state, Role(written=True))

    def launch(
        self, device: Device, jobs: Sequence[Job], constants: Constants, plans: MultiTensor, slot: Hashable
    ) -> dict[int, PipelineError]:
        """Update the last tensor of each job by the others: the gradient and, if there is one, the state.

        Returns:
            The numbers of the jobs that were not updated, because the driver builds no kernel for them.
        """
        plan = plans.plan(jobs, self._roles, slot)
        alone = list(plan.alone)
        for batch in plan.batches:
            push = self.batch_push.pack(*batch.rows, *constants)
            try:
                device.launch(Launch(self.of_many, (batch.groups, 1, 1), push), batch.table, *batch.spans)
            except PipelineError:
                alone += batch.jobs
        refused: dict[int, PipelineError] = {}
        for number in alone:
            job = jobs[number]
            push = self._one_push.pack(job[-1].numel(), job[-1].offset, job[0].offset, *constants)
            try:
                run(self._single, strided_grid(job[-1].numel(), WORKGROUP, job[-1].device), push, *job)
            except PipelineError as error:
                refused[number] = error.with_traceback(None)  # its frames hold the tensors
        for number, job in enumerate(jobs):
            if number not in refused:
                for tensor in job[1:]:
                    tensor.storage.version += 1
        return refused


def no_kernel_of(p: TensorBase, *others: TensorBase) -> fallback.Cause | None:
    """Why kernels cannot update a parameter on a device, with its gradient and state; None if they can."""
    device, dtype = p.device, p.dtype.name
    if p.dtype != np.float32:
        return fallback.no_dtype(device, dtype)
    if not p.is_contiguous():
        return fallback.no_layout(device, dtype)
    if not device.memory.binds(*(tensor.storage for tensor in (p, *others))):
        return fallback.too_large(device, dtype)
    return None
