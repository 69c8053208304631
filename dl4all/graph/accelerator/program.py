"""The accelerator as users see it: a model of the hardware that compiles calls, and programs that run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dl4all.errors import ArgumentError
from dl4all.graph.accelerator.compiler import CompiledCall, compile_call
from dl4all.graph.accelerator.lowered_call import LoweredCall
from dl4all.graph.accelerator.machine import run_on_device
from dl4all.graph.accelerator.model import Dataflow, EnergyTable, Hardware
from dl4all.graph.accelerator.report import AcceleratorReport, report_of
from dl4all.graph.ir.graph import Operand, bound_bytes
from dl4all.graph.op_codes import simulator
from dl4all.graph.op_codes.disassembler import disassemble
from dl4all.graph.op_codes.instruction import OpProgram, words_of
from dl4all.ops.core.tensor_base import TensorBase, from_host
from dl4all.scheduler.device.current import device as device_of


@dataclass(frozen=True)
class AcceleratorModel:
    """An accelerator of certain sizes; :func:`accelerator_model` makes one."""

    hardware: Hardware

    def compile(self, function: Callable[..., Any], *args: Any) -> AcceleratorProgram:
        """The program of a call.

        Args:
            function: a module, or a function of tensors; returns a tensor, or a tuple or list of them.
            args: tensors on the CPU, and other values, which become part of the program.

        Raises:
            ArgumentError: an op has no instructions, or does not fit into the scratchpad.
        """
        return AcceleratorProgram(self.hardware, compile_call(function, args, self.hardware))

    def time(self, program: OpProgram) -> AcceleratorReport:
        """The report of a program written by hand (:func:`dl4all.graph.op_codes.assembler.parse`)."""
        return report_of(program, [""] * len(program.instructions), self.hardware, ())


def accelerator_model(
    array: tuple[int, int] = (16, 16),
    *,
    clock: float = 1e9,
    dram: float = 25.6e9,
    scratchpad: int = 1 << 20,
    lanes: int = 16,
    dataflow: Dataflow = "os",
    energy: EnergyTable | None = None,
) -> AcceleratorModel:
    """An accelerator with a systolic array, a vector unit and a scratchpad, which runs and times networks.

    Args:
        array: rows and columns of multiply-adders.
        clock: cycles a second.
        dram: bytes a second.
        scratchpad: bytes.
        lanes: elements that the vector unit takes in a cycle.
        dataflow: which operand stays in the array: ``"os"`` the outputs, ``"ws"`` the weights, ``"is"`` the
            inputs.
        energy: picojoules of operations; those of 45 nm unless given.

    Returns:
        A model whose ``compile(function, *tensors)`` gives a program: call it to run it, on the CPU or a
        device, and ask it for its ``report()``.

    Raises:
        ArgumentError: a size or rate is not positive.

    Example:
        >>> import dl4all as dl
        >>> accelerator = dl.accelerator_model(array=(8, 8))
        >>> program = accelerator.compile(dl.nn.Linear(32, 16), dl.ones(64, 32))
        >>> program(dl.ones(64, 32)).shape
        (64, 16)
        >>> report = program.report()
        >>> report.cycles > 16 * (2 * 8 + 8 + 32 - 2)  # 16 folds of the array, and the copies around them
        True
    """
    table = EnergyTable() if energy is None else energy
    return AcceleratorModel(Hardware(tuple(array), clock, dram, scratchpad, lanes, dataflow, table))  # type: ignore[arg-type]


class AcceleratorProgram:
    """A call as a program of the accelerator: call it with tensors like those it was compiled for."""

    def __init__(self, hardware: Hardware, compiled: CompiledCall) -> None:
        self.hardware = hardware
        self._compiled = compiled

    @property
    def program(self) -> OpProgram:
        """Registers, numbers, windows and instructions."""
        return self._compiled.program

    @cached_property
    def words(self) -> npt.NDArray[np.uint32]:
        """The program as the interpreter reads it."""
        return words_of(self.program)

    @property
    def text(self) -> str:
        """The program in the assembler's language."""
        return disassemble(self.words)

    def __call__(self, *inputs: TensorBase, device: Any = "cpu") -> Any:
        """Run the program.

        Args:
            inputs: as it was compiled for; weights are those that the model has now.
            device: ``"cpu"`` takes each instruction to NumPy, others run the interpreter kernel.

        Returns:
            What the function returned, on the CPU.

        Raises:
            ArgumentError: shapes or dtypes differ, or an index is out of range.
        """
        memory = self._memory(inputs)
        opened = device_of(device)
        if opened.is_host:
            simulator.run(self.words, memory)
        else:
            run_on_device(self.words, memory, opened)
        results = []
        call = self._compiled.call
        for register, operand in call.results:
            words = memory[register.offset + operand.offset : register.offset + register.elements]
            strides = [words.itemsize * stride for stride in operand.strides]
            view = np.lib.stride_tricks.as_strided(words, operand.shape, strides)
            array = view != 0 if operand.dtype == "bool" else view.view(operand.dtype)
            results.append(from_host(type(inputs[0]).result_class, array, inputs[0].device, copy=True))
        return results[0] if call.is_single else tuple(results)

    def report(self, *inputs: TensorBase) -> AcceleratorReport:
        """Cycles, the utilisation of each unit, bytes, energy, and where the time goes.

        Args:
            inputs: for a program with conditions or loops on values: which way it goes depends on them.

        Raises:
            ArgumentError: the program jumps, and there are no inputs.
        """
        jumps: list[bool] = []
        if inputs and any(instruction.name == "jump" for instruction in self.program.instructions):
            simulator.run(self.words, self._memory(inputs), jumps=jumps)
        return report_of(self.program, self._compiled.ops, self.hardware, jumps)

    def _memory(self, inputs: tuple[TensorBase, ...]) -> npt.NDArray[np.float32]:
        """DRAM and scratchpad before the program runs; words that nothing has written hold NaN."""
        call = self._compiled.call
        if len(inputs) != len(call.arguments):
            raise ArgumentError(f"[accelerator] takes {len(call.arguments)} tensors, got {len(inputs)}")
        given = dict[int, npt.NDArray[np.uint8]]()
        for tensor, operand in zip(inputs, call.arguments, strict=True):
            number = operand.value.buffer
            nbytes = bound_bytes(call.graph.buffers[number].nbytes)
            _write(given.setdefault(number, np.zeros(nbytes, np.uint8)), tensor, operand)
        memory = np.full(self.program.scratchpad.end, np.nan, np.float32)
        for one in _nested(call):
            _fill(memory, one, given if one is call else {})
        return memory


