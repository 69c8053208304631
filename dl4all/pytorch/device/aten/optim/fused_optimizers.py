"""Whole steps of Adam, AdamW and SGD: ``fused=True`` of PyTorch's optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dl4all.optim.step.foreign import AdamOptions, SGDOptions, adam_step, sgd_step, takes
from dl4all.pytorch.device.aten.optim.foreach import flat
from dl4all.pytorch.device.dispatch.registration import native
from dl4all.pytorch.device.storage.memory import NotNative

LAYOUT_REFUSAL = "a fused step takes dense tensors of float32 that lie alike in memory"


def _jobs(
    parameters: Sequence[Any], lists: Sequence[Sequence[Any]], counts: Sequence[Any] | None
) -> list[Any]:
    """The tensors of each parameter that is not empty: those of the lists, its count of steps, and itself.

    Raises:
        NotNative: some cannot be updated where they lie.
    """
    jobs = []
    for at, parameter in enumerate(parameters):
        if not parameter.numel():
            continue
        own = [one[at] for one in lists]
        if any(one.stride() != parameter.stride() or one.shape != parameter.shape for one in own):
            raise NotNative(LAYOUT_REFUSAL)
        job = [flat(one) for one in own]
        if counts is not None:
            job.append(flat(counts[at]))
        job.append(flat(parameter))
        if not takes(job) or any(one.numel() != job[-1].numel() for one in job[: len(own)]):
            raise NotNative(LAYOUT_REFUSAL)
        jobs.append(tuple(job))
    return jobs


def _prepared(grads: Sequence[Any], grad_scale: Any, found_inf: Any) -> bool:
    """Whether the step is to be made; gradients are divided by their scale then.

    This waits for the device where a GradScaler says whether a gradient was infinite.
    """
    if found_inf is not None and found_inf.item():
        return False
    if grad_scale is not None:
        torch._foreach_div_(list(grads), grad_scale)
    return True


def _adam(decoupled: bool) -> Any:
    def step(
        self: Sequence[Any],
        grads: Sequence[Any],
        exp_avgs: Sequence[Any],
        exp_avg_sqs: Sequence[Any],
        max_exp_avg_sqs: Sequence[Any],
        state_steps: Sequence[Any],
        *,
        lr: Any,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Any = None,
        found_inf: Any = None,
    ) -> None:
        states = [exp_avgs, exp_avg_sqs, *([max_exp_avg_sqs] if amsgrad else [])]
        jobs = _jobs(self, [grads, *states], state_steps)
        options = AdamOptions(float(lr), beta1, beta2, eps, weight_decay, decoupled, maximize)
        if _prepared(grads, grad_scale, found_inf) and jobs:
            adam_step(jobs, options)

    return step


def sgd(
    self: Sequence[Any],
    grads: Sequence[Any],
    momentum_buffer_list: Sequence[Any],
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Any = None,
    found_inf: Any = None,
) -> None:
    buffers = [momentum_buffer_list] if momentum else []
    jobs = _jobs(self, [grads, *buffers], None)
    if not _prepared(grads, grad_scale, found_inf) or not jobs:
        return
    if is_first_step and momentum:  # the sums are not initialized yet
        torch._foreach_zero_(list(momentum_buffer_list))
        dampening = 0.0
    sgd_step(jobs, SGDOptions(float(lr), momentum, dampening, weight_decay, nesterov, maximize))


native("_fused_adam_", "_fused_adam_.tensor_lr")(_adam(decoupled=False))
native("_fused_adamw_", "_fused_adamw_.tensor_lr")(_adam(decoupled=True))
native("_fused_sgd_", "_fused_sgd_.tensor_lr")(sgd)
