"""The extent of a dispatch's accesses to each of its buffers, recorded by the shader itself.

A driver without robust access lets a shader read and write whatever lies behind what is bound, and no result
need show it. :func:`instrument` rewrites a SPIR-V module: before each load, store and atomic it notes the
index, and at its end each invocation raises the largest ones in one more storage buffer.
:func:`compared` dispatches rewritten programs in place of a device's own, binds no byte more than was asked
for, and compares; reading the last vector of four as a whole is allowed. ``DL4ALL_TEST_INDICES=1`` does so
for every test of a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from dl4all.allocator.allocation import aligned
from dl4all.allocator.storage import Storage
from dl4all.runtime import requirements
from dl4all.runtime.protocols import VECTOR, Dispatch, Ran, Span
from dl4all.runtime.requirements import MAX_BINDINGS
from dl4all.runtime.spirv import SpirvModule
from dl4all.runtime.spirv.instructions import Declarations, instruction, instructions
from dl4all.runtime.spirv.parser import Decoration, Instructions, SpirvOp, Tables, parse, tabulate
from dl4all.runtime.spirv.parser import StorageClass as StorageClass
from dl4all.runtime.spirv.reflect import reflect
from dl4all.runtime.spirv.texel_buffers import WITHOUT_POINTERS
from dl4all.runtime.vulkan.buffer import VulkanBuffer
from dl4all.runtime.vulkan.program import VulkanProgram
from dl4all.runtime.vulkan.stream import VulkanStream
from dl4all.scheduler.device.device import Device

EXT_INST_IMPORT, EXT_INST, TYPE_RUNTIME_ARRAY, LOAD, STORE = 11, 12, 29, 61, 62
ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN, ARRAY_LENGTH, IADD, IMUL, RETURN = 65, 66, 68, 128, 132, 253
ATOMIC_LOAD, ATOMIC_STORE, ATOMIC_UMAX, LAST_ATOMIC = 227, 228, 239, 242
TYPE_DECLARATIONS = range(19, 40)
BLOCK, PRIVATE = 2, 6
UMIN, UMAX = 38, 41  # of GLSL.std.450
GLSL = struct.unpack("<4I", b"GLSL.std.450\0\0\0\0")
SLOT_WORDS = (
    64  # numbers that a dispatch records, one a variable; 256 bytes, from which every device can bind
)
SLOTS = 512


class Variable(NamedTuple):
    """A view of a buffer within a shader: its binding, bytes of a component, and components of an element."""

    binding: int
    nbytes: int
    components: int


class Chain(NamedTuple):
    """A pointer into a buffer: ids of the variable, the element's index, and the component, 0 for all."""

    variable: int
    element: int
    component: int


class Instrumented(NamedTuple):
    """A module that records, and the variables whose numbers it records, in order."""

    module: SpirvModule
    variables: tuple[Variable, ...]


def instrument(module: SpirvModule) -> Instrumented:
    """The module with one more binding, in which it counts the components up to the last one that it uses.

    Raises:
        ValueError: it uses a pointer to a buffer in a way that is not known here.
    """
    words = struct.unpack(f"<{len(module.code) // 4}I", module.code)
    ops = parse(module.code)
    tables = tabulate(ops)
    variables = _variables(ops, tables)
    if len(variables) > SLOT_WORDS:
        raise ValueError(f"{module.name} has {len(variables)} buffers")
    begin = next(at for opcode, at, _ in instructions(words) if opcode in TYPE_DECLARATIONS)
    end = next(at for opcode, at, _ in instructions(words) if opcode == SpirvOp.FUNCTION)
    recorder = _Recorder(Declarations(words[3], ops, tables), variables, ops)
    body = recorder.body(words, end, module.name)
    binding = 1 + max((binding.index for binding in module.interface.bindings), default=-1)
    annotations = recorder.annotations(binding)
    head = (*words[:3], recorder.declarations.bound, *words[4:begin])
    code = [*head, *annotations, *words[begin:end], *recorder.declarations.words, *body]
    made = struct.pack(f"<{len(code)}I", *code)
    rewritten = dataclasses.replace(module, code=made, interface=reflect(made, module.name))
    return Instrumented(rewritten, tuple(variables.values()))


def _variables(ops: Instructions, tables: Tables) -> dict[int, Variable]:
    elements = {args[0]: args[1] for args in ops[TYPE_RUNTIME_ARRAY]}
    found = {}
    for pointer, variable, storage, *_ in ops[SpirvOp.VARIABLE]:
        if storage != StorageClass.STORAGE_BUFFER:
            continue
        (array,) = tables.types[tables.types[pointer][1][1]][1]  # a block's one member
        opcode, operands = tables.types[elements[array]]
        components = operands[1] if opcode == SpirvOp.TYPE_VECTOR else 1
        nbytes = tables.decorations[array][Decoration.ARRAY_STRIDE] // components
        found[variable] = Variable(tables.decorations[variable][Decoration.BINDING], nbytes, components)
    return found


