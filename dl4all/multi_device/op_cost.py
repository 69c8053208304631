"""What one op takes on a device, predicted from the shapes of its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dl4all.errors import ArgumentError
from dl4all.ops.core.op import Op
from dl4all.runtime.work import Work
from dl4all.scheduler.cost_model import speeds
from dl4all.scheduler.device import Device


def op_work(op: Callable[..., Any], *operands: Any, **arguments: Any) -> Work:
    """The work of a call, which is not made.

    Args:
        op: such as ``dl.relu``.
        operands, arguments: as for the call; of tensors only shapes and dtypes matter.

    Raises:
        ArgumentError: it is no op, but a function of ops; or as the call would.
        ShapeError, DTypeError: as the call would.

    Example:
        >>> import dl4all as dl
        >>> op_work(dl.ops.matmul, dl.zeros(2, 3), dl.zeros(3, 5))
        Work(launches=1.0, nbytes=124.0, flops={'linalg.matmul': 60.0})
    """
    if not isinstance(op, Op):
        raise ArgumentError(
            f"[op_work] expected an op, got {op!r}; take those that it calls, or trace a module that calls it"
        )
    tensors, named = op.bind(operands, arguments)
    op.check_operands(tensors)
    shape, dtype = op.infer(*tensors, **named)
    nbytes, flops = op.bytes_and_flops(tensors, named, shape, dtype)
    work = Work()
    work.count(op.kernel_class, nbytes, flops)
    return work


def op_seconds(op: Callable[..., Any], device: Device, *operands: Any, **arguments: Any) -> float:
    """How long a call is expected to take on a device, wherever its operands are now.

    Args:
        op, operands, arguments: see :func:`op_work`.
        device: any device; the operands are not moved there.

    Raises:
        ArgumentError, ShapeError, DTypeError: see :func:`op_work`.

    Example:
        >>> import dl4all as dl
        >>> from dl4all.scheduler.simulation import simulated_device
        >>> device = simulated_device(gflops=1.0, gb_per_s=1e9, launch_us=0.0)
        >>> round(op_seconds(dl.ops.matmul, device, dl.zeros(100, 100), dl.zeros(100, 100)), 6)
        0.002
    """
    return op_work(op, *operands, **arguments).seconds(speeds(device))
