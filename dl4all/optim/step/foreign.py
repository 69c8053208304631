"""Steps of optimizers whose tensors someone else allocated, such as PyTorch's.

Each tensor of the state has memory of its own, and the number of steps of each parameter lies on its device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core.kernels.launch import shader
from dl4all.ops.core.kernels.multi_tensor import Job, Role, recent_plans
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import OPTIONAL_SHADERS
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.optim import adam, sgd
from dl4all.optim.step.host_step import update_jobs
from dl4all.optim.step.kernels import Constants
from dl4all.runtime.spirv import Shader
from dl4all.scheduler.device.programs import Launch

COUNTED_ADAM_PUSH = PushBlock(
    "optim/counted_adam.comp",
    "uint first_row, last_row, workgroup_elements; float sign, weight_decay, shrink, one_minus_beta1, "
    "beta2, one_minus_beta2, lr, log_beta1, log_beta2, eps;",
)
COUNTED_ADAM, COUNTED_AMSGRAD = (
    shader(
        "optim/counted_adam.comp", MAXIMUM=maximum, CHANGE=rule.glsl(local=("step_size", "root_correction2"))
    )
    for maximum, rule in enumerate((adam.ADAM, adam.AMSGRAD))
)
OPTIONAL_SHADERS.extend((COUNTED_ADAM, COUNTED_AMSGRAD))

GRADIENT, WRITTEN, COUNT = Role(written=False), Role(written=True), Role(written=False, single=True)
FEWEST_BINDINGS = 7
"""Buffers that the kernels of Adam bind, some more than every device allows."""


class AdamOptions(NamedTuple):
    """The options of Adam, with the decay of the parameter itself apart from that of the gradient."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    decoupled: bool
    maximize: bool

    def rates(self) -> Constants:
        """The constants up to the learning rate."""
        decay = 0.0 if self.decoupled else self.weight_decay
        shrink = 1.0 - self.lr * self.weight_decay if self.decoupled else 1.0
        sign = -1.0 if self.maximize else 1.0
        return (sign, decay, shrink, 1.0 - self.beta1, self.beta2, 1.0 - self.beta2)


class SGDOptions(NamedTuple):
    """The options of stochastic gradient descent."""

    lr: float
    momentum: float
    dampening: float
    weight_decay: float
    nesterov: bool
    maximize: bool


def takes(tensors: Sequence[TensorBase]) -> bool:
    """Whether steps can be computed with these tensors, all of one device, where they lie.

    >>> import dl4all as dl
    >>> takes([dl.tensor([1.0], device="cpu")])
    True
    """
    device = tensors[0].device
    return all(t.dtype == np.float32 and t.device is device and t.is_contiguous() for t in tensors) and (
        device.is_host or device.info.limits.storage_buffers >= FEWEST_BINDINGS
    )


def sgd_step(jobs: Sequence[Job], options: SGDOptions) -> None:
    """A step of stochastic gradient descent.

    Args:
        jobs: for each parameter its gradient, its sum of gradients if there is momentum, and itself:
            contiguous tensors of float32, not empty.
        options: of the step.
    """
    sign = -1.0 if options.maximize else 1.0
    weight = 1.0 - options.dampening
    rates = (sign, options.weight_decay, options.lr, options.momentum, weight, float(options.nesterov))
    rule = sgd.MOMENTUM if len(jobs[0]) > 2 else sgd.PLAIN
    if jobs[0][0].device.is_host:
        ordered = [(gradient, parameter, *states) for gradient, *states, parameter in jobs]
        update_jobs("SGD", rule, ordered, rates)
        return
    _launch(rule.of_many, rule.batch_push, jobs, [GRADIENT, *[WRITTEN] * (len(jobs[0]) - 1)], rates)


def adam_step(jobs: Sequence[Job], options: AdamOptions) -> None:
    """A step of Adam.

    Args:
        jobs: for each parameter its gradient, mean, mean of squares, with AMSGrad the largest of these, the
            number of steps including this one, and itself: contiguous tensors of float32, not empty.
        options: of the step.
    """
    rates, amsgrad = options.rates(), len(jobs[0]) > 5
    if jobs[0][0].device.is_host:
        by_step: dict[float, list[Job]] = {}
        for gradient, *states, count, parameter in jobs:
            by_step.setdefault(float(count.on_host().item()), []).append((gradient, parameter, *states))
        for step, ordered in by_step.items():
            size = options.lr / (1.0 - options.beta1**step)
            root = math.sqrt(1.0 - options.beta2**step)
            rule = adam.AMSGRAD if amsgrad else adam.ADAM
            update_jobs("Adam", rule, ordered, (*rates, size, root, options.eps))
        return
    logarithms = (_logarithm(options.beta1), _logarithm(options.beta2))
    roles = [GRADIENT, *[WRITTEN] * (3 if amsgrad else 2), COUNT, WRITTEN]
    code = COUNTED_AMSGRAD if amsgrad else COUNTED_ADAM
    _launch(code, COUNTED_ADAM_PUSH, jobs, roles, (*rates, options.lr, *logarithms, options.eps))


def _logarithm(rate: float) -> float:
    """The logarithm of a decay rate; for 0 a number whose exponential is 0."""
    return math.log(rate) if rate > 0 else -1e30


def _launch(
    code: Shader, block: PushBlock, jobs: Sequence[Job], roles: Sequence[Role], constants: Constants
) -> None:
    """Update the tensors of all jobs, in as few dispatches as their memory allows."""
    device = jobs[0][0].device
    plan = recent_plans(device).plan(code, jobs, roles, every=True)
    if plan.alone:
        raise ArgumentError("[optim] a step of foreign tensors cannot be captured")
    for batch in plan.batches:
        push = block.pack(*batch.rows, *constants)
        device.launch(Launch(code, (batch.groups, 1, 1), push), batch.table, *batch.spans)
    _count(jobs)


def _count(jobs: Sequence[Job]) -> None:
    """Count the change of each tensor of the jobs but the gradients."""
    for job in jobs:
        for tensor in job[1:]:
            tensor.storage.version += 1
