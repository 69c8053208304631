"""Listeners to ops: a profile, and tools that show regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dl4all.runtime import op_regions
from dl4all.runtime.profiler.recorder import Recorder
from dl4all.scheduler import listeners


class OpProfile(listeners.Listener):
    """Tells a recorder of ops."""

    __slots__ = ("_recorder",)
    counts_ops = True

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def op(self, op: Any, operands: list[Any], arguments: dict[str, Any], compute: Callable[[], Any]) -> Any:
        tensors = op.tensors_among(operands)
        device = str(tensors[0].device)
        shapes = tuple(tensor.shape for tensor in tensors)
        with self._recorder.op(op.name, device, shapes, op.kernel_class) as span:
            result = compute()
        nbytes, flops = op.bytes_and_flops(operands, arguments, result.shape, result.dtype)
        span.finish(result.storage, flops, nbytes)
        return result


class OpRegions(listeners.Listener):
    """Makes a region of each op."""

    __slots__ = ()

    def op(self, op: Any, operands: list[Any], arguments: dict[str, Any], compute: Callable[[], Any]) -> Any:
        with op_regions.within(op.name):
            return compute()


REGIONS = OpRegions()


def show_regions() -> None:
    """Make regions of ops from now on, if a device shows them to a tool."""
    if op_regions.watched:
        listeners.listen(REGIONS)