class _Recorder:
    """Instructions that record, and what they need declared.

    Each invocation keeps its own numbers in variables, and raises those of all at its end: atomics at each
    access would take longer than the shader.
    """

    def __init__(self, declarations: Declarations, variables: dict[int, Variable], ops: Instructions) -> None:
        self.declarations, self._variables = declarations, variables
        self._glsl = next(args[0] for args in ops[EXT_INST_IMPORT] if args[1:5] == GLSL)
        self._entry = ops[SpirvOp.ENTRY_POINT][0][1]
        self._uint = declarations.type(SpirvOp.TYPE_INT, 32, 0)
        self._numbers = [self._constant(i) for i in range(max(len(variables), 5))]
        self._largest_index = self._constant(0xFFFFFFFF // 4 - 1)  # times four components, plus these
        self._array, self._block, self._record = (declarations.id() for _ in range(3))
        self._declare(TYPE_RUNTIME_ARRAY, self._array, self._uint)
        self._declare(SpirvOp.TYPE_STRUCT, self._block, self._array)
        buffer = StorageClass.STORAGE_BUFFER
        pointer = declarations.type(SpirvOp.TYPE_POINTER, buffer, self._block)
        self._declare(SpirvOp.VARIABLE, pointer, self._record, buffer)
        self._word = declarations.type(SpirvOp.TYPE_POINTER, buffer, self._uint)
        private = declarations.type(SpirvOp.TYPE_POINTER, PRIVATE, self._uint)
        self._counts = {variable: declarations.id() for variable in variables}
        for id in self._counts.values():
            self._declare(SpirvOp.VARIABLE, private, id, PRIVATE, self._numbers[0])

    def _declare(self, opcode: int, *operands: int) -> None:
        self.declarations.words += instruction(opcode, *operands)

    def _constant(self, value: int) -> int:
        id = self.declarations.id()
        self._declare(SpirvOp.CONSTANT, self._uint, id, value)
        return id

    def annotations(self, binding: int) -> list[int]:
        """The record's layout."""
        return [
            *instruction(SpirvOp.DECORATE, self._array, Decoration.ARRAY_STRIDE, 4),
            *instruction(SpirvOp.DECORATE, self._block, BLOCK),
            *instruction(SpirvOp.MEMBER_DECORATE, self._block, 0, Decoration.OFFSET, 0),
            *instruction(SpirvOp.DECORATE, self._record, Decoration.DESCRIPTOR_SET, 0),
            *instruction(SpirvOp.DECORATE, self._record, Decoration.BINDING, binding),
        ]

    def body(self, words: Sequence[int], start: int, name: str) -> list[int]:
        """The functions, with a count before each access."""
        chains: dict[int, Chain] = {}
        body: list[int] = []
        function = 0
        for opcode, at, end in instructions(words):
            if at < start:
                continue
            operands = words[at + 1 : end]
            if opcode == SpirvOp.FUNCTION:
                function = operands[1]
            if opcode in (ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN) and operands[2] in self._variables:
                _, id, variable, _, index, *component = operands
                chains[id] = Chain(variable, index, component[0] if component else 0)
            elif opcode in (ACCESS_CHAIN, IN_BOUNDS_ACCESS_CHAIN) and operands[2] in chains:
                chains[operands[1]] = chains[operands[2]]._replace(component=operands[3])
            elif _pointer(opcode, operands) in chains:
                body += self._count(chains[_pointer(opcode, operands)])
            elif opcode == RETURN and function == self._entry:
                body += self._raise()
            elif opcode not in (*WITHOUT_POINTERS, ARRAY_LENGTH) and not (
                chains.keys().isdisjoint(operands) and self._variables.keys().isdisjoint(operands)
            ):
                raise ValueError(f"{name} uses a pointer to a buffer in an instruction {opcode}")
            body += words[at:end]
        return body

    def _count(self, chain: Chain) -> list[int]:
        counted, new_id, uint = self._counts[chain.variable], self.declarations.id, self._uint
        components = self._variables[chain.variable].components
        component = chain.component or self._numbers[components - 1]
        before, index, first, last, count, after = (new_id() for _ in range(6))
        return [
            *instruction(EXT_INST, uint, index, self._glsl, UMIN, chain.element, self._largest_index),
            *instruction(IMUL, uint, first, index, self._numbers[components]),
            *instruction(IADD, uint, last, first, component),
            *instruction(IADD, uint, count, last, self._numbers[1]),
            *instruction(LOAD, uint, before, counted),
            *instruction(EXT_INST, uint, after, self._glsl, UMAX, before, count),
            *instruction(STORE, counted, after),
        ]

    def _raise(self) -> list[int]:
        zero, device_scope, new_id, uint = *self._numbers[:2], self.declarations.id, self._uint
        body: list[int] = []
        for number, counted in zip(self._numbers, self._counts.values(), strict=False):
            value, word = new_id(), new_id()
            body += instruction(LOAD, uint, value, counted)
            body += instruction(ACCESS_CHAIN, self._word, word, self._record, zero, number)
            body += instruction(ATOMIC_UMAX, uint, new_id(), word, device_scope, zero, value)
        return body


def _pointer(opcode: int, operands: Sequence[int]) -> int:
    """The id of the pointer through which an instruction reads or writes, or 0."""
    if opcode in (STORE, ATOMIC_STORE):
        return operands[0]
    return operands[2] if opcode in (LOAD, *range(ATOMIC_LOAD, LAST_ATOMIC + 1)) else 0


_instrumented: dict[bytes, Instrumented] = {}


class _Noted(NamedTuple):
    """A dispatch whose indices are to be compared."""

    name: str
    variables: tuple[Variable, ...]
    nbytes: tuple[int, ...]  # of each span, those that may be used


@contextlib.contextmanager
def compared(device: Device) -> Iterator[BufferIndices]:
    """Compare the indices of what `device` dispatches within.

    Raises:
        AssertionError: one lies beyond what was bound.
    """
    with pytest.MonkeyPatch.context() as patch:
        indices = BufferIndices(device, patch)
        try:
            yield indices
            problems = Counter(indices.compare())
        finally:
            indices.close()
    assert not problems, "\n".join(f"{problem} ({count} times)" for problem, count in problems.items())


class BufferIndices:
    """The largest indices of dispatches of vulkan's streams; `problems` are those beyond what was bound."""

    def __init__(self, device: Device, patch: pytest.MonkeyPatch) -> None:
        """Follow what `device` dispatches from now on, each command by itself."""
        self.problems: list[str] = []
        self.names: set[str] = set()
        self._programs: dict[VulkanProgram, tuple[VulkanProgram, tuple[Variable, ...]]] = {}
        self._noted: dict[VulkanStream, list[_Noted]] = {}
        self._records: dict[VulkanStream, VulkanBuffer] = {}
        dispatch, allocate = VulkanStream.dispatch, Device.allocate

        def followed(stream: VulkanStream, command: Dispatch, ran: Ran | None = None) -> None:
            own = stream._backend is device._backend
            dispatch(stream, self._with_record(stream, command) if own else command, ran)

        def tight(device: Device, nbytes: int, tag: str = "") -> Storage:
            storage = allocate(device, nbytes, tag)
            if not device.is_host and storage.buffer is not None:
                storage.span = storage.span._replace(nbytes=aligned(max(nbytes, 1), 4))
            return storage

        patch.setattr(requirements, "MAX_BINDINGS", MAX_BINDINGS + 1)
        patch.setattr(VulkanStream, "dispatch", followed)
        patch.setattr(Device, "allocate", tight)
        patch.setattr(device, "replays", False)

    def _with_record(self, stream: VulkanStream, command: Dispatch) -> Dispatch:
        program, variables = self._recording_program(command.program)
        noted = self._noted.setdefault(stream, [])
        if len(noted) == SLOTS:
            self._compare(stream)
        if stream not in self._records:
            self._records[stream] = stream._backend.allocate(4 * SLOT_WORDS * SLOTS)
        record = self._records[stream]
        if not noted:
            stream.upload(Span(record, 0, record.nbytes), np.zeros(record.nbytes, np.uint8))
        slot = Span(record, 4 * SLOT_WORDS * len(noted), 4 * SLOT_WORDS)
        usable = (
            span.nbytes if written else aligned(span.nbytes, VECTOR)
            for span, written in zip(command.spans, program.writes, strict=False)
        )  # fmt: skip
        noted.append(_Noted(program.module.name, variables, tuple(usable)))
        self.names.add(program.module.name)
        return command._replace(program=program, spans=[*command.spans, slot])

    def _recording_program(self, program: VulkanProgram) -> tuple[VulkanProgram, tuple[Variable, ...]]:
        if program not in self._programs:
            code = program.module.code
            module, variables = _instrumented[code] = _instrumented.get(code) or instrument(program.module)
            self._programs[program] = VulkanProgram(program._backend, module, program._constants), variables
        return self._programs[program]

    def compare(self) -> list[str]:
        """Wait for what was dispatched, and compare its indices with what was bound."""
        for stream in tuple(self._noted):
            if stream._backend._device is not None:  # a test may close a device
                self._compare(stream)
        return self.problems

    def _compare(self, stream: VulkanStream) -> None:
        noted, record = self._noted[stream], self._records[stream]
        largest = np.empty((SLOTS, SLOT_WORDS), np.uint32)
        stream.download(Span(record, 0, record.nbytes), largest.view(np.uint8).reshape(-1))
        for row, (name, variables, nbytes) in zip(largest.tolist(), noted, strict=False):
            for count, (binding, unit, _) in zip(row, variables, strict=False):
                if count * unit > nbytes[binding]:
                    self.problems.append(
                        f"{name} uses number {count - 1} of {unit} bytes of binding {binding}, "
                        f"to which {nbytes[binding]} bytes are bound"
                    )
        noted.clear()

    def close(self) -> None:
        """Free what was made for it, once nothing uses it any more."""
        for stream in self._records:
            if stream._backend._device is not None:
                stream.synchronize()
        for program, _ in self._programs.values():
            program.free()  # not again, if its device is closed
        for record in self._records.values():
            record.free()
