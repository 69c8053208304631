"""Kernels of ``torch.amp.GradScaler`` on the device, without waiting for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dl4all import ops
from dl4all.ops.memory.copy import overwrite
from dl4all.optim.step.gradient_scale import unscale
from dl4all.pytorch.device.aten.optim.foreach import flat, lies_densely
from dl4all.pytorch.device.dispatch.registration import native
from dl4all.pytorch.device.storage.memory import NotNative, tensor


@native("_amp_foreach_non_finite_check_and_unscale_")
def non_finite_check_and_unscale(
    self: Sequence[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor
) -> None:
    """Multiply gradients by the inverse of their scale; `found_inf` becomes 1 if one is infinite or nan."""
    if found_inf.numel() != 1 or inv_scale.numel() != 1:
        raise NotNative("found_inf and inv_scale have one element each")
    dense = [one for one in self if lies_densely(one)]
    if dense:
        unscale([flat(one) for one in dense], tensor(inv_scale), tensor(found_inf))
    for one in self:
        if not lies_densely(one) and one.numel():
            found = one.isfinite().all().logical_not().to(found_inf.dtype)
            found_inf.copy_(torch.maximum(found_inf, found))
            one.mul_(inv_scale.to(one.dtype))


@native("_amp_update_scale_")
def update_scale(
    self: torch.Tensor,
    growth_tracker: torch.Tensor,
    found_inf: torch.Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> torch.Tensor:
    """Grow the scale after so many steps without an infinite gradient, and shrink it after one with."""
    scale, tracker = tensor(self), tensor(growth_tracker)
    found = ops.ne(tensor(found_inf), 0)
    count: Any = ops.add(tracker, 1)
    grows = ops.eq(count, growth_interval)
    larger = ops.mul(scale, scale_growth_factor)
    grown = ops.where(ops.logical_and(grows, ops.isfinite(larger)), larger, scale)
    overwrite(scale, ops.where(found, ops.mul(scale, scale_backoff_factor), grown))
    overwrite(tracker, ops.where(ops.logical_or(found, grows), 0, count))
    return self
