"""softmax and its gradient along the last axis, a row at a time."""

from __future__ import annotations

import math

import numpy as np

from dl4all.ops.core.host_kernel import HostLaunch, Layout, host_kernel
from dl4all.ops.core.launch import NoKernel
from dl4all.ops.host_kernels.rows import grain_of, row_passes
from dl4all.runtime.cpu.llvm import functions, provider
from dl4all.runtime.cpu.llvm.ir import Module, Value, vector


@host_kernel("softmax")
def prepare_softmax(out: Layout, x: Layout, dim: int) -> HostLaunch:
    """
    Raises:
        NoKernel: the axis is not the last of a contiguous float32 array.
    """
    if (
        x.dtype != np.float32
        or not x.is_contiguous()
        or not x.shape
        or dim % len(x.shape) != len(x.shape) - 1
    ):
        raise NoKernel("other than rows of float32")
    columns = x.shape[-1]
    rows = math.prod(x.shape[:-1])
    return HostLaunch(softmax, (), 2, (rows, columns, grain_of(columns)), work=8 * rows * columns)


def softmax() -> Module:
    """Slots: x, result, rows, columns, rows of a chunk."""
    lanes = provider.processor().lanes()
    type = vector("float", lanes)
    module = Module()
    with module.part("rows") as part:
        _, begin, end = part.parameters
        x, out, columns = part.slot(0, "ptr"), part.slot(1, "ptr"), part.slot(3)
        with part.loop(begin, end) as row:
            source, target = (part.at(array, row * columns, "float") for array in (x, out))
            largest = part.variable(type, -math.inf)
            total = part.variable(type, 0.0)

            def widest(i: Value, mask: Value | None) -> None:
                value = part.load(source, i, type, mask)
                if mask is not None:
                    value = part.select(mask, value, -math.inf)
                largest.value = part.intrinsic("maximum", largest.value, value)

            row_passes(part, columns, lanes, widest)
            most = part.splat(part.largest_of(largest.value), lanes)

            def exponential(i: Value, mask: Value | None) -> None:
                value = functions.exp(part, part.load(source, i, type, mask) - most)
                part.store(value, target, i, mask)
                total.value = total.value + (value if mask is None else part.select(mask, value, 0.0))

            row_passes(part, columns, lanes, exponential)
            scale = part.splat(1.0 / part.sum_of(total.value), lanes)

            def scaled(i: Value, mask: Value | None) -> None:
                part.store(part.load(target, i, type, mask) * scale, target, i, mask)

            row_passes(part, columns, lanes, scaled)
    with module.kernel("softmax") as code:
        code.parallel(part, code.parameters[0], code.slot(2), code.slot(4))
    return module
