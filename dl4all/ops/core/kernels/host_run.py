"""A call of an op on the host: by its NumPy body, or by a compiled kernel in the body's place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dl4all.ops.core.dtypes import HALVES
from dl4all.ops.core.kernels import host_kernel
from dl4all.ops.core.kernels.host_work import body_call, holds_elements, host_work
from dl4all.ops.core.limits import out_of_memory
from dl4all.ops.core.primitives import primitives
from dl4all.ops.core.tensor_base import Shape, TensorBase, from_host
from dl4all.runtime.profiler import recorder
from dl4all.scheduler import fallback, listeners
from dl4all.scheduler.device.device import Device


def empty(cls: type[TensorBase], shape: Shape, dtype: np.dtype[Any], device: Any, tag: str = "") -> Any:
    """A contiguous tensor with undefined contents; `tag` names its purpose, for example the op."""
    nbytes = dtype.itemsize
    for size in shape:
        nbytes *= size
    return cls(device.allocate(nbytes, tag), shape, dtype, device)


class HostRun:
    """The part of an op that runs it on the host."""

    name: str
    body: Callable[..., Any]
    arguments: tuple[str, ...]
    kernel_class: str
    flops: Callable[..., int] | None
    moves: bool
    compute: Callable[..., Any]

    def run_on_host(
        self,
        first: TensorBase,
        operands: list[Any],
        arguments: dict[str, Any],
        shape: Shape,
        dtype: np.dtype[Any],
        cause: fallback.Cause | None = None,
        *,
        compiled: bool = True,
    ) -> Any:
        """Run the NumPy body; operands are downloaded and the result is uploaded where that is needed.

        `cause` says why the operands' device does not compute; None on the CPU, where a compiled kernel may
        take the body's place unless `compiled` says that there is none.

        Raises:
            FallbackError: there is a cause, and the policy forbids it.
            OutOfMemoryError
        """
        if not self.moves and self.has_halves(operands):
            compiled = compiled and first.device.is_host
            if not compiled or self.prepare_on_host(operands, arguments, shape, dtype) is None:
                return self.compute_in_float32(operands, arguments, dtype)
        if cause is not None:
            with fallback.on_host(self.name, first.device, cause):
                return self.run_on_host(first, operands, arguments, shape, dtype)
        if first.device.simulated is not None:
            self._simulate(first.device, operands, arguments, shape, dtype)
            if not first.device.simulated.computes:
                return empty(type(first).result_class, shape, dtype, first.device, self.name)
        if first.device.is_host and listeners.captured():
            launch = None
            if not holds_elements(arguments):
                given = host_kernel.with_tensors(arguments, first)
                _, tensors = body_call(self.name, self.body, operands, arguments)
                read = sum(isinstance(value, TensorBase) for value in (*operands, *given.values()))
                if read == len(tensors):  # the body reads no array that it was given beside them
                    launch, operands = self._launch_or_copies(operands, given, shape, dtype)
            call, tensors = body_call(self.name, self.body, operands, arguments)
            out = empty(type(first).result_class, shape, dtype, first.device, self.name)
            host_work(self.name, call, tensors, [out], launch=launch)
            return out
        if compiled and first.device.is_host:
            given = arguments
            if host_kernel.kernel_of(self.name) is not None:
                given = host_kernel.with_tensors(arguments, first)
            launch, operands = self._launch_or_copies(operands, given, shape, dtype)
            if launch is not None:
                return self._launch_on_host(launch, first, operands, given, shape, dtype)
        arrays = [o.on_host() if isinstance(o, TensorBase) else o for o in operands]
        active = recorder.active
        body: Callable[..., Any] = self.body
        if active is not None and first.device.simulated is None:  # whose kernel is in the profile already
            where = first.device.name if first.device.is_host else "cpu"
            body = active.on_host(self.name, body, where)
        counters = first.device.counters
        counters.host_kernels += 1
        try:
            with np.errstate(all="ignore"):  # inf and nan come out quietly, as on every other device
                result = np.asarray(body(*arrays, **arguments), dtype)
        except MemoryError:
            raise out_of_memory(self.name, shape, dtype) from None
        finally:
            counters.host_finished += 1
        if result.shape != shape:
            raise AssertionError(f"[{self.name}] inferred {shape}, computed {result.shape}")
        # A body may return a view of its operand, which must not share memory with the result.
        shared = any(isinstance(a, np.ndarray) and np.may_share_memory(a, result) for a in arrays)
        return from_host(type(first).result_class, result, first.device, copy=shared, tag=self.name)

    @staticmethod
    def has_halves(operands: list[Any]) -> bool:
        """Whether one is a tensor of floats of 16 bits."""
        return any(isinstance(o, TensorBase) and o.dtype in HALVES for o in operands)

    def compute_in_float32(self, operands: list[Any], arguments: dict[str, Any], dtype: np.dtype[Any]) -> Any:
        """Widen operands of 16 bits, compute, and round the result to `dtype`, all on the device."""
        cast = primitives.cast
        wide = [
            cast.compute([o], {"dtype": "float32"}) if isinstance(o, TensorBase) and o.dtype in HALVES else o
            for o in operands
        ]
        result = self.compute(wide, arguments)
        return result if result.dtype == dtype else cast.compute([result], {"dtype": dtype.name})

    def prepare_on_host(
        self, operands: Sequence[Any], arguments: dict[str, Any], shape: Shape, dtype: np.dtype[Any]
    ) -> host_kernel.HostLaunch | None:
        """The compiled kernel for these operands; None where the body computes."""
        layouts = [host_kernel.layout_or_value(operand) for operand in operands]
        given = {name: host_kernel.layout_or_value(value) for name, value in arguments.items()}
        return self.launch_for(host_kernel.ArrayLayout(shape, dtype), layouts, given)

    def _launch_or_copies(
        self, operands: list[Any], arguments: dict[str, Any], shape: Shape, dtype: np.dtype[Any]
    ) -> tuple[host_kernel.HostLaunch | None, list[Any]]:
        """The compiled kernel and its operands: copies of some, if it takes only contiguous ones."""
        launch = self.prepare_on_host(operands, arguments, shape, dtype)
        if launch is not None or self.name not in host_kernel.COPYING:
            return launch, operands
        layouts = [host_kernel.contiguous_or_value(operand) for operand in operands]
        given = {name: host_kernel.layout_or_value(value) for name, value in arguments.items()}
        launch = self.launch_for(host_kernel.ArrayLayout(shape, dtype), layouts, given)
        return launch, operands if launch is None else self.contiguous_operands(operands)

    @staticmethod
    def contiguous_operands(operands: list[Any]) -> list[Any]:
        """The operands with copies of those tensors that are not contiguous; the same list if all are."""
        if all(operand.is_contiguous() for operand in operands if isinstance(operand, TensorBase)):
            return operands
        return [
            primitives.clone.compute([operand], {})
            if isinstance(operand, TensorBase) and not operand.is_contiguous()
            else operand
            for operand in operands
        ]

    def launch_for(
        self, out: host_kernel.ArrayLayout, operands: Sequence[Any], arguments: dict[str, Any]
    ) -> host_kernel.HostLaunch | None:
        """The compiled kernel for layouts in the places of tensors; None where the body computes."""
        return host_kernel.prepare(self.name, out, operands, arguments)

    def _launch_on_host(
        self,
        launch: host_kernel.HostLaunch,
        first: TensorBase,
        operands: list[Any],
        arguments: dict[str, Any],
        shape: Shape,
        dtype: np.dtype[Any],
    ) -> Any:
        """Run a compiled kernel where somebody follows each step."""
        given = (*operands, *(arguments[name] for name in self.arguments))
        plan = host_kernel.HostPlan(launch, given, shape, dtype, self.name)
        storages = [tensor.storage for tensor in given if isinstance(tensor, TensorBase)]
        active = recorder.active
        run: Callable[..., Any] = plan.run
        if active is not None and first.device.simulated is None:  # whose kernel is in the profile already
            nbytes = self.bytes_and_flops(operands, arguments, shape, dtype)[0]
            run = active.on_host(self.name, run, first.device.name, nbytes)
        return run(first, storages)

    def _simulate(
        self,
        device: Device,
        operands: list[Any],
        arguments: dict[str, Any],
        shape: Shape,
        dtype: np.dtype[Any],
    ) -> None:
        """Let the time pass that a simulated device takes for this op."""
        assert device.simulated is not None
        for operand in operands:
            if isinstance(operand, TensorBase):
                operand.storage.settle()
        nbytes, flops = self.bytes_and_flops(operands, arguments, shape, dtype)
        device.simulated.launch(self.kernel_class, nbytes, flops)

    def bytes_and_flops(
        self, operands: list[Any], arguments: dict[str, Any], shape: Shape, dtype: np.dtype[Any]
    ) -> tuple[int, int]:
        """The bytes of a call's operands and result, and its floating point operations, 0 if undeclared."""
        nbytes = math.prod(shape) * dtype.itemsize
        for operand in operands:
            if isinstance(operand, TensorBase):
                nbytes += operand.numel() * operand.dtype.itemsize
        return nbytes, 0 if self.flops is None else self.flops(*operands, **arguments)
