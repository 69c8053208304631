"""The ops of one call of a module, heard on the null device: nothing is computed, and no memory is filled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dl4all.allocator.storage import Storage
from dl4all.autograd.grad_mode import no_grad
from dl4all.errors import GraphError
from dl4all.graph.ir.graph import Operand, Value
from dl4all.graph.tracing.trace import Tracer, run
from dl4all.onnx.graph import NDArray
from dl4all.ops.core.arguments.mixed_devices import MixedDevices
from dl4all.ops.core.op import Op
from dl4all.ops.core.tensor_base import TensorBase, contiguous_strides
from dl4all.ops.indexing.device_indices import AXES, CHECK_PUSH
from dl4all.ops.indexing.indices import Indices
from dl4all.ops.random.generator import RANDOM
from dl4all.quantization.weights import QuantizedWeight
from dl4all.runtime.null.backend import NullBackend, describe
from dl4all.scheduler.device.device import Device
from dl4all.scheduler.device.programs import Launch
from dl4all.scheduler.index_errors import calling_line
from dl4all.scheduler.listeners.capture import lock
from dl4all.scheduler.push_constants import Again

MOST_BYTES = 2**32 - 4  # of one buffer
CHECK = "indexing/check_indices.comp"
"""The program that copies indices of a device to int32, wraps and scales them, beside any op."""


@functools.cache
def recording_device() -> Device:
    """A device that computes nothing, and takes buffers of any size that kernels can count."""
    info = describe()
    limits = replace(info.limits, storage_buffer_range=MOST_BYTES, allocation_size=MOST_BYTES)
    return Device.of_backend("null:export", NullBackend(replace(info, memory=1 << 50, limits=limits)))


@dataclass
class OpCall:
    """One op with its operands as they were."""

    name: str
    operands: list[Any]  # Operand, number, None, or the array of an index
    arguments: dict[str, Any]
    result: Operand
    line: str


class BufferFill(NamedTuple):
    """Words of a buffer that are filled with one."""

    buffer: int
    word: int
    first: int
    words: int


@dataclass
class CallRecording:
    """The ops, kernel functions and uploads of one call of a module."""

    calls: list[OpCall | BufferFill] = field(default_factory=list)
    arrays: dict[int, NDArray] = field(default_factory=dict)  # uploaded contents by buffer
    unheard: dict[int, str] = field(default_factory=dict)  # the lines that wrote buffers in another way
    nbytes: dict[int, int] = field(default_factory=dict)  # of buffers that are written
    dtypes: dict[int, str] = field(default_factory=dict)  # of the elements in buffers
    names: dict[int, str] = field(default_factory=dict)  # of parameters and buffers of the module
    inputs: list[Operand] = field(default_factory=list)
    outputs: list[Operand] = field(default_factory=list)


class OpRecorder(Tracer):
    """A tracer that keeps each op as it was called."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.recording = CallRecording()
        self._within = False  # a kernel function

    def op(
        self, op: Op[...], operands: list[Any], arguments: dict[str, Any], compute: Callable[[], Any]
    ) -> Any:
        if self._call is not None or self._within:
            return compute()
        call = self._called(op.name, operands, arguments)
        count = len(self.nodes)
        result = super().op(op, operands, arguments, compute)
        if len(self.nodes) > count:  # a view is no node
            self._keep(call, result)
        return result

    def kernel_function(
        self, name: str, operands: Sequence[Any], arguments: dict[str, Any], compute: Callable[[], Any]
    ) -> Any:
        if self._call is not None or self._within:
            return compute()
        call = self._called(name, operands, arguments)
        self._within = True
        try:
            result = compute()
        finally:
            self._within = False
        if result is not None and result.device is self.device:
            self._keep(call, result)
        return result

    def _called(self, name: str, operands: Sequence[Any], arguments: dict[str, Any]) -> Callable[..., OpCall]:
        """A call but for its result, with operands as they are before it."""
        kept = {key: self._argument(value) for key, value in arguments.items()}
        return partial(OpCall, name, [self._argument(operand) for operand in operands], kept)

    def _keep(self, call: Callable[..., OpCall], result: TensorBase) -> None:
        operand = self.operand(result)
        self.recording.nbytes[operand.value.buffer] = result.storage.nbytes
        self.recording.calls.append(call(operand, _line()))

    def _argument(self, value: Any) -> Any:
        """Tensors and the buffers of quantised weights as operands; indices as one, or as an array."""
        if isinstance(value, QuantizedWeight):
            buffers = {name: self.operand(buffer) for name, buffer in value.named_buffers()}
            return {**buffers, "format": getattr(value, "format", None)}
        if isinstance(value, Indices):
            tensor = value.tensor_operand()
            value = np.asarray(value.array) if tensor is None else tensor
        listened = isinstance(value, TensorBase) and value.device is self.device
        return self.operand(value) if listened else value

    def operand(self, tensor: TensorBase) -> Operand:
        operand = super().operand(tensor)
        self.recording.dtypes[operand.value.buffer] = operand.dtype
        return operand

    def _listens(self, device: Device) -> bool:
        """Whether a device computes the module; the CPU beside it gets nothing of the inputs."""
        return not self._is_beside(device) and super()._listens(device)

    def vary(self, name: str, numbers: Sequence[int | float], again: Again) -> list[Any]:
        if name == RANDOM:
            self.refused("draws random numbers")
        return super().vary(name, numbers, again)

    def launching(
        self, device: Device, launch: Launch, writes: Sequence[bool], storages: Sequence[Storage]
    ) -> bool:
        if self._call is None and not self._within:
            written = {self._number(s) for s, write in zip(storages, writes, strict=True) if write}
            if launch.shader.path == CHECK:
                self.recording.calls.append(self._checked(launch, storages))
            else:
                self.recording.unheard.update(dict.fromkeys(written, _line()))
        return super().launching(device, launch, writes, storages)

    def _checked(self, launch: Launch, storages: Sequence[Storage]) -> OpCall:
        """The copy of indices: as an op of the axes that the program goes over."""
        push, macros = CHECK_PUSH.read(bytes(launch.push)), launch.shader.macros
        kind = ("" if macros["SIGNED"] else "u") + f"int{8 * macros['BYTES']}"
        first = AXES - push.axes
        sizes, strides, grid = (
            tuple(int(getattr(push, f"{name}_{i}")) for i in range(first, AXES))
            for name in ("sizes", "x_strides", "y_strides")
        )
        values = [Value(self._number(storage), 0) for storage in (storages[0], storages[-1])]
        source = Operand(values[0], sizes, kind, strides, push.x_offset)
        target = Operand(values[1], sizes, "int32", contiguous_strides(sizes))
        arguments = {"scale": push.scale, "size": push.size, "wraps": push.lowest < 0, "grid": grid}
        arguments["ignores"] = bool(push.has_ignored)
        added = [target] if macros["ADD"] else []
        return OpCall("check_indices", [source, *added], arguments, target, _line())

    def filling(self, device: Device, storage: Storage, word: int, first: int, count: int) -> bool:
        if self._call is None and not self._within:
            number = self._number(storage)
            self.recording.nbytes[number] = storage.nbytes
            self.recording.calls.append(BufferFill(number, word, first, count))
        return super().filling(device, storage, word, first, count)

    def uploaded(self, device: Device, storage: Storage, array: NDArray) -> None:
        super().uploaded(device, storage, array)
        if self._listens(device):
            self.recording.arrays[self._number(storage)] = np.array(array)