def _nested(call: LoweredCall) -> list[LoweredCall]:
    """A call, and the functions of its conditions and loops."""
    return [call, *(one for function in call.functions for one in _nested(function))]


def _fill(
    memory: npt.NDArray[np.float32], call: LoweredCall, given: dict[int, npt.NDArray[np.uint8]]
) -> None:
    """Write what a call is given, what it found, and what the host makes of both, into DRAM."""
    tracer, buffers = call.tracer, call.graph.buffers
    arguments = {operand.value.buffer for operand in call.arguments}
    found = {number: storage for number, (storage, _) in tracer.constants.items()} | tracer.outside
    contents = dict(given)
    for number, storage in found.items():
        if number in buffers and number not in arguments:
            contents[number] = np.zeros(bound_bytes(storage.nbytes), np.uint8)
            tracer.device.download(storage, contents[number][: storage.nbytes])
    for work in call.preparations:
        for binding in work.bindings:
            nbytes = bound_bytes(buffers[binding.buffer].nbytes)
            contents.setdefault(binding.buffer, np.zeros(nbytes, np.uint8))
        work.run(*(contents[b.buffer][b.offset : b.offset + b.nbytes] for b in work.bindings))
    for number, start, words, is_mask in call.placed:
        if number in contents:
            array = contents[number]
            memory[start : start + words] = array[:words] if is_mask else array.view(np.float32)[:words]


def _write(contents: npt.NDArray[np.uint8], tensor: TensorBase, operand: Operand) -> None:
    """Put an argument where the call found the one that it was compiled for.

    Raises:
        ArgumentError: it has another shape or dtype.
    """
    if tensor.shape != operand.shape or tensor.dtype.name != operand.dtype:
        raise ArgumentError(
            f"[accelerator] the program was compiled for shape {operand.shape} and {operand.dtype}, "
            f"got {tensor.shape} and {tensor.dtype.name}; compile it for that"
        )
    elements = contents.view(operand.dtype)[operand.offset :]
    strides = [stride * elements.itemsize for stride in operand.strides]
    np.lib.stride_tricks.as_strided(elements, operand.shape, strides)[...] = tensor.on_host()
