"""Dividing gradients by their scale, where training in float16 multiplied the loss by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dl4all.errors import ArgumentError
from dl4all.ops.core.kernels.host_work import WorkKernel, host_work
from dl4all.ops.core.kernels.launch import shader
from dl4all.ops.core.kernels.multi_tensor import Role, recent_plans
from dl4all.ops.core.kernels.push_block import PushBlock
from dl4all.ops.core.op import SHARED
from dl4all.ops.core.tensor_base import TensorBase
from dl4all.scheduler.device.programs import Launch

UNSCALE_PUSH = PushBlock(
    "optim/unscale.comp",
    "uint first_row, last_row, workgroup_elements, factor_offset, found_offset;",
)
UNSCALE = shader("optim/unscale.comp")
SHARED.append(UNSCALE)


def unscale(gradients: Sequence[TensorBase], factor: TensorBase, found: TensorBase) -> None:
    """Multiply gradients by a number in place, and find out whether one was infinite or nan.

    Args:
        gradients: contiguous tensors of float32 on one device, not empty.
        factor: a tensor of float32 with one element.
        found: as `factor`; becomes 1 if an element of a gradient is infinite or nan.

    Raises:
        ArgumentError: calls are captured.

    >>> import dl4all as dl
    >>> g, found = dl.tensor([1.0, float("inf")], device="cpu"), dl.tensor(0.0, device="cpu")
    >>> unscale([g], dl.tensor(0.5, device="cpu"), found)
    >>> g.tolist(), found.item()
    ([0.5, inf], 1.0)
    """
    device = found.device
    if device.is_host:
        host_work("unscale", _unscale_arrays, [factor], [found, *gradients], kernel=WorkKernel("unscale"))
    else:
        plan = recent_plans(device).plan("unscale", [(one,) for one in gradients], [Role(True)], every=True)
        if plan.alone:
            raise ArgumentError("[unscale] gradients cannot be unscaled while calls are captured")
        for batch in plan.batches:
            push = UNSCALE_PUSH.pack(*batch.rows, factor.offset, found.offset)
            code = Launch(UNSCALE, (batch.groups, 1, 1), push)
            device.launch(code, batch.table, factor.storage, found.storage, *batch.spans)
    for changed in (*gradients, found):
        changed.storage.version += 1


def _unscale_arrays(factor: Any, found: Any, *gradients: Any) -> None:
    """The same for arrays."""
    for array in gradients:
        if not np.isfinite(array).all():
            found[...] = 1.0
        array *= factor.item()