def flat(result: Any) -> Iterator[Any]:
    """The members of tuples, lists and dicts within each other."""
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, (tuple, list)):
        for one in result:
            yield from flat(one)
    else:
        yield result


def _line() -> str:
    """The line of the user's code that runs."""
    return calling_line().strip(" ()").removeprefix("called at ")


def record(module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> CallRecording:
    """The ops of a call, for a module and tensors on the null device.

    Raises:
        GraphError: it reads elements on the host, or does what no graph can; the message names the line.
    """
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, TensorBase)]
    if not tensors:
        raise GraphError("[onnx.export] expected a tensor among the arguments")
    recorder = OpRecorder(tensors[0].device)
    recording = recorder.recording
    named = [*module.named_parameters(), *module.named_buffers()]
    recording.names = {recorder.number_of(tensor): name for name, tensor in named}
    with lock, no_grad(), tensors[0].device:
        try:
            result = run(recorder, lambda: module(*args, **kwargs))
        except MixedDevices as error:
            raise GraphError(
                f"[onnx.export] a tensor that was put on a device by name meets the inputs: {error}; make it "
                "a buffer of the module, or with device=x.device"
            ) from error
    if recorder.refusal:
        raise GraphError(f"[onnx.export] the module {recorder.refusal}; an ONNX graph cannot do that")
    recording.inputs = [recorder.operand(tensor) for tensor in tensors]
    outputs = list(flat(result))
    wrong = next((type(one).__name__ for one in outputs if not isinstance(one, TensorBase)), None)
    if wrong is not None:
        raise GraphError(f"[onnx.export] expected a tensor or a tuple of tensors as the result, got {wrong}")
    recording.outputs = [recorder.operand(tensor) for tensor in outputs]
    return recording
