"""The rules of optimizers, and the kernels and the NumPy update that are made of each."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from typing import Any

import numpy.typing as npt

from dl4all.errors import PipelineError
from dl4all.ops.core.dtypes import FLOAT32, FLOATS, HALVES
from dl4all.ops.core.expressions.statements import print_glsl_statements, run_statements
from dl4all.ops.core.kernels.host_work import WorkKernel
from dl4all.ops.core.kernels.launch import run, stores_halves, strided_grid
from dl4all.ops.core.kernels.multi_tensor import BATCH_ROWS, Job, MultiTensor, Role
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.runtime.spirv import Shader
from dl4all.scheduler import fallback
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch

Constants = tuple[float, ...]
NDArray = npt.NDArray[Any]

WORKGROUP = 128
UPDATE = "update"  # the name of the CPU's kernels
RULES: dict[str, UpdateRule] = {}
"""The rules by the sources of their shaders."""


DESCENT = """
    g = sign * g
    g = weight_decay == 0.0 ? g : g + weight_decay * p
"""
"""The gradient to descend along. Without weight decay the parameter does not count: 0 * inf is nan."""

SOURCE = """#version 450
#extension GL_GOOGLE_include_directive : require
#define CONSTANTS float {constants};
#include "optim/parameter.glsl"
#include "math/special.glsl"

void change(inout Element e) {{
    {statements}
}}
"""


class UpdateRule:
    """The update of an element of a parameter and of its state, and the kernels that are made of it.

    Args:
        name: of the optimizer.
        states: names of the values of the state.
        constants: names of the constants of a step, in their order.
        statements: change the parameter ``p`` and the state by the gradient ``g``
            (:mod:`dl4all.ops.core.expressions.statements`).

    >>> import numpy as np
    >>> rule = UpdateRule("doubling", "", "rate", "p = p - rate * g")
    >>> p = np.array([1.0, 2.0])
    >>> rule.update(p, np.array([1.0, 1.0]), [], 0.5)
    >>> p.tolist()
    [0.5, 1.5]
    """

    def __init__(self, name: str, states: str, constants: str, statements: str) -> None:
        self.states, self.constants = tuple(states.split()), tuple(constants.split())
        self.statements = statements
        path, count = f"optim/{name}.comp", len(self.states)
        declared = f"float {', '.join(self.constants)};"
        source = SOURCE.format(constants=", ".join(self.constants), statements=self.glsl())
        self._one_push = PushBlock(path, f"uint n, p_offset, g_offset; {declared}", MULTI_TENSOR=0)
        self.batch_push = PushBlock(path, f"{BATCH_ROWS} {declared}", MULTI_TENSOR=1)
        self._single, self.of_many = (
            Shader(path, source=source).with_macros({"STATES": count, "MULTI_TENSOR": multi})
            for multi in (0, 1)
        )
        RULES[source] = self
        SHARED.extend((self._single, self.of_many))
        state = [Role(written=True, width=count)] if count else []
        self._roles = (Role(written=False), *state, Role(written=True))
        # What the CPU's compiled kernel is made of.
        self.host_kernel = WorkKernel(UPDATE, (self.states, self.constants, statements))

    def glsl(self, local: Container[str] = ()) -> str:
        """The statements for an ``Element e`` and constants ``c``, but for those that are variables."""
        names = {name: f"e.s[{position}]" for position, name in enumerate(self.states)}
        names |= {name: name if name in local else f"c.{name}" for name in self.constants}
        return print_glsl_statements(self.statements, {"p": "e.p", "g": "e.g", **names})

    def update(self, p: NDArray, g: NDArray, states: Sequence[NDArray], *constants: float) -> None:
        """Change arrays of a parameter and of its state in place, as the kernels do."""
        changed = {"p": p, **dict(zip(self.states, states, strict=True))}
        numbers = dict(zip(self.constants, constants, strict=True))
        run_statements(self.statements, {"g": g, **changed, **numbers}, changed)

    def launch(
        self, device: Device, jobs: Sequence[Job], constants: Constants, plans: MultiTensor, slot: Hashable
    ) -> dict[int, PipelineError]:
        """Update the last tensor of each job by the others: the gradient and, if there is one, the state.

        Returns:
            The numbers of the jobs that were not updated, because the driver builds no kernel for them.
        """
        batches: Sequence[Any] = ()
        alone = list(range(len(jobs)))
        if all(tensor.dtype == FLOAT32 for job in jobs for tensor in job):  # those of 16 bits are no words
            plan = plans.plan(jobs, self._roles, slot)
            batches, alone = plan.batches, list(plan.alone)
        for batch in batches:
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
    if p.dtype not in FLOATS or (p.dtype in HALVES and not stores_halves(device)):
        return fallback.no_dtype(device, dtype)
    if not p.is_contiguous():
        return fallback.no_layout(device, dtype)
    if not device.memory.binds(*(tensor.storage for tensor in (p, *others))):
        return fallback.too_large(device, dtype)
    return None
